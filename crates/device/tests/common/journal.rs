//! A client that journals as jbd2 does on a file system that is mounted for the first time; its journal gets its features then.
#![allow(dead_code, reason = "each test binary uses its part")]

use crate::common::{Client, create, open_under, wait_for};
use std::sync::Arc;
use vellum_device::Volume;
use vellum_device::block::Op;
use vellum_device::policy::Policy;
use vellum_medium::{Medium, MemoryMedium};

#[path = "../../../../fuzz/src/ext4.rs"]
mod ext4;
#[path = "log.rs"]
pub mod log;

/// The place of the sound volume's journal.
pub const JOURNAL: u64 = 68;
/// The number of transactions that fit in the used part of the journal.
pub const TRANSACTIONS: u32 = 100;
/// Blocks that belong to files.
pub const HOME: u32 = 1400;

/// A file system with a journal, as the medium's client.
pub struct Host {
    pub client: Client,
    pub sequence: u32,
}

impl Host {
    pub fn put(&mut self, block: u64, bytes: &[u8]) {
        let mut request = self.client.request(Op::Write { fua: false }, block, 1);
        request.frames.block_mut(0).copy_from_slice(bytes);
        self.client.call(request).unwrap();
    }

    pub fn get(&mut self, block: u64) -> Vec<u8> {
        let request = self.client.request(Op::Read, block, 1);
        let request = self.client.call(request).unwrap();
        request.frames.block(0).to_vec()
    }

    /// Writes the journal's superblock: the log begins with the next transaction. The kernel's first commit writes it, and so
    /// does each move of the log's tail.
    pub fn begin_log(&mut self) {
        let mut superblock = self.get(JOURNAL);
        log::begin(&mut superblock, self.sequence, self.next_block());
        self.put(JOURNAL, &superblock);
    }

    /// Writes the journal's superblock as an unmount does: nothing is in the log.
    pub fn empty_log(&mut self) {
        let mut superblock = self.get(JOURNAL);
        log::begin(&mut superblock, self.sequence, 0);
        self.put(JOURNAL, &superblock);
    }

    /// The place where the next transaction begins. Only the journal's first extent is used.
    pub fn next_block(&self) -> u32 {
        1 + (self.sequence - 1) % TRANSACTIONS * 4
    }

    /// The number of transactions that fit before the log comes round; 0 if the next one is at its beginning.
    pub fn places_left(&self) -> u32 {
        (TRANSACTIONS - (self.sequence - 1) % TRANSACTIONS) % TRANSACTIONS
    }

    /// Commits two copies with contents from `stamp`.
    pub fn commit(&mut self, stamp: u8) {
        self.commit_blocks([&[stamp; 4096], &[stamp + 1; 4096]]);
    }

    /// Writes four blocks of the journal, which commit these copies for `HOME` and the block after it.
    pub fn commit_blocks(&mut self, copies: [&[u8; 4096]; 2]) {
        if self.sequence > 1 && self.next_block() == 1 {
            // Only a part of the journal is used, so for jbd2 this is another log.
            self.begin_log();
        }
        let begin = JOURNAL + u64::from(self.next_block());
        let homes = [(HOME, 0), (HOME + 1, 0)];
        let descriptor =
            log::descriptor(self.sequence, &homes, &copies.map(<[u8; 4096]>::as_slice));
        self.put(begin, &descriptor);
        self.put(begin + 1, copies[0]);
        self.put(begin + 2, copies[1]);
        self.put(begin + 3, &log::commit(self.sequence));
        self.client.flush().unwrap();
        self.sequence += 1;
    }
}

pub fn open_replaying(medium: &Arc<dyn Medium>) -> Arc<Volume> {
    let policy = Policy {
        replay: true,
        ..Policy::default()
    };
    open_under(medium, policy)
}

/// A volume with a file system that is being mounted for the first time.
pub fn mounted(
    open: impl FnOnce(&Arc<dyn Medium>) -> Arc<Volume>,
) -> (Arc<dyn Medium>, Arc<Volume>, Host) {
    mounted_on(create, open)
}

/// The same on a volume that was created in this way.
pub fn mounted_on(
    create: impl FnOnce(&dyn Medium),
    open: impl FnOnce(&Arc<dyn Medium>) -> Arc<Volume>,
) -> (Arc<dyn Medium>, Arc<Volume>, Host) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(8000));
    create(&*medium);
    let volume = open(&medium);
    let mut host = Host {
        client: Client::new(&volume),
        sequence: 1,
    };
    for (at, bytes) in ext4::mounted().pages() {
        host.put(at / 4096, bytes);
    }
    wait_for(&volume, "the file system", |volume| {
        let found = volume.stats().write_once.file_systems;
        found.iter().any(|found| !found.journal.is_empty())
    });
    (medium, volume, host)
}

/// The four blocks of the next transaction, and their place.
pub fn transaction(host: &mut Host) -> (u64, [Vec<u8>; 4]) {
    let at = JOURNAL + u64::from(host.next_block());
    let homes = [(HOME, 0), (HOME + 1, 0)];
    let sequence = host.sequence;
    host.sequence += 1;
    let copies = [sequence as u8, sequence as u8 + 1].map(|stamp| vec![stamp; 4096]);
    let descriptor = log::descriptor(sequence, &homes, &copies.each_ref().map(Vec::as_slice));
    let [first, second] = copies;
    (at, [descriptor, first, second, log::commit(sequence)])
}
