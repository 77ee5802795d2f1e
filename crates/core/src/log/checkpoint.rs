//! Map checkpoints: each leaf is written to the slot that the durable root does not use, then a root.
//!
//! A checkpoint runs beside requests: a leaf is written as it is at that moment, so it may already hold effects of chunks sealed
//! later than the checkpoint's `seq`. That is sound because replay from `seq` on gives the same map whether or not a leaf has
//! seen some of it, and because the root is written only when every chunk that any leaf may have seen is durable.
//!
//! This decides which [`Step`] is next, and has no effects. The engine carries the steps out, and reports what has happened.

mod ahead;
mod leaf_blocks;
mod leaves;
mod open_summaries;
mod root_pieces;

use super::head::{HEADS, Head};
use super::sums::Sums;
use crate::addr::{BLOCK_BYTES, Generation, Leaf, Life, Segment, Seq};
use crate::format::Crc;
use crate::format::root::{Cursor, FreeSegments, LeafSlot, RootHeader};
use crate::format::root_image::RootImage;
use crate::format::slots::Slots;
use crate::format::superblock::Superblock;
use crate::limits;
use ahead::Ahead;
pub(crate) use ahead::{Mask, PARITY};
use alloc::vec::Vec;
pub(crate) use leaf_blocks::Block;
use leaf_blocks::LeafBlocks;
use open_summaries::OpenSummaries;
pub(crate) use root_pieces::RootPiece;
use root_pieces::RootPieces;

/// What has to be done next for a map checkpoint, and which event follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Seal the open chunks of these heads: [`on_begun`](Checkpoint::on_begun).
    Begin(&'static [Head]),
    /// Make void what recovery has passed over: [`on_void_begun`](Checkpoint::on_void_begun).
    Void,
    /// Write this stripe's leaves, once all that its parity is computed from is read: [`on_stripe_begun`](Checkpoint::on_stripe_begun).
    Stripe(u32),
    /// Seal the open chunks of both heads, because all leaves are on the medium: [`on_heads_sealed`](Checkpoint::on_heads_sealed).
    Seal,
    /// Begin a sync when everything up to this chunk is written: [`on_sync_begun`](Checkpoint::on_sync_begun).
    Sync(Seq),
    /// Decide what the root says: [`on_root_begun`](Checkpoint::on_root_begun).
    Root,
    /// Write the next piece of a copy of the root: [`next_piece`](Checkpoint::next_piece).
    Piece,
}

/// What a checkpoint depends on that others know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The number of leaves that a checkpoint would write.
    pub dirty: u64,
    /// True if what has changed takes too much memory.
    pub is_too_dirty: bool,
    /// True if a leaf is being read from a slot that the checkpoint may write.
    pub is_behind: bool,
    pub is_stopping: bool,
    /// True if the host's open chunk has links to shared pages.
    pub links: bool,
    /// The newest chunk that is durable with all before it.
    pub durable: Seq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Overwriting the headers of a root that recovery has passed over.
    Voiding,
    /// Writing leaves, from this stripe on.
    Leaves(u32),
    /// Everything up to this chunk, and every leaf, must be durable before the root.
    Settle(Seq),
    /// The sync for `Settle` is in flight.
    Sync(Seq),
    /// That sync is complete. The root says up to which chunk the log is durable, so it waits until that includes this one.
    Synced(Seq),
    /// The root is being written, durably.
    Root,
    /// The superblock is being made to record the root, durably. Nothing that the previous root needs is freed before that: otherwise
    /// recovery could not tell a root that was damaged later from one whose write was cut short.
    Mark,
    /// A write has failed, so nothing may follow.
    Failed,
}

