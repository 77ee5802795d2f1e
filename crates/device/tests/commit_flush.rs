//! A flush covers the commit block of a transaction whose last block was answered and is still being compared.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/gate.rs"]
mod gate;
#[path = "common/journal.rs"]
mod journal;

use common::{Client, assert_sound, block_of, open, open_under, wait_for};
use gate::{Gate, READS};
use journal::{HOME, Host, JOURNAL, log, mounted};
use std::sync::Arc;
use std::time::Duration;
use vellum_device::block::{Op, Request};
use vellum_device::policy::Policy;
use vellum_device::{CreateOptions, Volume};
use vellum_medium::Medium;

/// The fill of a block that is written twice, the first time outside the journal.
const TWICE: u64 = 12_345;
const ELSEWHERE: u64 = 3000;
/// Long enough for a request to reach the gate.
const A_WHILE: Duration = Duration::from_millis(50);

/// Opened whatever happens, because a volume waits for its reads before it is dropped.
struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A file system on a volume that finds duplicates and may have snapshots, with a log that has begun, and the gate between the
/// volume and its medium.
fn following() -> (Arc<dyn Medium>, Arc<Gate>, Arc<Volume>, Host) {
    let mut between = None;
    let (medium, volume, mut host) = mounted(|medium| {
        let options = CreateOptions {
            segment_blocks: Some(64),
            history: 500,
            force: true,
            ..CreateOptions::default()
        };
        Volume::create(&**medium, &options).unwrap();
        let gate = Arc::new(Gate::new(Arc::clone(medium), READS));
        between = Some(Arc::clone(&gate));
        let policy = Policy {
            dedup: true,
            ..Policy::default()
        };
        open_under(&(gate as _), policy)
    });
    // Until then no write is answered before it has taken effect.
    wait_for(&volume, "segments are free", |volume| {
        volume.stats().core["free_segments"] > 9
    });
    host.begin_log();
    (medium, between.unwrap(), volume, host)
}

fn write(client: &mut Client, at: u64, block: &[u8]) -> Request {
    let mut request = client.request(Op::Write { fua: false }, at, 1);
    request.frames.block_mut(0).copy_from_slice(block);
    request
}

/// Writes a commit block that is answered and waits, then the blocks that it commits. The last of these is answered and is still
/// being compared with a block stored elsewhere. Then `flush` runs, and then the comparison ends. Returns the transaction with its
/// place; `None` if the other block was in memory after all.
fn flush_behind(
    gate: &Gate,
    host: &mut Host,
    flush: impl FnOnce(&Client) + Send,
) -> Option<(u64, [Vec<u8>; 4])> {
    host.client.write(ELSEWHERE, &[TWICE]).unwrap();
    // Enough to push the first block out of memory.
    for part in 1..30 {
        let others: Vec<u64> = (0..100).map(|n| 1_000_000 + 100 * part + n).collect();
        host.client
            .write(ELSEWHERE + 100 * (part % 9 + 1), &others)
            .unwrap();
    }
    host.client.flush().unwrap();
    let at = JOURNAL + u64::from(host.next_block());
    let copies = [TWICE, 7].map(|fill| block_of(fill).to_vec());
    let homes = [(HOME, 0), (HOME + 1, 0)];
    let parts = copies.each_ref().map(Vec::as_slice);
    let descriptor = log::descriptor(host.sequence, &homes, &parts);
    let commit = log::commit(host.sequence);
    let [first, second] = copies;
    let blocks = [descriptor, first, second, commit];
    // Nothing more arrives for a while, so it is answered.
    let commit = write(&mut host.client, at + 3, &blocks[3]);
    host.client.call(commit).unwrap();
    host.put(at, &blocks[0]);
    host.put(at + 2, &blocks[2]);
    let last = write(&mut host.client, at + 1, &blocks[1]);
    let last_tag = last.tag;
    let client = &host.client;
    let kept = |volume: &Volume| volume.stats().medium.compared.compare_kept;
    let kept_before = kept(&client.volume);
    gate.close();
    let closed = Closed(gate);
    // Whoever submits them may have to wait until the medium has read.
    let is_compared = std::thread::scope(|scope| {
        let closed = closed;
        scope.spawn(move || client.submit(vec![last]));
        client.sink.wait(last_tag).unwrap();
        wait_for(&client.volume, "it is compared", |volume| {
            gate.holds() || kept(volume) > kept_before
        });
        let commits = client.volume.stats().commits;
        if !gate.holds() || (commits.waiting, commits.complete) != (1, 0) {
            // The block was in memory after all, or another request is held.
            return false;
        }
        scope.spawn(move || flush(client));
        std::thread::sleep(A_WHILE);
        drop(closed);
        true
    });
    is_compared.then_some((at, blocks))
}

