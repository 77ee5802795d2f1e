//! A host with a journaling file system: what jbd2 makes of an application's writes.
//!
//! Writes join the running transaction; a block that is written again in it is journaled once. A commit writes to the journal, in
//! order: descriptor blocks, a copy of every block of the transaction, then, behind a flush, the commit block with FUA
//! (with asynchronous commit: together, and one flush behind). In ordered mode data goes home first, behind no
//! journal, and the journal gets the metadata alone: here one block a commit, an inode table's, chosen by where the
//! data is. When three quarters of the journal are taken, the older half's blocks are written home (those that no
//! newer transaction holds), a flush follows and the journal's superblock says where it begins now. At the end everything
//! is checkpointed, as by an unmount. Not modelled: revokes, escaped blocks, bitmaps and directories, write-back by age.

use crate::content::Content;
use crate::rng::mix;
use crate::trace::Op;
use crate::workload::Request;
use std::collections::{BTreeMap, VecDeque};
use vellum_core::addr::Lba;
use vellum_core::seam::{Region, WriteOnce};

/// Blocks that one descriptor block names: tags of 16 bytes in a block with a header and a checksum.
const TAGS: usize = 253;
/// Data blocks for which one block of inodes is changed.
const BLOCKS_PER_INODE_BLOCK: u64 = 4096;

/// What is journaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Data and metadata.
    Data,
    /// Metadata; data is written home before.
    Ordered,
}

/// How a file system journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Journal {
    /// What.
    pub mode: Mode,
    /// Blocks of the journal, at the volume's start.
    pub blocks: u64,
    /// One flush a commit instead of two.
    pub async_commit: bool,
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

    /// Where the application's blocks begin: behind the journal and the inodes.
    #[must_use]
    pub fn data_at(&self, logical: u64) -> u64 {
        self.blocks + logical.div_ceil(BLOCKS_PER_INODE_BLOCK)
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
    data_at: u64,
    seed: u64,
    running: BTreeMap<u64, Content>,
    ordered: BTreeMap<u64, Content>,
    committed: VecDeque<Transaction>,
    /// The newest transaction that holds a block: it is not written home for an older one.
    newest: BTreeMap<u64, u64>,
    head: u64,
    taken: u64,
    number: u64,
    ready: VecDeque<Request>,
}

impl<I: Iterator<Item = Request>> Host<I> {
    /// A host on a volume of `logical` blocks.
    pub fn new(from: I, journal: Journal, logical: u64, seed: u64) -> Self {
        Self {
            from: Some(from),
            journal,
            data_at: journal.data_at(logical),
            seed,
            running: BTreeMap::new(),
            ordered: BTreeMap::new(),
            committed: VecDeque::new(),
            newest: BTreeMap::new(),
            head: 1,
            taken: 0,
            number: 0,
            ready: VecDeque::new(),
        }
    }

    fn push(&mut self, op: Op, lba: u64, contents: Vec<Content>) {
        self.ready.push_back(Request {
            at: 0,
            op,
            lba,
            blocks: contents.len() as u32,
            contents,
        });
    }

    fn flush(&mut self) {
        self.push(Op::Flush, 0, Vec::new());
    }

    /// Something that only the file system knows: different each time.
    fn own(&mut self, what: u64) -> Content {
        Content::of(mix(self.seed ^ mix(self.number << 20 | what)))
    }

    fn take(&mut self, request: &Request) {
        for (i, &content) in request.contents.iter().enumerate() {
            let home = self.data_at + request.lba + i as u64;
            let inode = self.journal.blocks + (request.lba + i as u64) / BLOCKS_PER_INODE_BLOCK;
            match self.journal.mode {
                Mode::Data => self.running.insert(home, content),
                Mode::Ordered => self.ordered.insert(home, content),
            };
            // What is in it is settled by the commit.
            self.running.insert(inode, Content::ZERO);
        }
        // A transaction is at most a quarter of the journal, as in jbd2.
        if self.running.len() as u64 >= self.journal.blocks / 4 {
            self.commit();
        }
    }

    /// Writes to the journal from its head on, around its end.
    fn append(&mut self, contents: &[Content], fua: bool) {
        let mut rest = contents;
        while !rest.is_empty() {
            let room = (self.journal.blocks - self.head) as usize;
            let (now, later) = rest.split_at(rest.len().min(room).min(256));
            self.push(Op::Write { fua }, self.head, now.to_vec());
            self.head += now.len() as u64;
            if self.head == self.journal.blocks {
                self.head = 1;
            }
            rest = later;
        }
        self.taken += contents.len() as u64;
    }