/// The map checkpoint that is being written, and the newest one.
pub(crate) struct Checkpoint {
    is_due: bool,
    phase: Phase,
    /// True if a checkpoint is due, or was the last to begin, because leaves were restored: before a stop, and during it.
    has_restored: [bool; 2],
    /// True if the place of the next root holds one that recovery has passed over.
    has_passed_over: bool,
    /// The number of stripes of leaves.
    stripes: u32,
    /// The durable root.
    root: RootHeader,
    /// The next root, so far: what is known when the checkpoint begins, and the rest when its root is written.
    next: RootHeader,
    /// Where the durable root's leaves are.
    slots: Slots,
    /// The segments that are free according to the next root.
    free: FreeSegments,
    /// How far a sweep for duplicates has come; see [`RootHeader::swept`].
    swept: u32,
    /// How far a scrub has come; see [`RootHeader::scrubbed`].
    scrubbed: u32,
    /// What has been written to the log since the last checkpoint began.
    log: Written,
    /// Segments whose summaries are being written, with their newest chunks.
    summaries: Vec<(Segment, Seq)>,
    /// The writes of this checkpoint that are in flight.
    in_flight: usize,
    /// The slots of the leaves that this checkpoint wrote, for the next root.
    staged: Vec<(Leaf, LeafSlot)>,
    /// The leaves being written.
    blocks: LeafBlocks,
    /// Blocks read for parities.
    ahead: Ahead,
    /// Summaries of open segments, written with the root.
    open: OpenSummaries,
    /// What has to be written of the root.
    pieces: RootPieces,
}

#[derive(Clone, Copy, Debug, Default)]
struct Written {
    blocks: u64,
    chunks: u64,
}

impl Checkpoint {
    /// Continues from the root that recovery found, which leads to leaves in these slots. It sets them, for all who have them.
    pub fn new(root: RootHeader, slots: Slots, stripes: u32) -> Self {
        let pieces = RootPieces::new(slots.count() as u32);
        Self {
            is_due: false,
            phase: Phase::Idle,
            has_restored: [false; 2],
            has_passed_over: false,
            stripes,
            root,
            next: root,
            slots,
            free: FreeSegments::default(),
            swept: root.swept,
            scrubbed: root.scrubbed,
            log: Written::default(),
            summaries: Vec::new(),
            in_flight: 0,
            staged: Vec::new(),
            blocks: LeafBlocks::default(),
            ahead: Ahead::default(),
            open: OpenSummaries::default(),
            pieces,
        }
    }

    /// Notes what recovery found. `has_passed_over`: the place of the next root holds a root that recovery passed over, or the rest of one.
    /// `is_due`: a checkpoint is due.
    pub fn on_opened(&mut self, has_passed_over: bool, is_due: bool) {
        self.has_passed_over = has_passed_over;
        self.due_if(is_due);
    }

    /// True if none is being written.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// The newest chunk that the durable root includes.
    pub fn durable_seq(&self) -> Seq {
        self.root.seq
    }

    /// The durable root's generation.
    pub fn generation(&self) -> Generation {
        self.root.generation
    }

    /// The generation of the root after the durable one.
    pub fn next_generation(&self) -> Generation {
        Generation(self.root.generation.0 + 1)
    }

    /// How far a sweep for duplicates has come.
    pub fn swept(&self) -> u32 {
        self.swept
    }

    /// How far a scrub has come.
    pub fn scrubbed(&self) -> u32 {
        self.scrubbed
    }

    /// True if the newest root includes all chunks up to `last`, and the progress of the passes.
    pub fn holds_all(&self, last: Seq) -> bool {
        let kept = (self.next.swept, self.next.scrubbed);
        last == self.root.seq && (self.swept, self.scrubbed) == kept
    }

    /// Makes a checkpoint begin as soon as it can, if `is_due`.
    pub fn due_if(&mut self, is_due: bool) {
        self.is_due |= is_due;
    }

    /// Notes that damaged leaves were restored: a checkpoint writes them again. If reads of the medium go on failing, each such checkpoint
    /// finds further damaged leaves. So only one checkpoint is due for them until one begins for another reason, and one more during a
    /// stop. What no checkpoint has written again is restored once more at the next opening.
    pub fn on_restored(&mut self, is_stopping: bool) {
        let had = core::mem::replace(&mut self.has_restored[usize::from(is_stopping)], true);
        self.due_if(!had);
    }

    /// Notes how far a sweep has come. With `keep`, a root has to record it soon.
    pub fn on_swept(&mut self, to: u32, keep: bool) {
        self.swept = to;
        self.due_if(keep && to != self.next.swept);
    }

    /// The same of a scrub.
    pub fn on_scrubbed(&mut self, to: u32, keep: bool) {
        self.scrubbed = to;
        self.due_if(keep && to != self.next.scrubbed);
    }

    /// Notes that a chunk of `blocks` blocks was added to the log.
    #[inline]
    pub fn on_sealed(&mut self, blocks: u32) {
        self.log.blocks += u64::from(blocks);
        self.log.chunks += 1;
    }

