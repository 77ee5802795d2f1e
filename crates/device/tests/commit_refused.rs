//! The core refuses a commit block that was answered before the blocks it commits arrived. Its client believes that it is written,
//! so no flush succeeds from then on. Nothing hangs, and other clients are not held up.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/journal.rs"]
mod journal;

use common::{Client, assert_sound, open, small, wait_for};
use journal::{Host, JOURNAL, mounted, transaction};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_core::limits::RESERVE_QUIET_NANOS;
use vellum_device::block::{BlockError, Op};
use vellum_device::{CreateOptions, Volume};
use vellum_medium::{FaultMedium, Medium, Plan};
use vellum_watch::limits::{COMMIT_PATIENCE, COMMIT_SILENCE};

/// A place outside the journal.
const ELSEWHERE: u64 = 3000;

/// A file system on a thin volume, with a log that has begun.
fn thin() -> (Arc<FaultMedium>, Arc<Volume>, Host) {
    let mut between = None;
    let (_, volume, mut host) = mounted(|_| {
        let faulty = Arc::new(FaultMedium::over_memory(8000, Plan::default()));
        let options = CreateOptions {
            segment_blocks: Some(64),
            logical_blocks: Some(20_000),
            ..CreateOptions::default()
        };
        Volume::create(&*faulty, &options).unwrap();
        let volume = Volume::open(Arc::clone(&faulty) as Arc<dyn Medium>, &small()).unwrap();
        between = Some(faulty);
        Arc::new(volume)
    });
    host.client.write(ELSEWHERE, &[1, 2]).unwrap();
    // Blocks of an earlier log. The place of the first commit block has never been written.
    for block in 1..4 {
        host.put(JOURNAL + block, &[9; 4096]);
    }
    host.empty_log();
    host.begin_log();
    host.client.flush().unwrap();
    (between.unwrap(), volume, host)
}

fn send(host: &mut Host, at: u64, block: &[u8]) -> u64 {
    let mut request = host.client.request(Op::Write { fua: false }, at, 1);
    request.frames.block_mut(0).copy_from_slice(block);
    host.client.submit(vec![request])[0]
}

fn try_read(client: &mut Client, at: u64) -> Result<(), BlockError> {
    let request = client.request(Op::Read, at, 1);
    client.call(request).map(drop)
}

/// Blocks that fill a volume: of clients, and of a journal's second piece, which takes its part of the reserve for upkeep.
struct Filling {
    clients: std::ops::Range<u64>,
    upkeep: std::ops::Range<u64>,
    /// When upkeep was about to be refused.
    since: Instant,
}

impl Filling {
    /// From now on new blocks get ENOSPC, also in the journal; overwritten ones do not. Then its log begins anew.
    fn new(host: &mut Host) -> Self {
        let mut next = 5000;
        for run in [32, 1] {
            while host.client.write(next, &vec![next; run]).is_ok() {
                next += run as u64;
            }
        }
        let mut upkeep = 668;
        let mut since = Instant::now();
        while host.client.write(upkeep, &[upkeep]).is_ok() {
            upkeep += 1;
            since = Instant::now();
        }
        assert!(next < 19_000 && upkeep < 1192, "full, and not at its end");
        host.sequence = 1 + journal::TRANSACTIONS;
        host.begin_log();
        host.client.flush().unwrap();
        Self {
            clients: next - 640..next,
            upkeep: 668..upkeep,
            since,
        }
    }

    /// True if upkeep was refused so recently that it has not got more of the reserve since.
    fn is_full(&self) -> bool {
        self.since.elapsed() < Duration::from_nanos(RESERVE_QUIET_NANOS / 2)
    }

    fn drain(&self, host: &mut Host) {
        for blocks in [&self.clients, &self.upkeep] {
            let count = blocks.end - blocks.start;
            host.client.discard(blocks.start, count).unwrap();
        }
    }

    fn again(&mut self, host: &mut Host) {
        self.since = Instant::now();
        for block in self.clients.clone().chain(self.upkeep.clone()) {
            host.client.write(block, &[block]).unwrap();
        }
    }
}

/// Checks what is reported about a commit block that was answered and is lost.
fn assert_told(volume: &Arc<Volume>, host: &mut Host, lost: u64) {
    let mut other = Client::new(volume);
    for client in [&mut host.client, &mut other] {
        client.flush().unwrap_err();
        client.flush().unwrap_err();
        let durable = client.write_request(ELSEWHERE, &[1], true);
        client.call(durable).unwrap_err();
        try_read(client, lost).unwrap_err();
        assert_eq!(client.read(ELSEWHERE, 2).unwrap(), [1, 2]);
    }
    let commits = volume.stats().commits;
    assert_eq!((commits.waiting, commits.refused), (0, 0), "{commits:?}");
}

/// Checks that what the last flush covered is present. No more than that is promised.
fn assert_as_flushed(medium: &Arc<FaultMedium>, at: u64, commit: &[u8]) {
    let medium: Arc<dyn Medium> = Arc::clone(medium) as _;
    assert_sound(&*medium);
    let volume = open(&medium);
    let mut host = Host {
        client: Client::new(&volume),
        sequence: 1,
    };
    assert_eq!(host.client.read(ELSEWHERE, 2).unwrap(), [1, 2]);
    assert_ne!(host.get(at + 3), commit);
    host.client.flush().unwrap();
    volume.stop().unwrap();
}

