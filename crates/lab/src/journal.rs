//! A host with a journaling file system: what jbd2 makes of an application's writes to one file. The blocks that the
//! file system writes for itself have bytes (`bytes`), so whatever serves it sees the same as with a real file system.
//!
//! Writes join the running transaction; a block written twice in it is journaled once. A commit writes to the journal,
//! in order: descriptor blocks, a copy of every block of the transaction, then, after a flush, the commit block with
//! FUA. With asynchronous commit these are written together, with one flush after them. In ordered mode data goes home
//! first, and the journal gets only the metadata. An fsync in data mode is followed by another flush: jbd2 does not
//! know that its commit already was one (`jbd2_trans_will_send_data_barrier`). Kernels of the papers' time did not do
//! that.
//!
//! The metadata of a commit is the file's inode. When blocks are written for the first time and the file grows, it is
//! also the group's bitmap and descriptor, and on ext3 the indirect block. A real ext4 was seen to write this;
//! `tests/lab_journal.sh` compares this model with one. When three quarters of the journal are taken, the blocks of
//! the older half are written home (except those that a newer transaction holds); a flush follows, and the journal's
//! superblock says where it begins now. At the end everything is checkpointed, as by an unmount.
//!
//! A discard by the application deletes a file: its blocks that are not home yet are never written there, and a file
//! that grows gives its blocks back. A freed indirect block may hold data next, so where data is not journaled a
//! commit names it in a revoke block (`ext4_forget`). Write-back, if requested, happens after a number of commits,
//! which stand in for age.
//!
//! Not modelled: escaped blocks, directories, extents of files that are not in one piece, and commits by age.

mod bitmaps;
mod bytes;
mod places;

#[cfg(test)]
pub(crate) use bitmaps::Bitmaps;
pub use bytes::Disk;
#[cfg(test)]
pub(crate) use places::Places;

use crate::content::{Content, Contents};
use crate::rng::mix;
use crate::trace::Op;
use crate::workload::{Block, Request};
#[cfg(not(test))]
use bitmaps::Bitmaps;
use bytes::Maker;
#[cfg(not(test))]
use places::Places;
use places::{GROUP_BLOCKS, GROUPS_A_BLOCK, INDIRECT_BLOCKS};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
#[cfg(test)]
use vellum_core::addr::Lba;

/// Blocks that one descriptor block names: tags of 16 bytes in a block with a header and a checksum.
const TAGS: usize = 253;
/// Blocks that one revoke block names: 8 bytes each, after a header and before a checksum.
const REVOKES: usize = 509;
/// What is journaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Data and metadata.
    Data,
    /// Metadata; data is written home before it.
    Ordered,
    /// Metadata; data is written home by an fsync, but not by a commit that only makes room in the journal.
    Writeback,
}

/// How a commit block is ordered after the blocks it commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Commit {
    /// A flush, then the commit block with FUA.
    #[default]
    TwoFlushes,
    /// Together, with checksums, and one flush after them (`journal_async_commit`).
    Async,
    /// The commit block with FUA: the drive keeps the order (OFTL).
    DriveOrders,
}

/// What a write to the file changes besides its inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum File {
    /// Nothing: its blocks exist.
    #[default]
    Overwritten,
    /// Blocks are taken from their group when they are first written.
    Growing,
    /// As `Growing`, and blocks are entered in an indirect block, as on ext3.
    GrowingIndirect,
}

/// How a file system journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journal {
    /// What is journaled.
    pub mode: Mode,
    /// Blocks of the journal.
    pub blocks: u64,
    /// How it commits.
    pub commit: Commit,
    /// An fsync in data mode is followed by another flush, as in current kernels (6.18 was checked; 4.12 has none).
    pub fsync_flushes: bool,
    /// After this many commits the kernel writes home what was committed, as Linux does by age some seconds later; 0:
    /// only when the journal needs the room.
    pub write_back: u64,
    /// What it journals for the file.
    pub file: File,
}

