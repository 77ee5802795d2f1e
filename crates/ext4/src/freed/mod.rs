//! Infers from a mounted file system's writes which blocks it has freed without sending a discard (CSA-FS §3).
//!
//! # The rule
//! A block may be dropped if all of this holds, each as the device has seen it:
//! 1. A transaction `T` with a copy of the group's bitmap was committed in the journal, and the copy marks the block as free.
//! 2. The block was not written since the commit block of the previous transaction, `T - 1`, was sent.
//! 3. The bitmap was written home, identical to that copy, which jbd2 does only when `T` is complete, and that write was acknowledged.
//! 4. A FLUSH that was sent after that was acknowledged.
//! 5. Since then neither was the block written, nor was a copy of the bitmap sent that marks it as used.
//!
//! Why no data is lost: jbd2 has one committing transaction and one running transaction. `T + 1` begins when the commit of `T` begins,
//! and that is after the commit block of `T - 1` was acknowledged. If a file needs the block's contents after `T`, it has allocated the
//! block in `T + 1` or later, so it has to write the block after that moment. By 2 and 5 it has not written the block yet, so a drop
//! before that write takes nothing away. And `T` is permanent: its commit was durable before 3. The kernel's own `discard` option relies
//! on the same facts, some seconds earlier.
//!
//! A transaction counts only if it is of the log that a replay would read: from where the journal's superblock says that the log
//! begins, number by number and place by place (`turns.rs`). What else is in a journal is older, and arrives only if something but
//! jbd2 writes it, such as a tool that writes an image back. Then everything is dropped that was concluded.
//!
//! File systems that the rule does not cover are not followed: [`NotFollowed`]. A freed block that is missed (because a copy arrives
//! before its descriptor, or of a limit, or of a restart) costs space and nothing else. The full proof, case by case, is in decision
//! 0013.
//!
//! The caller must show this module every write, discard and zeroing before it takes effect ([`Freed::written`],
//! [`Freed::blanked`]), and must drop what [`Freed::take`] returns before any write shown later takes effect.

mod bits;
mod not_followed;
mod places;
mod turns;

use crate::allowance::Allowance;
use crate::journal::{Block, Journal, JournalBlock, JournalFormat, Layout, Sequence, log};
use crate::scan::FileSystem;
use crate::source::Source;
use crate::span::Span;
use bits::Bits;
pub use not_followed::NotFollowed;
use places::{BLOCK, Places};
use std::collections::BTreeMap;
use turns::{Ended, Turns};

/// Counts of what has been seen and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreedCounts {
    /// Transactions whose commit was seen.
    pub commits: u64,
    /// Copies of block bitmaps in them.
    pub copies: u64,
    /// Block bitmaps written home as their last committed copy.
    pub homes: u64,
    /// Block bitmaps written home with other contents; what was known about the group was dropped.
    pub foreign: u64,
    /// Copies that mark as free what cannot be free.
    pub refused: u64,
    /// Blocks written again just before they would have been dropped.
    pub cancelled: u64,
    /// Groups left out because too many were in progress.
    pub left_out: u64,
}

/// The state of a group that has blocks to drop.
#[derive(Clone, Debug)]
struct Candidate {
    /// The last committed copy of its bitmap.
    copy: Bits,
    /// Blocks that are free in that copy, and were not written since the previous commit.
    committed: Bits,
    /// Of these, the blocks free in the bitmap that has since been written home.
    home: Bits,
    stage: Stage,
}

/// The progress of `Candidate::home`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The bitmap's write has not been answered.
    Sent,
    /// It has been answered, when this many flushes had been sent.
    Answered(u64),
    /// A later flush has been answered.
    Durable,
}

/// The copy of a bitmap in the running transaction; `None` if it is not available.
type Copy = Option<Bits>;

