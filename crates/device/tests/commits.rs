//! A commit block takes effect once everything that it commits has, in whatever order the blocks arrive.
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

use common::{Client, open, stop_sound, wait_for};
use gate::{Gate, MAKES_DURABLE};
use journal::{HOME, Host, JOURNAL, log, mounted, transaction};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_core::addr::Lba;
use vellum_core::limits::RESERVE_QUIET_NANOS;
use vellum_device::Volume;
use vellum_device::block::{BlockDevice, Op, Request};
use vellum_device::policy::Policy;
use vellum_medium::Medium;
use vellum_watch::limits::SCOUT_PATIENCE;

fn write(client: &mut Client, at: u64, blocks: &[Vec<u8>]) -> Request {
    let mut request = client.request(Op::Write { fua: false }, at, blocks.len() as u64);
    for (index, block) in blocks.iter().enumerate() {
        request.frames.block_mut(index).copy_from_slice(block);
    }
    request
}

fn send(client: &mut Client, at: u64, blocks: &[Vec<u8>]) -> u64 {
    let request = write(client, at, blocks);
    client.submit(vec![request])[0]
}

/// Sends a write that must be durable when it is answered, so that it is not answered before it has taken effect.
fn send_durable(client: &mut Client, at: u64, blocks: &[Vec<u8>]) -> u64 {
    let mut request = write(client, at, blocks);
    request.op = Op::Write { fua: true };
    client.submit(vec![request])[0]
}

fn waiting(volume: &Volume) -> u64 {
    volume.stats().commits.waiting
}

/// A volume that follows a journal, whose log is known to begin.
fn following() -> (Arc<dyn Medium>, Arc<Volume>, Host) {
    let (medium, volume, mut host) = mounted(open);
    host.begin_log();
    (medium, volume, host)
}

#[test]
fn a_commit_block_waits_for_what_it_commits_and_nothing_else_does() {
    let (medium, volume, mut host) = following();
    for last in 0..3 {
        let (at, blocks) = transaction(&mut host);
        let mut other = Client::new(&volume);
        let commit = send_durable(&mut host.client, at + 3, &blocks[3..]);
        for index in (0..3).filter(|index| *index != last) {
            host.put(at + index as u64, &blocks[index]);
        }
        assert_eq!(waiting(&volume), 1);
        // Reads, writes and flushes of all others continue, and the block is not visible.
        other.write(2000, &[1]).unwrap();
        other.flush().unwrap();
        assert_ne!(host.get(at + 3), blocks[3]);
        host.put(at + last as u64, &blocks[last]);
        host.client.sink.wait(commit).unwrap();
        assert_eq!(host.get(at + 3), blocks[3]);
    }
    let commits = volume.stats().commits;
    assert_eq!(
        (commits.complete, commits.waited, commits.unjudged),
        (3, 3, 0)
    );
    assert_eq!(volume.stats().clients.refused, 0);
    stop_sound(&volume, &*medium);
}

/// A client that sends nothing before it has an answer gets one. A read that could reveal that the commit block waits lets it go
/// on.
#[test]
fn a_commit_block_is_answered_before_what_it_commits_has_come() {
    let (medium, volume, mut host) = following();
    let (at, blocks) = transaction(&mut host);
    let commit = send(&mut host.client, at + 3, &blocks[3..]);
    let answered = host.client.sink.wait(commit).unwrap();
    assert_eq!((answered.lba.0, answered.blocks), (at + 3, 1));
    // It does not count yet: only a reader of that place sees it.
    assert_eq!((waiting(&volume), volume.stats().commits.complete), (1, 0));
    for (index, block) in blocks[..3].iter().enumerate() {
        host.put(at + index as u64, block);
    }
    let commits = volume.stats().commits;
    assert_eq!(
        (commits.waiting, commits.complete, commits.unjudged),
        (0, 1, 0)
    );
    assert_eq!(host.get(at + 3), blocks[3]);
    let mut left = 0;
    for tell in 0..4 {
        let (at, blocks) = transaction(&mut host);
        let commit = send(&mut host.client, at + 3, &blocks[3..]);
        host.client.sink.wait(commit).unwrap();
        assert_eq!(waiting(&volume), 1);
        match tell {
            0 => {
                host.client.flush().unwrap();
                assert_eq!(waiting(&volume), 1, "another's flush does not commit it");
                assert_eq!(host.get(at + 3), blocks[3]);
            }
            1 => assert_eq!(host.get(at + 3), blocks[3], "a read of it is of it"),
            2 => {
                host.put(at + 3, &[7; 4096]);
                assert_eq!(host.get(at + 3), [7; 4096], "what is written later counts");
            }
            _ => left = at + 3,
        }
        assert_eq!(waiting(&volume), u64::from(tell == 3));
        host.begin_log();
    }
    let extents = volume.extents(Lba(left), 1, 1);
    assert!(extents[0].mapped, "zeros are not there");
    volume.stop().unwrap();
    drop((host, volume));
    let volume = open(&medium);
    let mut host = Host {
        client: Client::new(&volume),
        sequence: 1,
    };
    let there = host.get(left);
    assert_eq!(
        there[..8],
        log::commit(0)[..8],
        "the end of a life keeps it"
    );
    stop_sound(&volume, &*medium);
}

