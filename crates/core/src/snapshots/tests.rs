//! Tests the bookkeeping, case by case and against a model.

mod model;

use super::*;
use crate::format::history::{Mark, Name};
use alloc::{boxed::Box, vec};

fn called(name: &str) -> Identity {
    Identity {
        name: Name::new(name).unwrap(),
        taken: 7,
        mark: Mark([3; 6]),
    }
}

const KEPT: u64 = 700;

#[test]
fn a_refusal_for_lack_of_room_changes_nothing() {
    let mut snapshots = Snapshots::new(History::new(Lba(100), 3));
    let (snapshot, place) = snapshots.propose(called("a")).unwrap();
    snapshots.add(snapshot, place);
    let lbas = |range: core::ops::Range<u64>| range.map(Lba);
    assert_eq!(
        snapshots.plan(snapshot.number, lbas(0..4)).unwrap_err(),
        NoRoom(3)
    );
    let plan = snapshots.plan(snapshot.number, lbas(0..3)).unwrap();
    assert_eq!(plan.steps[0].copies.len(), 1);
    snapshots.keep(plan);
    assert!(!snapshots.wants(Lba(0)) && snapshots.wants(Lba(3)));
    assert!(snapshots.plan(snapshot.number, lbas(3..4)).is_err());
    assert_eq!(snapshots.room(), (3, 3));
}

/// Clones take at most half of the room, and the room of a deleted one is free again.
#[test]
fn clones_leave_room_for_snapshots() {
    let mut snapshots = Snapshots::new(History::new(Lba(2000), 1100));
    let (snapshot, place) = snapshots.propose(called("a")).unwrap();
    snapshots.add(snapshot, place);
    let mut identity = called("b");
    identity.mark = Mark::of_clone(snapshot.number);
    let (mut clone, place) = snapshots.propose(identity).unwrap();
    clone.stage = Stage::Clone;
    snapshots.add(clone, place);
    // A change has one block of rows.
    let mut at = 0;
    for blocks in [512, 38] {
        let change = snapshots.change(clone.number, Lba(at), 600).unwrap();
        assert_eq!(change.blocks(), blocks);
        at += blocks;
        snapshots.made(change);
    }
    assert!(snapshots.change(clone.number, Lba(at), 1).is_err());
    let kept: u64 = snapshots
        .kept_by(clone.number)
        .iter()
        .map(|run| run.1)
        .sum();
    assert_eq!(kept, 550);
    assert_eq!(snapshots.newest(), Some(snapshot.number));
    let plan = snapshots.plan(snapshot.number, (0..550).map(Lba)).unwrap();
    snapshots.keep(plan);
    assert_eq!(snapshots.room(), (1100, 1100));
    snapshots.set_stage("b", Stage::LeavingClone).unwrap();
    let forget = snapshots.forget(clone.number, Slot::default(), 1000);
    assert_eq!((forget.next, forget.row_blocks), (None, vec![0, 1]));
    snapshots.remove(clone.number);
    assert_eq!(snapshots.room(), (550, 1100));
}

/// A row that was only given a slot may be on the medium or not. It is dropped with its plan, and deleting its snapshot must not free
/// the slot as well.
#[test]
fn deleting_a_snapshot_leaves_out_rows_that_do_not_count_yet() {
    let mut snapshots = Snapshots::new(History::new(Lba(100), KEPT));
    let (snapshot, place) = snapshots.propose(called("a")).unwrap();
    snapshots.add(snapshot, place);
    let plan = snapshots
        .plan(snapshot.number, [Lba(1)].into_iter())
        .unwrap();
    snapshots.keep(plan);
    let open = snapshots
        .plan(snapshot.number, [Lba(2)].into_iter())
        .unwrap();
    snapshots.set_stage("a", Stage::Leaving).unwrap();
    let forget = snapshots.forget(snapshot.number, Slot::default(), 10);
    let kept = snapshots.history().block(0);
    assert_eq!((forget.discards, forget.next), (vec![(kept, 1)], None));
    assert_eq!(snapshots.room().0, 1, "the open plan's");
    snapshots.drop_plan(open);
    assert_eq!(snapshots.room().0, 0);
}

/// A clone without its snapshot is damage: its original contents are not known.
#[test]
fn a_clone_without_its_snapshot_is_refused() {
    let mut snapshots = Snapshots::new(History::new(Lba(100), KEPT));
    let (snapshot, place) = snapshots.propose(called("a")).unwrap();
    snapshots.add(snapshot, place);
    for (of, is_right) in [(1, true), (u32::MAX, false), (7, false)] {
        let mut clone = snapshot;
        clone.number = Number(u32::MAX);
        clone.stage = Stage::Clone;
        clone.identity = called("b");
        clone.identity.mark = Mark::of_clone(Number(of));
        snapshots.add(clone, 1);
        assert_eq!(snapshots.check_clones().is_ok(), is_right, "{of}");
        assert!(!snapshots.gives_up_any(clone.number));
        snapshots.remove(clone.number);
    }
}

