//! Lives of a client that journals as jbd2 does with `journal_async_commit`. All requests of a transaction are in flight at once
//! and arrive in any order, and the power fails anywhere. Whatever is committed then must be present and whole.
//!
//! `VELLUM_LIVES=n` runs as many lives, from `VELLUM_SEED` on (each life has its own seed, and can be replayed alone).
//! `VELLUM_SOAK=n` runs fresh seeds for n seconds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "../../../fuzz/src/ext4.rs"]
#[allow(dead_code, unused_imports, reason = "one part of it is used")]
mod ext4;
#[path = "common/log.rs"]
mod log;
#[path = "common/soak.rs"]
#[allow(dead_code, reason = "one part of it is used")]
mod soak;

use common::{Client, Random, assert_sound, create_as, small, wait_for};
use std::sync::Arc;
use std::time::Instant;
use vellum_core::format::areas::Layout;
use vellum_core::seam::WriteOnce;
use vellum_device::block::{Op, Request};
use vellum_device::pack::Compression;
use vellum_device::policy::Policy;
use vellum_device::{OpenOptions, Volume};
use vellum_medium::{FaultMedium, Medium, Plan};
use vellum_watch::limits::SCOUT_PATIENCE;

/// The places of the two pieces of the file system's journal, and its length.
const PIECES: [(u32, u64); 2] = [(0, 68), (500, 668)];
const END: u32 = 1024;
/// Blocks for files.
const FILES: u64 = 2000;

fn lba_of(block: u32) -> u64 {
    let (from, lba) = PIECES[usize::from(block >= PIECES[1].0)];
    lba + u64::from(block - from)
}

fn after(block: u32) -> u32 {
    if block + 1 == END { 1 } else { block + 1 }
}

/// A copy; some are zeros, and some are duplicates.
fn copy(random: &mut Random, sequence: u32) -> Vec<u8> {
    let fill = match random.below(12) {
        0 => 0,
        1 => 1 + random.below(3),
        _ => random.below(u64::MAX),
    };
    let mut copy = common::block_of(fill).to_vec();
    if fill > 3 {
        copy[..4].copy_from_slice(&sequence.to_le_bytes());
    }
    copy
}

/// A transaction as it lies in the log: its blocks from the first to the commit block.
struct Transaction {
    sequence: u32,
    blocks: Vec<(u32, Vec<u8>)>,
    is_durable: bool,
}

impl Transaction {
    /// A transaction of at most `most` copies.
    fn new(random: &mut Random, sequence: u32, begin: u32, most: u64) -> Self {
        let copies = match random.below(8) {
            0 | 1 => random.below(4),
            2..5 => random.below(40),
            5 | 6 => random.below(300),
            // More than a MiB, as far as the log has room.
            _ => 300 + random.below(650),
        };
        let copies = copies.min(most) as usize;
        let mut contents = Vec::new();
        for chunk in (0..=copies).collect::<Vec<_>>().chunks(200) {
            let homes: Vec<(u32, u32)> = chunk.iter().map(|n| (1400 + *n as u32, 0)).collect();
            let copies: Vec<Vec<u8>> = chunk.iter().map(|_| copy(random, sequence)).collect();
            let parts: Vec<&[u8]> = copies.iter().map(Vec::as_slice).collect();
            contents.push(log::descriptor(sequence, &homes, &parts));
            contents.extend(copies);
        }
        contents.push(log::commit(sequence));
        let mut at = begin;
        let mut blocks = Vec::new();
        for content in contents {
            blocks.push((at, content));
            at = after(at);
        }
        Self {
            sequence,
            blocks,
            is_durable: false,
        }
    }

    fn end(&self) -> u32 {
        after(self.blocks.last().unwrap().0)
    }

    /// Its requests: neighbours are randomly merged, as the block layer does.
    fn requests(&self, client: &mut Client, random: &mut Random) -> Vec<Request> {
        let most = [1, 8, 64, 256][random.below(4) as usize];
        let mut requests = Vec::new();
        let mut rest = &self.blocks[..];
        while !rest.is_empty() {
            let joined = rest
                .windows(2)
                .take_while(|pair| lba_of(pair[0].0) + 1 == lba_of(pair[1].0));
            let run = 1 + joined.count().min(random.below(most) as usize);
            let op = Op::Write {
                fua: random.below(8) == 0,
            };
            let mut request = client.request(op, lba_of(rest[0].0), run as u64);
            for (index, (_, bytes)) in rest[..run].iter().enumerate() {
                request.frames.block_mut(index).copy_from_slice(bytes);
            }
            requests.push(request);
            rest = &rest[run..];
        }
        // In order, reversed, or shuffled.
        match random.below(4) {
            0 => {}
            1 => requests.reverse(),
            2 => requests.rotate_right(1),
            _ => {
                for at in (1..requests.len()).rev() {
                    requests.swap(at, random.below(at as u64 + 1) as usize);
                }
            }
        }
        requests
    }
}

