//! When a transaction of the journal is complete: what the kernel's replay would put home from there on.
//!
//! It reads along as strictly as replay does: from where the journal's superblock says that the log begins, one
//! transaction after the other, each with the number that is its turn and at the place that is its turn. A
//! transaction is complete when its last block has been written, whichever that is, for an asynchronous commit block
//! may come before what it commits. What was complete before this began to read is passed over in silence: something
//! newer may be at home by now. And if what comes does not fit, nothing is told until a superblock says anew where
//! the log begins. What is kept is bounded ([`HEADS`], [`COPIES`], [`FRESH`]).
//!
//! What was written counts as a copy if it has the sum that its tag names ([`sums`](super::sums)), so of a journal without such sums
//! nothing is told. jbd2 writes each copy once, when all of the transaction before is written, so something else in a copy's place
//! means that somebody between the file system and here changes the order of writes. From the third time on
//! nothing is told any more ([`FOREIGN`]).
//!
//! The superblock says as well how the blocks after it are to be read, and that changes: a journal has no features until
//! the kernel mounts its file system for the first time. So each superblock is checked as a scan checks it, and from
//! there on its format is in force, not that of the last scan.

use super::sums::{CopySum, Tags};
use super::{Block, Journal, JournalBlock, JournalFormat, Layout, Log, Sequence, superblock};
use crate::limits::{COPIES, FOREIGN, FRESH, HEADS};
use crate::span::{FsBlock, Span};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What was written into a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// One of the journal's own blocks.
    Own(Head),
    /// A copy, or anything else.
    Copy(CopySum),
}

/// What a descriptor says of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// What it is a copy of, as a byte of the volume; none of one that is not to be told.
    pub home: Option<u64>,
    sum: Option<u32>,
}

impl Copy {
    /// Whether it is what was written in its place.
    fn is_named(self, block: Option<CopySum>, tags: Tags) -> bool {
        let both = self.sum.zip(block);
        both.is_some_and(|(tag, block)| tags.name(tag, block))
    }
}

/// What a block that was written to a journal came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing is complete with it.
    Nothing,
    /// A transaction is complete: its home blocks and their copies, both as bytes of the volume.
    Complete(Vec<(u64, u64)>),
    /// Something else than its copy lies in this place of a transaction.
    Foreign(JournalBlock),
}

/// A journal's own block, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// The superblock; none if it is damaged.
    Superblock(Option<Log>),
    /// What the blocks after it are copies of.
    Descriptor(Sequence, Vec<Copy>),
    /// What is not to be replayed.
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

/// Reads a journal's own blocks; keeps nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    format: JournalFormat,
    layout: Layout,
    home: Span,
    superblock: JournalBlock,
}

impl Reader {
    /// Of `journal`, which belongs to the file system that lies at `home`.
    #[must_use]
    pub fn new(journal: &Journal, home: Span) -> Self {
        Self {
            format: journal.format,
            layout: Layout::new(&journal.extents, journal.format.block_bytes),
            home,
            superblock: journal.superblock,
        }
    }

    /// The same journal, whose superblock says now that this is its format.
    fn in_format(&self, format: JournalFormat) -> Self {
        Self {
            format,
            ..self.clone()
        }
    }

    /// The journal's block that begins at a byte of the volume.
    #[must_use]
    pub fn block_at(&self, offset: u64) -> Option<JournalBlock> {
        self.layout.block_at(offset)
    }

    /// The first byte of its file system.
    #[must_use]
    pub fn home(&self) -> u64 {
        self.home.start
    }

    /// Whether each copy can be held against a sum.
    #[must_use]
    pub fn has_sums(&self) -> bool {
        self.format.features.checksum_v3()
    }

    /// Reads a block of the journal.
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
                // An escaped copy has not the bytes that belong home. A deleted one is not replayed.
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

    /// Where the copies are that a descriptor at `at` names, with the homes of those that it tells.
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

    fn home_of(&self, block: FsBlock) -> Option<u64> {
        let size = u64::from(self.format.block_bytes);
        let offset = block.0.checked_mul(size)?;
        let end = offset.checked_add(size)?;
        (end <= self.home.bytes).then(|| self.home.start + offset)
    }
}

/// Reads along.
#[derive(Debug)]
pub struct Transactions {
    reader: Arc<Reader>,
    /// The next transaction; none until a superblock has said.
    next: Option<Next>,
    /// The block without which it is not complete.
    wanted: Option<JournalBlock>,
    heads: HashMap<JournalBlock, Head>,
    /// Copies that the heads name.
    copies: usize,
    /// Blocks written since their place was last part of a transaction that is complete; of what may be a copy, its checksum.
    fresh: HashMap<JournalBlock, Option<CopySum>>,
    /// How often something else was in a copy's place.
    foreign: u32,
}

