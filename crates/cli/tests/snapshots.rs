//! Snapshots of a real ext4, taken while it is written: each holds what had been synced before it, whatever happens later.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, eventually, fails, ok, run, server_pid, text, vellum};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A volume with a mounted ext4; detached when the test ends.
struct Disk {
    volume: PathBuf,
    mount: PathBuf,
}

impl Disk {
    fn new(dir: &Path) -> Self {
        let disk = Self {
            volume: dir.join("disk.vellum"),
            mount: dir.join("mnt"),
        };
        fs::create_dir(&disk.mount).unwrap();
        ok(&["create", text(&disk.volume), "--size", "256M"]);
        disk.attach(&["--mkfs"]);
        disk
    }

    fn attach(&self, more: &[&str]) {
        let (volume, mount) = (text(&self.volume), text(&self.mount));
        ok(&[&["attach", volume, "--via=fuse", "--mount", mount], more].concat());
    }

    fn snapshot(&self, name: &str) -> String {
        format!("{}@{name}", text(&self.volume))
    }

    /// Returns what a snapshot has in each file, and checks that its file system is whole.
    fn seen(&self, name: &str, at: &Path) -> Vec<Vec<u8>> {
        let snapshot = self.snapshot(name);
        let device = ok(&["attach", &snapshot, "--via=fuse"]);
        // Its writes are discarded. 1: the journal was replayed.
        let checked = Command::new("/usr/sbin/e2fsck")
            .args(["-fy", device.trim()])
            .output()
            .unwrap();
        assert!(
            checked.status.code().is_some_and(|code| code < 2),
            "{name}: {checked:?}"
        );
        ok(&["detach", &snapshot]);
        ok(&["attach", &snapshot, "--via=fuse", "--mount", text(at)]);
        let count = fs::read_dir(at.join("files")).map_or(0, Iterator::count);
        let files = (0..count).map(|number| fs::read(file(at, number as u64)).unwrap());
        let files = files.collect();
        ok(&["detach", &snapshot]);
        files
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        vellum(&["detach", text(&self.volume)]);
    }
}

fn file(mount: &Path, number: u64) -> PathBuf {
    mount.join("files").join(number.to_string())
}

/// Returns the contents of the file of this number: some blocks of words.
fn content(number: u64) -> Vec<u8> {
    format!("file {number} of many ")
        .repeat(100 + number as usize % 900)
        .into_bytes()
}

/// Writes file after file, each synced, and overwrites a log meanwhile, until `ends`.
fn write(mount: &Path, first: u64, synced: &AtomicU64, ends: &AtomicBool) {
    for number in first..600 {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let mut made = File::create(file(mount, number)).unwrap();
        made.write_all(&content(number)).unwrap();
        made.sync_all().unwrap();
        fs::write(mount.join("log"), content(number)).unwrap();
        synced.store(number + 1, Ordering::Release);
    }
}

fn are_right(files: &[Vec<u8>], at_least: u64, name: &str) {
    assert!(
        files.len() as u64 >= at_least,
        "{name}: {} files of {at_least}",
        files.len()
    );
    // The last one may have been in flight.
    for (number, found) in files.iter().take(at_least as usize).enumerate() {
        assert_eq!(found, &content(number as u64), "{name}: file {number}");
    }
}

#[test]
fn each_holds_what_was_synced_before_it() {
    if !can_attach("each_holds_what_was_synced_before_it") {
        return;
    }
    let dir = dir();
    let old = dir.path().join("old");
    fs::create_dir(&old).unwrap();
    let disk = Disk::new(dir.path());
    fs::create_dir(disk.mount.join("files")).unwrap();
    let (synced, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut taken: Vec<(String, u64)> = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| write(&disk.mount, 0, &synced, &ends));
        for number in 1..=6u64 {
            eventually("files", || synced.load(Ordering::Acquire) >= number * 15);
            let name = format!("s{number}");
            let before = synced.load(Ordering::Acquire);
            let frozen: &[&str] = if number % 3 == 0 { &["--freeze"] } else { &[] };
            ok(&[&["snapshot", text(&disk.volume), &name], frozen].concat());
            taken.push((name, before));
        }
        // While it is written.
        let (name, before) = &taken[1];
        are_right(&disk.seen(name, &old), *before, name);
        ok(&["delete", text(&disk.volume), &taken[2].0]);
        ends.store(true, Ordering::Relaxed);
    });
    taken.remove(2);
    // Its server is killed, and the next one finds them.
    let pid = server_pid(&disk.volume);
    // SAFETY: a process started by this test, by its recorded number.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    ok(&["detach", text(&disk.volume)]);
    disk.attach(&[]);
    ok(&["detach", text(&disk.volume)]);
    for (name, before) in &taken {
        are_right(&disk.seen(name, &old), *before, name);
    }
    let (name, before) = &taken[0];
    ok(&["rollback", text(&disk.volume), name]);
    ok(&["check", text(&disk.volume)]);
    disk.attach(&[]);
    let count = fs::read_dir(disk.mount.join("files")).unwrap().count() as u64;
    // One was in flight.
    let most = taken[1].1 + 1;
    assert!(
        (*before..=most).contains(&count),
        "{count} files of {before} to {most}"
    );
    for (name, before) in &taken[1..] {
        are_right(&disk.seen(name, &old), *before, name);
    }
}

