//! Snapshots of a real ext4, sent to another volume: first a whole one, then changes; also while the volume is in use, and if
//! the stream or its receiver ends in the middle.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, fails, noise, ok, run, text, vellum};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Large enough that opening it is not most of the reads.
const SIZE: u64 = 256 << 20;

/// Runs a command with a file at each end, which must end within minutes.
fn command(args: &[&str], input: Stdio, output: Stdio) -> Output {
    Command::new("timeout")
        .args(["--signal=KILL", "300", env!("CARGO_BIN_EXE_vellum")])
        .args(args)
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout)
}

fn send(args: &[&str], to: &Path) {
    let all = [&["send"], args].concat();
    let out = command(&all, Stdio::null(), File::create(to).unwrap().into());
    assert!(out.status.success(), "{}", said(&out));
}

fn receive(args: &[&str], stream: &[u8], at: &Path) -> Output {
    fs::write(at, stream).unwrap();
    let all = [&["receive"], args].concat();
    command(&all, File::open(at).unwrap().into(), Stdio::piped())
}

fn refused(out: &Output, says: &[&str]) {
    let said = said(out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    for word in says {
        assert!(said.contains(word), "it does not say {word:?}: {said}");
    }
}

/// Returns the contents of a snapshot.
fn image(volume: &Path, name: &str) -> Vec<u8> {
    let snapshot = format!("{}@{name}", text(volume));
    let device = ok(&["attach", &snapshot, "--via=fuse"]);
    let image = fs::read(device.trim()).unwrap();
    ok(&["detach", &snapshot]);
    image
}

/// Two volumes, detached when the test ends.
struct Pair {
    from: PathBuf,
    to: PathBuf,
    stream: PathBuf,
}

impl Pair {
    fn new(dir: &Path, size: &str) -> Self {
        let pair = Self {
            from: dir.join("disk.vellum"),
            to: dir.join("copy.vellum"),
            stream: dir.join("stream"),
        };
        for volume in [&pair.from, &pair.to] {
            ok(&["create", text(volume), "--size", size]);
        }
        pair
    }

    fn same(&self, name: &str) {
        assert!(
            image(&self.from, name) == image(&self.to, name),
            "{name} is not what was sent"
        );
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for volume in [&self.from, &self.to] {
            vellum(&["detach", text(volume)]);
        }
    }
}

/// Creates snapshots a and b of a file system. Returns a stream of the whole first one, and one of the changes.
fn streams(pair: &Pair, mount: &Path) -> (Vec<u8>, Vec<u8>) {
    let from = text(&pair.from);
    fs::create_dir(mount).unwrap();
    ok(&[
        "attach",
        from,
        "--via=fuse",
        "--mkfs",
        "--mount",
        text(mount),
    ]);
    fs::write(mount.join("one"), noise(1, 20 << 20)).unwrap();
    fs::write(mount.join("two"), noise(2, 9 << 20)).unwrap();
    ok(&["snapshot", from, "a", "--freeze"]);
    // While it is written.
    fs::write(mount.join("three"), noise(3, 5 << 20)).unwrap();
    fs::remove_file(mount.join("two")).unwrap();
    run("sync", &[]);
    send(&[&format!("{from}@a")], &pair.stream);
    let whole = fs::read(&pair.stream).unwrap();
    ok(&["snapshot", from, "b", "--freeze"]);
    send(&[&format!("{from}@b"), "--from", "a"], &pair.stream);
    let changes = fs::read(&pair.stream).unwrap();
    assert!(
        changes.len() > 5 << 20 && changes.len() < whole.len() / 2,
        "{}",
        changes.len()
    );
    ok(&["detach", from]);
    // Its server sent the same as is sent without one.
    for (args, sent) in [(vec!["a"], &whole), (vec!["b", "--from", "a"], &changes)] {
        let snapshot = format!("{from}@{}", args[0]);
        send(&[&[snapshot.as_str()], &args[1..]].concat(), &pair.stream);
        assert!(fs::read(&pair.stream).unwrap() == *sent, "{args:?}");
    }
    (whole, changes)
}

#[test]
fn a_file_system_is_sent_and_then_its_changes() {
    if !can_attach("a_file_system_is_sent_and_then_its_changes") {
        return;
    }
    let dir = dir();
    let pair = Pair::new(dir.path(), "128M");
    let to = text(&pair.to);
    let (whole, changes) = streams(&pair, &dir.path().join("mnt"));
    refused(
        &receive(&[to], &changes, &pair.stream),
        &["since snapshot a", "none"],
    );
    let out = receive(&[to], &whole, &pair.stream);
    assert!(out.status.success(), "{}", said(&out));
    refused(&receive(&[to], &whole, &pair.stream), &["already"]);
    pair.same("a");
    // Written since.
    let device = ok(&["attach", to, "--via=fuse"]);
    refused(
        &receive(&[to], &changes, &pair.stream),
        &["is being served", "detach"],
    );
    let disk = File::options().write(true).open(device.trim()).unwrap();
    disk.write_all_at(b"something", 70 << 20).unwrap();
    disk.sync_all().unwrap();
    drop(disk);
    ok(&["detach", to]);
    let back = format!("vellum rollback {to} a");
    refused(
        &receive(&[to], &changes, &pair.stream),
        &["written to", &back],
    );
    ok(&["rollback", to, "a"]);
    let out = receive(&[to, "--json"], &changes, &pair.stream);
    assert!(out.status.success(), "{}", said(&out));
    let told: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&told["snapshot"], &told["from"]),
        (&"b".into(), &"a".into())
    );
    pair.same("a");
    pair.same("b");
    ok(&["check", to]);
}

