//! A file system's journal below a cache that writes back: its blocks arrive when the cache chooses, in any order, each in the
//! version that the cache has then.
//!
//! The cache takes what it has written back for clean: it reads that from the volume from then on. `VELLUM_LIVES=n` runs as many
//! lives.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/journal.rs"]
mod journal;

use common::{Client, Random, assert_sound, wait_for};
use journal::{HOME, Host, log, mounted, open_replaying};
use std::collections::{BTreeMap, BTreeSet};
use vellum_device::block::Op;

/// The places of the two pieces of the file system's journal, and its length.
const PIECES: [(u32, u64); 2] = [(0, 68), (500, 668)];
/// The journal has 1024 blocks, so that its log soon comes round.
const END: u32 = 1024;
const HOMES: u32 = 60;

fn lba_of(block: u32) -> u64 {
    let (from, lba) = PIECES[usize::from(block >= PIECES[1].0)];
    lba + u64::from(block - from)
}

fn after(block: u32) -> u32 {
    if block + 1 == END { 1 } else { block + 1 }
}

/// A version of a home block; the contents identify both.
fn content(home: u32, version: u32) -> Vec<u8> {
    let mut block = vec![0; 4096];
    for (index, words) in block.chunks_exact_mut(16).enumerate() {
        words[..4].copy_from_slice(&home.to_le_bytes());
        words[4..8].copy_from_slice(&version.to_le_bytes());
        words[8..12].copy_from_slice(&(version.wrapping_mul(index as u32 | 1)).to_le_bytes());
    }
    block
}

/// How the cache writes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteBack {
    /// Everything at a flush, as the page cache does.
    AtFlush,
    /// Any blocks, at any time.
    Blocks,
    /// Eight neighbours at a time.
    Chunks,
    /// The ends of a transaction, and a lap later the blocks between them as they are then.
    Ends,
}

/// The file system and the cache below it.
struct World {
    host: Host,
    how: WriteBack,
    random: Random,
    /// One in so many writes lets the cache write some blocks back.
    laziness: u64,
    /// Blocks that are in the cache but not on the volume.
    dirty: BTreeMap<u64, Vec<u8>>,
    /// What the file system wrote last.
    written: BTreeMap<u64, Vec<u8>>,
    /// Where the next transaction begins.
    begin: u32,
    /// The number of blocks of the log that are needed.
    used: u32,
    versions: BTreeMap<u32, u32>,
    /// All versions of each block that were committed, and not written home since.
    live: BTreeMap<u32, BTreeSet<u32>>,
}

impl World {
    fn new(host: Host, how: WriteBack, seed: u64) -> Self {
        Self {
            host,
            how,
            random: Random(seed),
            laziness: [20, 60, 200, 600][seed as usize % 4],
            dirty: BTreeMap::new(),
            written: BTreeMap::new(),
            begin: 1,
            used: 0,
            versions: BTreeMap::new(),
            live: BTreeMap::new(),
        }
    }

    fn write(&mut self, lba: u64, bytes: Vec<u8>) {
        self.written.insert(lba, bytes.clone());
        self.dirty.insert(lba, bytes);
        if matches!(self.how, WriteBack::Blocks | WriteBack::Chunks) {
            self.write_some_back();
        }
    }

    fn write_some_back(&mut self) {
        if self.random.below(30) == 0 {
            self.host.client.flush().unwrap();
        }
        // Many at once now and then, and none for a while.
        let many = match self.random.below(self.laziness) {
            0 => self.random.below(80),
            _ => 0,
        };
        for _ in 0..many {
            let pick = self.random.below(self.dirty.len().max(1) as u64) as usize;
            let Some(&lba) = self.dirty.keys().nth(pick) else {
                return;
            };
            match self.how {
                WriteBack::Chunks => self.write_back(lba / 8 * 8..lba / 8 * 8 + 8),
                _ => self.write_back(lba..lba + 1),
            }
        }
    }

