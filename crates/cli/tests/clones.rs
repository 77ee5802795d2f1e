//! A clone under a real ext4: it is written, its server is killed, and synced data are there; the snapshot and the volume are
//! unchanged.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, fails, ok, server_pid, text, vellum};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Attached volumes, detached when the test ends.
struct Attached(Vec<String>);

impl Drop for Attached {
    fn drop(&mut self) {
        for shown in self.0.iter().rev() {
            vellum(&["detach", shown]);
        }
    }
}

fn write(dir: &Path, name: &str, content: &str) {
    let mut made = File::create(dir.join(name)).unwrap();
    made.write_all(content.repeat(5000).as_bytes()).unwrap();
    made.sync_all().unwrap();
}

fn read(dir: &Path, name: &str) -> String {
    let found = fs::read_to_string(dir.join(name)).unwrap();
    let word = found[..found.len() / 5000].to_owned();
    assert_eq!(found, word.repeat(5000), "{name}");
    word
}

fn is_whole(device: &str) {
    let checked = Command::new("/usr/sbin/e2fsck")
        .args(["-fy", device.trim()])
        .output()
        .unwrap();
    // 1: the journal was replayed.
    let code = checked.status.code();
    assert!(code.is_some_and(|code| code < 2), "{device}: {checked:?}");
}

fn kill(volume: &Path) {
    // SAFETY: a process started by this test, by its recorded number.
    unsafe { libc::kill(server_pid(volume), libc::SIGKILL) };
}

/// Creates a volume that has been attached once, with a snapshot and a clone of it.
fn made(dir: &Path) -> (PathBuf, PathBuf) {
    let (volume, mount) = (dir.join("disk.vellum"), dir.join("mnt"));
    fs::create_dir(&mount).unwrap();
    ok(&["create", text(&volume), "--size", "256M"]);
    let attach = ["attach", text(&volume), "--via=fuse", "--mkfs", "--mount"];
    ok(&[&attach[..], &[text(&mount)]].concat());
    write(&mount, "both", "before");
    ok(&["snapshot", text(&volume), "s"]);
    write(&mount, "both", "volume");
    ok(&["detach", text(&volume)]);
    ok(&["clone", &format!("{}@s", text(&volume)), "c"]);
    (volume, mount)
}

#[test]
fn a_clone_outlives_its_server() {
    if !can_attach("a_clone_outlives_its_server") {
        return;
    }
    let dir = dir();
    let (volume, mount) = made(dir.path());
    let shown = text(&volume);
    let [clone, snapshot] = ["c", "s"].map(|name| format!("{shown}@{name}"));
    let attached = Attached(vec![shown.to_owned(), clone.clone(), snapshot.clone()]);
    let at_clone = ["attach", &clone, "--via=fuse", "--mount", text(&mount)];
    for round in 0..3 {
        // With a separate server.
        ok(&at_clone);
        // That server shows the volume as well. A second file system on the clone would destroy the first.
        fails(1, &["attach", &clone, "--via=fuse"], &[&clone, "detach"]);
        fails(1, &["delete", shown, "c"], &[&clone, "detach"]);
        let before = if round == 0 { "before" } else { "clone" };
        assert_eq!(read(&mount, "both"), before);
        write(&mount, "both", "clone");
        write(&mount, &format!("round{round}"), "synced");
        fs::write(mount.join("unsynced"), "x".repeat(300_000)).unwrap();
        kill(&volume);
        ok(&["detach", &clone]);
        let device = ok(&["attach", &clone, "--via=fuse"]);
        is_whole(&device);
        fails(1, &["delete", shown, "c"], &["c", "detach"]);
        ok(&["detach", &clone]);
    }
    // Together with the volume, on its server, which is killed under both.
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    ok(&["attach", shown, "--via=fuse", "--mount", text(&mount)]);
    ok(&["attach", &clone, "--mount", text(&other)]);
    assert_eq!(
        (read(&mount, "both"), read(&other, "both")),
        ("volume".into(), "clone".into())
    );
    write(&other, "beside", "synced");
    write(&mount, "beside", "volume");
    fails(1, &["delete", shown, "s"], &["delete c first"]);
    fails(1, &["delete", shown, "c"], &["detach"]);
    kill(&volume);
    ok(&["detach", &clone]);
    ok(&["detach", shown]);
    ok(&["check", shown]);
    ok(&["scrub", shown]);
    ok(&at_clone);
    for name in ["round0", "round1", "round2", "beside"] {
        assert_eq!(read(&mount, name), "synced");
    }
    ok(&["detach", &clone]);
    // Nothing of it is in the volume or the snapshot.
    ok(&["attach", shown, "--via=fuse", "--mount", text(&mount)]);
    ok(&["attach", &snapshot, "--mount", text(&other)]);
    assert_eq!(
        (read(&mount, "both"), read(&other, "both")),
        ("volume".into(), "before".into())
    );
    assert_eq!(read(&mount, "beside"), "volume");
    assert!(!other.join("beside").exists() && !mount.join("round0").exists());
    ok(&["detach", &snapshot]);
    let told = ok(&["snapshots", shown]);
    assert!(told.contains("clone of s"), "{told}");
    ok(&["delete", shown, "c"]);
    ok(&["delete", shown, "s"]);
    let told = ok(&["snapshots", shown]);
    assert!(told.contains("they keep 0 "), "{told}");
    drop(attached);
}