/// The transaction whose turn it is, and what is there of it: whole descriptors with all their copies. So each is walked
/// through once, whichever block comes last.
#[derive(Debug)]
struct Next {
    sequence: Sequence,
    begin: JournalBlock,
    tags: Tags,
    /// Where its next head is to be.
    at: JournalBlock,
    /// From the beginning to there.
    blocks: u32,
    homes: Vec<(u64, JournalBlock)>,
    revoked: HashSet<u64>,
}

impl Next {
    fn new((sequence, begin): (Sequence, JournalBlock), format: &JournalFormat) -> Self {
        Self {
            sequence,
            begin,
            tags: Tags::of(format.seed, format.block_bytes, sequence.0),
            at: begin,
            blocks: 0,
            homes: Vec::new(),
            revoked: HashSet::new(),
        }
    }
}

/// What a walk through the next transaction came to.
enum Walk {
    Complete(Vec<(u64, u64)>, JournalBlock),
    Wanted(JournalBlock),
    Foreign(JournalBlock),
}

impl Transactions {
    /// From now on.
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
        }
    }

    /// Whether so much did not fit that nothing is told any more.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        self.foreign >= FOREIGN
    }

    /// What reads its blocks.
    #[must_use]
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// A block of the journal has been written, and `reader` has read it.
    pub fn written(&mut self, at: JournalBlock, content: Content, reader: &Arc<Reader>) -> Told {
        if !Arc::ptr_eq(reader, &self.reader) {
            // Read before a superblock changed how: it may be anything.
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
        if self.fresh.insert(at, sum).is_some() {
            // The walk may have been through it.
            if let Some(next) = &mut self.next {
                *next = Next::new((next.sequence, next.begin), format);
            }
        }
        if let Some(old) = self.heads.remove(&at) {
            self.copies -= old.copies();
        }
        let mut is_commit = false;
        if let Some(head) = head {
            let next = self.next.as_ref().map(|next| next.sequence);
            if let (Some(next), Some(sequence)) = (next, head.sequence()) {
                // Nothing of a transaction is sent before the one before it is written.
                let ahead = sequence.0.wrapping_sub(next.0);
                if ahead > 0 && ahead < u32::MAX / 2 {
                    self.next = None;
                }
                is_commit = sequence == next && matches!(head, Head::Commit(_));
            }
            self.copies += head.copies();
            self.heads.insert(at, head);
        }
        if self.heads.len() > HEADS || self.copies > COPIES || self.fresh.len() > FRESH {
            self.forget();
        }
        match self.wanted {
            Some(wanted) if wanted == at => self.advance_or_doubt(),
            None if is_commit => self.advance_or_doubt(),
            _ => Told::Nothing,
        }
    }

    fn advance_or_doubt(&mut self) -> Told {
        let told = self.advance();
        self.foreign += u32::from(matches!(told, Told::Foreign(_)));
        told
    }

    /// Knows nothing any more: until a superblock says where the log begins.
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
        let Some(log) = log.and_then(|log| log.begin) else {
            return self.forget();
        };
        // While it is followed the log begins at or before what is next. A superblock that says otherwise is of
        // another log: an image that is written over this one.
        if let Some(next) = &self.next {
            let ahead = log.0.0.wrapping_sub(next.sequence.0);
            let elsewhere = ahead == 0 && log.1 != next.begin;
            if elsewhere || (ahead > 0 && ahead < u32::MAX / 2) {
                self.forget();
            }
        }
        if self.next.is_none() {
            self.next = Some(Next::new(log, &self.reader.format));
            self.wanted = None;
            // What is complete already is passed over; what is not, for a block may be of the journal's last lap.
            self.advance();
            let next = self.next.take();
            self.forget();
            let format = &self.reader.format;
            self.next = next.map(|next| Next::new((next.sequence, next.begin), format));
        }
    }

    /// Takes the transactions that are complete; tells of the last of them.
    fn advance(&mut self) -> Told {
        let mut last = Told::Nothing;
        self.wanted = None;
        while let Some(mut next) = self.next.take() {
            let sequence = next.sequence;
            match self.walk(&mut next) {
                Walk::Complete(complete, end) => {
                    last = Told::Complete(complete);
                    let after = (Sequence(sequence.0.wrapping_add(1)), end);
                    self.next = Some(Next::new(after, &self.reader.format));
                    self.take(next.begin, end);
                }
                Walk::Wanted(at) => {
                    // Until there is a commit block, there is nothing to wait for but that.
                    let has_commit = self
                        .heads
                        .values()
                        .any(|head| *head == Head::Commit(sequence));
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

    /// Goes on to where something is missing. Of a descriptor's copies the last one that is, for they mostly come in order.
    fn walk(&self, next: &mut Next) -> Walk {
        let format = &self.reader.format;
        // A transaction is no longer than its journal.
        let room = format.end.0 - format.first.0;
        while next.blocks < room {
            let head = self.heads.get(&next.at);
            let head = head.filter(|_| self.fresh.contains_key(&next.at));
            match head.filter(|head| head.sequence() == Some(next.sequence)) {
                Some(Head::Descriptor(_, copies)) => {
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
        Walk::Wanted(next.begin)
    }

    /// The blocks of a transaction that is complete count no more.
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