#[test]
fn the_part_of_a_request_before_a_commit_block_goes_on() {
    let (_medium, volume, mut host) = following();
    let (at, blocks) = transaction(&mut host);
    let before = volume.stats().clients.write;
    // The descriptor is late. The commit block's request happens to include home blocks after it.
    let tail = [blocks[1..].to_vec(), vec![vec![9; 4096]]].concat();
    let rest = send_durable(&mut host.client, at + 1, &tail);
    assert_eq!(waiting(&volume), 1);
    assert_eq!(host.get(at + 1), blocks[1]);
    assert_eq!(host.get(at + 2), blocks[2]);
    assert_ne!(host.get(at + 3), blocks[3]);
    host.put(at, &blocks[0]);
    let answered = host.client.sink.wait(rest).unwrap();
    assert_eq!(
        (answered.lba.0, answered.blocks),
        (at + 1, 4),
        "as it was sent"
    );
    assert_eq!(host.get(at + 3), blocks[3]);
    assert_eq!(host.get(at + 4), vec![9; 4096]);
    let after = volume.stats().clients.write;
    assert_eq!(after.requests - before.requests, 2);
    assert_eq!(after.bytes - before.bytes, 5 * 4096);
}

/// It is not answered before the commit block goes on: a flush after the answer would not cover it.
#[test]
fn a_block_behind_a_waiting_commit_block_is_not_answered_either() {
    let (_medium, volume, mut host) = following();
    let (at, blocks) = transaction(&mut host);
    let tail = [blocks[1..].to_vec(), vec![vec![9; 4096]]].concat();
    let rest = send(&mut host.client, at + 1, &tail);
    assert_eq!(waiting(&volume), 1);
    // Ten times as long as without it.
    std::thread::sleep(Duration::from_millis(50));
    assert!(!host.client.sink.has(rest));
    host.put(at, &blocks[0]);
    host.client.sink.wait(rest).unwrap();
    assert_eq!(host.get(at + 4), vec![9; 4096]);
}

#[test]
fn a_transaction_in_one_request_does_not_wait() {
    let (_medium, volume, mut host) = following();
    let (at, blocks) = transaction(&mut host);
    let whole = send(&mut host.client, at, &blocks);
    host.client.sink.wait(whole).unwrap();
    let (at, blocks) = transaction(&mut host);
    // In one batch, the commit block first.
    let requests = vec![
        write(&mut host.client, at + 3, &blocks[3..]),
        write(&mut host.client, at, &blocks[..3]),
    ];
    for tag in host.client.submit(requests) {
        host.client.sink.wait(tag).unwrap();
    }
    let commits = volume.stats().commits;
    assert_eq!(
        (commits.complete, commits.waited, commits.waiting),
        (2, 1, 0)
    );
}

/// A commit block does not wait for writes that wait only to be durable, like those of a client without a cache of its own.
#[test]
fn writes_that_wait_only_for_durability_are_not_waited_for() {
    let (_medium, volume, mut host) = following();
    let (at, blocks) = transaction(&mut host);
    let mut requests = Vec::new();
    for (part, at) in [
        (&blocks[..2], at),
        (&blocks[2..3], at + 2),
        (&blocks[3..], at + 3),
    ] {
        let mut request = write(&mut host.client, at, part);
        request.op = Op::Write { fua: true };
        requests.push(request);
    }
    let tags = host.client.submit(requests);
    assert_eq!(volume.stats().commits.waited, 0);
    for tag in tags {
        host.client.sink.wait(tag).unwrap();
    }
}

