//! Decides when a transaction of the journal is complete, so that the kernel's replay would put it home.
//!
//! It follows the log as strictly as replay does: from where the journal's superblock says that the log begins, one transaction after
//! another, each with the expected number and at the expected place. A transaction is complete when its last block has been written,
//! whichever block that is: an asynchronous commit block may arrive before what it commits. Transactions that were complete before this
//! began are not reported, because something newer may be at home by now. If a block arrives that does not fit, nothing is reported until
//! a superblock again says where the log begins. Memory is bounded ([`HEADS`], [`COPIES`], [`FRESH`]).
//!
//! A written block counts as a copy if it has the checksum in its tag ([`sums`](super::sums)), so for a journal without such
//! checksums nothing is reported. jbd2 writes each copy once, after all of the previous transaction is written. So anything else
//! in a copy's place means that something between the file system and here reorders writes. From the third time on, nothing is
//! reported any more ([`FOREIGN`]).
//!
//! The superblock also says how to read the blocks after it, and that changes: a journal has no features until the kernel
//! mounts its file system for the first time. So each superblock is checked as a scan checks it. From there on its format
//! applies, not that of the last scan.

use super::block::Block;
use super::format::{Journal, JournalBlock, JournalFormat, Sequence};
use super::layout::Layout;
use super::sums::{CopySum, Tags};
use super::superblock;
use super::superblock::Log;
use super::turn::Turn;
use crate::limits::{COPIES, FOREIGN, FRESH, HEADS, REWALKED};
use crate::span::{FsBlock, Span};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The content of a block written into a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// One of the journal's own blocks.
    Own(Head),
    /// A copy, or something else.
    Copy(CopySum),
}

/// A descriptor's entry for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The byte of the volume of its home block; `None` if it must not be reported.
    pub home: Option<u64>,
    sum: Option<u32>,
}

impl Copy {
    /// True if it is what was written in its place.
    fn is_named(self, block: Option<CopySum>, tags: Tags) -> bool {
        let both = self.sum.zip(block);
        both.is_some_and(|(tag, block)| tags.name(tag, block))
    }
}

/// The consequence of a block written to a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It completes nothing.
    Nothing,
    /// It completes a transaction: its home blocks and their copies, both as bytes of the volume.
    Complete(Vec<(u64, u64)>),
    /// This place of a transaction has something other than its copy.
    Foreign(JournalBlock),
}

/// A journal's own block, as far as it is needed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// The superblock; `None` if it is damaged.
    Superblock(Option<Log>),
    /// The copies in the blocks after it.
    Descriptor(Sequence, Vec<Copy>),
    /// Blocks that must not be replayed.
    Revoke(Sequence, Vec<u64>),
    /// The end of a transaction.
    Commit(Sequence),
}

impl Head {
    fn sequence(&self) -> Option<Sequence> {
        match self {
            Self::Superblock(_) => None,
            Self::Descriptor(sequence, _) | Self::Revoke(sequence, _) | Self::Commit(sequence) => {
                Some(*sequence)
            }
        }
    }

    fn copies(&self) -> usize {
        match self {
            Self::Descriptor(_, copies) => copies.len(),
            Self::Revoke(_, homes) => homes.len(),
            Self::Superblock(_) | Self::Commit(_) => 0,
        }
    }
}

/// Parses a journal's own blocks; keeps nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    pub(super) format: JournalFormat,
    pub(super) layout: Layout,
    home: Span,
    pub(super) superblock: JournalBlock,
}

impl Reader {
    /// A reader for `journal`, which belongs to the file system at `home`.
    #[must_use]
    pub fn new(journal: &Journal, home: Span) -> Self {
        Self {
            format: journal.format,
            layout: Layout::new(&journal.extents, journal.format.block_bytes),
            home,
            superblock: journal.superblock,
        }
    }

    /// The same journal in the format that its superblock now has.
    fn in_format(&self, format: JournalFormat) -> Self {
        Self {
            format,
            ..self.clone()
        }
    }

    /// The journal block that begins at a byte of the volume.
    #[must_use]
    pub fn block_at(&self, offset: u64) -> Option<JournalBlock> {
        self.layout.block_at(offset)
    }

