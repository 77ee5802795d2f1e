//! A host with a journaling file system: what jbd2 makes of an application's writes to one file.
//!
//! Writes join the running transaction; a block that is written again in it is journaled once. A commit writes to the journal, in
//! order: descriptor blocks, a copy of every block of the transaction, then, behind a flush, the commit block with FUA
//! (with asynchronous commit: together, and one flush behind). In ordered mode data goes home first, behind no
//! journal, and the journal gets the metadata alone. An fsync in data mode is followed by a flush of its own: jbd2 does
//! not know that its commit was one (`jbd2_trans_will_send_data_barrier`), which kernels of the papers' time did not do.
//!
//! Of metadata a commit has the file's inode, and where blocks of it are written for the first time and the file grows,
//! the group's bitmap and descriptor, and on ext3 the indirect block. That is what a real ext4 was seen to write: `tests/lab_journal.sh`
//! holds this model against one. When three quarters of the journal are taken, the older half's blocks are written home (those that no
//! newer transaction holds), a flush follows and the journal's superblock says where it begins now. At the end everything
//! is checkpointed, as by an unmount. What the application discards is a file that it
//! deletes: what of it is not at home yet is never written there, and a file that grows gives its blocks back. An indirect block that
//! is freed may be one of data next, so where data is not journaled a commit names it in a revoke block (`ext4_forget`).
//! Not modelled: escaped blocks, directories, extents of files that are not in one piece,
//! write-back and commits by age.

use crate::content::{Content, Contents};
use crate::rng::mix;
use crate::trace::Op;
use crate::workload::{Homes, NO_HOME, Request};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use vellum_core::addr::Lba;
use vellum_core::seam::{Region, WriteOnce};
use vellum_trace::limits::COMMITTED_MAX;

/// Blocks that one descriptor block names: tags of 16 bytes in a block with a header and a checksum.
const TAGS: usize = 253;
/// Revoked blocks that one revoke block names: 8 bytes each, behind a header and before a checksum.
const REVOKES: usize = 509;
/// Blocks of a group: those of which one block of bitmap says whether they are free.
const GROUP_BLOCKS: u64 = 32_768;
/// Groups that one block of descriptors describes.
const GROUPS_A_BLOCK: u64 = 64;
/// Blocks that an indirect block points to.
const INDIRECT_BLOCKS: u64 = 1024;

/// What is journaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Data and metadata.
    Data,
    /// Metadata; data is written home before.
    Ordered,
    /// Metadata; data is written home by an fsync, and not by a commit for want of room in the journal.
    Writeback,
}

/// How a commit block comes behind the blocks that it commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Commit {
    /// A flush, then the commit block with FUA.
    #[default]
    TwoFlushes,
    /// Together, by checksums, and one flush behind (`journal_async_commit`).
    Async,
    /// The commit block with FUA: the drive keeps the order (OFTL).
    DriveOrders,
}

/// What a write to the file changes beside its inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum File {
    /// Nothing: its blocks are there.
    #[default]
    Overwritten,
    /// Blocks are taken from their group when they are first written.
    Growing,
    /// And entered in an indirect block, as on ext3.
    GrowingIndirect,
}

/// How a file system journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journal {
    /// What.
    pub mode: Mode,
    /// Blocks of the journal, at the volume's start.
    pub blocks: u64,
    /// How it commits.
    pub commit: Commit,
    /// An fsync in data mode is followed by a flush of its own, as in kernels of today (6.18 was looked at; 4.12 has none).
    pub fsync_flushes: bool,
    /// What it journals of.
    pub file: File,
}

impl Journal {
    /// What the core is told of it.
    #[must_use]
    pub fn region(&self, logical: u64, rule: WriteOnce) -> Region {
        Region {
            start: Lba(0),
            blocks: self.blocks,
            homes: Lba(self.blocks),
            homes_blocks: logical - self.blocks,
            rule,
        }
    }

    /// Where the application's blocks begin: behind the journal and all metadata.
    #[must_use]
    pub fn data_at(&self, logical: u64) -> u64 {
        Metadata::of(self.blocks, logical).data_at
    }
}

/// Where metadata is: a block of inodes, then descriptors, bitmaps and indirect blocks.
#[derive(Clone, Copy)]
struct Metadata {
    inode: u64,
    descriptors: u64,
    bitmaps: u64,
    indirect: u64,
    data_at: u64,
}