#[test]
fn a_journal_is_known_before_anything_of_its_log_is_sent() {
    // Repeatedly, because the scan is quick: the superblock must be written before the scan has looked.
    let mut waited = 0;
    for _ in 0..20 {
        let (_medium, volume, mut host) = mounted(open);
        // Something that was already scanned changes, as in a mount.
        let mut superblock = host.get(0);
        superblock[1024 + 0x60] ^= 4;
        host.put(0, &superblock);
        // The log moves elsewhere, with the same features, which alone is no change.
        host.sequence = 40;
        host.begin_log();
        let (at, blocks) = transaction(&mut host);
        let commit = send(&mut host.client, at + 3, &blocks[3..]);
        assert_eq!(waiting(&volume), 1);
        host.put(at, &blocks[0]);
        host.put(at + 1, &blocks[1]);
        assert_eq!(waiting(&volume), 1);
        host.put(at + 2, &blocks[2]);
        host.client.sink.wait(commit).unwrap();
        waited += volume.stats().commits.waited;
    }
    assert!(waited >= 20);
}

#[test]
fn a_superblock_of_an_unknown_journal_waits_for_the_scout() {
    assert!((0..20).any(|_| superblock_waits_for_the_scout()));
}

/// Returns false if the scout took too long: then the superblock does not wait for it.
fn superblock_waits_for_the_scout() -> bool {
    let (medium, volume, mut host) = mounted(open);
    let superblock = host.get(JOURNAL);
    volume.stop().unwrap();
    drop((host, volume));
    let volume = open(&medium);
    let mut host = Host {
        client: Client::new(&volume),
        sequence: 1,
    };
    let began = Instant::now();
    host.put(JOURNAL, &superblock);
    host.begin_log();
    if began.elapsed() > SCOUT_PATIENCE / 2 {
        return false;
    }
    assert!(volume.stats().write_once.scans > 0, "answered too early");
    let (at, blocks) = transaction(&mut host);
    let commit = send(&mut host.client, at + 3, &blocks[3..]);
    assert_eq!(waiting(&volume), 1);
    host.put(at, &blocks[0]);
    host.put(at + 1, &blocks[1]);
    host.put(at + 2, &blocks[2]);
    host.client.sink.wait(commit).unwrap();
    assert_eq!(volume.stats().commits.unjudged, 0);
    true
}

/// A server is restarted under a mounted file system while a transaction is being committed, and then the tail of the log moves up
/// to that transaction. The part written before the restart does not come again, so the commit block must not wait for it.
#[test]
fn a_log_that_is_met_in_the_middle_of_a_transaction_goes_on() {
    for is_durable in [false, true] {
        let (medium, volume, mut host) = following();
        host.commit(1);
        let (at, blocks) = transaction(&mut host);
        host.put(at, &blocks[0]);
        host.put(at + 1, &blocks[1]);
        let sequence = host.sequence;
        volume.stop().unwrap();
        drop((host, volume));
        let volume = open(&medium);
        let mut host = Host {
            client: Client::new(&volume),
            sequence: sequence - 1,
        };
        wait_for(&volume, "the journal", |volume| {
            !volume.stats().commits.looking
        });
        host.begin_log();
        host.sequence += 1;
        host.put(at + 2, &blocks[2]);
        let commit = match is_durable {
            true => send_durable(&mut host.client, at + 3, &blocks[3..]),
            false => send(&mut host.client, at + 3, &blocks[3..]),
        };
        host.client.sink.wait(commit).unwrap();
        wait_for(&volume, "the commit block", |volume| waiting(volume) == 0);
        assert_eq!(volume.stats().commits.unjudged, 1);
        // The next one is judged.
        host.commit(7);
        let commits = volume.stats().commits;
        assert_eq!((commits.complete, commits.unjudged), (1, 1));
        drop((host, volume));
        let volume = open(&medium);
        let mut host = Host {
            client: Client::new(&volume),
            sequence,
        };
        assert_eq!(host.get(at + 3), blocks[3], "its flush made it durable");
    }
}

/// A read lets an answered commit block through. The next commit block is judged.
#[test]
fn after_a_commit_block_that_was_read_the_next_one_waits() {
    let (_medium, volume, mut host) = following();
    let (at, blocks) = transaction(&mut host);
    let commit = send(&mut host.client, at + 3, &blocks[3..]);
    host.client.sink.wait(commit).unwrap();
    assert_eq!(waiting(&volume), 1);
    assert_eq!(host.get(at + 3), blocks[3]);
    assert_eq!(waiting(&volume), 0);
    let (at, blocks) = transaction(&mut host);
    let commit = send_durable(&mut host.client, at + 3, &blocks[3..]);
    wait_for(&volume, "it waits", |volume| waiting(volume) == 1);
    for (index, block) in (0..).zip(&blocks[..3]) {
        host.put(at + index, block);
    }
    host.client.sink.wait(commit).unwrap();
    let commits = volume.stats().commits;
    assert_eq!((commits.complete, commits.unjudged), (1, 1));
}

