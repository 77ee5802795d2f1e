//! With `journal_async_commit` a file system needs barriers, and its superblock may switch them off.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, ok, run, text, vellum};
use std::fs;

#[test]
fn barriers_are_on_whatever_the_file_systems_superblock_says() {
    if !can_attach("barriers_are_on_whatever_the_file_systems_superblock_says") {
        return;
    }
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    let mnt = dir.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    ok(&["create", text(&volume), "--size=256M"]);
    let told = ok(&["attach", text(&volume), "--mkfs", "--via=fuse"]);
    let device = told
        .split_whitespace()
        .find(|word| word.starts_with("/dev/"));
    run("tune2fs", &["-o", "nobarrier", device.unwrap()]);
    ok(&["detach", text(&volume)]);
    let attached = vellum(&["attach", text(&volume), "--mount", text(&mnt), "--via=fuse"]);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let detached = vellum(&["detach", text(&volume)]);
    assert!(
        attached.status.success() && detached.status.success(),
        "{attached:?} {detached:?}"
    );
    let options = mounts
        .lines()
        .find(|line| line.contains(text(&mnt)))
        .unwrap();
    assert!(options.contains("journal_async_commit"), "{options}");
    assert!(
        options.contains("barrier") && !options.contains("nobarrier"),
        "{options}"
    );
}
