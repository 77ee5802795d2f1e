//! Snapshots are sent as streams, and received by other volumes, whatever changed between them, wherever a stream is cut, and
//! whenever the power fails.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod common;
#[path = "common/drawn.rs"]
mod drawn;
#[path = "../../../fuzz/src/frames.rs"]
mod frames;
#[path = "../../../fuzz/src/stream.rs"]
mod fuzz;

use common::{Client, Random, assert_sound, create_keeping, read_all};
use drawn::{Counted, Drawn, contents, has_lost_power, seeds};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_core::addr::Pba;
use vellum_core::snapshots::scheduled_name;
use vellum_device::block::Op;
use vellum_device::pack::Compression;
use vellum_device::policy::Policy;
use vellum_device::stream::{
    Damaged, Problem, Reader, ReceiveError, Received, SendError, Sender, receive,
};
use vellum_device::{
    ArrivalError, NewSize, OpenError, OpenOptions, SnapshotError, Volume, grow_at_rest,
};
use vellum_medium::fault::{Cuts, Recorder};
use vellum_medium::{FaultMedium, Medium, MemoryMedium, Plan};

const BLOCKS: u64 = 1000;

fn create(medium: &dyn Medium, blocks: u64) {
    create_keeping(medium, blocks, 2000);
}

fn volume(blocks: u64) -> Arc<dyn Medium> {
    let medium = MemoryMedium::new(8 * BLOCKS);
    create(&medium, blocks);
    Arc::new(medium)
}

fn try_open(medium: &Arc<dyn Medium>, receiving: bool) -> Result<Arc<Volume>, OpenError> {
    let policy = Policy {
        compression: Compression::Lz4,
        ..Policy::default()
    };
    let options = OpenOptions {
        policy,
        receiving,
        ..OpenOptions::default()
    };
    Volume::open(Arc::clone(medium), &options).map(Arc::new)
}

fn open(medium: &Arc<dyn Medium>) -> Arc<Volume> {
    try_open(medium, true).unwrap()
}

/// The same under other policies, one after the other.
fn open_drawn(medium: &Arc<dyn Medium>, number: u64) -> Arc<Volume> {
    let options = OpenOptions {
        receiving: true,
        ..Drawn::of(number).options(&**medium, &mut Random(number))
    };
    Arc::new(Volume::open(Arc::clone(medium), &options).unwrap())
}

fn open_read_only(medium: &Arc<dyn Medium>) -> Volume {
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    Volume::open(Arc::clone(medium), &options).unwrap()
}

fn seen(volume: &Arc<Volume>, name: &str) -> Vec<u64> {
    read_all(&Arc::new(volume.seen_at(name).unwrap()))
}

fn sent(volume: &Volume, name: &str, from: Option<&str>) -> Vec<u8> {
    let sender = Sender::new(volume, name, from).unwrap();
    sender.send(Vec::new(), &mut |_| true).unwrap().0
}

fn take(volume: &Arc<Volume>, stream: &[u8], force: bool) -> Result<Received, ReceiveError> {
    receive(volume, &mut Reader::new(stream)?, force, &mut |_| true)
}

/// Makes some writes, discards and zeros.
fn change(volume: &Arc<Volume>, random: &mut Random, times: u64) {
    let mut client = Client::new(volume);
    for _ in 0..times {
        let length = 1 + random.below(30);
        let lba = random.below(BLOCKS - length);
        match random.below(8) {
            0 => client.discard(lba, length).unwrap(),
            1 => {
                let request = client.request(Op::WriteZeroes { fua: false }, lba, length);
                client.call(request).unwrap();
            }
            2 => client.write(lba, &vec![0; length as usize]).unwrap(),
            _ => {
                let first = 1 + random.below(1 << 40);
                let fills = contents(random, lba, length, first);
                client.write(lba, &fills).unwrap();
            }
        }
    }
}

/// A volume with snapshots s0 to s2, and later writes; also returns the contents of each.
fn origin(seed: u64) -> (Arc<Volume>, Vec<Vec<u64>>) {
    let mut random = Random(seed);
    let volume = open_drawn(&volume(BLOCKS), seed);
    let mut all = Vec::new();
    for (name, times) in [("s0", 40), ("s1", 6), ("s2", 10)] {
        change(&volume, &mut random, times);
        volume.take_snapshot(name, 7).unwrap();
        all.push(read_all(&volume));
    }
    change(&volume, &mut random, 10);
    (volume, all)
}

