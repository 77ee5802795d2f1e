//! The watch on a simulated file system: it reads the bytes that the file system writes, as on the device.
//!
//! The volume is scanned once, before the load: no other file system is made on it later. A write that changes what
//! the scan saw ends everything that relies on the scan (`replay`); on the device that lasts until the next scan.

use crate::content::{BYTES, Content};
use crate::journal::Disk;
use crate::workload::{Block, Bytes};
use std::cell::OnceCell;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Buf, Lba};
use vellum_core::seam::{Digest, Hint, Payload};
use vellum_ext4::scan;
use vellum_watch::{
    Blocks, Change, Classes, Critical, EarlierPlaces, Entry, Findings, Followers, FreeSpace, Log,
    Plan, Wants, may_be_own,
};

/// The watch; see the module.
pub struct Watching {
    findings: Findings,
    followers: Followers,
    logs: Vec<Log>,
    /// What was read of the write that is about to be handed over: the log, and the block.
    entries: Vec<(usize, Entry)>,
    pairs: Vec<(Lba, Lba)>,
    commits: u64,
    /// True while nothing that the scan saw has changed.
    is_current: bool,
    /// Follows freed blocks, if that is requested.
    space: Option<FreeSpace>,
}

/// A write as the watch reads it.
#[derive(Clone, Copy)]
pub struct Written<'a> {
    /// Its first block.
    pub first: u64,
    /// What it writes.
    pub contents: &'a [Content],
    /// The bytes of the blocks that the file system made.
    pub bytes: &'a Bytes,
}

impl Written<'_> {
    fn own(&self, index: usize) -> Option<&Block> {
        let own = self.bytes.as_deref()?.iter();
        let mut own = own.filter(|(at, _)| *at as usize == index);
        own.next().map(|(_, bytes)| bytes)
    }

    /// True if the block is one of a journal's own.
    #[must_use]
    pub fn is_journals(&self, index: usize) -> bool {
        self.own(index).is_some_and(|bytes| may_be_own(&bytes[..]))
    }

    /// The first bytes of a block; without bytes, those that stand for its number.
    fn beginning(&self, index: usize) -> u32 {
        match self.own(index).filter(|bytes| may_be_own(&bytes[..])) {
            Some(bytes) => u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            None => self.contents[index].digest().first,
        }
    }

    /// Its blocks, as far as the watch looks at payloads.
    #[must_use]
    pub fn payloads(&self) -> Vec<Payload> {
        let payload = |index| Payload {
            buf: Buf(0),
            digest: Digest {
                first: self.beginning(index),
                ..self.contents[index].digest()
            },
        };
        (0..self.contents.len()).map(payload).collect()
    }

    /// Has `look` read it.
    pub fn read<T>(&self, look: impl FnOnce(&dyn Blocks, &Change<'_>) -> T) -> T {
        let blocks = Read {
            written: *self,
            made: vec![OnceCell::new(); self.contents.len()],
        };
        let change = Change {
            first: self.first,
            blocks: self.contents.len() as u64,
            written: Some(&blocks),
        };
        look(&blocks, &change)
    }
}

/// Shows `see` the last write of a mount: the journal's superblock.
fn last_of_mount(disk: &Disk, see: impl FnOnce(&Written<'_>)) {
    if let Some(superblock) = disk.block(disk.journal) {
        see(&Written {
            first: disk.journal,
            contents: &[Content::ZERO],
            bytes: &Some([(0, Block::clone(superblock))].into()),
        });
    }
}

/// The blocks of a write; bytes of blocks that only have a number are made when they are read.
struct Read<'a> {
    written: Written<'a>,
    made: Vec<OnceCell<Box<[u8; BYTES]>>>,
}

impl Blocks for Read<'_> {
    fn count(&self) -> usize {
        self.written.contents.len()
    }

    fn block(&self, index: usize) -> &[u8] {
        if let Some(own) = self.written.own(index) {
            return own;
        }
        let made = self.made[index].get_or_init(|| {
            let mut bytes = Box::new([0; BYTES]);
            self.written.contents[index].bytes(&mut bytes);
            bytes
        });
        &made[..]
    }
}

