//! With `journal_async_commit` a file system needs barriers and the order of writes. Its superblock may switch barriers off, and may ask
//! for the option.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, ok, run, text, vellum};
use std::fs;
use std::path::Path;

/// Detaches its volume where a test fails, so that no server is left behind.
struct Attached<'a>(&'a Path);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        vellum(&["detach", text(self.0)]);
    }
}

/// Makes a volume with an ext4, changed by `tune2fs`.
fn tuned(volume: &Path, layout: &str, changes: &[&str]) {
    ok(&["create", text(volume), "--size=256M", layout]);
    let _attached = Attached(volume);
    let told = ok(&["attach", text(volume), "--mkfs", "--via=fuse"]);
    let mut words = told.split_whitespace();
    let device = words.find(|word| word.starts_with("/dev/")).unwrap();
    run("tune2fs", &[changes, &[device]].concat());
    ok(&["detach", text(volume)]);
}

/// Mounts it with `more`, and returns all the options that it has: the table of mounts leaves out the file system's own.
fn mounted(volume: &Path, mnt: &Path, more: &[&str]) -> String {
    let attach = ["attach", text(volume), "--mount", text(mnt), "--via=fuse"];
    let _attached = Attached(volume);
    let attached = vellum(&[&attach[..], more].concat());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.contains(text(mnt)));
    let device = mount.and_then(|line| line.split_whitespace().next());
    let device = device.and_then(|device| device.strip_prefix("/dev/"));
    let options = device.map(|name| fs::read_to_string(format!("/proc/fs/ext4/{name}/options")));
    let detached = vellum(&["detach", text(volume)]);
    assert!(
        attached.status.success() && detached.status.success(),
        "{attached:?} {detached:?}"
    );
    options.unwrap().unwrap()
}

#[test]
fn barriers_are_on_whatever_the_file_systems_superblock_says() {
    if !can_attach("barriers_are_on_whatever_the_file_systems_superblock_says") {
        return;
    }
    let dir = dir();
    let (volume, mnt) = (dir.path().join("disk.vellum"), dir.path().join("mnt"));
    fs::create_dir(&mnt).unwrap();
    let off = ["-o", "nobarrier"];
    let asks = [&off[..], &["-E", "mount_opts=journal_async_commit"]].concat();
    for (changes, more) in [
        (&off[..], &[][..]),
        (&asks[..], &["--options=data=journal"][..]),
    ] {
        tuned(&volume, "--layout=log", changes);
        let options = mounted(&volume, &mnt, more);
        assert!(options.contains("journal_async_commit"), "{options}");
        assert!(
            options.contains("barrier") && !options.contains("nobarrier"),
            "{options}"
        );
        fs::remove_file(&volume).unwrap();
    }
}

#[test]
fn a_file_system_that_asks_for_an_unsafe_option_by_itself_is_not_mounted() {
    if !can_attach("a_file_system_that_asks_for_an_unsafe_option_by_itself_is_not_mounted") {
        return;
    }
    let dir = dir();
    let (volume, mnt) = (dir.path().join("disk.vellum"), dir.path().join("mnt"));
    fs::create_dir(&mnt).unwrap();
    let asks = ["-E", "mount_opts=journal_async_commit"];
    let refused = |name: &Path, more: &[&str], why: &str| {
        let attach = ["attach", text(name), "--mount", text(&mnt), "--via=fuse"];
        let _attached = Attached(name);
        let attached = vellum(&[&attach[..], more].concat());
        let said = String::from_utf8(attached.stderr).unwrap();
        assert!(!attached.status.success(), "{name:?} {more:?}");
        assert!(said.contains("by itself") && said.contains(why), "{said}");
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(text(&mnt)), "{mounts}");
    };
    tuned(&volume, "--layout=ordered", &asks);
    refused(&volume, &[], "the layout ordered");
    refused(&volume, &["--options=data=journal"], "the layout ordered");
    fs::remove_file(&volume).unwrap();

    tuned(&volume, "--layout=log", &asks);
    refused(&volume, &["--options=nobarrier"], "barriers");
    ok(&["snapshot", text(&volume), "before"]);
    ok(&["clone", &format!("{}@before", text(&volume)), "copy"]);
    let clone = dir.path().join("disk.vellum@copy");
    refused(&clone, &[], "a clone is not followed");
    let options = mounted(&volume, &mnt, &[]);
    assert!(options.contains("journal_async_commit"), "{options}");
}
