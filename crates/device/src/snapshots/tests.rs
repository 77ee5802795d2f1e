//! What users of a volume cannot bring about from outside.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::take::change_stage;
use super::{SnapshotError, SnapshotInfo, carry, keep_for};
use crate::block::{BlockError, Op, Replies, Request};
use crate::frames::Frames;
use crate::{CreateOptions, NewSize, OpenError, OpenOptions, Volume, grow_at_rest, limits};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Lba, Pba};
use vellum_core::format::history::{Number, Stage};
use vellum_core::snapshots::Slot;
use vellum_medium::{Medium, MemoryMedium};

const MEDIUM: u64 = 8000;
const LOGICAL: u64 = 24_000;
/// Blocks that the older snapshot keeps, and that hold nothing.
const EMPTY: u64 = 16_000;

pub(super) fn small() -> OpenOptions {
    OpenOptions {
        write_frames: limits::WRITE_FRAMES_MIN,
        read_frames: limits::READ_FRAMES_MIN,
        collector_frames: limits::COLLECTOR_FRAMES_MIN,
        ..OpenOptions::default()
    }
}

pub(super) fn open(medium: &Arc<dyn Medium>) -> Volume {
    Volume::open(Arc::clone(medium), &small()).unwrap()
}

/// Writes new blocks until one is refused. Returns the first block that was not written.
fn fill(volume: &Volume, from: u64) -> u64 {
    (from..LOGICAL)
        .find(|&lba| {
            let written = carry::write(&volume.shared, Lba(lba), |block| {
                let mut word = lba + 1;
                for bytes in block.chunks_exact_mut(8) {
                    word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
            });
            match written {
                Ok(()) => false,
                Err(BlockError::Full) => true,
                Err(error) => panic!("{error}"),
            }
        })
        .unwrap()
}

/// A volume of which hardly more is left than its last blocks, with two snapshots. To go back to `s0`, it needs more than that for
/// rows.
fn nearly_full() -> (Arc<dyn Medium>, Volume) {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(MEDIUM));
    let create = CreateOptions {
        segment_blocks: Some(64),
        logical_blocks: Some(LOGICAL),
        history: 2000,
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &create).unwrap();
    let mut volume = open(&medium);
    volume.take_snapshot("s0", 1).unwrap();
    {
        let keeper = volume.shared.keeper.as_ref().unwrap();
        let mut book = keeper.book();
        let newest = book.newest().unwrap();
        let plan = book.plan(newest, (0..EMPTY).map(Lba)).unwrap();
        let plan = carry::out(&volume.shared, &mut book, plan).unwrap();
        book.keep(plan);
    }
    volume.take_snapshot("s1", 2).unwrap();
    let mut at = EMPTY;
    // Each opening gives new data a part of the reserve.
    for _ in 0..24 {
        at = fill(&volume, at);
        volume.stop().unwrap();
        volume = open(&medium);
    }
    (medium, volume)
}

struct Nobody;

impl Replies for Nobody {
    fn complete(&self, _: Request, result: Result<(), BlockError>) {
        assert!(matches!(result, Err(BlockError::Full)), "{result:?}");
    }

    fn flush(&self) {}
}

/// Keeps what a discard of all blocks from this one on changes; false if there is no room for it.
fn is_kept(volume: &Volume, from: u64) -> bool {
    let op = Op::Discard { fua: false };
    let discard = Request::new(op, Lba(from), LOGICAL - from, Frames::default());
    let mut requests = vec![discard];
    let keeper = volume.shared.keeper.as_ref().unwrap();
    let replies: Arc<dyn Replies> = Arc::new(Nobody);
    keep_for(&volume.shared, keeper, &mut requests, &replies);
    !requests.is_empty()
}

/// How many kept blocks are mapped.
fn kept_data(volume: &Volume) -> u64 {
    let history = volume.shared.keeper.as_ref().unwrap().book().history();
    carry::mapped(&volume.shared, &[(history.block(0), history.kept())]).sum()
}

/// Clients ask for names before they have chosen a snapshot, or may use one.
#[test]
fn names_are_told_without_a_look_at_what_is_kept() {
    let (_, volume) = nearly_full();
    let (told, listed) = std::sync::mpsc::channel();
    let lock = volume.shared.inner.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| told.send(volume.listed_snapshots()).unwrap());
        let listed = listed.recv_timeout(Duration::from_secs(20));
        drop(lock);
        let names = listed.unwrap().unwrap().into_iter().map(|one| one.name);
        assert!(names.eq(["s0", "s1"]));
    });
}