/// The place of a block of the journal, which lies in two pieces.
fn place(block: u64) -> u64 {
    if block < 500 {
        JOURNAL + block
    } else {
        168 + block
    }
}

/// A block that must be durable is answered when its transaction is over. A lap later it must not count for the block that is
/// written there then.
#[test]
fn a_durable_block_counts_in_its_own_lap_only() {
    let mut between = None;
    let (_medium, volume, mut host) = mounted(|medium| {
        let gate = Arc::new(Gate::new(Arc::clone(medium), MAKES_DURABLE));
        between = Some(Arc::clone(&gate));
        open(&(gate as _))
    });
    let gate = between.unwrap();
    host.begin_log();
    let (at, blocks) = transaction(&mut host);
    host.put(at, &blocks[0]);
    host.put(at + 1, &blocks[1]);
    gate.close();
    let durable = send_durable(&mut host.client, at + 2, &blocks[2..3]);
    host.put(at + 3, &blocks[3]);
    assert_eq!(volume.stats().commits.complete, 1);
    gate.open();
    host.client.sink.wait(durable).unwrap();
    // The rest of the log, in three transactions.
    let mut next = 5;
    for end in [340, 680, 1023] {
        for block in next..end {
            host.put(place(block), &[block as u8; 4096]);
        }
        host.put(place(end), &log::commit(host.sequence));
        host.sequence += 1;
        next = end + 1;
    }
    assert_eq!(volume.stats().commits.complete, 4);
    host.put(place(1), &[1; 4096]);
    host.put(place(2), &[2; 4096]);
    let commit = send_durable(&mut host.client, place(4), &[log::commit(host.sequence)]);
    wait_for(&volume, "it waits for block 3", |volume| {
        waiting(volume) == 1
    });
    host.put(place(3), &[3; 4096]);
    host.client.sink.wait(commit).unwrap();
    let commits = volume.stats().commits;
    assert_eq!((commits.complete, commits.unjudged), (5, 0));
}

