//! What a journal has committed is put home after a crash, and nothing else is: a client that journals as jbd2 does on a file
//! system that is mounted for the first time, which is when its journal gets its features.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "../../../fuzz/src/ext4.rs"]
#[allow(dead_code, reason = "only the sound volume is used here")]
mod ext4;

use common::{Client, assert_sound, create, small, wait_for};
use std::sync::Arc;
use vellum_device::block::Op;
use vellum_device::policy::Policy;
use vellum_device::{OpenOptions, Volume};
use vellum_medium::{Medium, MemoryMedium};

const MAGIC: u32 = 0xC03B_3998;
/// Where the sound volume has its journal.
const JOURNAL: u64 = 68;
/// Blocks that are files' own.
const HOME: u32 = 1400;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;
/// Checksums v3: tags of 16 bytes, where a journal without features has 8.
const CHECKSUM_V3: u32 = 0x10;
const CHECKSUM_CRC32C: u8 = 4;

fn open(medium: &Arc<dyn Medium>) -> Arc<Volume> {
    let options = OpenOptions {
        policy: Policy {
            replay: true,
            ..Policy::default()
        },
        ..small()
    };
    Arc::new(Volume::open(Arc::clone(medium), &options).unwrap())
}

fn put(block: &mut [u8], at: usize, word: u32) {
    block[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

/// The kernel's checksum, of what it begins with.
fn checksum(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// A block of the log, with its checksum at `at`.
fn sealed(mut block: Vec<u8>, at: usize) -> Vec<u8> {
    let sum = checksum(checksum(!0, &[0; 16]), &block);
    put(&mut block, at, sum);
    block
}

fn header(kind: u32, sequence: u32) -> Vec<u8> {
    let mut block = vec![0; 4096];
    for (at, word) in [(0, MAGIC), (4, kind), (8, sequence)] {
        put(&mut block, at, word);
    }
    block
}

/// Of copies of `HOME` and the block after it. Read as if the journal had no features it has two copies as well: of `HOME`
/// and, for the checksum of the first passes for the flags of a second tag, of block 0.
fn descriptor(sequence: u32) -> Vec<u8> {
    let mut block = header(1, sequence);
    let like_flags = SAME_UUID | LAST;
    for (at, word) in [
        (12, HOME),
        (16, SAME_UUID),
        (24, like_flags),
        (28, HOME + 1),
        (32, SAME_UUID | LAST),
    ] {
        put(&mut block, at, word);
    }
    sealed(block, 4092)
}

struct Host {
    client: Client,
    sequence: u32,
}

impl Host {
    fn put(&mut self, block: u64, bytes: &[u8]) {
        let mut request = self.client.request(Op::Write { fua: false }, block, 1);
        request.frames.block_mut(0).copy_from_slice(bytes);
        self.client.call(request).unwrap();
    }

    fn get(&mut self, block: u64) -> Vec<u8> {
        let request = self.client.request(Op::Read, block, 1);
        let request = self.client.call(request).unwrap();
        request.frames.block(0).to_vec()
    }

    /// The journal's superblock: the log begins with the next transaction. The kernel's first commit writes it, and whenever
    /// the log's tail has moved.
    fn begin_log(&mut self) {
        let mut superblock = self.get(JOURNAL);
        put(&mut superblock, 0x18, self.sequence);
        put(&mut superblock, 0x1C, self.next_block());
        put(&mut superblock, 0x28, CHECKSUM_V3);
        superblock[0x50] = CHECKSUM_CRC32C;
        put(&mut superblock, 0xFC, 0);
        let sum = checksum(!0, &superblock[..1024]);
        put(&mut superblock, 0xFC, sum);
        self.put(JOURNAL, &superblock);
    }

    /// Where the next transaction begins. Only the journal's first extent is used.
    fn next_block(&self) -> u32 {
        1 + (self.sequence - 1) % 100 * 4
    }

    /// Four blocks of the journal: two copies of what `stamp` says.
    fn commit(&mut self, stamp: u8) {
        let begin = JOURNAL + u64::from(self.next_block());
        self.put(begin, &descriptor(self.sequence));
        self.put(begin + 1, &[stamp; 4096]);
        self.put(begin + 2, &[stamp + 1; 4096]);
        self.put(begin + 3, &sealed(header(2, self.sequence), 16));
        self.client.flush().unwrap();
        self.sequence += 1;
    }
}

/// A volume with a file system that is being mounted for the first time.
fn mounted() -> (Arc<dyn Medium>, Arc<Volume>, Host) {
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

fn after_a_crash(medium: &Arc<dyn Medium>, volume: Arc<Volume>, host: Host) -> Host {
    let sequence = host.sequence;
    drop((host, volume));
    assert_sound(&**medium);
    let client = Client::new(&open(medium));
    Host { client, sequence }
}

#[test]
fn a_journal_that_has_just_got_its_features_is_read_by_them() {
    // However soon the next scan is: with a commit before it, mostly, and with one after it.
    for waits in [false, true] {
        let (medium, volume, mut host) = mounted();
        let superblock = host.get(0);
        host.put(HOME.into(), &[1; 4096]);
        host.begin_log();
        host.commit(10);
        if waits {
            wait_for(&volume, "it is followed from its superblock on", |volume| {
                host.begin_log();
                host.commit(20);
                volume.stats().core["pledged_blocks"] > 0
            });
        }
        let mut host = after_a_crash(&medium, volume, host);
        assert!(host.get(0) == superblock, "nobody wrote block 0");
        let home = host.get(HOME.into())[0];
        let next = host.get(u64::from(HOME) + 1)[0];
        // Pledged or not; or not any more, for the scan that was due ends what there is.
        let stamp = if waits { 20 } else { 10 };
        let fine = [(1, 0), (stamp, stamp + 1)];
        assert!(fine.contains(&(home, next)), "{home} {next}");
    }
}

/// What is pledged is held against no bytes: so nothing is while a change waits for a scan.
#[test]
fn nothing_is_pledged_while_a_scan_is_behind() {
    let (_medium, volume, mut host) = mounted();
    let pledged = || volume.stats().core["pledged_blocks"];
    wait_for(&volume, "the first pledge", |_| {
        host.begin_log();
        host.commit(10);
        pledged() > 0
    });
    // A scan that is in time is rare, and lets one be pledged; not each time.
    let mut superblock = host.get(0);
    let is_held_back = (0..10).any(|_| {
        let before = pledged();
        // As a mount and an unmount do.
        superblock[1024 + 0x60] ^= 4;
        host.put(0, &superblock);
        host.begin_log();
        host.commit(20);
        pledged() == before
    });
    assert!(is_held_back);
}