/// Returns the bytes that a command has read from drives.
#[allow(
    clippy::zombie_processes,
    reason = "it is waited for by its number: that tells what it read"
)]
fn read_by(args: &[&str]) -> u64 {
    let child = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(args)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut status = 0;
    // SAFETY: a zeroed structure, filled by the call; a child of this process that nothing else waits for.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage);
        usage
    };
    assert_eq!(status, 0, "{args:?}");
    usage.ru_inblock as u64 * 512
}

/// One per cent of the volume has changed, in single blocks all over it: only that is read, and what is needed to open it.
#[test]
fn sending_one_per_cent_of_changes_reads_at_most_two() {
    if !can_attach("sending_one_per_cent_of_changes_reads_at_most_two") {
        return;
    }
    let dir = dir();
    let pair = Pair::new(dir.path(), "256M");
    let (from, to) = (text(&pair.from), text(&pair.to));
    let device = ok(&["attach", from, "--via=fuse"]);
    let disk = File::options().write(true).open(device.trim()).unwrap();
    for at in (0..SIZE).step_by(8 << 20) {
        disk.write_all_at(&noise(at, 8 << 20), at).unwrap();
    }
    disk.sync_all().unwrap();
    ok(&["snapshot", from, "a"]);
    for at in (0..SIZE / 4096).step_by(100) {
        disk.write_all_at(&noise(at + 7, 4096), at * 4096).unwrap();
    }
    disk.sync_all().unwrap();
    drop(disk);
    ok(&["snapshot", from, "b"]);
    ok(&["detach", from]);
    let snapshot = format!("{from}@b");
    let order = ["send", &snapshot, "--from", "a"];
    // The program itself is read from disk only once.
    let read = (0..3).map(|_| read_by(&order)).min().unwrap();
    assert!(read <= SIZE / 50, "{read} bytes of {SIZE}");
    println!("{read} bytes of {SIZE} were read");
    for args in [
        vec![format!("{from}@a")],
        vec![snapshot, "--from".into(), "a".into()],
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        send(&args, &pair.stream);
        let out = receive(
            &[to],
            &fs::read(&pair.stream).unwrap(),
            &dir.path().join("again"),
        );
        assert!(out.status.success(), "{}", said(&out));
    }
    pair.same("b");
}