#[test]
fn what_is_sent_is_what_is_received() {
    let mut counted = Counted::default();
    for seed in seeds(8) {
        let (origin, all) = origin(seed);
        // A target of the same size, and a larger one with data past the end of the other.
        for blocks in [BLOCKS, BLOCKS + 77] {
            let medium = volume(blocks);
            let to = open_drawn(&medium, seed / 2 + blocks);
            change(&to, &mut Random(seed), 5);
            Client::new(&to).write(blocks - 1, &[9]).unwrap();
            let whole = sent(&origin, "s0", None);
            assert!(matches!(
                take(&to, &whole, false),
                Err(ReceiveError::Arrival(ArrivalError::NotEmpty))
            ));
            take(&to, &whole, true).unwrap();
            for (name, from) in [("s1", "s0"), ("s2", "s1")] {
                take(&to, &sent(&origin, name, Some(from)), false).unwrap();
            }
            for (name, mut holds) in ["s0", "s1", "s2"].into_iter().zip(all.clone()) {
                holds.resize(blocks as usize, 0);
                assert_eq!(seen(&to, name), holds, "seed {seed}, {name}");
            }
            assert_eq!(read_all(&to), seen(&to, "s2"));
            // What was received is sent on, and across several snapshots at once.
            let third = open(&volume(blocks));
            take(&third, &sent(&to, "s0", None), false).unwrap();
            take(&third, &sent(&to, "s2", Some("s0")), false).unwrap();
            assert_eq!(seen(&third, "s2"), seen(&to, "s2"));
            to.stop().unwrap();
            counted.add(&to);
            drop(to);
            assert_sound(&*medium);
        }
        counted.add(&origin);
    }
    counted.has_seen_in(8, &Counted::CONTENTS);
}

/// And back: the origin receives what was done elsewhere.
#[test]
fn what_was_received_comes_back() {
    let (origin, _) = origin(3);
    let to = open(&volume(BLOCKS));
    take(&to, &sent(&origin, "s2", None), false).unwrap();
    change(&to, &mut Random(5), 10);
    to.take_snapshot("s3", 8).unwrap();
    let back = sent(&to, "s3", Some("s2"));
    assert!(matches!(
        take(&origin, &back, false),
        Err(ReceiveError::Arrival(ArrivalError::Changed(name))) if name.as_str() == "s2"
    ));
    origin.roll_back("s2").unwrap();
    take(&origin, &back, false).unwrap();
    assert_eq!(seen(&origin, "s3"), seen(&to, "s3"));
}

#[test]
fn only_what_changed_is_in_the_stream() {
    let from = open(&volume(BLOCKS));
    let mut client = Client::new(&from);
    let fills: Vec<u64> = (1..=BLOCKS).map(|n| n * 7).collect();
    for (lba, fills) in (0..).step_by(100).zip(fills.chunks(100)) {
        client.write(lba, fills).unwrap();
    }
    from.take_snapshot("a", 1).unwrap();
    client.write(10, &[7, 7, 7]).unwrap();
    client.discard(13, 5).unwrap();
    client.write(900, &[0]).unwrap();
    from.take_snapshot("b", 2).unwrap();
    let sender = Sender::new(&from, "b", Some("a")).unwrap();
    assert_eq!(sender.blocks(), 9);
    let (_, totals) = sender.send(Vec::new(), &mut |_| true).unwrap();
    assert_eq!((totals.blocks, totals.zeros), (3, 6));
    let (_, totals) = Sender::new(&from, "a", None)
        .and_then(|sender| sender.send(Vec::new(), &mut |_| true))
        .unwrap();
    assert_eq!((totals.blocks, totals.zeros), (BLOCKS, 0));
    assert!(matches!(
        Sender::new(&from, "a", Some("b")),
        Err(SendError::Order { .. })
    ));
    assert!(Sender::new(&from, "a", Some("a")).is_err());
    let told = from.changed_since("b", Some("a")).unwrap_err().to_string();
    assert!(told.contains("b was not taken before a"), "{told}");
}

