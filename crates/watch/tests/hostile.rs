//! Whatever a client writes, everything reported lies on its volume, and memory is bounded. This covers the whole watch, from
//! the scan of a file system with false metadata to the order of its commit blocks.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[path = "../../../fuzz/src/ext4.rs"]
#[allow(dead_code, reason = "only the volumes are used here")]
mod ext4;

#[path = "../../../fuzz/src/watch.rs"]
mod watch;

#[test]
fn findings_about_a_hostile_file_system_lie_on_its_volume() {
    let lives = (0..400).map(|seed| watch::live(&[], seed));
    let (said, stopped) = lives.fold((0, 0), |sum, life| (sum.0 + life.0, sum.1 + life.1));
    assert!(said > 1000 && stopped > 100, "{said}, {stopped}");
}
