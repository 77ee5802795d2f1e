//! File systems of several owners share what a scan may read and remember. None of them takes what the others need.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;
#[path = "common/pieces.rs"]
mod pieces;

use common::gpt;
use pieces::{Disk, ONE, Pieces};
use vellum_ext4::{NoJournal, StoodAside, limits};

fn disk(partition: u64, journals: &[Pieces]) -> Disk {
    let partitions = Disk::partitions(partition, journals.len() as u64);
    Disk::of(&gpt(512, &partitions), partition, journals)
}

/// Each leaf of the first one's tree has one extent, so its journal takes more reading than a scan may do.
#[test]
fn a_tree_that_takes_long_to_read_hides_no_other_file_system() {
    let long = Pieces {
        blocks: 70_000,
        stride: 1,
        in_leaf: 1,
    };
    for journals in [[long, ONE], [ONE, long]] {
        let mut disk = disk(200_000, &journals);
        let scan = disk.scan();
        assert!(disk.read_bytes <= limits::READ_BYTES);
        assert_eq!((scan.table_faults.len(), scan.file_systems.len()), (0, 2));
        for (found, journal) in scan.file_systems.iter().zip(journals) {
            let is_sound = journal.in_leaf > 1;
            assert_eq!(found.journal.is_ok(), is_sound, "{:?}", found.journal);
            let aside = found.journal.as_ref().err();
            let is_limit = |aside: &NoJournal| {
                matches!(aside, NoJournal::StoodAside(StoodAside::Limit { .. }))
            };
            assert!(aside.is_none_or(is_limit), "{aside:?}");
            let home = found.home;
            assert_eq!(
                scan.is_unread(home),
                !is_sound,
                "it may be there all the same"
            );
        }
    }
}

#[test]
fn all_journals_of_a_volume_have_no_more_extents_than_are_remembered() {
    let many = Pieces {
        blocks: 60_000,
        stride: 2,
        in_leaf: 340,
    };
    let scan = disk(130_000, &[many, many, many, many, many, ONE]).scan();
    let journals = scan.file_systems.iter().map(|found| found.journal.as_ref());
    let extents: Vec<usize> = journals
        .map(|journal| journal.map_or(0, |journal| journal.extents.len()))
        .collect();
    assert!(
        extents.iter().sum::<usize>() <= limits::ALL_EXTENTS,
        "{extents:?}"
    );
    assert_eq!(extents.last(), Some(&1), "each has its part");
    assert!(extents.contains(&60_000), "{extents:?}");
}