#[test]
fn a_cut_stream_is_no_snapshot_and_is_taken_again() {
    for seed in seeds(6) {
        let (origin, all) = origin(seed);
        let streams = [sent(&origin, "s0", None), sent(&origin, "s1", Some("s0"))];
        let medium = volume(BLOCKS);
        let mut random = Random(seed);
        for (number, (name, stream)) in ["s0", "s1"].into_iter().zip(&streams).enumerate() {
            let cuts = [176 + random.below(500), random.below(stream.len() as u64)];
            for cut in [cuts[0].min(stream.len() as u64 - 1), cuts[1].max(176)] {
                let to = open(&medium);
                let error = take(&to, &stream[..cut as usize], false).unwrap_err();
                assert!(
                    matches!(
                        error,
                        ReceiveError::Stream(Damaged {
                            problem: Problem::CutShort,
                            ..
                        })
                    ),
                    "{error}"
                );
                let info = to.snapshots().unwrap().pop().unwrap();
                assert!(info.arrives && info.name == name);
                assert!(matches!(to.seen_at(name), Err(SnapshotError::Arrives(_))));
                assert!(matches!(
                    to.take_snapshot("x", 1),
                    Err(SnapshotError::Arrives(_))
                ));
                assert!(to.changed_since(name, None).is_err());
                let other = sent(&origin, "s2", None);
                assert!(matches!(
                    take(&to, &other, false),
                    Err(ReceiveError::Arrival(ArrivalError::Snapshot(
                        SnapshotError::Arrives(_)
                    )))
                ));
                // A clean stop, or a kill.
                if random.below(2) == 0 {
                    to.stop().unwrap();
                }
                drop(to);
                assert!(matches!(
                    try_open(&medium, false),
                    Err(OpenError::Arriving(_))
                ));
                assert!(matches!(
                    open_read_only(&medium).check_unmixed(),
                    Err(SnapshotError::Arrives(_))
                ));
            }
            let to = open(&medium);
            let received = take(&to, stream, false).unwrap();
            assert!(received.there <= received.totals.blocks);
            assert_eq!(seen(&to, name), all[number], "seed {seed}");
            let again = take(&to, stream, false).unwrap_err();
            assert!(again.to_string().contains("already"), "{again}");
            to.stop().unwrap();
            drop(to);
            open_read_only(&medium).check_unmixed().unwrap();
            try_open(&medium, false).unwrap().stop().unwrap();
        }
        assert_sound(&*medium);
    }
}

/// Blocks that are already present are not written again.
#[test]
fn blocks_already_received_are_not_written_again() {
    let (origin, _) = origin(1);
    let stream = sent(&origin, "s0", None);
    let to = open(&volume(BLOCKS));
    take(&to, &stream[..stream.len() - 1], false).unwrap_err();
    let received = take(&to, &stream, false).unwrap();
    assert_eq!(received.there, received.totals.blocks);
}

#[test]
fn the_power_may_fail_while_it_is_received() {
    let mut counted = Counted::default();
    for seed in seeds(40) {
        let (origin, all) = origin(seed % 7);
        let fault = Arc::new(FaultMedium::over_memory(8 * BLOCKS, Plan::default()));
        create(&*fault, BLOCKS);
        let medium: Arc<dyn Medium> = fault.clone();
        let mut random = Random(seed);
        let to = open_drawn(&medium, seed);
        take(&to, &sent(&origin, "s0", None), false).unwrap();
        let stream = sent(&origin, "s2", Some("s0"));
        let ios = random.below(120);
        fault.set_plan(Plan::seeded(seed).with_cut_after(ios));
        let taken = take(&to, &stream, false);
        if !fault.is_off() {
            fault.power_cut(seed);
        }
        has_lost_power(&to);
        counted.add(&to);
        drop(to);
        fault.set_plan(Plan::default());
        fault.restart();
        let to = open_drawn(&medium, seed / 5);
        assert_eq!(seen(&to, "s0"), all[0], "seed {seed}");
        let name = to.snapshots().unwrap().pop().unwrap();
        if name.arrives || name.name == "s0" {
            assert!(
                taken.is_err(),
                "seed {seed}: it had been told that it is there"
            );
            take(&to, &stream, false).unwrap();
        }
        assert_eq!(seen(&to, "s2"), all[2], "seed {seed}");
        assert_eq!(read_all(&to), all[2], "seed {seed}");
        to.stop().unwrap();
        counted.add(&to);
        drop(to);
        assert_sound(&*medium);
    }
    counted.has_seen_in(40, &Counted::PLAIN);
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (origin, all) = origin(2);
    let whole = sent(&origin, "s0", None);
    let small = open(&volume(BLOCKS - 1));
    assert!(matches!(
        take(&small, &whole, true),
        Err(ReceiveError::TooSmall { .. })
    ));
    let to = open(&volume(BLOCKS));
    let changes = sent(&origin, "s2", Some("s1"));
    for have in ["none", "s0"] {
        let error = take(&to, &changes, false).unwrap_err();
        let told = error.to_string();
        assert!(
            told.contains("since snapshot s1") && told.contains(have),
            "{told}"
        );
        if have == "none" {
            take(&to, &whole, false).unwrap();
        }
    }
    // A snapshot with that name, but from another origin.
    let other = open(&volume(BLOCKS));
    other.take_snapshot("s1", 7).unwrap();
    assert!(matches!(
        take(&other, &changes, false),
        Err(ReceiveError::Arrival(ArrivalError::Base {
            have: Some(_),
            ..
        }))
    ));
    // The volume was written since.
    let mut client = Client::new(&to);
    client.write(5, &[1234]).unwrap();
    let changes = sent(&origin, "s1", Some("s0"));
    assert!(matches!(
        take(&to, &changes, false),
        Err(ReceiveError::Arrival(ArrivalError::Changed(_)))
    ));
    to.roll_back("s0").unwrap();
    assert_eq!(read_all(&to), all[0]);
    take(&to, &changes, false).unwrap();
    assert_eq!(seen(&to, "s1"), all[1]);
}

