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

use common::{Client, assert_sound, block_of, open, small, wait_for};
use gate::{Gate, READS};
use journal::{HOME, Host, JOURNAL, log, mounted};
use std::sync::Arc;
use std::time::Duration;
use vellum_device::block::{Op, Request};
use vellum_device::policy::Policy;
use vellum_device::{OpenOptions, Volume};
use vellum_medium::Medium;

/// What is written twice: once where nobody journals.
const TWICE: u64 = 12_345;
const ELSEWHERE: u64 = 3000;
/// Long enough for a request to come to the gate.
const A_WHILE: Duration = Duration::from_millis(50);

/// Opened whatever happens: a volume waits for its reads before it goes.
struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A file system on a volume that finds duplicates, its log begun; and what is between the volume and its medium.
fn following() -> (Arc<dyn Medium>, Arc<Gate>, Arc<Volume>, Host) {
    let mut between = None;
    let (medium, volume, mut host) = mounted(|medium| {
        let gate = Arc::new(Gate::new(Arc::clone(medium), READS));
        between = Some(Arc::clone(&gate));
        let policy = Policy {
            dedup: true,
            ..Policy::default()
        };
        let options = OpenOptions { policy, ..small() };
        Arc::new(Volume::open(gate, &options).unwrap())
    });
    // Before that no write is answered before it has taken effect.
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

/// A commit block that is answered and waits; then what it commits, of which the last block is answered and is still being compared
/// with what is elsewhere; then a flush, and `meanwhile`. The flush's tag, and the transaction with its place. None if the block that it
/// is compared with was in memory after all.
fn flush_behind(
    gate: &Gate,
    host: &mut Host,
    meanwhile: impl FnOnce() + Send,
) -> Option<(u64, u64, [Vec<u8>; 4])> {
    host.client.write(ELSEWHERE, &[TWICE]).unwrap();
    // So much that it is not in memory any more.
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
    // Nothing more comes for a while, so it is answered.
    let commit = write(&mut host.client, at + 3, &blocks[3]);
    host.client.call(commit).unwrap();
    host.put(at, &blocks[0]);
    host.put(at + 2, &blocks[2]);
    let last = write(&mut host.client, at + 1, &blocks[1]);
    let flush = host.client.request(Op::Flush, 0, 0);
    let (last_tag, flush_tag) = (last.tag, flush.tag);
    let client = &host.client;
    gate.close();
    let closed = Closed(gate);
    // Whoever brings them may have to wait until the medium has read.
    let is_compared = std::thread::scope(|scope| {
        let closed = closed;
        scope.spawn(move || client.submit(vec![last]));
        client.sink.wait(last_tag).unwrap();
        wait_for(&client.volume, "it is being compared", |_| gate.holds());
        let commits = client.volume.stats().commits;
        if (commits.waiting, commits.complete) != (1, 0) {
            // What is held is somebody else's.
            return false;
        }
        scope.spawn(move || client.submit(vec![flush]));
        scope.spawn(meanwhile);
        std::thread::sleep(A_WHILE);
        drop(closed);
        true
    });
    is_compared.then_some((flush_tag, at, blocks))
}

/// As often as it takes until it is compared with what is on the medium.
fn until_compared<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let caught = (0..100).find_map(|_| attempt());
    caught.expect("it is compared with what is on the medium")
}

#[test]
fn a_flush_does_not_overtake_the_commit_block_that_it_is_for() {
    let (medium, volume, host, (flush, at, blocks)) = until_compared(|| {
        let (medium, gate, volume, mut host) = following();
        let sent = flush_behind(&gate, &mut host, || {})?;
        Some((medium, volume, host, sent))
    });
    host.client.sink.wait(flush).unwrap();
    let commits = volume.stats().commits;
    assert_eq!((commits.complete, commits.unjudged), (1, 0));
    // As when the server is killed.
    drop((host, volume));
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    let read = client.request(Op::Read, at, 4);
    let read = client.call(read).unwrap();
    let there = [0, 1, 2, 3].map(|index| read.frames.block(index) == &blocks[index][..]);
    assert_eq!(there, [true; 4], "it was flushed");
    volume.stop().unwrap();
    drop((read, client, volume));
    assert_sound(&*medium);
}

/// A commit block whose blocks have not come holds up no flush, be it of another file system.
#[test]
fn a_flush_does_not_wait_for_what_has_not_come() {
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
        let stop = || volume.stop().unwrap();
        let (flush, ..) = flush_behind(&gate, &mut host, stop)?;
        Some((host, flush))
    });
    // Done, or refused because the volume stops.
    drop(host.client.sink.wait(flush));
}