#[test]
fn waiting_writes_end_with_the_volume() {
    for stops in [true, false] {
        let (_medium, volume, mut host) = following();
        let (at, blocks) = transaction(&mut host);
        let commit = send_durable(&mut host.client, at + 3, &blocks[3..]);
        let began = Instant::now();
        let sink = std::sync::Arc::clone(&host.client.sink);
        if stops {
            volume.stop().unwrap();
        } else {
            drop((host, volume));
        }
        let error = sink.wait(commit).unwrap_err();
        assert!(error.to_string().contains("shutting down"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}

#[test]
fn a_block_that_is_refused_is_not_committed() {
    assert!((0..20).any(|_| refused_block_is_not_committed()));
}

/// Returns false if it took so long that upkeep got more of the reserve meanwhile.
fn refused_block_is_not_committed() -> bool {
    let thin = |medium: &Arc<dyn Medium>| {
        let options = vellum_device::CreateOptions {
            segment_blocks: Some(64),
            logical_blocks: Some(20_000),
            force: true,
            ..vellum_device::CreateOptions::default()
        };
        Volume::create(&**medium, &options).unwrap();
        open(medium)
    };
    let (_medium, volume, mut host) = mounted(thin);
    host.put(JOURNAL + u64::from(host.next_block()) + 3, &[3; 4096]);
    host.empty_log();
    // Fill the volume: new blocks get ENOSPC, and overwritten ones do not.
    let mut next = 5000;
    for run in [32, 1] {
        while host.client.write(next, &vec![next; run]).is_ok() {
            next += run as u64;
        }
    }
    assert!(next < 19_000, "full, and not at its end");
    // The journal's second piece takes its part of the reserve for upkeep.
    let mut upkeep = 668;
    let mut asked = Instant::now();
    while host.client.write(upkeep, &[upkeep]).is_ok() {
        upkeep += 1;
        asked = Instant::now();
    }
    assert!(upkeep < 1192, "the journal is refused too");
    host.begin_log();
    let (at, blocks) = transaction(&mut host);
    let early = send_durable(&mut host.client, at + 3, &blocks[3..]);
    let waited = waiting(&volume);
    let copies = send(&mut host.client, at, &blocks[..3]);
    let copies = host.client.sink.wait(copies).is_err();
    let early = host.client.sink.wait(early).is_err();
    // A commit block that arrives later is refused as well.
    let late = send(&mut host.client, at + 3, &blocks[3..]);
    let late = host.client.sink.wait(late).is_err();
    if asked.elapsed() > Duration::from_nanos(RESERVE_QUIET_NANOS / 2) {
        return false;
    }
    assert_eq!((waited, copies, early, late), (1, true, true, true));
    assert_eq!(host.get(at + 3), vec![3; 4096]);
    // jbd2 gives up; the file system is mounted again when there is room.
    host.client.discard(5000, 64).unwrap();
    host.begin_log();
    host.commit(7);
    assert_eq!(waiting(&volume), 0);
    true
}

#[test]
fn a_journal_that_is_set_by_hand_is_not_followed() {
    let (_medium, volume, mut host) = following();
    volume.set_journal(JOURNAL * 4096, 500 * 4096).unwrap();
    let found = volume.stats().write_once.file_systems;
    let reason = found[0].commits_do_not_wait.as_deref().unwrap();
    assert!(reason.contains("by hand"), "{reason}");
    let (at, blocks) = transaction(&mut host);
    let commit = send(&mut host.client, at + 3, &blocks[3..]);
    host.client.sink.wait(commit).unwrap();
    volume.clear_journals();
    assert_eq!(
        volume.stats().write_once.file_systems[0].commits_do_not_wait,
        None
    );
}

#[test]
fn commit_blocks_of_a_journal_that_is_not_asynchronous_go_on_at_once() {
    let (_medium, volume, mut host) = mounted(open);
    let mut superblock = host.get(JOURNAL);
    log::begin_in_step(&mut superblock, host.sequence, host.next_block());
    host.put(JOURNAL, &superblock);
    for whole in [false, true] {
        let (at, blocks) = transaction(&mut host);
        if whole {
            host.put(at, &blocks[0]);
        }
        host.put(at + 1, &blocks[1]);
        host.put(at + 2, &blocks[2]);
        host.put(at + 3, &blocks[3]);
        assert_eq!(host.get(at + 3), blocks[3]);
    }
    let commits = volume.stats().commits;
    assert_eq!(
        (commits.complete, commits.waited, commits.unjudged),
        (1, 0, 1)
    );
}

#[test]
fn commit_blocks_wait_under_every_policy() {
    for spec in [0, 1, 2] {
        let (_medium, volume, mut host) = following();
        let policy = Policy {
            write_once: match spec {
                0 => vellum_core::seam::WriteOnce::Off,
                1 => vellum_core::seam::WriteOnce::Descriptor,
                _ => vellum_core::seam::WriteOnce::Hash,
            },
            replay: spec == 2,
            ..Policy::default()
        };
        volume.set_policy(policy).unwrap();
        let (at, blocks) = transaction(&mut host);
        let commit = send(&mut host.client, at + 3, &blocks[3..]);
        assert_eq!(waiting(&volume), 1, "{spec}");
        let copies = send(&mut host.client, at, &blocks[..3]);
        host.client.sink.wait(copies).unwrap();
        host.client.sink.wait(commit).unwrap();
        let pledged = volume.stats().core["pledged_blocks"];
        assert_eq!(pledged > 0, spec == 2 && pledged > 0);
    }
}

/// One of its blocks never arrives: it was lost on the way. Takes 14 s, so it is in the long set, which CI runs.
#[test]
fn a_wait_ends() {
    if std::env::var_os("VELLUM_LONG").is_none() {
        return;
    }
    let (_medium, volume, mut host) = following();
    let (at, blocks) = transaction(&mut host);
    let began = Instant::now();
    let commit = send_durable(&mut host.client, at + 3, &blocks[3..]);
    host.put(at, &blocks[0]);
    std::thread::sleep(Duration::from_secs(4));
    // A block arrives, so the wait is extended by as long again.
    host.put(at + 1, &blocks[1]);
    let error = host.client.sink.wait(commit).unwrap_err().to_string();
    let place = ((at + 3) * 4096).to_string();
    assert!(
        error.contains(&place) && error.contains("1 of the blocks"),
        "{error}"
    );
    let took = began.elapsed().as_secs();
    assert!((13..60).contains(&took), "{took} s");
    assert!(volume.events().iter().any(|event| event.kind == "commit"));
    assert_eq!(volume.stats().commits.refused, 1);
    // The next mount starts over.
    host.begin_log();
    host.commit(3);
}

#[test]
fn home_blocks_that_look_like_commit_blocks_do_not_wait() {
    let (_medium, volume, mut host) = following();
    let home = u64::from(HOME);
    host.put(home, &log::commit(host.sequence));
    wait_for(&volume, "the scout", |volume| {
        !volume.stats().commits.looking
    });
    assert_eq!(volume.stats().commits.waited, 0);
    assert_eq!(
        volume
            .frames()
            .capacity(vellum_device::frames::Quota::Write),
        1024
    );
}