impl Metadata {
    fn of(inode: u64, logical: u64) -> Self {
        let descriptors = inode + 1;
        let bitmaps = descriptors + logical.div_ceil(GROUP_BLOCKS * GROUPS_A_BLOCK);
        let indirect = bitmaps + logical.div_ceil(GROUP_BLOCKS);
        Self {
            inode,
            descriptors,
            bitmaps,
            indirect,
            data_at: indirect + logical.div_ceil(INDIRECT_BLOCKS),
        }
    }
}

struct Transaction {
    /// Blocks of the journal that it takes.
    takes: u64,
    homes: BTreeMap<u64, Content>,
    number: u64,
}

/// Turns an application's requests (a flush is its fsync) into the disk's.
pub struct Host<I> {
    from: Option<I>,
    journal: Journal,
    at: Metadata,
    /// Blocks of the file that were written before, where that matters.
    allocated: Vec<bool>,
    seed: u64,
    running: BTreeMap<u64, Content>,
    ordered: BTreeMap<u64, Content>,
    /// Metadata that is none any more, and that the journal may hold as such.
    revoked: BTreeSet<u64>,
    committed: VecDeque<Transaction>,
    /// The newest transaction that holds a block: it is not written home for an older one.
    newest: BTreeMap<u64, u64>,
    head: u64,
    taken: u64,
    /// Homes and copies of the transaction that is being written into the journal.
    copies: Vec<(Lba, Lba)>,
    number: u64,
    marks: bool,
    ready: VecDeque<Request>,
}

impl<I: Iterator<Item = Request>> Host<I> {
    /// A host on a volume of `logical` blocks.
    pub fn new(from: I, journal: Journal, logical: u64, seed: u64) -> Self {
        Self {
            from: Some(from),
            journal,
            at: Metadata::of(journal.blocks, logical),
            allocated: match journal.file {
                File::Overwritten => Vec::new(),
                File::Growing | File::GrowingIndirect => vec![false; logical as usize],
            },
            seed,
            running: BTreeMap::new(),
            ordered: BTreeMap::new(),
            revoked: BTreeSet::new(),
            committed: VecDeque::new(),
            newest: BTreeMap::new(),
            head: 1,
            taken: 0,
            copies: Vec::new(),
            number: 0,
            marks: false,
            ready: VecDeque::new(),
        }
    }

    /// The same, and what is the file system's own can be told from what is its users' ([`Content::own`]).
    #[must_use]
    pub fn marking(mut self, marks: bool) -> Self {
        self.marks = marks;
        self
    }

    fn push(&mut self, op: Op, lba: u64, contents: impl Into<Contents>, homes: Homes) {
        let contents = contents.into();
        self.ready.push_back(Request {
            at: 0,
            op,
            lba,
            blocks: contents.len() as u32,
            contents,
            homes,
            committed: None,
            sizes: None,
        });
    }

    fn flush(&mut self) {
        self.ready.push_back(Request::flush(0));
    }