impl Watching {
    /// Watches a file system that has just been mounted.
    #[must_use]
    pub fn new(disk: &Disk, wants: Wants) -> Self {
        let mut source = disk;
        let scan = Arc::new(scan(&mut source, disk.blocks));
        let classes = Classes::new(&scan, &mut source, disk.blocks, true, &|| false);
        let critical = Critical::new(&scan, disk.blocks);
        let plan = Plan::new(&scan, &[], &wants, disk.blocks);
        let (classes, critical) = (Arc::new(classes), Arc::new(critical));
        let findings = Findings::new(scan, plan, classes, critical, wants);
        let mut own = Self {
            followers: Followers::new(findings.followers()),
            logs: findings.logs().iter().map(Log::new).collect(),
            findings,
            entries: Vec::new(),
            pairs: Vec::new(),
            commits: 0,
            is_current: true,
            space: None,
        };
        last_of_mount(disk, |written| {
            own.read(written);
            own.handed_over(&mut |_| {});
        });
        own
    }

    /// The findings of the scan.
    #[must_use]
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Where the journals are, even if nothing is done about them: the first block and the length of each.
    #[must_use]
    pub fn journals(&self) -> Vec<(u64, u64)> {
        let found = self.findings.file_systems(|_| None);
        let extents = found.iter().flat_map(|found| &found.journal);
        let block = BLOCK_BYTES as u64;
        extents
            .map(|extent| (extent.start / block, extent.bytes / block))
            .collect()
    }

    /// Transactions whose commit blocks have arrived.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Reads a write that is about to be handed over. Returns home blocks and the places of their copies, from a
    /// descriptor in it.
    pub fn read(&mut self, written: &Written<'_>) -> &[(Lba, Lba)] {
        self.pairs.clear();
        let count = written.contents.len();
        let near = self.findings.touches_journal(written.first, count as u64);
        if !near && written.bytes.is_none() {
            return &self.pairs;
        }
        let Self {
            findings,
            followers,
            logs,
            entries,
            pairs,
            ..
        } = self;
        written.read(|blocks, change| {
            self.is_current &= !findings.is_touched(change);
            if !near {
                return;
            }
            let payloads = written.payloads();
            self.commits += findings.count_commits(change, &payloads, |index| {
                followers.read(change, index, pairs);
            });
            findings.in_logs(written.first, &payloads, |index, log, at| {
                let reader = Arc::clone(logs[log].reader());
                let entry = Entry::read(reader, at, blocks.block(index));
                logs[log].describe(&entry);
                entries.push((log, entry));
            });
        });
        &self.pairs
    }

    /// Sets the class of each block of a write.
    pub fn classify(&self, written: &Written<'_>, payloads: &mut [Payload]) {
        if written.bytes.is_some() {
            for (index, payload) in payloads.iter_mut().enumerate() {
                payload.digest.first = written.beginning(index);
            }
        }
        self.findings.classify(written.first, payloads);
    }

    /// Where an earlier version of a block that is about to be written may be.
    pub fn earlier_places(&mut self, block: Lba) -> EarlierPlaces {
        match self.findings.log_at(block) {
            Some((log, at)) => self.logs[log].write(at, block),
            None => EarlierPlaces::of(block),
        }
    }

    /// Notes that the write just read has been handed over. Passes `tell` the home blocks and copies of each
    /// transaction that is complete now, if that is wanted.
    pub fn handed_over(&mut self, tell: &mut impl FnMut(Hint<'_>)) {
        let replays = self.findings.wants().replay;
        for (log, entry) in self.entries.drain(..).filter(|_| replays) {
            self.pairs.clear();
            let is_current = self.is_current;
            self.logs[log].written(entry, || is_current, &mut self.pairs);
            if !self.pairs.is_empty() {
                tell(Hint::Committed { pairs: &self.pairs });
            }
        }
    }
}

mod freed;
mod order;
#[cfg(test)]
mod tests;