/// One medium through many lives.
struct World {
    medium: Arc<FaultMedium>,
    layout: Layout,
    sequence: u32,
    follows: bool,
    judged: u64,
    waited: u64,
    /// The number of blocks in the longest transaction.
    largest: usize,
    /// Lives in which this machine was too slow for the scout to find the journal in time: they show nothing.
    unknown: u64,
}

impl World {
    fn new(layout: Layout, follows: bool) -> Self {
        let medium = Arc::new(FaultMedium::over_memory(9000, Plan::default()));
        create_as(&*medium, layout);
        let mut world = Self {
            medium,
            layout,
            sequence: 1,
            follows,
            judged: 0,
            waited: 0,
            largest: 0,
            unknown: 0,
        };
        let volume = world.open(&mut Random(0));
        let mut client = Client::new(&volume);
        for (at, bytes) in ext4::mounted().pages() {
            put(&mut client, at / 4096, bytes);
        }
        volume.stop().unwrap();
        world
    }

    fn open(&mut self, random: &mut Random) -> Arc<Volume> {
        let is_log = self.layout == Layout::Log;
        let write_once = [WriteOnce::Off, WriteOnce::Hash, WriteOnce::Descriptor];
        let policy = Policy {
            compression: match random.below(3) {
                0 if is_log => Compression::Lz4,
                _ => Compression::Off,
            },
            write_once: write_once[random.below(3) as usize],
            replay: is_log && random.below(2) == 0,
            dedup: random.below(3) == 0,
            ..Policy::default()
        };
        let options = OpenOptions { policy, ..small() };
        let medium: Arc<dyn Medium> = self.medium.clone();
        Arc::new(Volume::open(medium, &options).unwrap())
    }

    /// One life. Fails with the transaction that is committed but not whole afterwards, if there is one.
    fn live(&mut self, seed: u64) -> Result<(), String> {
        let mut random = Random(seed);
        self.medium.set_plan(Plan::seeded(seed));
        let volume = self.open(&mut random);
        if !self.follows {
            for (from, lba) in PIECES {
                let blocks = if from == 0 { 500 } else { 524 };
                volume.set_journal(lba * 4096, blocks * 4096).unwrap();
            }
        } else if random.below(2) == 0 {
            wait_for(&volume, "the scout", |volume| {
                !volume.stats().commits.looking
            });
        }
        let unknown = self.unknown;
        let log = self.run(&volume, &mut random);
        let is_known = self.unknown == unknown;
        let commits = volume.stats().commits;
        self.judged += commits.complete;
        self.waited += commits.waited;
        let is_followed = self.follows && is_known;
        assert!(!is_followed || commits.unjudged == 0, "{commits:?}");
        self.medium.power_cut(seed);
        drop(volume);
        self.medium.restart();
        self.medium.set_plan(Plan::default());
        let volume = self.open(&mut random);
        let mut client = Client::new(&volume);
        let found = check(&mut client, &log);
        // As e2fsck leaves it after its replay. A log that is not known to be empty is only guessed at.
        let mut superblock = read(&mut client, lba_of(0));
        log::begin(&mut superblock, self.sequence, 0);
        put(&mut client, lba_of(0), &superblock);
        client.flush().unwrap();
        drop(client);
        drop(volume);
        if is_known { found } else { Ok(()) }
    }

    /// Runs small transactions, often more than once around the log. Each is written home at once. Returns where the next one
    /// begins, and moves the tail there.
    fn go_round(
        &mut self,
        client: &mut Client,
        random: &mut Random,
        mut begin: u32,
        superblock: &mut [u8],
    ) -> u32 {
        let most = 1 + random.below(12);
        let count = random.below(300);
        for number in 0..=count {
            let transaction = Transaction::new(random, self.sequence, begin, most);
            (self.sequence, begin) = (self.sequence + 1, transaction.end());
            let mut sent = Vec::new();
            for request in transaction.requests(client, random) {
                sent.extend(client.submit(vec![request]));
            }
            for tag in sent {
                client.sink.wait(tag).unwrap();
            }
            if number == count || random.below(20) == 0 {
                log::begin(superblock, self.sequence, begin);
                put(client, lba_of(0), superblock);
            }
        }
        client.flush().unwrap();
        begin
    }