/// Received snapshots are named as the schedule names them, but the copy has no schedule: what it was given stays.
#[test]
fn no_snapshot_of_a_copy_is_deleted_for_room() {
    let origin = open(&volume(BLOCKS));
    let [oldest, base, next] = [6, 7, 8].map(|taken| scheduled_name(taken).unwrap());
    for (taken, name, blocks) in [(6, &oldest, BLOCKS), (7, &base, 300), (8, &next, BLOCKS)] {
        for lba in (0..blocks).step_by(100) {
            Client::new(&origin).write(lba, &[taken; 100]).unwrap();
        }
        origin.take_snapshot(name.as_str(), taken).unwrap();
    }
    let tight = MemoryMedium::new(8 * BLOCKS);
    create_keeping(&tight, BLOCKS, 500);
    let medium: Arc<dyn Medium> = Arc::new(tight);
    let to = open(&medium);
    take(&to, &sent(&origin, oldest.as_str(), None), false).unwrap();
    let to_base = sent(&origin, base.as_str(), Some(oldest.as_str()));
    take(&to, &to_base, false).unwrap();
    let changes = sent(&origin, next.as_str(), Some(base.as_str()));
    let error = take(&to, &changes, false).unwrap_err();
    assert!(matches!(error, ReceiveError::NoRoom), "{error}");
    assert_eq!(seen(&to, oldest.as_str()), [6; BLOCKS as usize]);
    assert_eq!(seen(&to, base.as_str())[..300], [7; 300]);
    to.stop().unwrap();
    drop(to);
    // A larger volume has room for the rest.
    let longer: Arc<dyn Medium> = Arc::new(MemoryMedium::new(40 * BLOCKS));
    let mut block = [0; vellum_core::addr::BLOCK_BYTES];
    for at in (0..8 * BLOCKS).map(Pba) {
        medium.read(at, &mut block).unwrap();
        longer.write(at, &block).unwrap();
    }
    let size = NewSize {
        logical_blocks: Some(6 * BLOCKS),
        ..NewSize::default()
    };
    grow_at_rest(&longer, size).unwrap();
    let to = open(&longer);
    take(&to, &changes, false).unwrap();
    for (name, content) in [(oldest, 6), (base, 7), (next, 8)] {
        let holds = seen(&to, name.as_str());
        assert_eq!(holds[..300], [content; 300]);
    }
    to.stop().unwrap();
}