/// Wherever it ends, the partial state is neither taken for a snapshot nor written to; and the same stream can be received
/// again.
#[test]
fn a_killed_receiver_can_continue() {
    if !can_attach("a_killed_receiver_can_continue") {
        return;
    }
    let dir = dir();
    let pair = Pair::new(dir.path(), "128M");
    let (from, to) = (text(&pair.from), text(&pair.to));
    let device = ok(&["attach", from, "--via=fuse"]);
    let disk = File::options().write(true).open(device.trim()).unwrap();
    disk.write_all_at(&noise(5, 90 << 20), 10 << 20).unwrap();
    disk.sync_all().unwrap();
    drop(disk);
    ok(&["snapshot", from, "a"]);
    ok(&["detach", from]);
    send(&[&format!("{from}@a")], &pair.stream);
    let stream = fs::read(&pair.stream).unwrap();
    for part in [1, 2, 3] {
        // What does not fit in the pipe has been received.
        let mut child = Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(["receive", to])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&stream[..stream.len() / 4 * part]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
    refused(
        &receive(&[to], &stream[..stream.len() / 2], &pair.stream),
        &["cut short", "again"],
    );
    assert!(ok(&["snapshots", to]).contains("being received"));
    fails(1, &["attach", to, "--via=fuse"], &["is being received"]);
    fails(1, &["snapshot", to, "x"], &["is being received"]);
    fails(1, &["attach", &format!("{to}@a")], &["is being received"]);
    let mut other = stream.clone();
    other[1000] ^= 1;
    refused(
        &receive(&[to], &other, &pair.stream),
        &["of no use from its byte"],
    );
    let out = receive(&[to], &stream, &pair.stream);
    assert!(out.status.success(), "{}", said(&out));
    assert!(said(&out).contains("of it there before"), "{}", said(&out));
    pair.same("a");
    ok(&["check", to]);
}

/// Half of a snapshot is given up with all others, and nothing says any more what the volume is.
#[test]
fn deleting_all_tells_of_a_mixture() {
    let dir = dir();
    let pair = Pair::new(dir.path(), "64M");
    let (from, to) = (text(&pair.from), text(&pair.to));
    ok(&["snapshot", from, "a"]);
    send(&[&format!("{from}@a")], &pair.stream);
    let stream = fs::read(&pair.stream).unwrap();
    refused(
        &receive(&[to], &stream[..stream.len() - 1], &pair.stream),
        &["cut short"],
    );
    let out = vellum(&["delete", to, "--all"]);
    let told = said(&out);
    assert!(out.status.success(), "{told}");
    assert!(
        told.contains("a was being received") && told.contains("mixture"),
        "{told}"
    );
    let out = vellum(&["delete", to, "--all"]);
    assert!(!said(&out).contains("mixture"), "{}", said(&out));
}

#[test]
fn nonsense_is_refused() {
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    let volume = text(&volume);
    ok(&["create", volume, "--size", "64M"]);
    fails(2, &["send", volume], &["names no snapshot"]);
    fails(
        1,
        &["send", &format!("{volume}@a")],
        &["there is no snapshot or clone `a`"],
    );
    fails(
        1,
        &["receive", volume],
        &["standard input", "byte 0", "cut short"],
    );
    ok(&["snapshot", volume, "a"]);
    ok(&["snapshot", volume, "b"]);
    fails(
        1,
        &["diff", volume, "b", "a"],
        &["b was not taken before a"],
    );
    let order = [&format!("{volume}@a"), "--from", "b"];
    fails(
        1,
        &[&["send"], &order[..]].concat(),
        &["b was not taken before a"],
    );
    let out = receive(&[volume], &noise(1, 4096), &dir.path().join("noise"));
    refused(&out, &["byte 0", "no magic number"]);
}