    /// Notes that a summary is going to be written: it covers the segment's chunks up to `last`.
    pub fn on_summary_begun(&mut self, segment: Segment, last: Seq) {
        self.summaries.push((segment, last));
    }

    /// Notes that a summary is on the medium.
    pub fn on_summary_written(&mut self, segment: Segment) {
        let index = self.summaries.iter().position(|(of, _)| *of == segment);
        debug_assert!(index.is_some(), "segment {segment}: no summary was begun");
        if let Some(index) = index {
            self.summaries.swap_remove(index);
        }
    }

    /// Returns the next step, if there is one now. Call it again when the step is carried out and reported.
    pub fn poll(&self, now: &Now) -> Option<Step> {
        match self.phase {
            Phase::Idle if self.may_begin(now) => Some(Step::Begin(heads_to_seal(now))),
            Phase::Leaves(0) if self.has_passed_over => Some(Step::Void),
            Phase::Leaves(stripe) if stripe < self.stripes => {
                (self.in_flight < limits::META_IN_FLIGHT).then_some(Step::Stripe(stripe))
            }
            Phase::Leaves(_) => (self.in_flight == 0).then_some(Step::Seal),
            Phase::Settle(_) => self.poll_sync(),
            Phase::Synced(seq) if now.durable >= seq => Some(Step::Root),
            Phase::Voiding | Phase::Root if self.pieces.are_left() => {
                (self.in_flight < limits::ROOT_PIECES_IN_FLIGHT).then_some(Step::Piece)
            }
            _ => None,
        }
    }

    /// Returns the step [`Step::Sync`], if it is the next.
    pub fn poll_sync(&self) -> Option<Step> {
        let Phase::Settle(seq) = self.phase else {
            return None;
        };
        // The checkpoint frees the headers that these summaries repeat; segments closed since it began are replayed from their
        // headers.
        let mut summaries = self.summaries.iter();
        let repeats = summaries.any(|(_, last)| *last <= self.next.seq);
        (!repeats).then_some(Step::Sync(seq))
    }

    fn may_begin(&self, now: &Now) -> bool {
        let (least, most) = limits::LOG_BLOCKS_BETWEEN_CHECKPOINTS;
        let is_due = self.is_due
            || now.is_too_dirty
            || self.log.chunks >= limits::CHUNKS_BETWEEN_CHECKPOINTS
            || self.log.blocks
                >= (now.dirty * limits::LOG_BLOCKS_PER_DIRTY_LEAF).clamp(least, most);
        is_due && !now.is_behind
    }

    /// Notes that the checkpoint has begun: `seq` of `life` is the newest chunk, and the heads are at `cursors`.
    pub fn on_begun(&mut self, seq: Seq, life: Life, cursors: [Cursor; 2]) {
        self.has_restored[0] &= self.is_due;
        self.is_due = false;
        self.next.seq = seq;
        self.next.life = life;
        self.next.cursors = cursors;
        self.phase = Phase::Leaves(0);
        self.ahead.begin();
        self.log = Written::default();
    }

    /// Begins to make void what recovery has passed over.
    pub fn on_void_begun(&mut self, superblock: &Superblock) {
        self.has_passed_over = false;
        self.phase = Phase::Voiding;
        let next = self.next_generation();
        self.pieces.begin_to_void(superblock, next);
    }

    /// Notes that the leaves of a stripe are being written.
    pub fn on_stripe_begun(&mut self, stripe: u32) {
        self.phase = Phase::Leaves(stripe + 1);
    }

    /// Notes that a leaf is on the medium, or that its write has failed.
    pub fn on_leaf_written(&mut self, leaf: Leaf, failed: bool) {
        self.in_flight -= 1;
        self.blocks.written(leaf);
        self.fail_if(failed);
    }

    /// Notes that both heads are sealed, `last` being the newest chunk: it and all before it may be seen in a leaf.
    pub fn on_heads_sealed(&mut self, last: Seq) {
        self.phase = Phase::Settle(last);
    }

    /// Notes that the checkpoint's sync has begun.
    pub fn on_sync_begun(&mut self, superblock: &Superblock, sums: &Sums, crc: Crc) {
        if let Phase::Settle(seq) = self.phase {
            self.open.keep(superblock, sums, &self.next, crc);
            self.phase = Phase::Sync(seq);
        }
    }

