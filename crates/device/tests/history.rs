//! A volume that takes snapshots by itself: they appear, some stay, and they are in no client's way.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/drawn.rs"]
mod drawn;

use common::{Client, Random, create_keeping, open_packing, small, wait_for};
use drawn::Drawn;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};
use vellum_core::snapshots::{Schedule, Span, scheduled_name};
use vellum_device::block::BlockDevice;
use vellum_device::pack::Compression;
use vellum_device::{CreateOptions, OpenOptions, SnapshotInfo, Volume};
use vellum_medium::{Medium, MemoryMedium};

fn medium_of(blocks: u64, logical_blocks: u64, history: u32) -> Arc<dyn Medium> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(blocks));
    create_keeping(&*medium, logical_blocks, history);
    medium
}

fn medium(history: u32) -> Arc<dyn Medium> {
    medium_of(4000, 400, history)
}

/// As a user opens it.
fn open(medium: &Arc<dyn Medium>) -> Arc<Volume> {
    Drawn::Usual.open(medium, &mut Random(0))
}

fn each_second(keep: &str) -> Schedule {
    Schedule {
        every: Span::of(1),
        keep: keep.parse().unwrap(),
    }
}

fn own(volume: &Volume) -> Vec<SnapshotInfo> {
    let all = volume.snapshots().unwrap();
    all.into_iter().filter(|one| one.scheduled).collect()
}

fn names(of: &[SnapshotInfo]) -> Vec<String> {
    of.iter().map(|one| one.name.clone()).collect()
}

/// True if nothing was written since the newest scheduled snapshot.
fn is_all_taken(volume: &Volume) -> bool {
    let newest = own(volume).pop();
    let changed = newest.map(|newest| volume.changed_since(&newest.name, None));
    changed.is_some_and(|changed| changed.unwrap().is_empty())
}

