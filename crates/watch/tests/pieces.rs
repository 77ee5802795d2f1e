//! Journals of many pieces: what is remembered of them does not grow with what is not watched.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "../../ext4/tests/common/pieces.rs"]
mod pieces;

use pieces::{Disk, ONE, Pieces};
use std::sync::Arc;
use vellum_watch::{Findings, Plan, Wants};

/// A table with three partitions.
fn table(partition: u64) -> Vec<u8> {
    let mut table = vec![0; 4096];
    for (entry, (first, last)) in Disk::partitions(partition, 3).into_iter().enumerate() {
        let at = 446 + 16 * entry;
        table[at + 4] = 0x83;
        table[at + 8..at + 12].copy_from_slice(&(first as u32).to_le_bytes());
        table[at + 12..at + 16].copy_from_slice(&((last + 1 - first) as u32).to_le_bytes());
    }
    table[510..512].copy_from_slice(&[0x55, 0xAA]);
    table
}

#[test]
fn what_is_not_watched_has_no_reader_and_the_whole_journal_is_watched_first() {
    let many = Pieces {
        blocks: 3000,
        stride: 8,
        in_leaf: 340,
    };
    let mut disk = Disk::of(&table(40_000), 40_000, &[many, many, ONE]);
    let scan = Arc::new(disk.scan());
    let wants = Wants {
        replay: true,
        ..Wants::default()
    };
    let plan = Plan::new(&scan, &[], &wants, disk.blocks);
    let found = Findings::new(scan, plan, Arc::default(), Arc::default(), wants);
    assert_eq!((found.commits().len(), found.logs().len()), (3, 2));
    let told = found.file_systems(|_| None);
    let watched = told.iter().map(|found| found.journal.len());
    assert_eq!(watched.collect::<Vec<_>>(), [63, 0, 1]);
    let why = told.iter().map(|found| found.not_replayed.is_some());
    assert_eq!(why.collect::<Vec<_>>(), [false, true, false]);
}