    /// Runs of neighbouring blocks, one write each.
    fn write_home(&mut self, blocks: impl Iterator<Item = (u64, Content)>) {
        let mut run: (u64, Vec<Content>) = (0, Vec::new());
        for (lba, content) in blocks {
            if lba != run.0 + run.1.len() as u64 || run.1.len() == 256 {
                let (at, contents) = std::mem::take(&mut run);
                if !contents.is_empty() {
                    self.push(Op::Write { fua: false }, at, contents);
                }
                run.0 = lba;
            }
            run.1.push(content);
        }
        if !run.1.is_empty() {
            self.push(Op::Write { fua: false }, run.0, run.1);
        }
    }

    fn commit(&mut self) {
        let ordered = std::mem::take(&mut self.ordered);
        self.write_home(ordered.into_iter());
        if self.running.is_empty() {
            return self.flush();
        }
        self.number += 1;
        let mut homes = std::mem::take(&mut self.running);
        let descriptors = homes.len().div_ceil(TAGS);
        let takes = (homes.len() + descriptors + 1) as u64;
        while self.taken + takes > self.journal.blocks * 3 / 4 && !self.committed.is_empty() {
            self.checkpoint(self.committed.len().div_ceil(2));
        }
        for (&home, content) in &mut homes {
            if home < self.data_at {
                *content = Content::of(mix(self.seed ^ mix(self.number << 32 ^ home)));
            }
            self.newest.insert(home, self.number);
        }
        let copies: Vec<Content> = homes.values().copied().collect();
        for (i, copies) in copies.chunks(TAGS).enumerate() {
            let mut blocks = vec![self.own(i as u64)];
            blocks.extend_from_slice(copies);
            self.append(&blocks, false);
        }
        let commit = self.own(u64::from(u16::MAX));
        if self.journal.async_commit {
            self.append(&[commit], false);
            self.flush();
        } else {
            self.flush();
            self.append(&[commit], true);
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
        let superblock = Content::of(mix(
            self.seed ^ mix(self.number << 20 | 1 << 19 | self.taken)
        ));
        self.push(Op::Write { fua: true }, 0, vec![superblock]);
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
                    Op::Flush => self.commit(),
                    Op::Read => {
                        let lba = self.data_at + request.lba;
                        self.ready.push_back(Request { lba, ..request });
                    }
                    Op::Discard => {}
                },
                None => {
                    self.from = None;
                    self.commit();
                    self.checkpoint(usize::MAX);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{self, Generator};
    use std::collections::BTreeSet;

    const LOGICAL: u64 = 100_000;

    fn requests(mode: Mode, async_commit: bool) -> Vec<Request> {
        let journal = Journal {
            mode,
            blocks: 2048,
            async_commit,
        };
        let shape = workload::Shape {
            blocks: LOGICAL - journal.data_at(LOGICAL),
            request_blocks: 1,
            zeros: 0,
            duplicates: 0,
            flush_every: 50,
            seed: 1,
        };
        // 20,000 writes, and 400 fsyncs.
        let load = Generator::new(*workload::find("uniform").unwrap(), shape).take(20_400);
        Host::new(load, journal, LOGICAL, 1).collect()
    }

    #[test]
    fn every_home_block_was_journaled_as_it_is_and_the_journal_is_not_overrun() {
        let requests = requests(Mode::Data, false);
        let mut journal = BTreeMap::new();
        let mut homes = 0;
        for request in requests.iter().filter(|r| r.op != Op::Flush) {
            for (i, &content) in request.contents.iter().enumerate() {
                let lba = request.lba + i as u64;
                if lba < 2048 {
                    journal.insert(lba, content);
                } else {
                    homes += 1;
                    assert!(journal.values().any(|&copy| copy == content), "home {lba}");
                }
            }
        }
        let written: BTreeSet<Content> = requests.iter().flat_map(|r| r.contents.clone()).collect();
        assert!(
            homes > 15_000 && written.len() > 20_000,
            "{homes} {}",
            written.len()
        );
    }

    #[test]
    fn flushes_are_as_many_as_the_mode_says() {
        let count = |async_commit| {
            let all = requests(Mode::Data, async_commit);
            let fua = all
                .iter()
                .filter(|r| r.op == Op::Write { fua: true })
                .count();
            (all.iter().filter(|r| r.op == Op::Flush).count(), fua)
        };
        let (two, one) = (count(false), count(true));
        // 400 commits: a flush and a FUA each, or a flush; a checkpoint has one of both.
        assert_eq!(two.0, one.0);
        assert_eq!(two.1 - one.1, 400);
        let ordered = requests(Mode::Ordered, false);
        let blocks: u64 = ordered.iter().map(|r| u64::from(r.blocks)).sum();
        let journal: u64 = requests(Mode::Data, false)
            .iter()
            .map(|r| u64::from(r.blocks))
            .sum();
        assert!(
            journal * 2 > blocks * 3 && journal < blocks * 2,
            "{journal} {blocks}"
        );
    }
}