#[test]
fn impossible_requests_are_refused() {
    if !can_attach("impossible_requests_are_refused") {
        return;
    }
    let dir = dir();
    let disk = Disk::new(dir.path());
    let volume = text(&disk.volume);
    ok(&["snapshot", volume, "a"]);
    let again = vellum(&["snapshot", volume, "a"]);
    let said = String::from_utf8(again.stderr).unwrap();
    assert_eq!(said, "vellum: there is a snapshot or a clone `a` already\n");
    let not_there = ["there is no snapshot b"];
    let no_b = ["there is no snapshot or clone `b`: `vellum snapshots"];
    fails(2, &["snapshot", volume, "a/b"], &["a snapshot's name is"]);
    fails(1, &["delete", volume, "b"], &no_b);
    fails(1, &["diff", volume, "b"], &no_b);
    fails(
        1,
        &["rollback", volume, "a"],
        &["is being served", "detach"],
    );
    fails(1, &["attach", &disk.snapshot("b")], &not_there);
    fails(2, &["attach", &disk.snapshot("a"), "--mkfs"], &["--mkfs"]);
    ok(&["attach", &disk.snapshot("a")]);
    fails(1, &["attach", &disk.snapshot("a")], &["is attached"]);
    fails(1, &["delete", volume, "a"], &["is attached", "detach"]);
    ok(&["detach", &disk.snapshot("a")]);
    ok(&["detach", volume]);
    fails(
        2,
        &["snapshot", volume, "b", "--freeze"],
        &["not attached here"],
    );
    fails(1, &["rollback", volume, "b"], &no_b);
    fails(1, &["attach", &disk.snapshot("b")], &not_there);
    ok(&["grow", volume, "--size", "300M"]);
    ok(&["snapshot", volume, "b"]);
    fails(2, &["delete", volume], &["@NAME"]);
    fails(2, &["rollback", volume], &["@NAME"]);
    fails(
        1,
        &["delete", &disk.snapshot("c")],
        &["there is no snapshot or clone `c`"],
    );
    ok(&["rollback", &disk.snapshot("b")]);
    ok(&["delete", &disk.snapshot("b")]);
    ok(&["snapshot", volume, "b"]);
    fails(2, &["delete", volume, "a", "--all"], &["--all"]);
    ok(&["delete", volume, "--all"]);
    ok(&["grow", volume, "--size", "400M"]);
    for more in [["--history", "0"], ["--layout", "ordered"]] {
        let other = dir.path().join(more[1]);
        ok(&[&["create", text(&other), "--size", "64M"], &more[..]].concat());
        fails(
            1,
            &["snapshots", text(&other)],
            &["without room for snapshots"],
        );
        fails(
            1,
            &["snapshot", text(&other), "a"],
            &["without room for snapshots"],
        );
    }
}

#[test]
fn writes_to_a_snapshot_are_forgotten_at_its_detach() {
    if !can_attach("writes_to_a_snapshot_are_forgotten_at_its_detach") {
        return;
    }
    let dir = dir();
    let disk = Disk::new(dir.path());
    ok(&["snapshot", text(&disk.volume), "s"]);
    let begins = |device: &str| {
        let mut block = vec![1; 4096];
        let file = File::open(device.trim()).unwrap();
        file.read_exact_at(&mut block, 0).unwrap();
        block
    };
    let device = ok(&["attach", &disk.snapshot("s")]);
    let before = begins(&device);
    assert!(before.iter().any(|&byte| byte != 0));
    // The kernel writes zeros as ext4 lets it: by a discard of the file below.
    let zero = ["--punch-hole", "--length=4096", device.trim()];
    run("fallocate", &zero);
    assert!(begins(&device).iter().all(|&byte| byte == 0));
    ok(&["detach", &disk.snapshot("s")]);
    let device = ok(&["attach", &disk.snapshot("s")]);
    let after = begins(&device);
    ok(&["detach", &disk.snapshot("s")]);
    assert!(after == before, "the zeros are still there");
}