/// An arriving snapshot does not exist yet: nothing is kept for it, and rows that were to be its first mean nothing.
#[test]
fn an_arriving_snapshot_does_not_exist_yet() {
    let history = History::new(Lba(100), KEPT);
    let mut snapshots = Snapshots::new(history);
    let (base, place) = snapshots.propose(called("a")).unwrap();
    snapshots.add(base, place);
    let (mut arriving, place) = snapshots.propose(called("b")).unwrap();
    arriving.stage = Stage::ArrivingChanges;
    snapshots.add(arriving, place);
    assert_eq!(snapshots.newest(), Some(base.number));
    assert_eq!(snapshots.arriving(), Some(&arriving));
    let plan = snapshots.plan(arriving.number, [Lba(7)].into_iter());
    snapshots.keep(plan.unwrap());
    let (mut list, mut rows) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
    snapshots.encode_list(0, &mut list);
    snapshots.encode_rows(0, &mut rows);
    let mut opened = Snapshots::new(history);
    opened.load_list(0, &list).unwrap();
    opened.load_rows(0, &rows);
    assert_eq!(opened.stale_row_blocks(), [0]);
    assert_eq!(opened.place(arriving.number, Lba(7)), Lba(7));
    opened.set_stage("b", Stage::Kept).unwrap();
    assert_eq!(opened.newest(), Some(arriving.number));
    assert_eq!(opened.arriving(), None);
}

#[test]
fn rows_of_a_snapshot_that_was_never_taken_are_overwritten_before_its_number_is_reused() {
    let history = History::new(Lba(100), KEPT);
    let mut bytes = Box::new([0; BLOCK_BYTES]);
    let row = Row {
        lba: Lba(7),
        number: Number(1),
    };
    bytes[8..16].copy_from_slice(&history.row_form().raw(row).to_le_bytes());
    let mut snapshots = Snapshots::new(history);
    snapshots.load_rows(0, &bytes);
    assert_eq!(snapshots.stale_row_blocks(), [0]);
    snapshots.encode_rows(0, &mut bytes[..]);
    assert_eq!(*bytes, [0; BLOCK_BYTES]);
    snapshots.cleaned();
    assert!(snapshots.stale_row_blocks().is_empty());
    let (snapshot, place) = snapshots.propose(called("a")).unwrap();
    assert_eq!(snapshot.number, row.number);
    snapshots.add(snapshot, place);
    assert_eq!(snapshots.place(row.number, row.lba), row.lba);
}

/// A block of rows without any row left counts as never written.
#[test]
fn room_that_was_given_back_is_free_after_an_opening() {
    let history = History::new(Lba(2000), 1500);
    let mut snapshots = Snapshots::new(history);
    let name = called("a");
    let (snapshot, place) = snapshots.propose(name).unwrap();
    snapshots.add(snapshot, place);
    let plan = snapshots.plan(snapshot.number, (0..1400).map(Lba)).unwrap();
    snapshots.keep(plan);
    let (mut list, mut rows) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
    snapshots.encode_list(0, &mut list);
    snapshots.encode_rows(2, &mut rows);
    let mut opened = Snapshots::new(history);
    opened.load_list(0, &list).unwrap();
    opened.load_rows(2, &rows);
    let (kept, most) = opened.room();
    assert_eq!((kept, most), (1400 - 1024, 1500));
    let others = (0..1024).chain(1400..2000).map(Lba);
    let others: Vec<Lba> = others.take((most - kept) as usize).collect();
    let plan = opened.plan(snapshot.number, others.into_iter()).unwrap();
    opened.keep(plan);
    assert_eq!(opened.room(), (most, most));
    assert!(
        opened
            .plan(snapshot.number, [Lba(1999)].into_iter())
            .is_err()
    );
}

/// Their places lie together, although the blocks do not.
#[test]
fn what_a_dropped_plan_has_copied_is_given_up_in_runs() {
    let mut snapshots = Snapshots::new(History::new(Lba(100), KEPT));
    let (snapshot, place) = snapshots.propose(called("a")).unwrap();
    snapshots.add(snapshot, place);
    let scattered = (0..40).step_by(2).map(Lba);
    let plan = snapshots.plan(snapshot.number, scattered).unwrap();
    snapshots.drop_plan(plan);
    assert_eq!(snapshots.loose().len(), 1);
}