    /// The first byte of its file system.
    #[must_use]
    pub fn home(&self) -> u64 {
        self.home.start
    }

    /// True if each copy can be verified against a checksum.
    #[must_use]
    pub fn has_sums(&self) -> bool {
        self.format.features.checksum_v3()
    }

    /// Parses a block of the journal.
    #[must_use]
    pub fn read(&self, at: JournalBlock, bytes: &[u8]) -> Content {
        match self.own(at, bytes) {
            Some(head) => Content::Own(head),
            None => Content::Copy(CopySum::of(bytes)),
        }
    }

    fn own(&self, at: JournalBlock, bytes: &[u8]) -> Option<Head> {
        let in_log = (self.format.first..self.format.end).contains(&at);
        match Block::parse(bytes, &self.format) {
            Block::Superblock if at == self.superblock => {
                let (size, room) = (self.format.block_bytes, self.layout.blocks());
                Some(Head::Superblock(superblock::log(bytes, size, room, at)))
            }
            Block::Descriptor(descriptor) if in_log => {
                // An escaped copy lacks the bytes that belong home. A deleted one is not replayed.
                let copies = descriptor.tags().map(|tag| {
                    let is_whole = !(tag.is_escaped || tag.is_deleted);
                    Copy {
                        home: self.home_of(tag.home).filter(|_| is_whole),
                        sum: tag.sum,
                    }
                });
                Some(Head::Descriptor(descriptor.sequence, copies.collect()))
            }
            Block::Revoke(revoke) if in_log => {
                let homes = revoke.blocks().filter_map(|block| self.home_of(block));
                Some(Head::Revoke(revoke.sequence, homes.collect()))
            }
            Block::Commit { sequence } if in_log => Some(Head::Commit(sequence)),
            _ => None,
        }
    }

    /// The places of the copies that a descriptor at `at` names, with the homes of those that may be reported.
    pub fn places<'a>(
        &'a self,
        at: JournalBlock,
        copies: &'a [Copy],
    ) -> impl Iterator<Item = (JournalBlock, u64)> + 'a {
        let mut place = at;
        copies.iter().filter_map(move |copy| {
            place = self.format.after(place);
            Some((place, copy.home?))
        })
    }

    pub(super) fn home_of(&self, block: FsBlock) -> Option<u64> {
        let size = u64::from(self.format.block_bytes);
        let offset = block.0.checked_mul(size)?;
        let end = offset.checked_add(size)?;
        (end <= self.home.bytes).then(|| self.home.start + offset)
    }
}

/// Follows a journal's transactions.
#[derive(Debug)]
pub struct Transactions {
    reader: Arc<Reader>,
    /// The next transaction; `None` until a superblock says which.
    next: Option<Next>,
    /// A block that is missing for it to be complete.
    wanted: Option<JournalBlock>,
    heads: HashMap<JournalBlock, Head>,
    /// Copies that the heads name.
    copies: usize,
    /// Blocks written since their place was last in a complete transaction. For a possible copy, also its checksum.
    fresh: HashMap<JournalBlock, Option<CopySum>>,
    /// How often something else was in a copy's place.
    foreign: u32,
    /// How many journals share the limits.
    journals: usize,
    /// How many blocks its walks have looked at.
    steps: u64,
}

/// The transaction whose turn it is, and what is present of it: whole descriptors with all their copies. So each is walked once,
/// whichever block arrives last.
#[derive(Debug)]
struct Next {
    turn: Turn,
    tags: Tags,
    /// The place of its next head.
    at: JournalBlock,
    /// The blocks from its beginning to there.
    blocks: u32,
    homes: Vec<(u64, JournalBlock)>,
    revoked: HashSet<u64>,
}

impl Next {
    fn new(turn: Turn, format: &JournalFormat) -> Self {
        Self {
            turn,
            tags: Tags::of(format.seed, format.block_bytes, turn.sequence.0),
            at: turn.begin,
            blocks: 0,
            homes: Vec::new(),
            revoked: HashSet::new(),
        }
    }
}

