//! What snapshots cost while clients' writes wait.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Instant;
use vellum_core::addr::Lba;
use vellum_core::format::history::{History, Identity, Mark, Name};
use vellum_core::snapshots::Snapshots;

/// Each look at the newest snapshot would otherwise pass the rows of all older ones, while clients' writes wait.
#[test]
fn reading_the_newest_snapshot_does_not_look_at_the_rows_of_all_older_ones() {
    const BLOCKS: u64 = 100_000;
    let mut snapshots = Snapshots::new(History::new(Lba(BLOCKS), BLOCKS));
    let take = |snapshots: &mut Snapshots, name| {
        let identity = Identity {
            name: Name::new(name).unwrap(),
            taken: 7,
            mark: Mark([3; 6]),
        };
        let (snapshot, place) = snapshots.propose(identity).unwrap();
        snapshots.add(snapshot, place);
        snapshot.number
    };
    let older = take(&mut snapshots, "a");
    let began = Instant::now();
    let plan = snapshots.plan(older, (0..BLOCKS).map(Lba)).unwrap();
    snapshots.keep(plan);
    let made = began.elapsed();
    let newest = take(&mut snapshots, "b");
    let began = Instant::now();
    for lba in (0..BLOCKS).step_by(50) {
        let part = snapshots.part(newest, Lba(lba), Lba(lba + 50));
        assert_eq!((part.place, part.blocks), (Lba(lba), 50));
    }
    // They are far fewer steps than making the rows were.
    assert!(began.elapsed() < made, "{:?} and {made:?}", began.elapsed());
}