impl Journal {
    /// Where the application's blocks begin: after the journal and all metadata.
    #[must_use]
    pub fn data_at(&self, logical: u64) -> u64 {
        Places::of(self.blocks, logical).data_at
    }

    /// The volume's content when its file system has just been made and mounted.
    #[must_use]
    pub fn disk(&self, logical: u64) -> Disk {
        let at = Places::of(self.blocks, logical);
        Disk::new(&at, self.commit == Commit::Async)
    }
}

struct Transaction {
    /// Blocks of the journal that it takes.
    takes: u64,
    homes: BTreeMap<u64, Content>,
    number: u64,
    /// Its first block in the journal.
    begin: u64,
}

/// A block that goes into the journal, with its bytes if the file system made them.
type Journaled = (Content, Option<Block>);

/// Turns an application's requests (a flush is its fsync) into the disk's requests.
pub struct Host<I> {
    from: Option<I>,
    journal: Journal,
    at: Places,
    maker: Maker,
    /// The used blocks, if they change.
    bitmaps: Option<Bitmaps>,
    seed: u64,
    running: BTreeMap<u64, Content>,
    ordered: BTreeMap<u64, Content>,
    /// Blocks that were metadata, and that the journal may still hold as metadata.
    revoked: BTreeSet<u64>,
    committed: VecDeque<Transaction>,
    /// The newest transaction that holds a block. The block is not written home for an older one.
    newest: BTreeMap<u64, u64>,
    /// In blocks of the journal.
    head: u64,
    taken: u64,
    number: u64,
    marks: bool,
    /// Blocks of metadata that each commit changes beside the file's.
    more: u64,
    /// How long the application works for each block that it writes, in nanoseconds.
    write_ns: u64,
    /// How long it has worked so far.
    clock: u64,
    ready: VecDeque<Request>,
    /// The copies of each transaction: home blocks, and where their copies are.
    #[cfg(test)]
    pub(crate) truth: BTreeMap<u64, Vec<(Lba, Lba)>>,
    /// The blocks that are in use after each transaction.
    #[cfg(test)]
    pub(crate) used: BTreeMap<u64, Bitmaps>,
}

impl<I: Iterator<Item = Request>> Host<I> {
    /// A host on a volume of `logical` blocks.
    pub fn new(from: I, journal: Journal, logical: u64, seed: u64) -> Self {
        let at = Places::of(journal.blocks, logical);
        Self {
            from: Some(from),
            journal,
            at,
            maker: Maker::new(at, journal.commit == Commit::Async),
            bitmaps: (journal.file != File::Overwritten).then(|| Bitmaps::new(&at)),
            seed,
            running: BTreeMap::new(),
            ordered: BTreeMap::new(),
            revoked: BTreeSet::new(),
            committed: VecDeque::new(),
            newest: BTreeMap::new(),
            head: 1,
            taken: 0,
            number: 0,
            marks: false,
            more: 0,
            write_ns: 0,
            clock: 0,
            ready: VecDeque::new(),
            #[cfg(test)]
            truth: BTreeMap::new(),
            #[cfg(test)]
            used: BTreeMap::new(),
        }
    }

    /// Sets whether the file system's own contents can be told from those of its users ([`Content::own`]).
    #[must_use]
    pub fn marking(mut self, marks: bool) -> Self {
        self.marks = marks;
        self
    }

    /// Sets how many blocks of metadata each commit changes beside those of the file, the same each time: other
    /// files' inodes. They are where the indirect blocks are, which only [`File::GrowingIndirect`] uses.
    #[must_use]
    pub fn touching(mut self, blocks: u64) -> Self {
        self.more = match self.journal.file {
            File::GrowingIndirect => 0,
            File::Overwritten | File::Growing => blocks.min(self.at.data_at - self.at.indirect),
        };
        self
    }