    /// Notes that a sync is complete.
    pub fn on_synced(&mut self) {
        if let Phase::Sync(seq) = self.phase {
            self.phase = Phase::Synced(seq);
        }
    }

    /// The segments that the next root names as free: to be listed just before [`Checkpoint::on_root_begun`].
    pub fn free_mut(&mut self) -> &mut FreeSegments {
        &mut self.free
    }

    /// Decides what the next root says: what is known now. `on_rooted` gets the leaves that were written. At most `piece` of its blocks are
    /// written at once.
    pub fn on_root_begun(
        &mut self,
        superblock: &Superblock,
        crc: Crc,
        durable: Seq,
        piece: u32,
        mut on_rooted: impl FnMut(Leaf),
    ) {
        self.phase = Phase::Root;
        for (leaf, slot) in self.staged.drain(..) {
            self.slots.set(leaf, slot);
            self.pieces.on_moved(leaf);
            on_rooted(leaf);
        }
        self.next.generation = self.next_generation();
        self.next.durable = durable;
        self.next.swept = self.swept;
        self.next.scrubbed = self.scrubbed;
        let table_sum = self.image(crc).table_sum(superblock.root_blocks());
        self.pieces
            .begin(superblock, self.next.generation, table_sum, piece);
    }

    /// Takes the next piece of the root to be written.
    pub fn next_piece(&mut self) -> Option<RootPiece> {
        let piece = self.pieces.next()?;
        self.in_flight += 1;
        Some(piece)
    }

    /// Makes the next root in each place be written whole.
    pub fn write_whole_roots(&mut self) {
        self.pieces.forget();
    }

    fn image(&self, crc: Crc) -> RootImage<'_> {
        RootImage {
            header: &self.next,
            slots: &self.slots,
            free: &self.free,
            crc,
        }
    }

    /// Encodes a piece of the next root, or of nothing where a root becomes void.
    pub fn encode_root(&self, superblock: &Superblock, crc: Crc, piece: RootPiece, out: &mut [u8]) {
        if self.phase == Phase::Voiding {
            return out.fill(0);
        }
        let blocks = superblock.root_blocks();
        let own = blocks.saturating_sub(piece.first) as usize * BLOCK_BYTES;
        let (root, behind) = out.split_at_mut(own.min(out.len()));
        let image = self.image(crc);
        image.encode(piece.first, self.pieces.table_sum(), root);
        if !behind.is_empty() {
            let first = piece.first.saturating_sub(blocks) as usize * BLOCK_BYTES;
            behind.copy_from_slice(&self.open.bytes()[first..][..behind.len()]);
        }
    }

    /// Notes that a piece of the root is durable, or that its write has failed. Returns the root to be marked, once all pieces are.
    pub fn on_root_written(&mut self, failed: bool) -> Option<Generation> {
        self.in_flight -= 1;
        self.fail_if(failed);
        if self.in_flight > 0 || self.pieces.are_left() {
            return None;
        }
        match self.phase {
            Phase::Voiding => self.phase = Phase::Leaves(0),
            Phase::Root => {
                self.phase = Phase::Mark;
                return Some(self.next.generation);
            }
            _ => {}
        }
        None
    }

    /// Notes that the superblock records the root. Chunks name this root only from now on: until it is marked, recovery may use the
    /// previous one.
    pub fn on_marked(&mut self) {
        self.root = self.next;
        self.phase = Phase::Idle;
    }

    fn fail_if(&mut self, failed: bool) {
        if failed {
            self.phase = Phase::Failed;
        }
    }
}

/// The heads whose open chunks a checkpoint has to seal before it begins.
fn heads_to_seal(now: &Now) -> &'static [Head] {
    match (now.is_stopping, now.links) {
        // A clean shutdown's checkpoint includes everything, so that nothing is replayed.
        (true, _) => &HEADS,
        // So that replay from this checkpoint on sees neither of two things. A link to a shared page whose number this checkpoint frees:
        // the page may have become plain since, and replay learns that only at its end. A pledge that ends now: its blocks may be
        // absorbed from here on.
        (false, true) => &[Head::Hot],
        (false, false) => &[],
    }
}

#[cfg(test)]
mod tests;