    /// Something that only the file system knows: different each time.
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
        for (i, &content) in request.contents.iter().enumerate() {
            let block = request.lba + i as u64;
            let home = self.at.data_at + block;
            match self.journal.mode {
                Mode::Data => self.running.insert(home, content),
                Mode::Ordered | Mode::Writeback => self.ordered.insert(home, content),
            };
            // What is in metadata is settled by the commit.
            self.running.insert(self.at.inode, Content::ZERO);
            if let Some(there @ false) = self.allocated.get_mut(block as usize) {
                *there = true;
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
                    // Metadata again: what is in the journal from here on is to be replayed.
                    self.revoked.remove(&indirect);
                }
            }
        }
        // A transaction is at most a quarter of the journal, as in jbd2.
        if self.running.len() as u64 >= self.journal.blocks / 4 {
            self.commit(false);
        }
    }

    /// A file, or an end of one, is deleted.
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
            if let Some(there @ true) = self.allocated.get_mut(block as usize) {
                *there = false;
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
            let points_at = index * INDIRECT_BLOCKS..(index + 1) * INDIRECT_BLOCKS;
            let in_use = points_at
                .clone()
                .any(|block| self.allocated.get(block as usize) == Some(&true));
            let indirect = self.at.indirect + index;
            let held = self.newest.remove(&indirect).is_some();
            match in_use {
                // It has lost some, and is journaled anew.
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

    /// Writes blocks with their homes to the journal from its head on, around its end.
    fn append(&mut self, blocks: &[(u64, Content)], fua: bool) {
        let mut rest = blocks;
        while !rest.is_empty() {
            let room = (self.journal.blocks - self.head) as usize;
            let (now, later) = rest.split_at(rest.len().min(room).min(256));
            let contents: Contents = now.iter().map(|&(_, content)| content).collect();
            let copies = now
                .iter()
                .zip(self.head..)
                .map(|(&(home, _), at)| (home, at));
            let copies = copies.filter(|&(home, _)| home != NO_HOME);
            self.copies
                .extend(copies.map(|(home, at)| (Lba(home), Lba(at))));
            let homes = now.iter().map(|&(home, _)| home).collect();
            self.push(Op::Write { fua }, self.head, contents, Some(homes));
            self.head += now.len() as u64;
            if self.head == self.journal.blocks {
                self.head = 1;
            }
            rest = later;
        }
        self.taken += blocks.len() as u64;
    }

    /// Writes the block with which the transaction is complete. As the device does, the volume is told of short ones alone.
    fn append_commit(&mut self, commit: (u64, Content), fua: bool) {
        self.append(&[commit], fua);
        let copies = std::mem::take(&mut self.copies);
        if let Some(request) = self.ready.back_mut()
            && copies.len() <= COMMITTED_MAX
        {
            request.committed = Some(copies.into());
        }
    }

    /// Runs of neighbouring blocks, one write each.
    fn write_home(&mut self, blocks: impl Iterator<Item = (u64, Content)>) {
        let mut run = (0, Contents::new());
        for (lba, content) in blocks {
            if lba != run.0 + run.1.len() as u64 || run.1.len() == 256 {
                let (at, contents) = std::mem::take(&mut run);
                if !contents.is_empty() {
                    self.push(Op::Write { fua: false }, at, contents, None);
                }
                run.0 = lba;
            }
            run.1.push(content);
        }
        if !run.1.is_empty() {
            self.push(Op::Write { fua: false }, run.0, run.1, None);
        }
    }

    /// By an fsync, or for want of room.
    fn commit(&mut self, fsync: bool) {
        if fsync || self.journal.mode != Mode::Writeback {
            let ordered = std::mem::take(&mut self.ordered);
            self.write_home(ordered.into_iter());
        }
        if self.running.is_empty() {
            return self.flush();
        }
        self.number += 1;
        let mut homes = std::mem::take(&mut self.running);
        let descriptors = homes.len().div_ceil(TAGS);
        let revoked = std::mem::take(&mut self.revoked);
        let revokes = revoked.len().div_ceil(REVOKES);
        let takes = (homes.len() + descriptors + revokes + 1) as u64;
        while self.taken + takes > self.journal.blocks * 3 / 4 && !self.committed.is_empty() {
            self.checkpoint(self.committed.len().div_ceil(2));
        }
        for (&home, content) in &mut homes {
            if home < self.at.data_at {
                let new = Content::of(mix(self.seed ^ mix(self.number << 32 ^ home)));
                *content = match self.marks {
                    true => new.own(),
                    false => new,
                };
            }
            self.newest.insert(home, self.number);
        }
        for i in 0..revokes {
            let block = (NO_HOME, self.own(1 << 18 | i as u64));
            self.append(&[block], false);
        }
        let copies: Vec<(u64, Content)> = homes.iter().map(|(&home, &copy)| (home, copy)).collect();
        for (i, copies) in copies.chunks(TAGS).enumerate() {
            let mut blocks = vec![(NO_HOME, self.own(i as u64))];
            blocks.extend_from_slice(copies);
            self.append(&blocks, false);
        }
        let commit = (NO_HOME, self.own(u64::from(u16::MAX)));
        match self.journal.commit {
            Commit::TwoFlushes => {
                self.flush();
                self.append_commit(commit, true);
            }
            Commit::Async => {
                self.append_commit(commit, false);
                self.flush();
            }
            Commit::DriveOrders => self.append_commit(commit, true),
        }
        self.committed.push_back(Transaction {
            takes,
            homes,
            number: self.number,
        });
    }

    /// Writes the oldest transactions' blocks home.
    fn checkpoint(&mut self, transactions: usize) {
        let mut homes = BTreeMap::new();
        for _ in 0..transactions {
            let Some(transaction) = self.committed.pop_front() else {
                break;
            };
            self.taken -= transaction.takes;
            for (home, content) in transaction.homes {
                if self.newest.get(&home) == Some(&transaction.number) {
                    self.newest.remove(&home);
                    homes.insert(home, content);
                }
            }
        }
        self.write_home(homes.into_iter());
        self.flush();
        let superblock = self.own(1 << 19 | self.taken);
        let homes = Some([NO_HOME].into());
        self.push(Op::Write { fua: true }, 0, [superblock].as_slice(), homes);
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
                        self.ready.push_back(Request { lba, ..request });
                    }
                    Op::Discard => self.delete(&request),
                },
                None => {
                    self.from = None;
                    self.commit(true);
                    self.checkpoint(usize::MAX);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