    fn write_back(&mut self, lbas: std::ops::Range<u64>) {
        let lbas: Vec<u64> = self.dirty.range(lbas).map(|(lba, _)| *lba).collect();
        for lba in lbas {
            let bytes = self.dirty.remove(&lba).unwrap();
            self.host.put(lba, &bytes);
        }
    }

    fn flush(&mut self) {
        if self.how == WriteBack::AtFlush {
            let mut all: Vec<u64> = self.dirty.keys().copied().collect();
            for at in (1..all.len()).rev() {
                all.swap(at, self.random.below(at as u64 + 1) as usize);
            }
            // All are in flight together, because a commit block waits for what it commits.
            let client = &mut self.host.client;
            let mut sent = Vec::new();
            for lba in all {
                let mut request = client.request(Op::Write { fua: false }, lba, 1);
                let bytes = self.dirty.remove(&lba).unwrap();
                request.frames.block_mut(0).copy_from_slice(&bytes);
                sent.extend(client.submit(vec![request]));
            }
            for tag in sent {
                client.sink.wait(tag).unwrap();
            }
            self.host.client.flush().unwrap();
        }
    }

    /// Commits as jbd2 does with `journal_async_commit`: all at once, then a flush.
    fn commit(&mut self) {
        let count = 1 + self.random.below(14) as u32;
        let first = self.random.below(u64::from(HOMES)) as u32;
        if self.used + count + 8 >= END {
            self.checkpoint();
        }
        let sequence = self.host.sequence;
        let homes: Vec<u32> = (0..count).map(|n| (first + n * 7) % HOMES).collect();
        let homes: BTreeSet<u32> = homes.into_iter().collect();
        let mut copies = Vec::new();
        for home in &homes {
            let version = self.versions.entry(*home).or_default();
            *version += 1;
            copies.push(content(*home, *version));
        }
        let tags: Vec<(u32, u32)> = homes.iter().map(|home| (HOME + home, 0)).collect();
        let parts: Vec<&[u8]> = copies.iter().map(Vec::as_slice).collect();
        let mut blocks = vec![log::descriptor(sequence, &tags, &parts)];
        blocks.extend(copies);
        blocks.push(log::commit(sequence));
        self.used += blocks.len() as u32;
        for block in blocks {
            self.write(lba_of(self.begin), block);
            self.begin = after(self.begin);
        }
        self.flush();
        for home in homes {
            let version = self.versions[&home];
            self.live.entry(home).or_default().insert(version);
        }
        self.host.sequence += 1;
    }

    /// Writes home what is committed; then the log begins after it.
    fn a_lap_of_ends(&mut self) {
        self.checkpoint();
        self.write_back(lba_of(0)..lba_of(0) + 1);
        let first = self.begin;
        self.commit();
        let (mut places, mut at) = (Vec::new(), first);
        while at != self.begin {
            places.push(lba_of(at));
            at = after(at);
        }
        for end in [places[0], places[places.len() - 1]] {
            self.write_back(end..end + 1);
        }
        let mut blocks = 0;
        while blocks < END {
            let before = self.begin;
            self.commit();
            blocks += (self.begin + END - before) % END;
        }
        self.checkpoint();
        let homes = u64::from(HOME)..u64::from(HOME + HOMES);
        self.write_back(homes);
        for place in &places[1..places.len() - 1] {
            self.write_back(*place..*place + 1);
        }
    }

    fn checkpoint(&mut self) {
        for home in self.live.keys().copied().collect::<Vec<_>>() {
            self.write(u64::from(HOME + home), content(home, self.versions[&home]));
        }
        self.flush();
        self.live.clear();
        self.used = 0;
        self.write_superblock();
    }

    fn write_superblock(&mut self) {
        let mut superblock = match self.written.get(&lba_of(0)) {
            Some(bytes) => bytes.clone(),
            None => self.host.get(lba_of(0)),
        };
        // A cache that does not pass flushes on may never send what a commit block commits, so the block would wait in vain.
        match self.how {
            WriteBack::AtFlush => log::begin(&mut superblock, self.host.sequence, self.begin),
            _ => log::begin_in_step(&mut superblock, self.host.sequence, self.begin),
        }
        self.write(lba_of(0), superblock);
        self.flush();
    }
}

