//! Which of a journal's transactions are recorded: what a volume that replays by itself would pledge, and nothing
//! more.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

use super::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use vellum_core::addr::Lba;
use vellum_device::block::{Extent, Op, Replies, Request};
use vellum_device::frames::FramePool;
use vellum_trace::limits::COMMITTED_MAX;

#[path = "../../../../fuzz/src/ext4.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part is used")]
mod ext4;
#[path = "../../../device/tests/common/log.rs"]
#[allow(unreachable_pub, reason = "shared with tests of other crates")]
mod log;

const JOURNAL: u64 = 68;
const HOME: u32 = 1400;
const ESCAPED: u32 = 1;
const DELETED: u32 = 4;

/// A disk that is only read.
struct Disk {
    frames: Arc<FramePool>,
    blocks: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl BlockDevice for Disk {
    fn blocks(&self) -> u64 {
        4096
    }

    fn read_only(&self) -> bool {
        true
    }

    fn frames(&self) -> &Arc<FramePool> {
        &self.frames
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        let blocks = self.blocks.lock().unwrap();
        for mut request in requests.drain(..) {
            assert_eq!(request.op, Op::Read);
            for index in 0..request.frames.len() {
                let block = blocks.get(&(request.lba.0 + index as u64));
                let frame = request.frames.block_mut(index);
                frame.copy_from_slice(block.map_or(&[0; BLOCK_BYTES], |block| &block[..]));
            }
            replies.complete(request, Ok(()));
        }
        replies.flush();
    }

    fn extents(&self, _: Lba, _: u64, _: usize) -> Vec<Extent> {
        Vec::new()
    }
}

/// A file system with a journal whose log begins at its first block, and the classes found in it.
struct Host {
    disk: Disk,
    classes: Classes,
    journal_superblock: Vec<u8>,
    superblock: Vec<u8>,
    sequence: u32,
    next: u32,
}

impl Host {
    fn new() -> Self {
        let mut host = Self {
            disk: Disk {
                frames: FramePool::new(64, 64, 0).unwrap(),
                blocks: Mutex::default(),
            },
            classes: Classes::default(),
            journal_superblock: Vec::new(),
            superblock: Vec::new(),
            sequence: 1,
            next: 1,
        };
        for (at, page) in ext4::mounted().pages() {
            host.on_disk(at / BLOCK, page);
            match at / BLOCK {
                0 => host.superblock = page.to_vec(),
                JOURNAL => host.journal_superblock = page.to_vec(),
                _ => {}
            }
        }
        // As after the first mount.
        log::begin(&mut host.journal_superblock, 1, 1);
        let superblock = host.journal_superblock.clone();
        host.on_disk(JOURNAL, &superblock);
        assert!(host.classes.look(&host.disk));
        host.begin();
        host
    }

    fn on_disk(&self, lba: u64, block: &[u8]) {
        let mut blocks = self.disk.blocks.lock().unwrap();
        blocks.insert(lba, block.to_vec());
    }

    /// Writes a block; returns what the write commits.
    fn write(&mut self, lba: u64, block: &[u8]) -> Vec<Committed> {
        self.on_disk(lba, block);
        let (blocks, _) = block.as_chunks::<BLOCK_BYTES>();
        self.classes.written(lba, &blocks[0]);
        self.classes.committed(lba, blocks)
    }

    /// Lets the journal's superblock say that its log begins with the next transaction.
    fn begin(&mut self) {
        log::begin(&mut self.journal_superblock, self.sequence, self.next);
        let superblock = self.journal_superblock.clone();
        assert!(self.write(JOURNAL, &superblock).is_empty());
    }

    /// Writes all blocks of a transaction but the commit block, then the commit block; returns what that commits.
    fn commit(&mut self, homes: &[(u32, u32)]) -> Vec<(u64, u64)> {
        for homes in homes.chunks(200) {
            let copies: Vec<&[u8]> = homes.iter().map(|_| &[7; BLOCK_BYTES][..]).collect();
            let mut blocks = vec![log::descriptor(self.sequence, homes, &copies)];
            blocks.extend(copies.iter().map(|copy| copy.to_vec()));
            for block in blocks {
                let at = JOURNAL + u64::from(self.next);
                assert!(self.write(at, &block).is_empty(), "not complete");
                self.next += 1;
            }
        }
        let at = JOURNAL + u64::from(self.next);
        let committed = self.write(at, &log::commit(self.sequence));
        self.next += 1;
        self.sequence += 1;
        committed
            .into_iter()
            .map(|block| (block.home, block.copy - JOURNAL))
            .collect()
    }

    /// Commits a transaction of two blocks.
    fn commit_two(&mut self) -> Vec<(u64, u64)> {
        self.commit(&[(HOME, 0), (HOME + 1, 0)])
    }
}

fn home(n: u64) -> u64 {
    u64::from(HOME) + n
}

#[test]
fn a_commit_block_completes_the_replayable_blocks_of_its_transaction() {
    let mut host = Host::new();
    assert_eq!(host.commit_two(), [(home(0), 2), (home(1), 3)]);
    let homes = [(HOME, ESCAPED), (HOME + 1, 0), (HOME + 2, DELETED)];
    assert_eq!(host.commit(&homes), [(home(1), 7)]);
    // Outside the file system.
    assert_eq!(host.commit(&[(HOME, 0), (4096, 0)]), [(home(0), 11)]);
}

#[test]
fn too_long_a_transaction_is_not_reported() {
    let homes: Vec<(u32, u32)> = (0..=COMMITTED_MAX as u32).map(|n| (HOME + n, 0)).collect();
    assert_eq!(Host::new().commit(&homes), []);
    assert_eq!(Host::new().commit(&homes[1..]).len(), COMMITTED_MAX);
}

#[test]
fn nothing_is_reported_while_a_change_waits_to_be_looked_at() {
    let mut host = Host::new();
    let mut superblock = host.superblock.clone();
    // As a mount and an unmount do.
    superblock[1024 + 0x60] ^= 4;
    host.write(0, &superblock);
    host.begin();
    assert_eq!(host.commit_two(), []);
    host.classes.look(&host.disk);
    assert_eq!(host.commit_two().len(), 2, "it was followed meanwhile");
}

#[test]
fn after_a_missed_write_nothing_is_reported_until_the_log_begins() {
    let mut host = Host::new();
    host.classes.missed();
    assert_eq!(host.commit_two(), []);
    host.begin();
    assert_eq!(host.commit_two().len(), 2);
}