/// Returns the names of those that the volume has taken by itself, the oldest first.
fn own(volume: &str) -> Vec<String> {
    let told = ok(&["snapshots", volume, "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let all = told["snapshots"].as_array().unwrap().iter();
    let own = all.filter(|one| one["scheduled"] == true);
    let own = own.map(|one| one["name"].as_str().unwrap().to_owned());
    own.collect()
}

#[test]
fn a_volume_takes_snapshots_by_itself() {
    if !can_attach("a_volume_takes_snapshots_by_itself") {
        return;
    }
    let dir = dir();
    let old = dir.path().join("old");
    fs::create_dir(&old).unwrap();
    let disk = Disk::new(dir.path());
    let volume = text(&disk.volume);
    let (number, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let next = number.load(Ordering::Acquire) + 1;
                let mut made = File::create(disk.mount.join("number")).unwrap();
                made.write_all(next.to_string().as_bytes()).unwrap();
                made.sync_all().unwrap();
                number.store(next, Ordering::Release);
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        ok(&["snapshot", volume, "mine"]);
        ok(&["set", volume, "snapshot-every=1s", "snapshot-keep=3s:1s"]);
        let mut seen = std::collections::BTreeSet::new();
        eventually("snapshots that come", || {
            seen.extend(own(volume));
            seen.len() >= 6
        });
        let before = number.load(Ordering::Acquire);
        seen.extend(own(volume));
        eventually("one more", || {
            own(volume).iter().any(|name| !seen.contains(name))
        });
        let left = own(volume);
        assert!(left.len() <= 6, "{left:?} of {seen:?}");
        // A snapshot in use stays, whatever its age. On a slow machine the newest one may go before it is attached.
        let (mut name, mut snapshot) = (String::new(), String::new());
        eventually("the newest one is attached", || {
            name = own(volume).pop().unwrap();
            snapshot = disk.snapshot(&name);
            let attach = ["attach", &snapshot, "--via=fuse", "--mount", text(&old)];
            vellum(&attach).status.success()
        });
        let now = own(volume);
        eventually("others that go", || {
            own(volume)
                .iter()
                .all(|one| *one == name || !now.contains(one))
        });
        let found: u64 = fs::read_to_string(old.join("number"))
            .unwrap()
            .parse()
            .unwrap();
        assert!(found >= before, "{found} of {before}");
        assert_eq!(own(volume)[0], name);
        ok(&["detach", &snapshot]);
        eventually("it goes", || !own(volume).contains(&name));
        ends.store(true, Ordering::Relaxed);
    });
    let told = ok(&["snapshots", volume]);
    assert!(told.contains("mine") && told.contains("schedule"), "{told}");
    // The schedule outlives its server.
    ok(&["detach", volume]);
    assert_eq!(ok(&["get", volume, "snapshot-every"]), "1s\n");
    let other = dir.path().join("other");
    ok(&["create", text(&other), "--size", "64M", "--history", "0"]);
    let refused = ["set", text(&other), "snapshot-every=1h"];
    fails(2, &refused, &["without room for snapshots"]);
    fails(2, &["set", volume, "snapshot-keep=1h"], &["SPAN:STEP"]);
}

/// A snapshot can be given by its age wherever one is read.
#[test]
fn a_snapshot_is_found_by_its_age() {
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    let volume = text(&volume);
    ok(&["create", volume, "--size", "64M"]);
    fails(1, &["rollback", volume, "@-1s"], &["has no snapshots"]);
    ok(&["snapshot", volume, "old"]);
    // Less than its age, by a margin for clocks that differ: the new one is younger than that for some seconds from now on.
    let began = std::time::Instant::now();
    std::thread::sleep(std::time::Duration::from_secs(12));
    ok(&["snapshot", volume, "new"]);
    let age = || format!("@-{}s", began.elapsed().as_secs() - 4);
    let too_old = ["no snapshot is that old", "the oldest is old"];
    fails(1, &["diff", volume, "@-2h"], &too_old);
    fails(2, &["diff", volume, "@-2x"], &["a time is a number and"]);
    ok(&["diff", volume, &age(), "new"]);
    let told = ok(&["rollback", volume, &age()]);
    assert!(told.contains("was at old"), "{told}");
    let sent = dir.path().join("sent");
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["send", &format!("{volume}{}", age()), "--json"])
        .stdout(File::create(&sent).unwrap())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(told.contains(r#""snapshot":"old""#), "{told}");
    if !can_attach("a_snapshot_is_found_by_its_age") {
        return;
    }
    let by_age = format!("{volume}{}", age());
    let told = vellum(&["attach", &by_age, "--via=fuse"]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("@old"), "{told}");
    fails(1, &["detach", &by_age], &["vellum list"]);
    ok(&["detach", &format!("{volume}@old")]);
}
