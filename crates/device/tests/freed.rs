//! Blocks that a file system has freed are dropped, and only those, through power cuts. The client journals as jbd2 does, and a
//! replay must find each file of the last committed transaction.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "../../../fuzz/src/ext4.rs"]
#[allow(dead_code, reason = "only the sound volume is used here")]
mod ext4;

use common::{Client, Random, assert_sound, forgets, open_under, wait_for};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use vellum_device::block::{BlockDevice, BlockError, Op};
use vellum_device::policy::{Deltas, Policy};
use vellum_device::stats::VolumeStats;
use vellum_device::{CreateOptions, Volume};
use vellum_medium::{FaultMedium, Medium, MemoryMedium, Plan};

const MAGIC: u32 = 0xC03B_3998;
/// The place of the sound volume's bitmap.
const BITMAP: u64 = 2;
/// The list of files, in a block that is used.
const LIST: u64 = 1300;
/// The two pieces of the journal: where each begins, and the block after the first. Its superblock, and the end of its log.
const JOURNAL: [u64; 2] = [68, 668];
const PIECE: u64 = 500;
const END: u64 = 1024;
/// Each file is one of these blocks.
const DATA: std::ops::Range<u64> = 1400..1464;
/// Blocks of the journal that a transaction takes.
const TRANSACTION: u64 = 4;

fn open(medium: &Arc<dyn Medium>, freed: bool) -> Arc<Volume> {
    let policy = Policy {
        freed,
        ..Policy::default()
    };
    open_under(medium, policy)
}

fn is_followed(volume: &Volume) -> bool {
    let known = volume.stats().freed.file_systems;
    known.iter().any(|found| found.not_followed.is_none())
}