/// Writes a different number each time until a condition holds, or too much time has passed.
fn write_until(volume: &Arc<Volume>, mut is_so: impl FnMut(u64) -> bool) {
    let mut client = Client::new(volume);
    let began = Instant::now();
    for number in 1.. {
        client.write(7, &[number]).unwrap();
        if is_so(number) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it never was");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn snapshots_come_and_go_by_themselves() {
    let medium = medium(1000);
    let volume = open(&medium);
    volume
        .take_snapshot("auto-2026-11-26T10:15:00Z", 5)
        .unwrap();
    volume.set_schedule(each_second("3s:1s"));
    let (mut first, mut held) = (None, None);
    write_until(&volume, |_| {
        let own = own(&volume);
        if first.is_none() && !own.is_empty() {
            let seen = volume.seen_at(&own[0].name).unwrap();
            held = seen.hold();
            first = Some((own[0].name.clone(), Arc::new(seen)));
        }
        assert!(own.len() <= 6, "{own:?}");
        // The last one taken is counted before what it makes due is deleted.
        let stats = volume.stats().history;
        stats.taken >= 8 && stats.deleted >= 3
    });
    let (name, seen) = first.unwrap();
    let stats = volume.stats().history;
    assert_eq!(stats.failed, 0, "{stats:?}");
    // A snapshot that a user has given such a name, and the one that a client reads.
    let all = volume.snapshots().unwrap();
    assert_eq!(all[0].name, "auto-2026-11-26T10:15:00Z");
    assert!(!all[0].scheduled);
    assert_eq!(all[1].name, name);
    // One of them may be deleted meanwhile.
    let told: Vec<u64> = own(&volume)
        .iter()
        .filter_map(|one| volume.seen_at(&one.name).ok())
        .filter_map(|seen| Client::new(&Arc::new(seen)).read(7, 1).ok())
        .map(|read| read[0])
        .collect();
    assert!(told.len() > 1, "{told:?}");
    assert!(told.is_sorted_by(|one, two| one < two), "{told:?}");
    drop((seen, held));
    write_until(&volume, |_| own(&volume)[0].name != name);
    // From now on they stay. Two of four are in the same quarter of an hour, and neither of them is the newest.
    volume.set_schedule(each_second("100s:1s"));
    // The first one may be taken by the old schedule, and be followed by its deletions.
    let taken = volume.stats().history.taken;
    write_until(&volume, |_| {
        volume.stats().history.taken > taken + 1 && own(&volume).len() >= 4
    });
    wait_for(&volume, "all is taken", is_all_taken);
    let before = names(&own(&volume));
    volume.stop().unwrap();
    thinned_by_another_schedule(&open(&medium), &before);
}

/// Snapshots survive a restart. Nothing is written in it, and so none is taken. The user decides which ones stay.
fn thinned_by_another_schedule(volume: &Arc<Volume>, before: &[String]) {
    assert_eq!(names(&own(volume)), before);
    volume.set_schedule(each_second("24h:15m"));
    wait_for(volume, "some are deleted", |volume| {
        volume.stats().history.deleted > 0 && own(volume).len() < before.len()
    });
    sleep(Duration::from_millis(2500));
    let stats = volume.stats().history;
    assert_eq!(stats.taken, 0, "{stats:?}");
    volume.set_schedule(Schedule::default());
    // The last one may be on its way.
    let write_for = |time| {
        let until = Instant::now() + time;
        write_until(volume, |_| Instant::now() > until);
    };
    write_for(Duration::from_secs(1));
    let taken = volume.stats().history.taken;
    write_for(Duration::from_millis(2500));
    assert_eq!(volume.stats().history.taken, taken);
    volume.stop().unwrap();
}

/// A machine that starts with a wrong clock has it for minutes, and each of them would cost two snapshots.
#[test]
fn a_clock_that_is_years_ahead_at_an_opening_costs_nothing_and_one_that_is_days_ahead_thins() {
    for (days, is_doubted) in [(20, false), (4000, true)] {
        let medium = medium(1000);
        let volume = open(&medium);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let then = now.unwrap().as_secs() - days * 86_400;
        for taken in then..then + 5 {
            Client::new(&volume).write(7, &[taken]).unwrap();
            let name = scheduled_name(taken).unwrap();
            volume.take_snapshot(name.as_str(), taken).unwrap();
        }
        volume.stop().unwrap();
        let volume = open(&medium);
        // A change of the schedule also waits for the end of the doubt.
        volume.set_schedule(each_second("100s:1s"));
        write_until(&volume, |_| volume.stats().history.taken >= 4);
        let stats = volume.stats().history;
        let old = own(&volume)
            .iter()
            .filter(|one| one.taken < then + 5)
            .count();
        match is_doubted {
            true => assert_eq!((old, stats.deleted), (5, 0), "{stats:?}"),
            false => assert_eq!((old, stats.deleted), (0, 5), "{stats:?}"),
        }
        volume.stop().unwrap();
    }
}

#[test]
fn scheduled_snapshots_without_room_go_before_a_write_is_refused() {
    let medium = medium(200);
    let volume = open(&medium);
    let mut client = Client::new(&volume);
    client.write(390, &[1; 10]).unwrap();
    volume.take_snapshot("mine", 5).unwrap();
    client.write(390, &[2; 10]).unwrap();
    volume.set_schedule(each_second("100s:1s"));
    let until = Instant::now() + Duration::from_secs(5);
    // In the end `mine` keeps 50 of 80, and 40 are overwritten each second.
    for number in 3.. {
        for lba in (0..40).step_by(5) {
            client.write(lba, &[number + lba; 5]).unwrap();
        }
        let stats = volume.stats().history;
        if Instant::now() > until && stats.deleted_for_room > 2 {
            break;
        }
        assert!(
            Instant::now() < until + Duration::from_secs(30),
            "{stats:?}"
        );
    }
    assert!(
        volume
            .events()
            .iter()
            .any(|event| event.kind == "history-room")
    );
    let seen = Arc::new(volume.seen_at("mine").unwrap());
    assert_eq!(Client::new(&seen).read(390, 10).unwrap(), [1; 10]);
    volume.stop().unwrap();
}

/// What clients see always fits, but blocks that snapshots keep share its segments. So snapshots are deleted before room runs out.
#[test]
fn scheduled_snapshots_on_a_full_volume_go_before_a_write_is_refused() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(12_000));
    let options = CreateOptions {
        segment_blocks: Some(64),
        history: 1000,
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &options).unwrap();
    let volume = open_packing(&medium, Compression::Off);
    let mut client = Client::new(&volume);
    let blocks = volume.blocks() / 16 * 16;
    let mut content = 1;
    let mut fill = |from: u64, to: u64| {
        for lba in (from..to).step_by(16) {
            let contents: Vec<u64> = (content..content + 16).collect();
            content += 16;
            client.write(lba, &contents).unwrap();
        }
    };
    fill(0, blocks);
    volume.set_schedule(each_second("100s:1s"));
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until || volume.stats().history.deleted_for_room < 3 {
        fill(0, blocks / 4);
        let stats = volume.stats().history;
        assert!(
            Instant::now() < until + Duration::from_secs(30),
            "{stats:?}"
        );
    }
    assert!(volume.stats().room.used_percent <= 100);
    volume.stop().unwrap();
}