#[test]
fn impossible_requests_are_refused() {
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    let volume = text(&volume);
    ok(&["create", volume, "--size", "64M"]);
    ok(&["snapshot", volume, "s"]);
    fails(2, &["clone", volume, "c"], &["names no snapshot"]);
    fails(
        1,
        &["clone", &format!("{volume}@x"), "c"],
        &["there is no snapshot or clone `x`"],
    );
    ok(&["clone", &format!("{volume}@s"), "c"]);
    fails(1, &["clone", &format!("{volume}@s"), "c"], &["already"]);
    fails(
        2,
        &["snapshot", &format!("{volume}@c"), "d"],
        &["no snapshots of their own"],
    );
    fails(
        1,
        &["clone", &format!("{volume}@c"), "d"],
        &["c is a clone"],
    );
    fails(1, &["send", &format!("{volume}@c")], &["c is a clone"]);
    fails(1, &["rollback", volume, "c"], &["c is a clone"]);
    fails(1, &["diff", volume, "c"], &["c is a clone"]);
    fails(
        1,
        &["delete", volume, "s"],
        &["has clones", "delete c first"],
    );
    ok(&["grow", volume, "--size", "100M"]);
    ok(&["check", volume]);
    ok(&["delete", volume, "--all"]);
    let told = ok(&["snapshots", volume]);
    assert!(told.contains("no snapshots"), "{told}");
    ok(&["grow", volume, "--size", "120M"]);
    ok(&["check", volume]);
}

#[test]
fn a_clone_is_not_attached_where_nothing_can_be_written() {
    if !can_attach("a_clone_is_not_attached_where_nothing_can_be_written") {
        return;
    }
    let dir = dir();
    let path = dir.path().join("disk.vellum");
    let volume = text(&path);
    let [snapshot, clone] = ["s", "c"].map(|name| format!("{volume}@{name}"));
    ok(&["create", volume, "--size", "64M"]);
    ok(&["snapshot", volume, "s"]);
    ok(&["clone", &snapshot, "c"]);
    ok(&["attach", &snapshot]);
    fails(1, &["attach", &clone], &["Detach that snapshot first"]);
    ok(&["detach", &snapshot]);
    ok(&["attach", &clone]);
    // The server of the clone shows the snapshot, too.
    ok(&["attach", &snapshot]);
    fails(1, &["detach", &clone], &["@s, too", "detach that first"]);
    ok(&["detach", &snapshot]);
    ok(&["detach", &clone]);
}