#[test]
fn no_flush_succeeds_after_a_commit_block_without_room() {
    assert!((0..20).any(|_| commit_block_is_lost_without_room()));
}

/// Returns false if it took so long that there was room again.
fn commit_block_is_lost_without_room() -> bool {
    let (medium, volume, mut host) = thin();
    let mut filling = Filling::new(&mut host);
    // There is room for the commit block when it is answered, but none later.
    filling.drain(&mut host);
    let (at, blocks) = transaction(&mut host);
    let commit = send(&mut host, at + 3, &blocks[3]);
    host.client.sink.wait(commit).unwrap();
    assert_eq!(volume.stats().commits.waiting, 1);
    filling.again(&mut host);
    host.client.flush().unwrap();
    // Overwrites take no room. The commit block would.
    for (index, block) in blocks[..3].iter().enumerate() {
        host.put(at + index as u64, block);
    }
    if !filling.is_full() {
        return false;
    }
    assert_told(&volume, &mut host, at + 3);
    // jbd2 ignores the answer to that flush. So the next commit block reports the loss, whether that one has to wait or not.
    filling.drain(&mut host);
    for is_early in [true, false] {
        let (next, blocks) = transaction(&mut host);
        let mut order = [0, 1, 2, 3];
        if is_early {
            order.reverse();
        }
        for index in order {
            let sent = send(&mut host, next + index as u64, &blocks[index]);
            let answer = host.client.sink.wait(sent);
            assert_eq!(answer.is_ok(), index < 3, "{index}");
        }
    }
    assert_told(&volume, &mut host, at + 3);
    // Another log may begin, and another journal was never concerned.
    host.sequence += 5;
    host.begin_log();
    let (next, blocks) = transaction(&mut host);
    for (index, block) in blocks.iter().enumerate() {
        host.put(next + index as u64, block);
    }
    assert_told(&volume, &mut host, at + 3);
    drop((host, volume));
    assert_as_flushed(&medium, at, &blocks[3]);
    true
}

/// The medium has failed while the block waits, and a client reads it.
#[test]
fn no_flush_succeeds_after_a_commit_block_on_a_broken_medium() {
    let (medium, volume, mut host) = thin();
    let (at, blocks) = transaction(&mut host);
    let commit = send(&mut host, at + 3, &blocks[3]);
    host.client.sink.wait(commit).unwrap();
    medium.power_off();
    // Until the core knows.
    while host.client.write(6000, &[7]).is_ok() {
        host.client.flush().unwrap_err();
    }
    assert_eq!(volume.stats().commits.waiting, 1);
    try_read(&mut host.client, at + 3).unwrap_err();
    assert_eq!(volume.stats().commits.waiting, 0);
    medium.power_on();
    host.client.flush().unwrap_err();
    drop((host, volume));
    assert_as_flushed(&medium, at, &blocks[3]);
}

/// The volume's medium has no room for a while: the core keeps what was answered, and continues by itself.
#[test]
fn a_commit_block_on_a_full_medium_is_written_once_there_is_room() {
    let (medium, volume, mut host) = thin();
    let (at, blocks) = transaction(&mut host);
    let commit = send(&mut host, at + 3, &blocks[3]);
    host.client.sink.wait(commit).unwrap();
    medium.set_full(true);
    while host.client.write(6000, &[7]).is_ok() {
        host.client.flush().unwrap_err();
    }
    assert_eq!(host.get(at + 3), blocks[3]);
    assert_eq!(volume.stats().commits.waiting, 0);
    host.client.flush().unwrap_err();
    medium.set_full(false);
    wait_for(&volume, "it goes on", |_| host.client.flush().is_ok());
    drop((host, volume));
    let medium: Arc<dyn Medium> = medium;
    assert_sound(&*medium);
    let volume = open(&medium);
    let mut host = Host {
        client: Client::new(&volume),
        sequence: 1,
    };
    assert_eq!(host.get(at + 3), blocks[3]);
}

/// If there is no room for a commit block, it is not answered early.
#[test]
fn without_room_a_commit_block_is_not_answered_early() {
    assert!((0..20).any(|_| commit_block_without_room_waits()));
}

/// Returns false if it took so long that there was room again.
fn commit_block_without_room_waits() -> bool {
    let (medium, volume, mut host) = thin();
    let filling = Filling::new(&mut host);
    let (at, blocks) = transaction(&mut host);
    let began = Instant::now();
    let commit = send(&mut host, at + 3, &blocks[3]);
    std::thread::sleep(COMMIT_SILENCE * 4);
    let is_answered = host.client.sink.has(commit);
    let waiting = volume.stats().commits.waiting;
    for (index, block) in blocks[..3].iter().enumerate() {
        host.put(at + index as u64, block);
    }
    let answer = host.client.sink.wait(commit);
    if !filling.is_full() {
        return false;
    }
    assert_eq!((is_answered, waiting), (false, 1));
    assert!(answer.is_err() && began.elapsed() < COMMIT_PATIENCE);
    // Its client knows, so the volume is as good as before.
    host.client.flush().unwrap();
    drop((host, volume));
    assert_as_flushed(&medium, at, &blocks[3]);
    true
}
