//! What a client that dies in mid-commit leaves behind keeps nobody waiting.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/journal.rs"]
mod journal;

use common::{create_keeping, open};
use journal::{mounted_on, transaction};
use std::time::{Duration, Instant};
use vellum_medium::Medium;
use vellum_watch::limits::COMMIT_PATIENCE;

/// A host that dies in mid-commit leaves an answered commit block behind. Nobody may have to read it before others can have a snapshot.
#[test]
fn a_snapshot_does_not_wait_for_ever_for_a_client_that_is_gone() {
    let keeping = |medium: &dyn Medium| create_keeping(medium, 6000, 100);
    let (_, volume, mut host) = mounted_on(keeping, open);
    host.begin_log();
    let (at, blocks) = transaction(&mut host);
    host.put(at, &blocks[0]);
    host.put(at + 3, &blocks[3]);
    assert_eq!(volume.stats().commits.waiting, 1);
    let began = Instant::now();
    volume.take_snapshot("one", 1).unwrap();
    assert!(began.elapsed() < COMMIT_PATIENCE + Duration::from_secs(4));
    assert_eq!(volume.stats().commits.waiting, 0);
    assert_eq!(host.get(at + 3), blocks[3]);
}
