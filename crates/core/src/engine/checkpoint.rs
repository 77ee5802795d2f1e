//! Map checkpoints: leaf after leaf to the slot that the durable root does not use, then a root.
//!
//! It runs beside the requests: a leaf is written as it is at that moment, so it may already hold effects
//! of chunks sealed later than the checkpoint's `seq`. That is sound because replay from `seq` on gives
//! the same map whether or not a leaf has seen some of it, and because the root is written only when every
//! chunk that any leaf may have seen is durable.

use super::leaf_blocks::LeafBlocks;
use super::open_summaries::OpenSummaries;
use super::sums::Sums;
use super::{Engine, Pending};
use crate::addr::{BLOCK_BYTES, EffectId, Generation, Leaf, Life, Pba, Segment, Seq};
use crate::format::Crc;
use crate::format::root::{self, Cursor, LeafSlot, RootHeader};
use crate::format::superblock::Superblock;
use crate::limits;
use crate::log::{HEADS, Head};
use crate::mirrors::Ended;
use crate::seam::Effect;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// Writing leaves; the next stripe of them to look at.
    Leaves(u32),
    /// Everything up to this chunk, and every leaf, must be durable before the root.
    Settle(Seq),
    /// The sync for that is on its way, or has come back.
    Synced(Seq),
    /// The root is being written, durably.
    Root,
    /// The superblock learns of it, durably, before anything that the root before needs is let go: else
    /// a root that is damaged later could not be told from one whose writing was cut short.
    Mark,
}

pub(super) struct Checkpoint {
    pub due: bool,
    /// The newest chunk that the durable root includes.
    pub durable_seq: Seq,
    /// Which the newest root is.
    pub generation: Generation,
    /// Where its leaves are.
    pub slots: Vec<LeafSlot>,
    /// How far a sweep for duplicates is; see [`RootHeader::swept`].
    pub swept: Progress,
    /// How far a scrub is; see [`RootHeader::scrubbed`].
    pub scrubbed: Progress,
    /// What has been written to the log since the last one began.
    log: Written,
    /// Whose summaries are on their way.
    pub summaries: Vec<Segment>,
    phase: Phase,
    seq: Seq,
    life: Life,
    cursors: [Cursor; 2],
    /// What the root says of it: the same in all copies.
    durable: Seq,
    pub in_flight: usize,
    /// What the next root says of the leaves that this checkpoint wrote.
    pub staged: Vec<(Leaf, LeafSlot)>,
    /// Those that are on their way.
    pub blocks: LeafBlocks,
    /// What goes with the root.
    open: OpenSummaries,
    /// Whether a sync that began after the last leaf was written has come back.
    synced: bool,
}

/// How far something is that goes on after a restart: now, and as the newest root says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub now: u32,
    pub kept: u32,
}

impl Progress {
    fn found(place: u32) -> Self {
        Self {
            now: place,
            kept: place,
        }
    }