    /// Runs transactions until the power fails.
    fn run(&mut self, volume: &Arc<Volume>, random: &mut Random) -> Vec<Transaction> {
        let mut client = Client::new(volume);
        let mut other = Client::new(volume);
        self.sequence += 2;
        let mut begin = 1 + random.below(u64::from(END) - 1) as u32;
        let mut superblock = read(&mut client, lba_of(0));
        log::begin(&mut superblock, self.sequence, begin);
        let began = Instant::now();
        put(&mut client, lba_of(0), &superblock);
        // This write waits for the scout, but no longer than the scout may take. If it takes that long, nothing is known about
        // this log.
        let is_known = began.elapsed() < SCOUT_PATIENCE / 2;
        self.unknown += u64::from(!is_known);
        client.flush().unwrap();
        if random.below(3) == 0 {
            begin = self.go_round(&mut client, random, begin, &mut superblock);
        }
        let mut log: Vec<Transaction> = Vec::new();
        let count = 1 + random.below(4);
        let cut_in = random.below(count);
        for number in 0..count {
            let used: usize = log.iter().map(|done| done.blocks.len()).sum();
            if used > 600 {
                break;
            }
            // Each 200 copies have a descriptor, and none may come to lie over an older one.
            let most = (END as u64 - 20 - used as u64) / 201 * 200;
            let transaction = Transaction::new(random, self.sequence, begin, most);
            self.largest = self.largest.max(transaction.blocks.len());
            (self.sequence, begin) = (self.sequence + 1, transaction.end());
            let requests = transaction.requests(&mut client, random);
            log.push(transaction);
            let last = match number == cut_in {
                true => random.below(requests.len() as u64 + 1) as usize,
                false => usize::MAX,
            };
            let mut sent = Vec::new();
            for (index, request) in requests.into_iter().enumerate() {
                if index == last {
                    return log;
                }
                sent.extend(client.submit(vec![request]));
                // Another client writes and flushes, so chunks end anywhere.
                if random.below(6) == 0 {
                    let blocks = 1 + random.below(90);
                    let fills: Vec<u64> = (0..blocks).map(|_| random.below(u64::MAX)).collect();
                    other.write(FILES + random.below(1500), &fills).unwrap();
                }
                if random.below(20) == 0 {
                    other.flush().unwrap();
                }
            }
            for tag in sent {
                client.sink.wait(tag).unwrap();
            }
            if random.below(3) > 0 {
                client.flush().unwrap();
                log.iter_mut().for_each(|done| done.is_durable = true);
            }
        }
        log
    }
}

fn put(client: &mut Client, at: u64, bytes: &[u8]) {
    let mut request = client.request(Op::Write { fua: false }, at, 1);
    request.frames.block_mut(0).copy_from_slice(bytes);
    client.call(request).unwrap();
}

fn read(client: &mut Client, at: u64) -> Vec<u8> {
    let request = client.request(Op::Read, at, 1);
    let request = client.call(request).unwrap();
    request.frames.block(0).to_vec()
}

/// Checks as a replay does: a transaction whose commit block is present is present.
fn check(client: &mut Client, log: &[Transaction]) -> Result<(), String> {
    let mut is_over = false;
    for Transaction {
        sequence,
        blocks,
        is_durable,
    } in log
    {
        let (commit, content) = blocks.last().unwrap();
        if read(client, lba_of(*commit)) != *content {
            if *is_durable {
                return Err(format!(
                    "transaction {sequence} was durable, and is not committed"
                ));
            }
            is_over = true;
            continue;
        }
        if is_over {
            return Err(format!(
                "transaction {sequence} is committed, and one before it is not"
            ));
        }
        for (at, content) in blocks {
            if read(client, lba_of(*at)) != *content {
                return Err(format!(
                    "transaction {sequence} is committed without its block {at}"
                ));
            }
        }
    }
    Ok(())
}

fn from_env(name: &str, or: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(or, |value| value.parse().expect("a number"))
}

#[test]
fn a_committed_transaction_is_whole_in_any_order_of_arrival() {
    let long = std::env::var_os("VELLUM_LONG").is_some();
    let lives = from_env("VELLUM_LIVES", if long { 4000 } else { 200 });
    let first = from_env("VELLUM_SEED", 1);
    for layout in [Layout::Log, Layout::Shadow] {
        let mut world = World::new(layout, true);
        let seeds = soak::seeds("commit_order", first..first + lives / 2, 2);
        let mut lives = 0;
        for seed in seeds {
            lives += 2;
            let found = world.live(seed);
            assert_eq!(
                found,
                Ok(()),
                "{layout:?}: VELLUM_SEED={seed} VELLUM_LIVES=2"
            );
        }
        assert_sound(&*world.medium);
        eprintln!(
            "{layout:?}: {} lives, {} commits, {} waited, {} blocks in the longest transaction, \
             {} lives whose journal was found too late",
            lives / 2,
            world.judged,
            world.waited,
            world.largest,
            world.unknown
        );
        // A machine may be too slow for some lives, not for all.
        assert!(
            lives < 4 || world.unknown < lives / 2,
            "no journal was found in time"
        );
        assert!(
            lives < 40 || world.waited * 4 > world.judged,
            "enough of them were late"
        );
    }
}

/// The oracle notices if commit blocks do not wait, as with a journal that is set by hand.
#[test]
fn canary() {
    let mut world = World::new(Layout::Log, false);
    let broken = (1..=200).filter(|seed| world.live(*seed).is_err()).count();
    assert!(broken > 0, "commit blocks did not wait, and nobody noticed");
    assert_eq!(world.judged, 0);
    eprintln!("canary: {broken} of 200 lives ended with a transaction that is not whole");
}
