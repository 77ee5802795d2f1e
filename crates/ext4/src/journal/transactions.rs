//! When a transaction of the journal is complete: what the kernel's replay would put home from there on.
//!
//! It reads along as strictly as replay does: from where the journal's superblock says that the log begins, one
//! transaction after the other, each with the number that is its turn and at the place that is its turn. A
//! transaction is complete when its last block has been written, whichever that is, for an asynchronous commit block
//! may come before what it commits. What was complete before this began to read is passed over in silence: something
//! newer may be at home by now. And if what comes does not fit, nothing is told until a superblock says anew where
//! the log begins. What is kept is bounded ([`HEADS`], [`COPIES`], [`FRESH`]).
//!
//! The superblock says as well how the blocks after it are to be read, and that changes: a journal has no features until
//! the kernel mounts its file system for the first time. So each superblock is checked as a scan checks it, and from
//! there on its format is in force, not that of the last scan.

use super::{Block, Journal, JournalBlock, JournalFormat, Layout, Log, Sequence, superblock};
use crate::limits::{COPIES, FRESH, HEADS};
use crate::span::{FsBlock, Span};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A journal's own block, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// The superblock; none if it is damaged.
    Superblock(Option<Log>),
    /// What the blocks after it are copies of: bytes of the volume; none for one that is not to be told.
    Descriptor(Sequence, Vec<Option<u64>>),
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

    /// Reads a block of the journal. None of its own: a copy.
    #[must_use]
    pub fn read(&self, at: JournalBlock, bytes: &[u8]) -> Option<Head> {
        let in_log = (self.format.first..self.format.end).contains(&at);
        match Block::parse(bytes, &self.format) {
            Block::Superblock if at == self.superblock => {
                let (size, room) = (self.format.block_bytes, self.layout.blocks());
                Some(Head::Superblock(superblock::log(bytes, size, room, at)))
            }
            Block::Descriptor(descriptor) if in_log => {
                // An escaped copy has not the bytes that belong home. A deleted one is not replayed.
                let homes = descriptor.tags().map(|tag| {
                    let is_whole = !(tag.is_escaped || tag.is_deleted);
                    self.home_of(tag.home).filter(|_| is_whole)
                });
                Some(Head::Descriptor(descriptor.sequence, homes.collect()))
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
        homes: &'a [Option<u64>],
    ) -> impl Iterator<Item = (JournalBlock, u64)> + 'a {
        let mut place = at;
        homes.iter().filter_map(move |home| {
            place = self.format.after(place);
            Some((place, (*home)?))
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
    /// Blocks written since their place was last part of a transaction that is complete.
    fresh: HashSet<JournalBlock>,
}

/// The transaction whose turn it is, and what is there of it: whole descriptors with all their copies. So each is walked
/// through once, whichever block comes last.
#[derive(Debug)]
struct Next {
    sequence: Sequence,
    begin: JournalBlock,
    /// Where its next head is to be.
    at: JournalBlock,
    /// From the beginning to there.
    blocks: u32,
    homes: Vec<(u64, JournalBlock)>,
    revoked: HashSet<u64>,
}

impl Next {
    fn new((sequence, begin): (Sequence, JournalBlock)) -> Self {
        Self {
            sequence,
            begin,
            at: begin,
            blocks: 0,
            homes: Vec::new(),
            revoked: HashSet::new(),
        }
    }
}

/// What a walk through the next transaction came to.
enum Walk {
    Complete(Complete, JournalBlock),
    Wanted(JournalBlock),
}

/// Home blocks and their copies, both as bytes of the volume.
type Complete = Vec<(u64, u64)>;

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
            fresh: HashSet::new(),
        }
    }

    /// What reads its blocks.
    #[must_use]
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// A block of the journal has been written: `head`, if it is one of its own, as `reader` has read it. The home blocks
    /// of the transaction that is complete with it, and their copies.
    pub fn written(
        &mut self,
        at: JournalBlock,
        head: Option<Head>,
        reader: &Arc<Reader>,
    ) -> Complete {
        if !Arc::ptr_eq(reader, &self.reader) {
            // Read before a superblock changed how: it may be anything.
            self.forget();
            return Complete::new();
        }
        if let Some(Head::Superblock(log)) = head {
            self.superblock(log);
            return Complete::new();
        }
        let format = &self.reader.format;
        if !(format.first..format.end).contains(&at) {
            return Complete::new();
        }
        self.fresh.insert(at);
        if let Some(old) = self.heads.remove(&at) {
            self.copies -= old.copies();
            // The walk may have been through it.
            if let Some(next) = &mut self.next {
                *next = Next::new((next.sequence, next.begin));
            }
        }
        let mut is_commit = false;
        if let Some(head) = head {
            let next = self.next.as_ref().map(|next| next.sequence);
            if let (Some(next), Some(sequence)) = (next, head.sequence()) {
                // One transaction commits at a time, so no other can be far ahead.
                let ahead = sequence.0.wrapping_sub(next.0);
                if ahead > 1 && ahead < u32::MAX / 2 {
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
            Some(wanted) if wanted == at => self.advance(),
            None if is_commit => self.advance(),
            _ => Complete::new(),
        }
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
            self.next = Some(Next::new(log));
            self.wanted = None;
            // What is complete already is passed over; what is not, for a block may be of the journal's last lap.
            self.advance();
            let next = self.next.take();
            self.forget();
            self.next = next.map(|next| Next::new((next.sequence, next.begin)));
        }
    }

    /// Takes the transactions that are complete; what the last of them puts home.
    fn advance(&mut self) -> Complete {
        let mut last = Complete::new();
        self.wanted = None;
        while let Some(mut next) = self.next.take() {
            let sequence = next.sequence;
            match self.walk(&mut next) {
                Walk::Complete(complete, end) => {
                    last = complete;
                    self.next = Some(Next::new((Sequence(sequence.0.wrapping_add(1)), end)));
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
            let head = head.filter(|_| self.fresh.contains(&next.at));
            match head.filter(|head| head.sequence() == Some(next.sequence)) {
                Some(Head::Descriptor(_, copies)) => {
                    let mut at = next.at;
                    let mut missing = None;
                    let homes = next.homes.len();
                    for home in copies {
                        at = format.after(at);
                        if !self.fresh.contains(&at) {
                            missing = Some(at);
                        }
                        next.homes.extend(home.map(|home| (home, at)));
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