/// Follows the free space of one file system. See the module.
#[derive(Clone, Debug)]
pub struct Freed {
    places: Places,
    format: JournalFormat,
    layout: Layout,
    superblock: JournalBlock,
    turns: Turns,
    /// Copies announced by the running transaction's descriptors, by place, and copies that have arrived, by group.
    expected: BTreeMap<u64, u64>,
    copies: BTreeMap<u64, Copy>,
    committed: Option<Sequence>,
    /// Blocks written since that commit block was sent, by group; incomplete if `is_over`.
    written: BTreeMap<u64, Bits>,
    is_over: bool,
    /// The most records of each kind that are kept.
    tracked: usize,
    candidates: BTreeMap<u64, Candidate>,
    flushes: u64,
    counts: FreedCounts,
}

impl Freed {
    /// Starts to follow a file system on a volume of `volume_blocks` blocks of 4096 bytes. If flushes have already
    /// been sent, [`Freed::flush`] must be called with the last one. All file systems of a volume share one
    /// `allowance` ([`Allowance::to_follow`]).
    ///
    /// # Errors
    /// If the rule does not hold for it.
    pub fn new(
        found: &FileSystem,
        source: &mut dyn Source,
        volume_blocks: u64,
        allowance: &mut Allowance,
    ) -> Result<Self, NotFollowed> {
        let places = Places::new(found, source, volume_blocks, allowance)?;
        let journal: &Journal = found.journal.as_ref().map_err(|_| NotFollowed::NoJournal)?;
        let layout = Layout::new(&journal.extents, journal.format.block_bytes);
        let turns = Turns::read(journal, &layout, source, volume_blocks * BLOCK, allowance);
        Ok(Self {
            places,
            format: journal.format,
            layout,
            superblock: journal.superblock,
            turns,
            expected: BTreeMap::new(),
            copies: BTreeMap::new(),
            committed: None,
            written: BTreeMap::new(),
            is_over: false,
            tracked: allowance.tracked,
            candidates: BTreeMap::new(),
            flushes: 0,
            counts: FreedCounts::default(),
        })
    }

    /// The range of the volume that the file system uses, in bytes.
    #[must_use]
    pub fn home(&self) -> Span {
        self.places.home
    }

    /// Counts of what has been seen.
    #[must_use]
    pub fn counts(&self) -> FreedCounts {
        self.counts
    }

    /// How many records of 4 KiB are kept in memory.
    #[must_use]
    pub fn records(&self) -> usize {
        let copies = self.copies.values().flatten().count();
        self.written.len() + copies + 3 * self.candidates.len()
    }