/// The contents of home blocks that the cache takes for clean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    right: u64,
    /// Another version of the block, which no replay would put there.
    other_version: u64,
    /// Something that was never written there.
    foreign: u64,
    pledged: u64,
    redeemed: u64,
    told: u64,
}

impl Found {
    fn add(&mut self, other: Self) {
        self.right += other.right;
        self.other_version += other.other_version;
        self.foreign += other.foreign;
        self.pledged += other.pledged;
        self.redeemed += other.redeemed;
        self.told += other.told;
    }
}

/// One life of a volume, until it is dropped. Returns what home blocks hold afterwards.
fn life(how: WriteBack, seed: u64) -> Found {
    let (medium, volume, host) = mounted(open_replaying);
    let mut world = World::new(host, how, seed);
    // The file system is mounted: its journal has its features.
    world.write_superblock();
    world.write_back(0..u64::MAX);
    wait_for(&volume, "the scout", |volume| {
        !volume.stats().commits.looking
    });
    match how {
        WriteBack::Ends => (0..6 + world.random.below(12)).for_each(|_| world.a_lap_of_ends()),
        _ => (0..40 + world.random.below(400)).for_each(|_| {
            world.commit();
            if world.random.below(12) == 0 {
                world.checkpoint();
            }
        }),
    }
    world.host.client.flush().unwrap();
    let stats = volume.stats();
    let is_told = |found: &vellum_device::FileSystemStats| found.not_replayed.is_some();
    let mut found = Found {
        pledged: stats.core["pledged_blocks"],
        told: u64::from(stats.write_once.file_systems.iter().any(is_told)),
        ..Found::default()
    };
    let World {
        host,
        dirty,
        written,
        live,
        ..
    } = world;
    drop((host, volume));
    assert_sound(&*medium);
    let volume = open_replaying(&medium);
    found.redeemed = volume.stats().core["redeemed_blocks"];
    let mut host = Host {
        client: Client::new(&volume),
        sequence: 0,
    };
    for home in 0..HOMES {
        let lba = u64::from(HOME + home);
        let (Some(last), false) = (written.get(&lba), dirty.contains_key(&lba)) else {
            continue;
        };
        let is = host.get(lba);
        let word = |at: usize| u32::from_le_bytes(is[at..at + 4].try_into().unwrap());
        let is_version = is == content(home, word(4));
        // As a replay would write it, which happens in any case.
        let is_replayed = live.get(&home).is_some_and(|of| of.contains(&word(4)));
        match is_version {
            _ if is == *last => found.right += 1,
            true if is_replayed => found.right += 1,
            true => found.other_version += 1,
            false => found.foreign += 1,
        }
    }
    volume.stop().unwrap();
    found
}

fn lives(how: WriteBack) -> Found {
    let lives = std::env::var("VELLUM_LIVES").map_or(8, |lives| lives.parse().unwrap());
    let mut all = Found::default();
    for seed in 1..=lives {
        let found = life(how, seed);
        assert_eq!(found.foreign, 0, "{how:?}, seed {seed}: {found:?}");
        all.add(found);
    }
    eprintln!("{how:?}: {lives} lives, {all:?}");
    all
}

/// The page cache (a loop device without direct I/O): what a flush waits for is written before the flush is answered, so nothing
/// of the next transaction arrives before.
#[test]
fn a_cache_that_writes_back_at_flushes_causes_no_foreign_contents() {
    let found = lives(WriteBack::AtFlush);
    assert!(found.redeemed > 0 && found.right > 0, "{found:?}");
    assert_eq!((found.other_version, found.told), (0, 0), "{found:?}");
}

/// A cache that keeps flushes to itself: a copy that belongs elsewhere never reaches home, and is detected.
#[test]
fn a_copy_of_another_lap_never_comes_home() {
    for how in [WriteBack::Ends, WriteBack::Blocks, WriteBack::Chunks] {
        let found = lives(how);
        assert!(found.right > 0, "{found:?}");
        assert!(how != WriteBack::Ends || found.told > 0, "{found:?}");
    }
}