/// Tries again until the block is compared with one on the medium.
fn until_compared<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let caught = (0..100).find_map(|_| attempt());
    caught.expect("it is compared with what is on the medium")
}

#[test]
fn a_flush_does_not_overtake_the_commit_block_that_it_is_for() {
    let (medium, volume, host, (at, blocks)) = until_compared(|| {
        let (medium, gate, volume, mut host) = following();
        let request = host.client.request(Op::Flush, 0, 0);
        let flush = |client: &Client| {
            for tag in client.submit(vec![request]) {
                client.sink.wait(tag).unwrap();
            }
        };
        let sent = flush_behind(&gate, &mut host, flush)?;
        Some((medium, volume, host, sent))
    });
    let commits = volume.stats().commits;
    assert_eq!((commits.complete, commits.unjudged), (1, 0));
    // As if the server were killed.
    drop((host, volume));
    assert_flushed(&medium, at, &blocks);
}

/// A flush of a clone makes everything durable, as one of the volume does.
#[test]
fn a_flush_of_a_clone_does_not_overtake_it_either() {
    let (medium, (at, blocks)) = until_compared(|| {
        let (medium, gate, volume, mut host) = following();
        volume.take_snapshot("s", 1).unwrap();
        volume.clone_snapshot("s", "c", 2).unwrap();
        let clone = Arc::new(volume.clone_at("c").unwrap().unwrap());
        let flush = |_: &Client| Client::new(&clone).flush().unwrap();
        let sent = flush_behind(&gate, &mut host, flush)?;
        Some((medium, sent))
    });
    assert_flushed(&medium, at, &blocks);
}

fn assert_flushed(medium: &Arc<dyn Medium>, at: u64, blocks: &[Vec<u8>; 4]) {
    let volume = open(medium);
    let mut client = Client::new(&volume);
    let read = client.request(Op::Read, at, 4);
    let read = client.call(read).unwrap();
    let there = [0, 1, 2, 3].map(|index| read.frames.block(index) == &blocks[index][..]);
    assert_eq!(there, [true; 4], "it was flushed");
    volume.stop().unwrap();
    drop((read, client, volume));
    assert_sound(&**medium);
}

/// A commit block whose blocks have not arrived holds up no flush, even one of another file system.
#[test]
fn a_flush_does_not_wait_for_blocks_that_have_not_arrived() {
    let (_medium, _gate, volume, mut host) = following();
    let at = JOURNAL + u64::from(host.next_block());
    let commit = log::commit(host.sequence);
    let commit = write(&mut host.client, at + 3, &commit);
    host.client.call(commit).unwrap();
    for _ in 0..20 {
        host.client.write(ELSEWHERE, &[TWICE]).unwrap();
        host.client.flush().unwrap();
    }
    assert_eq!(volume.stats().commits.waiting, 1);
    volume.stop().unwrap();
}

/// A volume that is stopped while a flush waits answers it.
#[test]
fn a_flush_that_waits_is_answered_when_the_volume_stops() {
    let (host, flush) = until_compared(|| {
        let (_medium, gate, volume, mut host) = following();
        let request = host.client.request(Op::Flush, 0, 0);
        let tag = request.tag;
        let flush = |client: &Client| {
            client.submit(vec![request]);
            volume.stop().unwrap();
        };
        flush_behind(&gate, &mut host, flush)?;
        Some((host, tag))
    });
    // The flush was done, or refused because the volume stops.
    drop(host.client.sink.wait(flush));
}