    /// Blocks that are free in a committed bitmap, and wait for that bitmap to be home and durable.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let of = |c: &Candidate| c.committed.count() + c.home.count();
        self.candidates.values().map(of).sum()
    }

    /// Shows a block of 4096 bytes before it is written at byte `offset` of the volume. Returns true if its answer must be
    /// reported ([`Freed::answered`]).
    pub fn written(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some(block) = self.places.block_at(offset) else {
            return false;
        };
        if let Some(at) = self.layout.block_at(offset) {
            match Block::parse(bytes, &self.format) {
                Block::Other => self.copy(at, offset, bytes),
                Block::Superblock if at == self.superblock => self.superblock(bytes),
                block => self.journal(at, &block),
            }
            return false;
        }
        self.note(block, 1);
        match self.places.bitmap_of(block) {
            Some(group) => self.came_home(group, bytes),
            None => false,
        }
    }

    /// Shows a range of the volume before it is discarded or zeroed.
    pub fn blanked(&mut self, span: Span) {
        let first = span.start.max(self.places.home.start);
        let end = span.end().min(self.places.home.end());
        if let Some(block) = self.places.block_at(first).filter(|_| first < end) {
            let blocks = (end - self.places.home.start).div_ceil(BLOCK) - block;
            self.note(block, blocks);
            self.forget_bitmaps(block, blocks);
            if self.layout.runs(span).next().is_some() {
                self.turns.lose();
                self.forget_all();
            }
        }
    }

    /// Reports that the write of a bitmap at byte `offset` has been answered.
    pub fn answered(&mut self, offset: u64, is_done: bool) {
        let group = self.places.block_at(offset);
        let Some(group) = group.and_then(|block| self.places.bitmap_of(block)) else {
            return;
        };
        match self.candidates.get_mut(&group) {
            Some(candidate) if is_done && candidate.stage == Stage::Sent => {
                candidate.stage = Stage::Answered(self.flushes);
            }
            Some(_) if !is_done => self.forget(group),
            _ => {}
        }
    }

    /// Reports that a flush is about to be sent. Its number is larger than those of all flushes sent before.
    pub fn flush(&mut self, number: u64) {
        self.flushes = self.flushes.max(number);
    }

    /// Reports that the flush with that number has succeeded. Returns true if there is something to take now.
    pub fn flushed(&mut self, number: u64) -> bool {
        let mut any = false;
        for candidate in self.candidates.values_mut() {
            if matches!(candidate.stage, Stage::Answered(before) if before < number) {
                candidate.stage = Stage::Durable;
            }
            any |= candidate.stage == Stage::Durable && !candidate.home.is_empty();
        }
        any
    }

    /// Returns a run of at most `most` blocks to drop now; `None` if there are no more.
    pub fn take(&mut self, most: u64) -> Option<Span> {
        let (group, run) = self
            .candidates
            .iter_mut()
            .filter(|(_, candidate)| candidate.stage == Stage::Durable)
            .find_map(|(group, candidate)| Some((*group, candidate.home.take_run(most)?)))?;
        self.tidy(group);
        Some(self.places.span(group, run))
    }

    /// Notes that blocks are written, so they are no longer free.
    fn note(&mut self, block: u64, blocks: u64) {
        let (mut at, end) = (block, block + blocks);
        while at < end {
            let (group, first) = self.places.group_of(at);
            let run = first..(first + (end - at)).min(self.places.group_len());
            at += run.end - run.start;
            if let Some(candidate) = self.candidates.get_mut(&group) {
                self.counts.cancelled += candidate.committed.unset(run.clone());
                self.counts.cancelled += candidate.home.unset(run.clone());
                self.tidy(group);
            }
            if let Some(bits) = self.written.get_mut(&group) {
                bits.set(run);
            } else if self.written.len() < self.tracked {
                let mut bits = Bits::none();
                bits.set(run);
                self.written.insert(group, bits);
            } else {
                self.is_over = true;
                return self.forget_all_from(at, end);
            }
        }
    }

    /// Even if a long run is too long to be remembered, all of it must cancel drops.
    fn forget_all_from(&mut self, at: u64, end: u64) {
        if at < end {
            let (from, to) = (self.places.group_of(at).0, self.places.group_of(end - 1).0);
            self.candidates
                .retain(|group, _| *group < from || *group > to);
        }
    }

    fn forget_bitmaps(&mut self, block: u64, blocks: u64) {
        let (places, run) = (&self.places, block..block + blocks);
        self.candidates
            .retain(|group, _| !places.bitmap_is_in(*group, &run));
    }

    /// What was concluded is of another log than the one that is written now.
    fn forget_all(&mut self) {
        self.candidates.clear();
        self.expected.clear();
        self.copies.clear();
        self.committed = None;
    }

    fn superblock(&mut self, bytes: &[u8]) {
        let (size, room) = (self.format.block_bytes, self.layout.blocks());
        // If the format changes, a scan is due.
        let log = log(bytes, size, room, self.superblock).filter(|log| log.format == self.format);
        if !self.turns.superblock(log) {
            self.forget_all();
        }
    }

    /// Handles one of jbd2's own blocks in the log.
    fn journal(&mut self, at: JournalBlock, block: &Block<'_>) {
        if !(self.format.first..self.format.end).contains(&at) {
            return;
        }
        match block {
            Block::Descriptor(descriptor) => {
                let copies = descriptor.tags().count() as u32;
                self.head(at, descriptor.sequence, copies);
                let mut place = at;
                for tag in descriptor.tags() {
                    place = self.format.after(place);
                    let Some(group) = self.places.bitmap_of(tag.home.0) else {
                        continue;
                    };
                    self.copies.insert(group, None);
                    if let Some(place) = self.layout.place_of(place)
                        && !tag.is_escaped
                        && !tag.is_deleted
                    {
                        self.expected.insert(place, group);
                    }
                    if self.copies.len() > self.tracked || self.expected.len() > self.tracked {
                        self.counts.left_out += 1;
                        self.copies.pop_last();
                        self.expected.pop_last();
                    }
                }
            }
            Block::Commit { sequence } => self.commit(at, *sequence),
            Block::Revoke(revoke) => {
                self.head(at, revoke.sequence, 0);
                // jbd2 does not revoke a block while it is a bitmap.
                for block in revoke.blocks() {
                    if let Some(group) = self.places.bitmap_of(block.0) {
                        self.copies.remove(&group);
                        self.forget(group);
                    }
                }
            }
            Block::Superblock | Block::Other => {}
        }
    }

    /// Notes a head of the log, with the number of copies after it.
    fn head(&mut self, at: JournalBlock, sequence: Sequence, copies: u32) {
        if !self.turns.head(at, sequence, copies) {
            self.forget_all();
        }
    }

    /// Handles a block of the journal that may be a copy.
    fn copy(&mut self, at: JournalBlock, place: u64, bytes: &[u8]) {
        self.turns.not_a_head(at);
        let Some(group) = self.expected.remove(&place) else {
            return;
        };
        let Some(used) = Bits::read(bytes) else {
            return;
        };
        if let Some(candidate) = self.candidates.get_mut(&group) {
            candidate.committed.without(&used);
            candidate.home.without(&used);
            self.tidy(group);
        }
        self.copies.insert(group, Some(used));
    }

    fn commit(&mut self, at: JournalBlock, sequence: Sequence) {
        match self.turns.commit(at, sequence, &self.format) {
            Ended::Again => return self.begin_transaction(),
            Ended::Unknown => self.forget_all(),
            Ended::Complete => {}
        }
        // If a commit was missed, it is not known what was written since the previous one.
        let before = Sequence(sequence.0.wrapping_sub(1));
        let is_next = self.committed == Some(before) && !self.is_over;
        let copies = core::mem::take(&mut self.copies);
        self.expected.clear();
        if is_next && self.turns.is_sure() {
            for (group, copy) in copies {
                match copy {
                    Some(used) => self.committed_copy(group, used),
                    None => self.forget(group),
                }
            }
        }
        self.committed = Some(sequence);
        self.counts.commits += 1;
        self.begin_transaction();
    }

    /// Blocks written from here on were written since the last commit block was sent.
    fn begin_transaction(&mut self) {
        self.is_over = false;
        self.written.clear();
    }

    fn committed_copy(&mut self, group: u64, used: Bits) {
        self.counts.copies += 1;
        let Some(mut free) = self.places.free(group, &used) else {
            self.counts.refused += 1;
            return self.forget(group);
        };
        if let Some(written) = self.written.get(&group) {
            free.without(written);
        }
        if let Some(candidate) = self.candidates.get_mut(&group) {
            free.without(&candidate.home);
            candidate.committed.join(&free);
            candidate.copy = used;
        } else if self.candidates.len() < self.tracked {
            self.candidates.insert(
                group,
                Candidate {
                    copy: used,
                    committed: free,
                    home: Bits::none(),
                    stage: Stage::Sent,
                },
            );
        } else {
            self.counts.left_out += 1;
        }
        self.tidy(group);
    }

    fn came_home(&mut self, group: u64, bytes: &[u8]) -> bool {
        let Some(candidate) = self.candidates.get_mut(&group) else {
            return false;
        };
        if !candidate.copy.is_bitmap(bytes) {
            // Written by e2fsck, by a replay in progress, or by something else: it does not belong to a transaction.
            self.counts.foreign += 1;
            self.forget(group);
            return false;
        }
        self.counts.homes += 1;
        candidate.home.join(&candidate.committed);
        candidate.committed.clear();
        candidate.stage = Stage::Sent;
        true
    }

    fn forget(&mut self, group: u64) {
        self.candidates.remove(&group);
    }

    fn tidy(&mut self, group: u64) {
        if let Some(candidate) = self.candidates.get(&group)
            && candidate.committed.is_empty()
            && candidate.home.is_empty()
        {
            self.candidates.remove(&group);
        }
    }
}
