//! A commit block does not count without what it commits, whatever happens between the two: a block refused before it reaches the
//! core, a volume that grows, a scan that cannot read.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/journal.rs"]
mod journal;

use common::{Client, copy, create_keeping, forget, open, small, stop_sound, wait_for};
use journal::{Host, mounted, mounted_on, transaction};
use std::sync::Arc;
use std::time::Instant;
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, BlockError, Op, Request};
use vellum_device::frames::Frames;
use vellum_device::{GrowError, Growable, NewSize, Volume};
use vellum_medium::{Fault, FaultMedium, Medium, MemoryMedium, Plan};
use vellum_watch::limits::COMMIT_PATIENCE;

fn send(host: &mut Host, at: u64, block: &[u8], fua: bool) -> u64 {
    let mut request = host.client.request(Op::Write { fua }, at, 1);
    request.frames.block_mut(0).copy_from_slice(block);
    host.client.submit(vec![request])[0]
}

fn waiting(volume: &Volume) -> u64 {
    volume.stats().commits.waiting
}

/// What a client does about a commit block one of whose blocks is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It waits for the commit block's answer, gets the same error for it, and sends both again, the commit block first.
    SendsBothAgain,
    /// It has that, and sends again what was refused.
    SendsAgain,
    /// It has that, and reads the commit block first.
    Reads,
}

/// Snapshots have no room for what a copy in the journal would overwrite, so it never reaches the core.
#[test]
fn a_block_that_a_snapshot_has_no_room_for_is_not_committed() {
    for then in [Then::SendsBothAgain, Then::SendsAgain, Then::Reads] {
        let keeping = |medium: &dyn Medium| create_keeping(medium, 6000, 100);
        let (medium, volume, mut host) = mounted_on(keeping, open);
        let (at, blocks) = transaction(&mut host);
        (at..at + 4).for_each(|place| host.put(place, &[3; 4096]));
        for next in (2000..3600).step_by(32) {
            host.client.write(next, &[next; 32]).unwrap();
        }
        host.sequence -= 1;
        host.empty_log();
        host.begin_log();
        host.sequence += 1;
        volume.take_snapshot("s", 1).unwrap();
        let commit = send(&mut host, at + 3, &blocks[3], then == Then::SendsBothAgain);
        if then != Then::SendsBothAgain {
            host.client.sink.wait(commit).unwrap();
        }
        assert_eq!(waiting(&volume), 1);
        let mut next = 2000;
        for run in [32, 1] {
            while host.client.write(next, &vec![1; run]).is_ok() {
                next += run as u64;
            }
        }
        assert!(next < 3600, "there is no room");
        let refused = send(&mut host, at, &blocks[0], false);
        let refused = host.client.sink.wait(refused).unwrap_err();
        assert!(matches!(refused, BlockError::Full), "{refused}");
        if then == Then::SendsBothAgain {
            let refused = host.client.sink.wait(commit).unwrap_err();
            assert!(matches!(refused, BlockError::Full), "{refused}");
            // It stops until there is room. Meanwhile it gets the error at once.
            let began = Instant::now();
            let again = send(&mut host, at + 3, &blocks[3], true);
            let refused = host.client.sink.wait(again).unwrap_err();
            assert!(matches!(refused, BlockError::Full), "{refused}");
            assert!(began.elapsed() < COMMIT_PATIENCE / 2);
        }
        assert_eq!(waiting(&volume), u64::from(then != Then::SendsBothAgain));
        let refused = volume.uncommitted().map(|waits| waits.is_refused);
        assert_eq!(refused, (then != Then::SendsBothAgain).then_some(true));
        volume.delete_snapshot("s").unwrap();
        let sends_both = then == Then::SendsBothAgain;
        let again = sends_both.then(|| send(&mut host, at + 3, &blocks[3], true));
        if then == Then::Reads {
            assert_eq!(host.get(at + 3), vec![3; 4096]);
        }
        assert_eq!(waiting(&volume), u64::from(then != Then::Reads));
        for (place, block) in (at..).zip(&blocks[..3]) {
            host.put(place, block);
        }
        if let Some(again) = again {
            host.client.sink.wait(again).unwrap();
        }
        host.client.flush().unwrap();
        assert_eq!(host.get(at + 3) == blocks[3], then != Then::Reads);
        if then == Then::Reads {
            let again = send(&mut host, at + 3, &blocks[3], false);
            let again = host.client.sink.wait(again);
            assert!(matches!(again, Err(BlockError::Io(_))), "{again:?}");
        }
        stop_sound(&volume, &*medium);
    }
}