    /// Sets how long the application takes for a block that it writes. The requests say when each could be sent if
    /// the drive took no time.
    #[must_use]
    pub fn working(mut self, write_ns: u64) -> Self {
        self.write_ns = write_ns;
        self
    }

    /// Queues a write from `lba` on.
    fn push(&mut self, fua: bool, lba: u64, blocks: impl Iterator<Item = Journaled>) {
        let mut bytes = Vec::new();
        let contents = (0..).zip(blocks).map(|(index, (content, own))| {
            bytes.extend(own.map(|own| (index, own)));
            content
        });
        let contents: Contents = contents.collect();
        self.ready.push_back(Request {
            op: Op::Write { fua },
            lba,
            blocks: contents.len() as u32,
            contents,
            bytes: (!bytes.is_empty()).then(|| bytes.into()),
            ..Request::flush(self.clock)
        });
    }

    fn flush(&mut self) {
        self.ready.push_back(Request::flush(self.clock));
    }

    /// A content that only the file system has: different each time.
    fn own(&mut self, what: u64) -> Content {
        self.mark(Content::of(mix(self.seed ^ mix(self.number << 20 | what))))
    }

    fn mark(&self, content: Content) -> Content {
        match self.marks {
            true => content.own(),
            false => content,
        }
    }

    fn take(&mut self, request: &Request) {
        self.clock += self.write_ns * u64::from(request.blocks);
        for (i, &content) in request.contents.iter().enumerate() {
            let block = request.lba + i as u64;
            let home = self.at.data_at + block;
            match self.journal.mode {
                Mode::Data => self.running.insert(home, content),
                Mode::Ordered | Mode::Writeback => self.ordered.insert(home, content),
            };
            // The commit settles the content of metadata.
            self.running.insert(self.at.inode, Content::ZERO);
            if self.bitmaps.as_mut().is_some_and(|all| all.take(home)) {
                let group = home / GROUP_BLOCKS;
                let (bitmap, descriptor) = (
                    self.at.bitmaps + group,
                    self.at.descriptors + group / GROUPS_A_BLOCK,
                );
                self.running.insert(bitmap, Content::ZERO);
                self.running.insert(descriptor, Content::ZERO);
                if self.journal.file == File::GrowingIndirect {
                    let indirect = self.at.indirect + block / INDIRECT_BLOCKS;
                    self.running.insert(indirect, Content::ZERO);
                    // It is metadata again: its later copies in the journal are replayed.
                    self.revoked.remove(&indirect);
                }
            }
        }
        // A transaction is at most a quarter of the journal, as in jbd2.
        if self.running.len() as u64 >= self.journal.blocks / 4 {
            self.commit(false);
        }
    }

    /// Deletes a file, or the end of one.
    fn delete(&mut self, request: &Request) {
        self.running.insert(self.at.inode, Content::ZERO);
        let blocks = request.lba..request.lba + u64::from(request.blocks);
        for block in blocks.clone() {
            let home = self.at.data_at + block;
            self.ordered.remove(&home);
            if self.journal.mode == Mode::Data {
                self.running.remove(&home);
                self.newest.remove(&home);
            }
            let bitmaps = self.bitmaps.as_mut();
            if bitmaps.is_some_and(|all| all.give_back(home)) {
                let group = home / GROUP_BLOCKS;
                self.running.insert(self.at.bitmaps + group, Content::ZERO);
                let descriptor = self.at.descriptors + group / GROUPS_A_BLOCK;
                self.running.insert(descriptor, Content::ZERO);
            }
        }
        if self.journal.file != File::GrowingIndirect || blocks.is_empty() {
            return;
        }
        for index in blocks.start / INDIRECT_BLOCKS..=(blocks.end - 1) / INDIRECT_BLOCKS {
            let first = self.at.data_at + index * INDIRECT_BLOCKS;
            let mut points_at = first..(first + INDIRECT_BLOCKS).min(self.at.logical);
            let bitmaps = self.bitmaps.as_ref();
            let in_use = bitmaps.is_some_and(|all| points_at.any(|block| all.is_used(block)));
            let indirect = self.at.indirect + index;
            let held = self.newest.remove(&indirect).is_some();
            match in_use {
                // Some of its blocks were freed: it is journaled anew.
                true => {
                    self.running.insert(indirect, Content::ZERO);
                }
                false => {
                    let held = self.running.remove(&indirect).is_some() || held;
                    if held && self.journal.mode != Mode::Data {
                        self.revoked.insert(indirect);
                    }
                }
            }
        }
    }