/// One look at all rows finds for each snapshot and clone what a look for it alone finds.
#[test]
fn what_each_snapshot_keeps_is_found_in_one_look() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(MEDIUM));
    let create = CreateOptions {
        history: 1000,
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &create).unwrap();
    let volume = open(&medium);
    let write = |lba: u64, byte: u8| {
        let mut book = volume.shared.keeper.as_ref().unwrap().book();
        if let Some(newest) = book.newest() {
            let plan = book.plan(newest, std::iter::once(Lba(lba))).unwrap();
            let plan = carry::out(&volume.shared, &mut book, plan).unwrap();
            book.keep(plan);
        }
        carry::write(&volume.shared, Lba(lba), |block| block.fill(byte)).unwrap();
    };
    for (number, step) in [(1, 1), (2, 3), (3, 2), (4, 5), (5, 1)] {
        (0..60).step_by(step).for_each(|lba| write(lba, number));
        let name = format!("s{number}");
        volume.take_snapshot(&name, u64::from(number)).unwrap();
    }
    (0..30).for_each(|lba| write(lba, 6));
    volume.delete_snapshot("s2").unwrap();
    let book = volume.shared.keeper.as_ref().unwrap().book();
    let mut found: BTreeMap<Number, u64> = BTreeMap::new();
    let mut from = Some(Slot::default());
    while let Some(slot) = from {
        let (runs, next) = book.kept_alone(slot, 7);
        for (number, _, blocks) in runs {
            *found.entry(number).or_default() += blocks;
        }
        from = next;
    }
    for one in book.iter() {
        let alone: u64 = book.kept_by(one.number).iter().map(|run| run.1).sum();
        let found = found.remove(&one.number).unwrap_or_default();
        assert_eq!(found, alone, "{}", one.identity.name);
    }
    assert!(found.is_empty());
    drop(book);
    let kept = |info: &SnapshotInfo| info.kept_bytes / BLOCK_BYTES as u64;
    let kept: Vec<u64> = volume.snapshots().unwrap().iter().map(kept).collect();
    assert_eq!(kept, [40, 8, 12, 30]);
}

/// A discard that finds no room for its rows leaves no copies behind. Only deleting all snapshots would give these up.
#[test]
fn what_a_refused_discard_has_kept_is_given_up() {
    let (_, volume) = nearly_full();
    // Room for some blocks of rows, and not for all of them.
    carry::discard(&volume.shared, Lba(EMPTY), 6).unwrap();
    volume.take_snapshot("s2", 3).unwrap();
    assert!(!is_kept(&volume, EMPTY));
    assert_eq!(kept_data(&volume), 0);
    let keeper = volume.shared.keeper.as_ref().unwrap();
    assert!(keeper.book().stale_row_blocks().is_empty());
    volume.delete_snapshot("s2").unwrap();
    volume.stop().unwrap();
}

#[test]
fn a_rollback_that_has_no_room_to_end_does_not_begin() {
    let (medium, volume) = nearly_full();
    let refused = volume.roll_back("s0");
    assert!(
        matches!(refused, Err(SnapshotError::NoRoomToReturn)),
        "{refused:?}"
    );
    volume.check_unmixed().unwrap();
    // The newest one needs no rows.
    volume.roll_back("s1").unwrap();
    volume.delete_snapshot("s1").unwrap();
    volume.roll_back("s0").unwrap();
    volume.stop().unwrap();
    drop(volume);
    open(&medium).check_unmixed().unwrap();
}

/// A rollback that was cut short cannot go on, because the volume is full. It is not given up with the snapshots: the volume would be
/// a mixture.
#[test]
fn a_rollback_that_cannot_end_is_kept_until_there_is_room() {
    let (medium, volume) = nearly_full();
    {
        let keeper = volume.shared.keeper.as_ref().unwrap();
        let mut book = keeper.book();
        change_stage(&volume.shared, &mut book, "s0", Stage::Returning).unwrap();
    }
    volume.stop().unwrap();
    drop(volume);
    for without_snapshots in [true, false] {
        let options = OpenOptions {
            without_snapshots,
            ..small()
        };
        let refused = Volume::open(Arc::clone(&medium), &options);
        assert!(
            matches!(&refused, Err(OpenError::Returning { name, .. }) if name.as_str() == "s0"),
            "{refused:?}"
        );
    }
    let read_only = OpenOptions {
        read_only: true,
        ..small()
    };
    let volume = Volume::open(Arc::clone(&medium), &read_only).unwrap();
    let told = volume.check_unmixed();
    assert!(matches!(told, Err(SnapshotError::Returns(_))), "{told:?}");
    drop(volume);
    let longer: Arc<dyn Medium> = Arc::new(MemoryMedium::new(2 * MEDIUM));
    let mut block = [0; BLOCK_BYTES];
    for at in (0..MEDIUM).map(Pba) {
        medium.read(at, &mut block).unwrap();
        longer.write(at, &block).unwrap();
    }
    grow_at_rest(&longer, NewSize::default()).unwrap();
    let volume = open(&longer);
    volume.check_unmixed().unwrap();
    volume.roll_back("s1").unwrap();
    // Or another snapshot is deleted; this one cannot be.
    let to_make_room = OpenOptions {
        receiving: true,
        to_make_room: true,
        ..small()
    };
    let volume = Volume::open(Arc::clone(&medium), &to_make_room).unwrap();
    let refused = volume.delete_snapshot("s0");
    assert!(
        matches!(refused, Err(SnapshotError::Returns(_))),
        "{refused:?}"
    );
    volume.delete_snapshot("s1").unwrap();
    volume.stop().unwrap();
    drop(volume);
    let volume = open(&medium);
    volume.check_unmixed().unwrap();
    volume.delete_snapshot("s0").unwrap();
}