/// Waits until the file system is followed, and no other scan begins: what a follower has seen is lost to the next one.
fn wait_until_followed(volume: &Arc<Volume>) {
    wait_for(volume, "the file system", is_followed);
    let scans = || volume.stats().write_once.scans;
    let mut before = None;
    while before.replace(scans()) != Some(scans()) {
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn header(kind: u32, sequence: u32) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    for (at, value) in [(0, MAGIC), (4, kind), (8, sequence)] {
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
    bytes
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Where a block of the journal is on the volume.
fn on_volume(block: u64) -> u64 {
    match block.checked_sub(PIECE) {
        None => JOURNAL[0] + block,
        Some(within) => JOURNAL[1] + within,
    }
}

struct Host {
    client: Client,
    /// The blocks that are files, with their contents.
    files: BTreeMap<u64, u32>,
    freed: Vec<u64>,
    stamp: u32,
    sequence: u32,
}

type Done = Result<(), BlockError>;

impl Host {
    fn put(&mut self, block: u64, bytes: &[u8], fua: bool) -> Done {
        let mut request = self.client.request(Op::Write { fua }, block, 1);
        request.frames.block_mut(0).copy_from_slice(bytes);
        self.client.call(request).map(drop)
    }

    fn get(&mut self, block: u64) -> Vec<u8> {
        let request = self.client.request(Op::Read, block, 1);
        let request = self.client.call(request).unwrap();
        request.frames.block(0).to_vec()
    }

    fn bitmap(&self) -> Vec<u8> {
        let mut bytes = vec![0xFF; 4096];
        for block in DATA.filter(|block| !self.files.contains_key(block)) {
            bytes[(block / 8) as usize] &= !(1 << (block % 8));
        }
        bytes
    }

    fn list(&self) -> Vec<u8> {
        let mut bytes = self.sequence.to_be_bytes().to_vec();
        for (block, stamp) in &self.files {
            bytes.extend((*block as u32).to_be_bytes());
            bytes.extend(stamp.to_be_bytes());
        }
        bytes.resize(4096, 0);
        bytes
    }

    fn content(stamp: u32) -> Vec<u8> {
        let mut bytes = vec![0xA5; 4096];
        bytes[..4].copy_from_slice(&stamp.to_be_bytes());
        bytes
    }

    /// The block of the log with a part of a transaction.
    fn in_log(sequence: u32, part: u64) -> u64 {
        1 + (u64::from(sequence) * TRANSACTION + part) % (END - 1)
    }

    /// Where that is on the volume.
    fn place(sequence: u32, part: u64) -> u64 {
        on_volume(Self::in_log(sequence, part))
    }

    /// Says that the log begins with the next transaction, because all others are home.
    fn move_tail(&mut self) -> Done {
        let mut superblock = header(4, 0);
        let (next, start) = (self.sequence + 1, Self::in_log(self.sequence + 1, 0) as u32);
        for (at, word) in [
            (0x0C, 4096),
            (0x10, END as u32),
            (0x14, 1),
            (0x18, next),
            (0x1C, start),
            (0x40, 1),
        ] {
            superblock[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        self.put(JOURNAL[0], &superblock, true)
    }

    /// Files come and go; new contents are written before they are committed.
    fn transaction(&mut self, random: &mut Random) -> Done {
        self.sequence += 1;
        self.freed.clear();
        let count = 1 + random.below(12);
        for _ in 0..count {
            let block = DATA.start + random.below(DATA.end - DATA.start);
            if self.files.remove(&block).is_some() {
                self.freed.push(block);
            } else if !self.freed.contains(&block) {
                self.stamp += 1;
                self.files.insert(block, self.stamp);
                self.put(block, &Self::content(self.stamp), false)?;
            }
        }
        self.write_journal()
    }

    /// Commits the present files.
    fn commit(&mut self) -> Done {
        self.sequence += 1;
        self.write_journal()
    }

    fn write_journal(&mut self) -> Done {
        let place = |part| Self::place(self.sequence, part);
        let places = [place(0), place(1), place(2), place(3)];
        let mut descriptor = header(1, self.sequence);
        for (at, home, flags) in [(12, LIST, 2u32), (20, BITMAP, 10)] {
            descriptor[at..at + 4].copy_from_slice(&(home as u32).to_be_bytes());
            descriptor[at + 4..at + 8].copy_from_slice(&flags.to_be_bytes());
        }
        self.put(places[0], &descriptor, false)?;
        self.put(places[1], &self.list(), false)?;
        self.put(places[2], &self.bitmap(), false)?;
        self.client.flush()?;
        self.put(places[3], &header(2, self.sequence), true)
    }

    /// Makes another, empty file system in place of this one, as mke2fs and a mount would. The old contents are discarded, or
    /// only the journal is zeroed.
    fn make_anew(&mut self, discards: bool) {
        if discards {
            let blocks = self.client.volume.blocks();
            self.client.discard(0, blocks).unwrap();
        } else {
            for block in (1..END).map(on_volume) {
                self.put(block, &[0; 4096], false).unwrap();
            }
        }
        for (at, bytes) in ext4::mounted().pages() {
            self.put(at / 4096, bytes, false).unwrap();
        }
        self.files.clear();
        self.sequence = 0;
        self.go_home().unwrap();
    }

    fn go_home(&mut self) -> Done {
        self.put(LIST, &self.list(), false)?;
        self.put(BITMAP, &self.bitmap(), false)?;
        self.client.flush()?;
        self.move_tail()
    }

    /// Checks that a replay finds what was committed, and writes it home.
    fn replay(client: Client, least: u32, stamp: u32) -> Self {
        let mut host = Self {
            client,
            files: BTreeMap::new(),
            freed: Vec::new(),
            stamp,
            sequence: 0,
        };
        let mut list = host.get(LIST);
        let mut sequence = word(&list, 0);
        loop {
            let next = sequence + 1;
            let place = |part| Self::place(next, part);
            let is =
                |bytes: &[u8], kind| (0..3).map(|n| word(bytes, 4 * n)).eq([MAGIC, kind, next]);
            if !is(&host.get(place(0)), 1) || !is(&host.get(place(3)), 2) {
                break;
            }
            list = host.get(place(1));
            sequence = next;
        }
        assert!(
            sequence >= least,
            "{least} was committed, {sequence} is found"
        );
        host.sequence = sequence;
        let mut at = 4;
        while word(&list, at) != 0 {
            host.files
                .insert(word(&list, at).into(), word(&list, at + 4));
            at += 8;
        }
        for (block, stamp) in host.files.clone() {
            let found = host.get(block);
            assert!(
                found == Self::content(stamp),
                "transaction {sequence}: block {block} has {:#x} and not {stamp}",
                word(&found, 0)
            );
        }
        host
    }

    fn live(&mut self, random: &mut Random, transactions: u64) -> u32 {
        let mut committed = self.sequence;
        for _ in 0..transactions {
            if self.transaction(random).is_err() {
                break;
            }
            committed = self.sequence;
            let home = random.below(3) > 0 && self.go_home().is_ok();
            if home && random.below(2) == 0 {
                // Lets it be dropped before the next write.
                std::thread::sleep(Duration::from_micros(300));
            }
            if random.below(30) == 0 && !forgets(&self.client.volume) {
                break;
            }
        }
        committed
    }
}

/// Puts a volume with a mounted file system on a medium.
fn planted(medium: &Arc<dyn Medium>) {
    let options = CreateOptions {
        segment_blocks: Some(64),
        history: 100,
        ..CreateOptions::default()
    };
    Volume::create(&**medium, &options).unwrap();
    let volume = open(medium, false);
    let mut host = Host {
        client: Client::new(&volume),
        files: BTreeMap::new(),
        freed: Vec::new(),
        stamp: 0,
        sequence: 0,
    };
    host.make_anew(false);
    drop(host);
    volume.stop().unwrap();
}

#[test]
fn freed_blocks_give_back_their_room() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(8000));
    planted(&medium);
    for freed in [false, true] {
        let volume = open(&medium, freed);
        if freed {
            wait_until_followed(&volume);
        }
        let mut host = Host::replay(Client::new(&volume), 0, 0);
        for round in 0..3 {
            for (stamp, block) in DATA.enumerate() {
                host.files.insert(block, stamp as u32);
                host.put(block, &Host::content(stamp as u32), false)
                    .unwrap();
            }
            // Two commits, so that the writes are older than the last commit but one.
            host.commit().unwrap();
            host.commit().unwrap();
            host.files.clear();
            host.commit().unwrap();
            let before = volume.stats();
            host.go_home().unwrap();
            host.client.flush().unwrap();
            if freed {
                let dropped = (round + 1) * (DATA.end - DATA.start);
                wait_for(&volume, "what was freed", |volume| {
                    volume.stats().freed.dropped_blocks == dropped
                });
                let live = |stats: &VolumeStats| stats.core["live_blocks"];
                let fallen = live(&before) - live(&volume.stats());
                assert!(fallen >= DATA.end - DATA.start - 2, "{fallen}");
            }
        }
        assert_eq!(volume.stats().freed.on, freed);
        drop(host);
        volume.stop().unwrap();
        drop(volume);
        assert_sound(&*medium);
    }
}

/// Each file made since the snapshot is dropped, and none that the snapshot has.
#[test]
fn blocks_of_a_snapshot_are_not_dropped() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(16_000));
    planted(&medium);
    let volume = open(&medium, true);
    wait_until_followed(&volume);
    let mut host = Host::replay(Client::new(&volume), 0, 0);
    let put = |host: &mut Host, blocks: std::ops::Range<u64>| {
        for block in blocks {
            host.files.insert(block, block as u32);
            host.put(block, &Host::content(block as u32), false)
                .unwrap();
        }
        host.commit().unwrap();
        host.commit().unwrap();
    };
    let middle = u64::midpoint(DATA.start, DATA.end);
    put(&mut host, DATA.start..middle);
    host.go_home().unwrap();
    volume.take_snapshot("before", 0).unwrap();
    put(&mut host, middle..DATA.end);
    host.files.clear();
    host.commit().unwrap();
    host.go_home().unwrap();
    wait_for(&volume, "what was freed", |volume| {
        volume.stats().freed.dropped_blocks >= DATA.end - middle
    });
    assert_eq!(volume.stats().freed.dropped_blocks, DATA.end - middle);
    let mut seen = Client::new(&Arc::new(volume.seen_at("before").unwrap()));
    for block in DATA.start..middle {
        let request = seen.request(Op::Read, block, 1);
        let read = seen.call(request).unwrap();
        assert!(
            read.frames.block(0) == Host::content(block as u32),
            "block {block}"
        );
    }
}

#[test]
fn a_power_cut_finds_every_committed_file() {
    let mut dropped = 0;
    for seed in 0..16 {
        let medium = Arc::new(FaultMedium::over_memory(8000, Plan::default()));
        let as_medium: Arc<dyn Medium> = medium.clone();
        planted(&as_medium);
        let mut random = Random(seed);
        let (mut committed, mut stamp) = (0, 0);
        for life in 0..5 {
            let plan = Plan::seeded(seed);
            medium.set_plan(plan.clone());
            let volume = open(&as_medium, true);
            wait_for(&volume, "the file system", is_followed);
            let mut host = Host::replay(Client::new(&volume), committed, stamp);
            host.go_home().unwrap();
            if life % 2 == 0 {
                medium.set_plan(plan.with_cut_after(100 + random.below(600)));
            }
            let transactions = 20 + random.below(60);
            committed = host.live(&mut random, transactions);
            stamp = host.stamp;
            dropped += volume.stats().freed.dropped_blocks;
            if !medium.is_off() {
                medium.power_cut(seed * 100 + life);
            }
            drop(host);
            drop(volume);
            medium.restart();
            medium.set_plan(Plan::default());
            assert_sound(&*medium);
        }
    }
    assert!(dropped > 1000, "{dropped}");
}

/// What was learned about the old file system, its free blocks and its bitmaps in flight, does not apply to the one that is made
/// over it while the volume runs; and its blocks that are stored as deltas are overwritten.
#[test]
fn a_file_system_made_over_another_loses_nothing() {
    let (mut dropped, mut deltas) = (0, 0);
    for seed in 0..16 {
        let medium = Arc::new(FaultMedium::over_memory(8000, Plan::default()));
        let as_medium: Arc<dyn Medium> = medium.clone();
        planted(&as_medium);
        let mut random = Random(seed);
        let (mut committed, mut stamp) = (0, 0);
        for life in 0..4 {
            let plan = Plan::seeded(seed);
            medium.set_plan(plan.clone());
            let policy = Policy {
                freed: true,
                deltas: Deltas::Packed,
                ..Policy::default()
            };
            let volume = open_under(&as_medium, policy);
            wait_for(&volume, "the file system", is_followed);
            let mut host = Host::replay(Client::new(&volume), committed, stamp);
            host.go_home().unwrap();
            let transactions = 20 + random.below(20);
            host.live(&mut random, transactions);
            for anew in 0..1 + random.below(3) {
                // The last transactions of the old file system may still be on their way home.
                host.make_anew(anew % 2 == seed % 2);
                if random.below(2) == 0 {
                    wait_for(&volume, "the file system", is_followed);
                }
                let transactions = random.below(20);
                host.live(&mut random, transactions);
            }
            medium.set_plan(plan.with_cut_after(random.below(600)));
            committed = host.sequence;
            let transactions = 20 + random.below(40);
            committed = committed.max(host.live(&mut random, transactions));
            stamp = host.stamp;
            dropped += volume.stats().freed.dropped_blocks;
            deltas += volume.stats().deltas.stored_blocks;
            if !medium.is_off() {
                medium.power_cut(seed * 100 + life);
            }
            drop(host);
            drop(volume);
            medium.restart();
            medium.set_plan(Plan::default());
            assert_sound(&*medium);
        }
    }
    println!("{dropped} dropped, {deltas} deltas");
    assert!(dropped > 300 && deltas > 1000, "{dropped} {deltas}");
}