    /// Writes blocks to the journal from its head on, wrapping at its end.
    fn append(&mut self, mut blocks: Vec<Journaled>, fua: bool) {
        self.taken += blocks.len() as u64;
        while !blocks.is_empty() {
            let room = (self.journal.blocks - self.head) as usize;
            let now = blocks.len().min(room).min(256);
            let at = self.at.journal + self.head;
            self.push(fua, at, blocks.drain(..now));
            self.head += now as u64;
            if self.head == self.journal.blocks {
                self.head = 1;
            }
        }
    }

    /// Notes where the copies of these blocks will be, after a descriptor at the head.
    #[cfg(test)]
    fn note(&mut self, copies: &[(u64, Content)]) {
        let (log, at) = (self.journal.blocks - 1, self.at.journal + 1);
        let places = (self.head..).map(|head| Lba(at + head % log));
        let homes = copies.iter().map(|&(home, _)| Lba(home));
        let known = self.truth.entry(self.number).or_default();
        known.extend(homes.zip(places));
    }

    /// Writes runs of neighbouring blocks home, one write each.
    fn write_home(&mut self, blocks: impl Iterator<Item = (u64, Content)>) {
        let (mut at, mut run) = (0, Vec::new());
        for (lba, content) in blocks {
            if lba != at + run.len() as u64 || run.len() == 256 {
                if !run.is_empty() {
                    self.push(false, at, run.drain(..));
                }
                at = lba;
            }
            run.push((content, self.maker.metadata(lba, content)));
        }
        if !run.is_empty() {
            self.push(false, at, run.drain(..));
        }
    }

    /// Commits, for an fsync or because the journal needs room.
    fn commit(&mut self, fsync: bool) {
        if fsync || self.journal.mode != Mode::Writeback {
            let ordered = std::mem::take(&mut self.ordered);
            self.write_home(ordered.into_iter());
        }
        if self.running.is_empty() {
            return self.flush();
        }
        self.number += 1;
        let more = (0..self.more).map(|block| (self.at.indirect + block, Content::ZERO));
        self.running.extend(more);
        let mut homes = std::mem::take(&mut self.running);
        let descriptors = homes.len().div_ceil(TAGS);
        let revoked = std::mem::take(&mut self.revoked);
        let revokes = revoked.len().div_ceil(REVOKES);
        let takes = (homes.len() + descriptors + revokes + 1) as u64;
        while self.taken + takes > self.journal.blocks * 3 / 4 && !self.committed.is_empty() {
            self.checkpoint(self.committed.len().div_ceil(2), self.number);
        }
        let begin = self.head;
        self.settle(&mut homes);
        let revoked: Vec<u64> = revoked.into_iter().collect();
        for (i, homes) in revoked.chunks(REVOKES).enumerate() {
            let bytes = self.maker.revoke(self.number, homes);
            let block = (self.own(1 << 18 | i as u64), Some(bytes));
            self.append(vec![block], false);
        }
        let copies: Vec<(u64, Content)> = homes.iter().map(|(&home, &copy)| (home, copy)).collect();
        for (i, copies) in copies.chunks(TAGS).enumerate() {
            #[cfg(test)]
            self.note(copies);
            let bytes = self.maker.descriptor(self.number, copies);
            let mut blocks = vec![(self.own(i as u64), Some(bytes))];
            let maker = &self.maker;
            let copy = |&(home, content)| (content, maker.metadata(home, content));
            blocks.extend(copies.iter().map(copy));
            self.append(blocks, false);
        }
        let commit = self.own(u64::from(u16::MAX));
        let commit = vec![(commit, Some(self.maker.commit(self.number)))];
        match self.journal.commit {
            Commit::TwoFlushes => {
                self.flush();
                self.append(commit, true);
            }
            Commit::Async => {
                self.append(commit, false);
                self.flush();
            }
            Commit::DriveOrders => self.append(commit, true),
        }
        self.committed.push_back(Transaction {
            takes,
            homes,
            number: self.number,
            begin,
        });
        let every = self.journal.write_back;
        if every > 0 && self.number.is_multiple_of(every) {
            self.write_back();
        }
    }