/// Half of a snapshot has been received, and is dropped.
#[test]
fn a_half_received_snapshot_can_be_given_up() {
    let (origin, all) = origin(4);
    let medium = volume(BLOCKS);
    let to = open(&medium);
    take(&to, &sent(&origin, "s0", None), false).unwrap();
    let changes = sent(&origin, "s1", Some("s0"));
    take(&to, &changes[..changes.len() - 1], false).unwrap_err();
    // Without the one that it builds on, what has come could not be taken back.
    let refused = to.delete_snapshot("s0").unwrap_err().to_string();
    for way_out in ["delete VOLUME s1", "rollback VOLUME s0", "same stream"] {
        assert!(refused.contains(way_out), "{refused}");
    }
    to.delete_snapshot("s1").unwrap();
    assert!(matches!(
        take(&to, &changes, false),
        Err(ReceiveError::Arrival(ArrivalError::Changed(_)))
    ));
    to.roll_back("s0").unwrap();
    assert_eq!(read_all(&to), all[0]);
    take(&to, &changes, false).unwrap();
    // With `true`, another whole snapshot replaces the volume's contents, even over half of one.
    let whole = sent(&origin, "s2", None);
    take(&to, &whole[..whole.len() - 1], true).unwrap_err();
    let changes = sent(&origin, "s2", Some("s1"));
    assert!(take(&to, &changes, false).is_err());
    take(&to, &whole, true).unwrap();
    assert_eq!(seen(&to, "s2"), all[2]);
    assert_eq!(seen(&to, "s1"), all[1]);
}

/// A rollback changes blocks that the stream does not name, and the rest of the stream would then complete another snapshot.
#[test]
fn no_rollback_while_a_snapshot_arrives() {
    let (origin, all) = origin(5);
    let medium = volume(BLOCKS);
    let to = open(&medium);
    take(&to, &sent(&origin, "s0", None), false).unwrap();
    take(&to, &sent(&origin, "s1", Some("s0")), false).unwrap();
    let changes = sent(&origin, "s2", Some("s1"));
    take(&to, &changes[..changes.len() - 1], false).unwrap_err();
    for name in ["s0", "s1", "s2"] {
        let refused = to.roll_back(name);
        assert!(
            matches!(refused, Err(SnapshotError::Arrives(name)) if name.as_str() == "s2"),
            "{name}: {refused:?}"
        );
    }
    to.stop().unwrap();
    drop(to);
    let to = open(&medium);
    take(&to, &changes, false).unwrap();
    assert_eq!(seen(&to, "s2"), all[2]);
    assert_eq!(seen(&to, "s0"), all[0]);
    // The way out: without it, one can go back.
    let to = open(&volume(BLOCKS));
    take(&to, &sent(&origin, "s0", None), false).unwrap();
    take(&to, &sent(&origin, "s1", Some("s0")), false).unwrap();
    take(&to, &changes[..changes.len() - 1], false).unwrap_err();
    to.delete_snapshot("s2").unwrap();
    to.roll_back("s0").unwrap();
    assert_eq!(read_all(&to), all[0]);
}

/// Whenever the power fails while another snapshot replaces half of one, the volume is known to be a mixture.
#[test]
fn half_of_a_snapshot_is_replaced_at_once() {
    let (origin, _) = origin(4);
    let start = Arc::new(MemoryMedium::new(8 * BLOCKS));
    create(&*start, BLOCKS);
    let medium: Arc<dyn Medium> = start.clone();
    let to = open(&medium);
    let half = sent(&origin, "s0", None);
    take(&to, &half[..half.len() - 1], false).unwrap_err();
    to.stop().unwrap();
    drop(to);
    let other = sent(&origin, "s2", None);
    for round in 0..20 {
        let recorder = Arc::new(Recorder::new(start.fork()));
        let medium: Arc<dyn Medium> = recorder.clone();
        let to = open(&medium);
        let begun = recorder.now();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // What was written may become durable at any instant.
            scope.spawn(|| {
                let mut client = Client::new(&to);
                while !is_done.load(Ordering::Relaxed) {
                    client.flush().unwrap();
                }
            });
            let reader = &mut Reader::new(&other[..]).unwrap();
            let taken = receive(&to, reader, true, &mut |_| false);
            assert!(matches!(taken, Err(ReceiveError::Interrupted)), "{taken:?}");
            is_done.store(true, Ordering::Relaxed);
        });
        to.stop().unwrap();
        drop(to);
        let tape = recorder.take();
        let mut cuts = Cuts::new(&start, &tape, round);
        for instant in begun..=tape.len() {
            cuts.advance_to(instant);
            let medium: Arc<dyn Medium> = Arc::new(cuts.cut(round).0);
            let opened = try_open(&medium, false);
            assert!(
                matches!(opened, Err(OpenError::Arriving(_))),
                "round {round}, cut at {instant} of {}",
                tape.len()
            );
        }
    }
}

proptest! {
    /// Does what the fuzz target does, so that the target does not rot.
    #[test]
    fn anything_is_read_within_bounds(bytes in vec(any::<u8>(), 0..300)) {
        fuzz::read(&bytes);
    }
}