/// A command on a volume that is not served opens it for a moment, perhaps to roll back to one of them.
#[test]
fn a_full_volume_opened_for_a_command_keeps_its_snapshots() {
    let medium = medium_of(4000, 8000, 500);
    let volume = open_packing(&medium, Compression::Off);
    let mut client = Client::new(&volume);
    let mut fills = 1..;
    let mut at = (0..7000).step_by(10);
    while volume.stats().room.used_percent < 96 {
        let contents: Vec<u64> = fills.by_ref().take(10).collect();
        client.write(at.next().unwrap(), &contents).unwrap();
    }
    let name = scheduled_name(5).unwrap();
    volume.take_snapshot(name.as_str(), 5).unwrap();
    client.write(0, &[9; 10]).unwrap();
    assert_eq!(own(&volume).len(), 1);
    volume.stop().unwrap();
    let options = OpenOptions {
        receiving: true,
        ..small()
    };
    let volume = Arc::new(Volume::open(Arc::clone(&medium), &options).unwrap());
    // It would be gone by then.
    sleep(Duration::from_millis(300));
    volume.roll_back(name.as_str()).unwrap();
    let first: Vec<u64> = (1..11).collect();
    assert_eq!(Client::new(&volume).read(0, 10).unwrap(), first);
    volume.stop().unwrap();
}

#[test]
fn two_snapshots_deleted_at_once_leave_the_older_one_intact() {
    for round in 0..3 {
        let medium = medium_of(30_000, 10_000, 1000);
        let volume = Drawn::of(round).open(&medium, &mut Random(round));
        let mut client = Client::new(&volume);
        client.write(0, &[1; 60]).unwrap();
        for (taken, name) in (1..).zip(["a", "b"]) {
            volume.take_snapshot(name, taken).unwrap();
        }
        // Freeing what `b` keeps takes a while.
        for lba in (1000..10_000).step_by(100) {
            client.write(lba, &[2; 100]).unwrap();
        }
        volume.take_snapshot("c", 3).unwrap();
        // And `c` keeps what `a` reads as well.
        client.write(0, &[3; 60]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| volume.delete_snapshot("b").unwrap());
            let goes = |one: &SnapshotInfo| one.name == "b" && !one.leaves;
            while volume.snapshots().unwrap().iter().any(goes) {
                sleep(Duration::from_micros(50));
            }
            volume.delete_snapshot("c").unwrap();
        });
        volume.stop().unwrap();
        let volume = open(&medium);
        let seen = Arc::new(volume.seen_at("a").unwrap());
        let mut client = Client::new(&seen);
        assert_eq!(client.read(0, 60).unwrap(), [1; 60]);
        volume.stop().unwrap();
    }
}