    /// Settles the content of metadata: the transaction has it as it is now.
    fn settle(&mut self, homes: &mut BTreeMap<u64, Content>) {
        for (&home, content) in homes {
            if home < self.at.data_at {
                let new = Content::of(mix(self.seed ^ mix(self.number << 32 ^ home)));
                *content = match self.marks {
                    true => new.own(),
                    false => new,
                };
            }
            if let Some(bitmaps) = &self.bitmaps {
                self.maker.note_bitmap(home, *content, bitmaps);
            }
            self.newest.insert(home, self.number);
        }
        #[cfg(test)]
        self.used
            .extend(self.bitmaps.clone().map(|used| (self.number, used)));
    }

    /// Writes home what was committed, and leaves it in the journal. No transaction is running.
    fn write_back(&mut self) {
        let mut homes = BTreeMap::new();
        for transaction in &self.committed {
            for (&home, &content) in &transaction.homes {
                if self.newest.get(&home) == Some(&transaction.number) {
                    self.newest.remove(&home);
                    homes.insert(home, content);
                }
            }
        }
        self.write_home(homes.into_iter());
    }

    /// Writes the blocks of the oldest transactions home. `next`: the number of the transaction written next.
    fn checkpoint(&mut self, transactions: usize, next: u64) {
        let (mut homes, mut gone) = (BTreeMap::new(), Vec::new());
        for _ in 0..transactions {
            let Some(transaction) = self.committed.pop_front() else {
                break;
            };
            self.taken -= transaction.takes;
            for (home, content) in transaction.homes {
                gone.extend(self.maker.is_bitmap(home).then_some(content));
                if self.newest.get(&home) == Some(&transaction.number) {
                    self.newest.remove(&home);
                    homes.insert(home, content);
                }
            }
        }
        self.write_home(homes.into_iter());
        gone.iter()
            .for_each(|&content| self.maker.forget_bitmap(content));
        self.flush();
        let (sequence, begin) = match self.committed.front() {
            Some(oldest) => (oldest.number, oldest.begin),
            None => (next, self.head),
        };
        let bytes = self.maker.superblock(sequence, begin);
        let superblock = self.own(1 << 19 | self.taken);
        let block = [(superblock, Some(bytes))];
        self.push(true, self.at.journal, block.into_iter());
    }
}

impl<I: Iterator<Item = Request>> Iterator for Host<I> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        loop {
            if let Some(request) = self.ready.pop_front() {
                return Some(request);
            }
            match self.from.as_mut()?.next() {
                Some(request) => match request.op {
                    Op::Write { .. } => self.take(&request),
                    Op::Flush => {
                        self.commit(true);
                        if self.journal.fsync_flushes && self.journal.mode == Mode::Data {
                            self.flush();
                        }
                    }
                    Op::Read => {
                        let lba = self.at.data_at + request.lba;
                        let at = request.at.max(self.clock);
                        self.ready.push_back(Request { at, lba, ..request });
                    }
                    Op::Discard { .. } => self.delete(&request),
                },
                None => {
                    self.from = None;
                    self.commit(true);
                    self.checkpoint(usize::MAX, self.number + 1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
