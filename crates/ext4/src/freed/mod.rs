//! Which blocks a mounted file system has given up, read from what it writes: discards that it never sent (CSA-FS §3).
//!
//! # The rule
//! A block may be dropped when all of this holds, each as the device has seen it:
//! 1. A transaction `T` with a copy of the group's bitmap was committed in the journal, and the copy calls the block free.
//! 2. The block was not written since the commit block of the transaction before, `T - 1`, was sent.
//! 3. The bitmap was written home byte for byte as that copy, which jbd2 does only when `T` is complete, and that
//!    write was acknowledged.
//! 4. A FLUSH that was sent after that was acknowledged.
//! 5. Since then neither the block was written nor was a copy of the bitmap sent that calls it used.
//!
//! Why no content is lost: jbd2 has one transaction that is committed and one that runs. `T + 1` begins when `T` begins to
//! be committed, and that is after the commit block of `T - 1` was acknowledged. Whoever needs the block's content
//! after `T` has allocated it in `T + 1` or later, so he has written it after that moment: by 2 and 5 he has not written it
//! yet, and a drop that comes before his write takes nothing from him. And `T` stays: its commit was durable before 3. This
//! is what the kernel's own `discard` option goes by, some seconds later than the kernel.
//!
//! What is not followed, because the rule says nothing of it: [`NotFollowed`]. What is missed (a copy that came before its
//! descriptor, a limit, a restart) costs space and nothing else. The proof in full, case by case, is the decision page 0013.
//!
//! Who uses this must let it see every write, discard and zeroing before that takes effect ([`Freed::written`],
//! [`Freed::blanked`]), and drop what [`Freed::take`] gives before any write that is seen later takes effect.

mod bits;
mod places;

use crate::allowance::Allowance;
use crate::journal::{Block, Journal, JournalFormat, Layout, Sequence};
use crate::limits::FREED_TRACKED;
use crate::scan::FileSystem;
use crate::source::Source;
use crate::span::Span;
use bits::Bits;
use places::{BLOCK, Places};
use std::collections::BTreeMap;

/// Why a file system's free space is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFollowed {
    /// Its superblock is not to be trusted.
    #[error("its superblock is not to be trusted")]
    NoSuperblock,
    /// There is no journal that can be read.
    #[error("it has no journal that can be read")]
    NoJournal,
    /// Its journal is a device of its own, whose order with this one is not known.
    #[error("its journal is a device of its own")]
    ExternalJournal,
    /// Its blocks are not those of the volume.
    #[error("its blocks are not of 4096 bytes at multiples of that")]
    Unaligned,
    /// A bit is a cluster of blocks.
    #[error("it gives out clusters of blocks (bigalloc)")]
    Bigalloc,
    /// Fast commits change bitmaps without a copy in the journal.
    #[error("it may have fast commits")]
    FastCommit,
    /// Nobody writes to it through a journal now.
    #[error("it is not mounted")]
    NotMounted,
    /// Where its bitmaps are is in doubt.
    #[error("a group descriptor is damaged, or leads where another does")]
    Descriptors,
    /// It has more groups than are followed, or than are left.
    #[error("there are more block groups on the volume than are followed")]
    TooLarge,
}

/// What has been seen and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreedCounts {
    /// Transactions whose commit was seen.
    pub commits: u64,
    /// Copies of block bitmaps in them.
    pub copies: u64,
    /// Block bitmaps written home as their last committed copy.
    pub homes: u64,
    /// Block bitmaps written home otherwise: what was known of the group was forgotten.
    pub foreign: u64,
    /// Copies that call free what cannot be.
    pub refused: u64,
    /// Blocks that were about to be dropped when they were written again.
    pub cancelled: u64,
    /// Groups that were left out because too many were under way.
    pub left_out: u64,
}

/// What is known of a group that has blocks to drop.
#[derive(Clone, Debug)]
struct Candidate {
    /// The last committed copy of its bitmap.
    copy: Bits,
    /// Free by it, and not written since the commit before it.
    committed: Bits,
    /// Of these: the bitmap has been written home since.
    home: Bits,
    stage: Stage,
}

/// How far `Candidate::home` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The bitmap's write has not been answered.
    Sent,
    /// It has, when so many flushes had been sent.
    Answered(u64),
    /// A later flush has been answered.
    Durable,
}

/// The copy of a bitmap in the running transaction; none if it cannot be had.
type Copy = Option<Bits>;

/// Follows one file system. See the module.
#[derive(Clone, Debug)]
pub struct Freed {
    places: Places,
    format: JournalFormat,
    layout: Layout,
    running: Option<Sequence>,
    /// Copies that the running transaction's descriptors have announced, by place, and those that came, by group.
    expected: BTreeMap<u64, u64>,
    copies: BTreeMap<u64, Copy>,
    committed: Option<Sequence>,
    /// What was written since that commit block was sent, by group; not all of it if `is_over`.
    written: BTreeMap<u64, Bits>,
    is_over: bool,
    spare: Vec<Bits>,
    candidates: BTreeMap<u64, Candidate>,
    flushes: u64,
    counts: FreedCounts,
}