/// The result of a walk through the next transaction.
enum Walk {
    Complete(Vec<(u64, u64)>, JournalBlock),
    Wanted(JournalBlock),
    Foreign(JournalBlock),
}

impl Transactions {
    /// Starts to follow.
    #[must_use]
    pub fn new(reader: Arc<Reader>) -> Self {
        Self {
            reader,
            next: None,
            wanted: None,
            heads: HashMap::new(),
            copies: 0,
            fresh: HashMap::new(),
            foreign: 0,
            journals: 1,
            steps: 0,
        }
    }

    /// How many blocks it has looked at to find out whether a transaction is complete.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Sets how many journals of a volume are followed: they share the limits.
    pub fn share(&mut self, journals: usize) {
        self.journals = journals.max(1);
    }

    /// True if so much did not fit that nothing is reported any more.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.foreign >= FOREIGN
    }

    /// The reader of its blocks.
    #[must_use]
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// Handles a block of the journal that has been written and that `reader` has read.
    pub fn written(&mut self, at: JournalBlock, content: Content, reader: &Arc<Reader>) -> Told {
        if !Arc::ptr_eq(reader, &self.reader) {
            // It was read before a superblock changed the format, so it may be anything.
            self.forget();
            return Told::Nothing;
        }
        let (head, sum) = match content {
            Content::Own(Head::Superblock(log)) => {
                self.superblock(log);
                return Told::Nothing;
            }
            Content::Own(head) => (Some(head), None),
            Content::Copy(sum) => (None, Some(sum)),
        };
        let format = &self.reader.format;
        let is_told = self.reader.has_sums() && !self.has_given_up();
        if !is_told || !(format.first..format.end).contains(&at) {
            return Told::Nothing;
        }
        let before = self.fresh.insert(at, sum);
        if before.is_some_and(|before| before != sum || self.heads.get(&at) != head.as_ref()) {
            self.replaced(at);
        }
        if let Some(old) = self.heads.remove(&at) {
            self.copies -= old.copies();
        }
        let mut is_commit = false;
        if let Some(head) = head {
            let turn = self.next.as_ref().map(|next| next.turn);
            if let (Some(turn), Some(sequence)) = (turn, head.sequence()) {
                // Nothing of a transaction is sent before the previous one is written.
                if turn.compare(sequence).is_gt() {
                    self.next = None;
                }
                is_commit = sequence == turn.sequence && matches!(head, Head::Commit(_));
            }
            self.copies += head.copies();
            self.heads.insert(at, head);
        }
        let is_over = |kept: usize, most: usize| kept > most / self.journals;
        if is_over(self.heads.len(), HEADS)
            || is_over(self.copies, COPIES)
            || is_over(self.fresh.len(), FRESH)
        {
            self.forget();
        }
        match self.wanted {
            Some(wanted) if wanted == at => self.advance_or_doubt(),
            None if is_commit => self.advance_or_doubt(),
            _ => Told::Nothing,
        }
    }

    /// A block of the log is not what it was, although no transaction has ended since. If it has been walked already, that starts
    /// again; unless that would be a long way, which a client could demand again and again.
    fn replaced(&mut self, at: JournalBlock) {
        let format = &self.reader.format;
        if let Some(next) = &mut self.next {
            let log = format.end.0 - format.first.0;
            let within = (at.0 + log - next.turn.begin.0) % log;
            if within < next.blocks && next.blocks > REWALKED {
                self.next = None;
            } else if within < next.blocks {
                *next = Next::new(next.turn, format);
            }
        }
    }

    fn advance_or_doubt(&mut self) -> Told {
        let told = self.advance(true);
        self.foreign += u32::from(matches!(told, Told::Foreign(_)));
        told
    }

    /// Forgets everything until a superblock says where the log begins.
    pub fn forget(&mut self) {
        self.next = None;
        self.wanted = None;
        self.heads.clear();
        self.copies = 0;
        self.fresh.clear();
    }

    fn superblock(&mut self, log: Option<Log>) {
        if let Some(Log { format, .. }) = log
            && format != self.reader.format
        {
            self.forget();
            self.reader = Arc::new(self.reader.in_format(format));
        }
        let Some((sequence, begin)) = log.and_then(|log| log.begin) else {
            return self.forget();
        };
        let first = Turn { sequence, begin };
        if let Some(next) = &self.next
            && !next.turn.is_of_log(first)
        {
            self.forget();
        }
        if self.next.is_none() {
            self.next = Some(Next::new(first, &self.reader.format));
            self.wanted = None;
            // Skip the part that is already complete. Drop the rest too, because its blocks may be from the journal's previous lap.
            self.advance(false);
            let next = self.next.take();
            self.forget();
            let format = &self.reader.format;
            self.next = next.map(|next| Next::new(next.turn, format));
        }
    }

    /// Consumes the complete transactions, and reports the last of them. `has_commit`: the commit block of the first is known to have
    /// been written.
    fn advance(&mut self, mut has_commit: bool) -> Told {
        let mut last = Told::Nothing;
        self.wanted = None;
        while let Some(mut next) = self.next.take() {
            let sequence = next.turn.sequence;
            match self.walk(&mut next) {
                Walk::Complete(complete, end) => {
                    last = Told::Complete(complete);
                    has_commit = false;
                    let format = &self.reader.format;
                    self.next = Some(Next::new(Turn::after(sequence, next.at, format), format));
                    self.take(next.turn.begin, end);
                }
                Walk::Wanted(at) => {
                    // If the commit block is missing, wait for it alone.
                    let is_it = |head: &Head| *head == Head::Commit(sequence);
                    let has_commit = has_commit || self.heads.values().any(is_it);
                    self.wanted = has_commit.then_some(at);
                    self.next = Some(next);
                    break;
                }
                Walk::Foreign(at) => {
                    self.forget();
                    return Told::Foreign(at);
                }
            }
        }
        last
    }

    /// Advances to where something is missing. Among a descriptor's missing copies it picks the last,
    /// because they mostly arrive in order.
    fn walk(&mut self, next: &mut Next) -> Walk {
        let format = &self.reader.format;
        // A transaction is not longer than its journal.
        let room = format.end.0 - format.first.0;
        while next.blocks < room {
            let head = self.heads.get(&next.at);
            let head = head.filter(|_| self.fresh.contains_key(&next.at));
            match head.filter(|head| head.sequence() == Some(next.turn.sequence)) {
                Some(Head::Descriptor(_, copies)) => {
                    self.steps += copies.len() as u64;
                    let mut at = next.at;
                    let mut missing = None;
                    let homes = next.homes.len();
                    for copy in copies {
                        at = format.after(at);
                        match self.fresh.get(&at) {
                            None => missing = Some(at),
                            Some(block) if copy.is_named(*block, next.tags) => {}
                            Some(_) => return Walk::Foreign(at),
                        }
                        next.homes.extend(copy.home.map(|home| (home, at)));
                    }
                    if let Some(missing) = missing {
                        next.homes.truncate(homes);
                        return Walk::Wanted(missing);
                    }
                    next.at = at;
                    next.blocks = next.blocks.saturating_add(copies.len() as u32);
                }
                Some(Head::Revoke(_, blocks)) => next.revoked.extend(blocks),
                Some(Head::Commit(_)) => {
                    let place = |at| self.reader.layout.place_of(at);
                    let complete = std::mem::take(&mut next.homes)
                        .into_iter()
                        .filter(|(home, _)| !next.revoked.contains(home))
                        .filter_map(|(home, at)| Some((home, place(at)?)))
                        .collect();
                    return Walk::Complete(complete, format.after(next.at));
                }
                _ => return Walk::Wanted(next.at),
            }
            next.at = format.after(next.at);
            next.blocks = next.blocks.saturating_add(1);
        }
        Walk::Wanted(next.turn.begin)
    }

    /// Drops the blocks of a complete transaction.
    fn take(&mut self, begin: JournalBlock, end: JournalBlock) {
        let mut at = begin;
        loop {
            self.fresh.remove(&at);
            if let Some(head) = self.heads.remove(&at) {
                self.copies -= head.copies();
            }
            at = self.reader.format.after(at);
            if at == end {
                return;
            }
        }
    }
}
