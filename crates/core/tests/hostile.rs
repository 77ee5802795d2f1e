//! Media that no crash and no decay can cause: only an attacker who knows the checksums can make them. Recovery refuses a volume that the
//! engine could not work with.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod disk;

use disk::{Disk, chunk, disk_with, leaf_of};
use vellum_core::addr::{Generation, Lba, Leaf, Pba, Vba};
use vellum_core::entry::{Entry, LEAF_ENTRIES};
use vellum_core::format::chunk::Record;
use vellum_core::recovery::RecoveryError;

#[test]
fn a_cursor_outside_the_segments_is_refused() {
    for heads in [
        [(0, u32::MAX), (1, 0)],
        [(u32::MAX, 0), (1, 0)],
        [(0, 0), (0, 4)],
    ] {
        let mut disk = Disk::new();
        disk.checkpoint(2, 0, heads, &[]);
        let found = disk.recovered();
        assert_eq!(found.root.generation, Generation(1), "{heads:?}");
    }
}

#[test]
fn a_map_that_leads_outside_the_segments_is_refused() {
    let disk = Disk::new();
    for pba in [
        Pba(2),
        disk.at(0, disk.sb.usable_blocks()),
        Pba(disk::BLOCKS + 5),
        // Places that the heads have not reached.
        disk.at(0, 0),
        disk.at(1, 7),
    ] {
        let mut disk = Disk::new();
        disk.checkpoint(2, 0, [(0, 0), (1, 0)], &[(0, pba)]);
        assert!(
            matches!(disk.error(), RecoveryError::Outside { .. }),
            "{pba}"
        );
    }
}

#[test]
fn an_entry_behind_the_last_lba_is_refused() {
    let mut disk = Disk::new();
    let end = disk.sb.logical_blocks();
    let leaf = Leaf((end / LEAF_ENTRIES as u64) as u32);
    let behind = leaf_of(&[(end as usize % LEAF_ENTRIES, disk.at(3, 1).0 as u32)]);
    disk.checkpoint_of(2, 0, 0, [(0, 0), (1, 0)], &[(leaf, behind)]);
    let at = disk.sb.leaf_slot(leaf, 0);
    let what = "a leaf of the map";
    assert_eq!(disk.error(), RecoveryError::Outside { what, at });
}

/// Checkpoint 2 with nothing but leaves: of the map and of shared pages.
fn disk_of(map: &[(usize, u32)], shared: &[(usize, u32)]) -> Disk {
    let mut disk = Disk::new();
    let leaves = [
        (Leaf(0), leaf_of(map)),
        (Leaf(disk.sb.map_leaves()), leaf_of(shared)),
    ];
    disk.checkpoint_of(2, 0, 0, [(0, 0), (1, 0)], &leaves);
    disk
}

#[test]
fn more_live_blocks_than_a_segment_has_are_refused() {
    let disk = Disk::new();
    let usable = disk.sb.usable_blocks();
    let at = disk.sb.leaf_slot(Leaf(0), 0);
    for more in [0, 1] {
        let entries: Vec<_> = (0..usable + more)
            .map(|block| (block as usize, disk.at(3, block.min(usable - 1)).0 as u32))
            .collect();
        let error = RecoveryError::Outside {
            what: "the map",
            at,
        };
        let refused = disk_of(&entries, &[]).recover().err();
        assert_eq!(refused, (more > 0).then_some(error));
    }
}

#[test]
fn two_shared_numbers_of_one_page_are_refused() {
    let at = Disk::new().at(3, 1).0 as u32;
    let shared = |vba: u32| Entry::Shared(Vba(vba)).pack();
    let map = [
        (0, shared(0)),
        (1, shared(0)),
        (2, shared(1)),
        (3, shared(1)),
    ];
    let what = "the table of shared pages";
    let error = disk_of(&map, &[(0, at), (1, at)]).error();
    assert!(matches!(error, RecoveryError::Outside { what: told, .. } if told == what));
    // A page without an owner may still exist.
    let found = disk_of(&map[..2], &[(0, at), (1, at)]).recovered();
    assert_eq!(found.state.shared().find(Pba(at.into())), Some(Vba(0)));
}

#[test]
fn pledges_without_numbers_left_for_them_are_refused() {
    let disk = Disk::new();
    let last = disk.sb.shared_leaves() * LEAF_ENTRIES as u32 - 1;
    for (vba, is_refused) in [(Vba(last - 1), false), (Vba(last), true)] {
        let pba = disk.at(0, 1);
        let mut pledging = chunk(1, 0, 0, 0, &[1]);
        let (home, journal) = (Lba(9), Lba(0));
        pledging.records.push(Record::Share {
            lba: Lba(5),
            vba,
            pba,
        });
        pledging.records.push(Record::Pledge { home, journal });
        let error = disk_with(&[pledging]).recover().err();
        assert_eq!(error.is_some(), is_refused, "{vba}: {error:?}");
    }
}

#[test]
fn replay_of_zeros_visits_only_mapped_blocks() {
    let end = Disk::new().sb.logical_blocks();
    let mut zeros = chunk(1, 0, 0, 0, &[1]);
    zeros.records.push(Record::Zero {
        lba: Lba(0),
        blocks: end,
    });
    let found = disk_with(&[zeros]).recovered();
    assert_eq!(found.state.map().iter().count(), 0);
}

#[test]
fn a_record_outside_the_volume_is_refused() {
    let disk = Disk::new();
    let end = disk.sb.logical_blocks();
    let bad = [
        Record::Zero {
            lba: Lba(end - 1),
            blocks: 2,
        },
        Record::Discard {
            lba: Lba(1),
            blocks: u64::MAX,
        },
        Record::Share {
            lba: Lba(0),
            vba: Vba(0),
            pba: Pba(1),
        },
        Record::Share {
            lba: Lba(0),
            vba: Vba(u32::MAX),
            pba: disk.at(0, 1),
        },
    ];
    for record in bad {
        let mut bad = chunk(1, 0, 0, 0, &[]);
        bad.records.push(record);
        let at = disk.at(0, 0);
        let mut disk = disk_with(&[bad]);
        assert_eq!(
            disk.error(),
            RecoveryError::Outside {
                what: "a chunk",
                at
            }
        );
    }
}

#[test]
fn a_head_must_not_continue_in_a_segment_of_either_head() {
    let full: Vec<u32> = (1..Disk::new().sb.usable_blocks()).collect();
    for (taken, is_refused) in [(0, true), (1, true), (2, true), (3, false)] {
        let mut first = chunk(1, 0, 0, 0, &full);
        first.next = Some(2);
        let mut second = chunk(2, 2, 0, 0, &full);
        (second.head, second.next) = (0, Some(taken));
        let mut disk = disk_with(&[first, second]);
        let refused = RecoveryError::Outside {
            what: "a chunk",
            at: disk.at(2, 0),
        };
        let error = disk.recover().err();
        assert_eq!(error, is_refused.then_some(refused), "{taken}");
    }
}
