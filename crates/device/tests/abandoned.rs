//! What a client that dies in mid-commit leaves behind keeps nobody waiting.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod common;
#[path = "common/journal.rs"]
mod journal;

use common::{Client, assert_sound, create_keeping, open};
use journal::{mounted_on, transaction};
use std::sync::Arc;
use std::time::Instant;
use vellum_device::block::Op;
use vellum_device::limits::SNAPSHOT_PATIENCE;
use vellum_medium::Medium;

/// A host that dies in mid-commit leaves an answered commit block behind. Nobody may have to read it before others can have a snapshot.
/// The snapshot is without it, whatever comes later, and the block goes on waiting: its client may only be slow.
#[test]
fn a_snapshot_is_taken_without_a_commit_block_that_waits() {
    let keeping = |medium: &dyn Medium| create_keeping(medium, 6000, 100);
    let (medium, volume, mut host) = mounted_on(keeping, open);
    host.begin_log();
    let (at, blocks) = transaction(&mut host);
    host.put(at, &blocks[0]);
    host.put(at + 3, &blocks[3]);
    assert_eq!(volume.stats().commits.waiting, 1);
    let began = Instant::now();
    for name in ["one", "two"] {
        volume.take_snapshot(name, 1).unwrap();
    }
    assert!(began.elapsed() < SNAPSHOT_PATIENCE);
    let commits = volume.stats().commits;
    assert_eq!(
        (commits.waiting, commits.complete, commits.unjudged),
        (1, 0, 0)
    );
    host.put(at + 1, &blocks[1]);
    host.put(at + 2, &blocks[2]);
    let commits = volume.stats().commits;
    assert_eq!((commits.waiting, commits.complete), (0, 1));
    assert_eq!(host.get(at + 3), blocks[3]);
    for name in ["one", "two"] {
        let seen = Arc::new(volume.seen_at(name).unwrap());
        let mut client = Client::new(&seen);
        let request = client.request(Op::Read, at + 3, 1);
        let answered = client.call(request).unwrap();
        assert!(answered.frames.block(0) == [0; 4096], "{name} has it");
    }
    drop(host);
    volume.stop().unwrap();
    assert_sound(&*medium);
}