/// A front end refuses a write for which there is no memory, because the medium is full; the volume refuses one without its data.
#[test]
fn a_block_that_never_reaches_the_core_is_not_committed() {
    for has_memory in [false, true] {
        let (medium, volume, mut host) = mounted(open);
        host.begin_log();
        let (at, blocks) = transaction(&mut host);
        let commit = send(&mut host, at + 3, &blocks[3], true);
        let mut refuse = |lba, blocks| {
            if !has_memory {
                return volume.refused(Lba(lba), blocks, &BlockError::NoRoom);
            }
            let write = Op::Write { fua: false };
            let write = Request::new(write, Lba(lba), blocks, Frames::default());
            assert!(host.client.call(write).is_err());
        };
        refuse(2000, 1);
        refuse(0, u64::MAX);
        assert_eq!(waiting(&volume), 1, "it does not commit these");
        refuse(at + 2, 1);
        let told = host.client.sink.wait(commit).unwrap_err();
        match has_memory {
            true => assert!(told.to_string().contains("could not be written"), "{told}"),
            false => assert!(matches!(told, BlockError::Full), "{told}"),
        }
        assert_ne!(host.get(at + 3), blocks[3]);
        stop_sound(&volume, &*medium);
    }
}

/// A client that is suspended in mid-commit may go on later. Until then its commit block must not count.
#[test]
fn a_volume_does_not_grow_while_a_commit_block_waits() {
    let (small_one, volume, mut host) = mounted(open);
    host.empty_log();
    volume.stop().unwrap();
    drop((host, volume));
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(12_000));
    copy(&*small_one, &*medium);
    let growable = Growable::open(Arc::clone(&medium), &small()).unwrap();
    let volume = growable.volume();
    let mut host = Host {
        client: Client::new(&volume),
        sequence: 1,
    };
    host.begin_log();
    let (at, blocks) = transaction(&mut host);
    host.put(at + 3, &blocks[3]);
    assert_eq!(waiting(&volume), 1);
    let refused = growable.grow(NewSize::default(), &small()).unwrap_err();
    assert!(
        matches!(&refused, GrowError::Uncommitted(waits) if waits.at == (at + 3) * 4096),
        "{refused}"
    );
    let commits = volume.stats().commits;
    assert_eq!((commits.waiting, commits.unjudged), (1, 0));
    for (index, block) in (0..).zip(&blocks[..3]) {
        host.put(at + index, block);
    }
    assert_eq!(waiting(&volume), 0);
    growable.grow(NewSize::default(), &small()).unwrap();
    let mut host = Host {
        client: Client::new(&growable.volume()),
        sequence: 1,
    };
    assert_eq!(host.get(at + 3), blocks[3]);
}

/// One unreadable block under a mounted file system, and a scan that meets it.
#[test]
fn a_scan_that_cannot_read_does_not_end_the_wait() {
    let mut below = None;
    let (_, volume, mut host) = mounted(|medium| {
        let fault = Arc::new(FaultMedium::over_memory(8000, Plan::default()));
        copy(&**medium, &*fault);
        let volume = open(&(Arc::clone(&fault) as Arc<dyn Medium>));
        below = Some(fault);
        volume
    });
    let fault = below.unwrap();
    host.begin_log();
    host.client.flush().unwrap();
    let journals = |volume: &Volume| {
        let found = volume.stats().write_once.file_systems;
        found
            .iter()
            .filter(|found| !found.journal.is_empty())
            .count()
    };
    wait_for(&volume, "the journal", |volume| {
        !volume.stats().commits.looking && journals(volume) == 1
    });
    let mut superblock = host.get(0);
    superblock[1024 + 0x60] ^= 4;
    forget(&volume);
    let (at, blocks) = transaction(&mut host);
    let commit = send(&mut host, at + 3, &blocks[3], true);
    assert_eq!(waiting(&volume), 1);
    fault.set_plan(Plan::default().with_rate(Fault::ReadError, 1_000_000));
    host.put(0, &superblock);
    wait_for(&volume, "the scan", |volume| journals(volume) == 0);
    fault.set_plan(Plan::default());
    assert_eq!(waiting(&volume), 1);
    for (index, block) in (0..).zip(&blocks[..3]) {
        host.put(at + index, block);
    }
    host.client.sink.wait(commit).unwrap();
    // The next one is judged as well.
    let (at, blocks) = transaction(&mut host);
    let commit = send(&mut host, at + 3, &blocks[3], true);
    assert_eq!(waiting(&volume), 1);
    for (index, block) in (0..).zip(&blocks[..3]) {
        host.put(at + index, block);
    }
    host.client.sink.wait(commit).unwrap();
    let commits = volume.stats().commits;
    assert_eq!((commits.complete, commits.unjudged), (2, 0));
}