    /// Whether the newest root says where it is.
    pub fn is_kept(self) -> bool {
        self.now == self.kept
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Written {
    blocks: u64,
    chunks: u64,
}

impl Checkpoint {
    /// Goes on from the root that was found.
    pub fn new(root: &RootHeader, slots: Vec<LeafSlot>) -> Self {
        Self {
            due: false,
            durable_seq: root.seq,
            generation: root.generation,
            slots,
            swept: Progress::found(root.swept),
            scrubbed: Progress::found(root.scrubbed),
            log: Written::default(),
            summaries: Vec::new(),
            phase: Phase::Idle,
            seq: Seq(0),
            life: Life(0),
            cursors: [Cursor {
                segment: Segment(0),
                offset: 0,
            }; 2],
            durable: Seq(0),
            in_flight: 0,
            staged: Vec::new(),
            blocks: LeafBlocks::default(),
            open: OpenSummaries::default(),
            synced: false,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// A chunk of so many blocks has been added to the log.
    pub fn on_sealed(&mut self, blocks: u32) {
        self.log.blocks += u64::from(blocks);
        self.log.chunks += 1;
    }

    /// Whether there is one to be begun; `dirty`: leaves of the map that it would write.
    fn is_due(&self, dirty: u64) -> bool {
        let (least, most) = limits::LOG_BLOCKS_BETWEEN_CHECKPOINTS;
        self.due
            || self.log.chunks >= limits::CHUNKS_BETWEEN_CHECKPOINTS
            || self.log.blocks >= (dirty * limits::LOG_BLOCKS_PER_DIRTY_LEAF).clamp(least, most)
    }

    fn next_generation(&self) -> Generation {
        Generation(self.generation.0 + 1)
    }

    fn keep_open_summaries(&mut self, superblock: &Superblock, sums: &Sums, crc: Crc) {
        self.open
            .keep(superblock, sums, &self.cursors, self.seq, crc);
    }

    pub fn synced(&mut self) {
        if matches!(self.phase, Phase::Synced(_)) {
            self.synced = true;
        }
    }
}

impl Engine {
    pub(super) fn advance_checkpoint(&mut self) {
        loop {
            let before = self.checkpoint.phase;
            match before {
                Phase::Idle
                    if self.checkpoint.is_due(self.state.dirty_map_leaves())
                        || self.state.is_too_dirty() =>
                {
                    self.begin_checkpoint()
                }
                Phase::Leaves(from) => self.write_leaves(from),
                Phase::Settle(seq) => self.settle(seq),
                Phase::Synced(seq)
                    if self.checkpoint.synced && self.log.durability().durable() >= seq =>
                {
                    self.write_root()
                }
                Phase::Idle | Phase::Synced(_) | Phase::Root | Phase::Mark => {}
            }
            if self.checkpoint.phase == before {
                return;
            }
        }
    }

    fn begin_checkpoint(&mut self) {
        if self.queue.fetches.is_behind(self.checkpoint.generation) {
            return;
        }
        // A clean shutdown's checkpoint includes everything, so that nothing is replayed.
        if self.course.is_stopping() && !HEADS.iter().all(|&head| self.seal(head, false)) {
            return;
        }
        // Links that replay would see must not name shared pages whose numbers this checkpoint frees: the
        // page may have become plain since, which replay learns only at its end.
        // Nor may it see pledges that end now: what they concern may be absorbed from here on.
        let host = self.log.open(Head::Host);
        if host.is_some_and(|chunk| chunk.links) && !self.seal(Head::Host, false) {
            return;
        }
        self.checkpoint.due = false;
        self.checkpoint.seq = self.log.last_seq();
        self.checkpoint.life = self.log.last_life();
        self.checkpoint.cursors = self.log.cursors();
        self.checkpoint.phase = Phase::Leaves(0);
        self.state.checkpoint_begins();
        self.checkpoint.log = Written::default();
        self.stats.map_checkpoints += 1;
    }

    fn write_leaves(&mut self, from: u32) {
        for stripe in from..self.superblock.stripes() {
            if self.checkpoint.in_flight >= limits::META_IN_FLIGHT {
                self.checkpoint.phase = Phase::Leaves(stripe);
                return;
            }
            self.write_stripe(stripe);
        }
        self.checkpoint.phase = Phase::Leaves(self.superblock.stripes());
        if self.checkpoint.in_flight == 0 && HEADS.iter().all(|&head| self.seal(head, false)) {
            self.checkpoint.phase = Phase::Settle(self.log.last_seq());
        }
    }

    pub(super) fn leaf_written(&mut self, leaf: Leaf, failed: bool) {
        self.checkpoint.in_flight -= 1;
        self.checkpoint.blocks.written(leaf);
        if failed {
            self.poison();
        }
    }

    /// Before a sync is begun for those who wait for one: the one that a checkpoint needs serves them too, and would never have its
    /// turn while there is always somebody who waits.
    pub(super) fn settle_first(&mut self) {
        if let Phase::Settle(seq) = self.checkpoint.phase {
            self.settle(seq);
        }
    }

    fn settle(&mut self, seq: Seq) {
        // The checkpoint lets go of the headers that these repeat; what was closed since it began is replayed from its headers.
        let mut summaries = self.checkpoint.summaries.iter();
        let repeats =
            |&segment: &Segment| self.segments.get(segment).last_seq <= self.checkpoint.seq;
        if summaries.any(repeats) {
            return;
        }
        let Some(through) = self.log.durability_mut().poll_sync_of_checkpoint(seq) else {
            return;
        };
        self.checkpoint
            .keep_open_summaries(&self.superblock, &self.sums, self.superblock.crc());
        self.checkpoint.synced = false;
        self.checkpoint.phase = Phase::Synced(seq);
        self.sync(through);
    }

    fn write_root(&mut self) {
        self.checkpoint.phase = Phase::Root;
        for (leaf, slot) in self.checkpoint.staged.drain(..) {
            self.checkpoint.slots[leaf.0 as usize] = slot;
            self.state.place_leaf(leaf, slot);
        }
        self.checkpoint.durable = self.log.durability().durable();
        for progress in [&mut self.checkpoint.swept, &mut self.checkpoint.scrubbed] {
            progress.kept = progress.now;
        }
        for at in self
            .superblock
            .root_copies(self.checkpoint.next_generation())
        {
            let blocks = u64::from(self.root_length(at));
            self.stats.medium_map += blocks;
            self.stats.medium_copies += blocks * u64::from(self.checkpoint.in_flight > 0);
            self.checkpoint.in_flight += 1;
            let id = self.outbox.begin(Pending::Root(at));
            let effect = self.root_effect(id, at);
            self.outbox.tell(effect);
        }
    }

    pub(super) fn root_effect(&self, id: EffectId, at: Pba) -> Effect {
        Effect::WriteMeta {
            id,
            at,
            blocks: self.root_length(at),
            durable: true,
        }
    }

    /// How long a copy of the next root is, with what is behind it.
    fn root_length(&self, at: Pba) -> u32 {
        match self.superblock.root_twin(self.checkpoint.next_generation()) == Some(at) {
            true => self.superblock.twin_blocks() as u32,
            false => self.superblock.root_blocks(),
        }
    }

    pub(super) fn encode_root(&self, at: Pba, out: &mut [u8]) {
        let header = RootHeader {
            uuid: self.superblock.uuid(),
            generation: self.checkpoint.next_generation(),
            seq: self.checkpoint.seq,
            life: self.checkpoint.life,
            durable: self.checkpoint.durable,
            cursors: self.checkpoint.cursors,
            swept: self.checkpoint.swept.kept,
            scrubbed: self.checkpoint.scrubbed.kept,
        };
        let (root, behind) = out.split_at_mut(self.superblock.root_blocks() as usize * BLOCK_BYTES);
        root::encode(&header, &self.checkpoint.slots, self.superblock.crc(), root);
        debug_assert_eq!(
            behind.len() / BLOCK_BYTES,
            (self.root_length(at) - self.superblock.root_blocks()) as usize
        );
        if !behind.is_empty() {
            behind.copy_from_slice(self.checkpoint.open.bytes());
        }
    }

    pub(super) fn root_written(&mut self, failed: bool) {
        if failed {
            return self.poison();
        }
        self.checkpoint.in_flight -= 1;
        if self.checkpoint.in_flight == 0 {
            self.superblock.mark_root(self.checkpoint.next_generation());
            self.checkpoint.phase = Phase::Mark;
        }
    }

    /// Begins what is to be written of the superblock next.
    pub(super) fn write_mirrors(&mut self) {
        if let Some(at) = self.superblock.begin_write() {
            self.stats.medium_map += 1;
            self.outbox
                .ask(Pending::Mirror(at), |id| mirror_effect(id, at));
        }
    }

    pub(super) fn mirror_written(&mut self, failed: bool) {
        if failed {
            return self.poison();
        }
        match self.superblock.on_written() {
            Ended::Mark => self.mark_written(),
            Ended::Properties(Some(id)) => self.outbox.reply(id, Ok(())),
            Ended::Properties(None) | Ended::Half => {}
        }
    }

    /// Only now do chunks say that there is this root: recovery may go by the one before until it is marked.
    fn mark_written(&mut self) {
        self.checkpoint.generation = self.checkpoint.next_generation();
        self.checkpoint.durable_seq = self.checkpoint.seq;
        self.checkpoint.phase = Phase::Idle;
        self.state.checkpoint_durable();
        self.state.trim_all();
        self.segments.look_again();
    }
}

pub(super) fn mirror_effect(id: EffectId, at: Pba) -> Effect {
    Effect::WriteMeta {
        id,
        at,
        blocks: 1,
        durable: true,
    }
}