impl Freed {
    /// Follows a file system of a volume of `volume_blocks` blocks of 4096 bytes from now on. If flushes have been sent
    /// already, [`Freed::flush`] is to be told of the last. All of a volume have one `allowance`
    /// ([`Allowance::to_follow`]).
    ///
    /// # Errors
    /// When the rule does not hold for it.
    pub fn new(
        found: &FileSystem,
        source: &mut dyn Source,
        volume_blocks: u64,
        allowance: &mut Allowance,
    ) -> Result<Self, NotFollowed> {
        let places = Places::new(found, source, volume_blocks, allowance)?;
        let journal: &Journal = found.journal.as_ref().map_err(|_| NotFollowed::NoJournal)?;
        Ok(Self {
            places,
            format: journal.format,
            layout: Layout::new(&journal.extents, journal.format.block_bytes),
            running: None,
            expected: BTreeMap::new(),
            copies: BTreeMap::new(),
            committed: None,
            written: BTreeMap::new(),
            is_over: false,
            spare: Vec::new(),
            candidates: BTreeMap::new(),
            flushes: 0,
            counts: FreedCounts::default(),
        })
    }

    /// Bytes of the volume that are the file system's.
    #[must_use]
    pub fn home(&self) -> Span {
        self.places.home
    }

    /// What has been seen.
    #[must_use]
    pub fn counts(&self) -> FreedCounts {
        self.counts
    }

    /// Blocks that are free by a committed bitmap, and wait for that to be home and durable.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let of = |c: &Candidate| c.committed.count() + c.home.count();
        self.candidates.values().map(of).sum()
    }

    /// A block of 4096 bytes is about to be written at byte `offset` of the volume. Whether its answer is to be told
    /// ([`Freed::answered`]).
    pub fn written(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some(block) = self.places.block_at(offset) else {
            return false;
        };
        if let Some(at) = self.layout.block_at(offset) {
            match Block::parse(bytes, &self.format) {
                Block::Other => self.copy(offset, bytes),
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

    /// A range of the volume is about to be discarded, or zeroed.
    pub fn blanked(&mut self, span: Span) {
        let first = span.start.max(self.places.home.start);
        let end = span.end().min(self.places.home.end());
        if let Some(block) = self.places.block_at(first).filter(|_| first < end) {
            let blocks = (end - self.places.home.start).div_ceil(BLOCK) - block;
            self.note(block, blocks);
            self.forget_bitmaps(block, blocks);
        }
    }

    /// The write of a bitmap at byte `offset` has been answered.
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

    /// A flush is about to be sent, and this is its number: larger than that of each that was sent before.
    pub fn flush(&mut self, number: u64) {
        self.flushes = self.flushes.max(number);
    }

    /// The flush of that number was answered, and well. Whether there is something to take now.
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

    /// A run of blocks, of at most `most`, that is to be dropped now; none when there are no more.
    pub fn take(&mut self, most: u64) -> Option<Span> {
        let (group, run) = self
            .candidates
            .iter_mut()
            .filter(|(_, candidate)| candidate.stage == Stage::Durable)
            .find_map(|(group, candidate)| Some((*group, candidate.home.take_run(most)?)))?;
        self.tidy(group);
        Some(self.places.span(group, run))
    }

    /// Blocks are written: whoever thought them free was right until now.
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
            } else if self.written.len() < FREED_TRACKED {
                let mut bits = self.spare.pop().unwrap_or_else(Bits::none);
                bits.clear();
                bits.set(run);
                self.written.insert(group, bits);
            } else {
                self.is_over = true;
                return self.forget_all_from(at, end);
            }
        }
    }

    /// What is left of a long run that is not remembered must still cancel.
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

    /// A block of the journal that jbd2 made for itself.
    fn journal(&mut self, at: crate::journal::JournalBlock, block: &Block<'_>) {
        if !(self.format.first..self.format.end).contains(&at) {
            return;
        }
        match block {
            Block::Descriptor(descriptor) => {
                self.enter(descriptor.sequence);
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
                    if self.copies.len() > FREED_TRACKED || self.expected.len() > FREED_TRACKED {
                        self.counts.left_out += 1;
                        self.copies.pop_last();
                        self.expected.pop_last();
                    }
                }
            }
            Block::Commit { sequence } => self.commit(*sequence),
            Block::Revoke(revoke) => {
                self.enter(revoke.sequence);
                // A bitmap is not revoked as long as it is one.
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

    fn enter(&mut self, sequence: Sequence) {
        if self.running != Some(sequence) {
            self.running = Some(sequence);
            self.expected.clear();
            self.copies.clear();
        }
    }

    /// A block of the journal that is a copy, or nothing of the kind.
    fn copy(&mut self, place: u64, bytes: &[u8]) {
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

    fn commit(&mut self, sequence: Sequence) {
        // Else it is not known what was written since the commit before it.
        let before = Sequence(sequence.0.wrapping_sub(1));
        let is_next = self.committed == Some(before) && !self.is_over;
        let copies = core::mem::take(&mut self.copies);
        self.expected.clear();
        if self.running == Some(sequence) && is_next {
            for (group, copy) in copies {
                match copy {
                    Some(used) => self.committed_copy(group, used),
                    None => self.forget(group),
                }
            }
        }
        self.running = None;
        self.committed = Some(sequence);
        self.counts.commits += 1;
        self.is_over = false;
        while let Some((_, bits)) = self.written.pop_first() {
            self.spare.push(bits);
        }
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
        } else if self.candidates.len() < FREED_TRACKED {
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
            // e2fsck, a replay that is under way, or whoever else: what it says is not a transaction's.
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
