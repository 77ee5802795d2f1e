//! Another server takes over under a mounted file system that is written all the time.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{
    Server, can_attach, dir, eventually, fails, noise, ok, run, server_pid, text, vellum,
};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

const RESTARTS: usize = 5;
const WRITERS: usize = 3;

/// Writes one file after another, each durable before the next, until `ends`. Counts them in `written`. Returns how many, and how
/// long the slowest took.
fn write(dir: &Path, writer: u64, written: &AtomicU64, ends: &AtomicBool) -> (u64, Duration) {
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while !ends.load(Ordering::SeqCst) {
        let began = Instant::now();
        let mut file = File::create(dir.join(format!("{writer}-{count}"))).unwrap();
        file.write_all(&content(writer, count)).unwrap();
        file.sync_all().unwrap();
        slowest = slowest.max(began.elapsed());
        count += 1;
        written.store(count, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(2));
    }
    (count, slowest)
}

fn content(writer: u64, count: u64) -> Vec<u8> {
    noise(writer << 32 | count, 4096 * (1 + count as usize % 4) + 7)
}

/// True if the process is gone, or a zombie.
fn is_gone(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status"));
    status.map_or(true, |status| status.contains("State:\tZ"))
}

/// Ends the writers whatever happens to the test.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn mounted(volume: &Path, more: &[&str]) -> PathBuf {
    let mnt = volume.with_extension("mnt");
    fs::create_dir(&mnt).unwrap();
    let attach = ["attach", text(volume), "--mkfs", "--mount", text(&mnt)];
    ok(&[&attach[..], &["--via=fuse"], more].concat());
    mnt
}

fn uuid_of(volume: &Path) -> String {
    let info = ok(&["info", text(volume), "--json"]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    info["uuid"].as_str().unwrap().to_owned()
}

#[test]
fn five_servers_take_over_under_a_file_system_in_use() {
    if !can_attach("five_servers_take_over_under_a_file_system_in_use") {
        return;
    }
    let _guard = not_all();
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    ok(&["create", text(&volume), "--size=2G"]);
    let mnt = mounted(&volume, &[]);
    let ends = AtomicBool::new(false);
    let counts = [const { AtomicU64::new(0) }; WRITERS];
    let written: Vec<(u64, Duration)> = thread::scope(|scope| {
        let writers: Vec<_> = (0..)
            .zip(&counts)
            .map(|(writer, count)| {
                let (mnt, ends) = (&mnt, &ends);
                scope.spawn(move || write(mnt, writer, count, ends))
            })
            .collect();
        let ending = Ends(&ends);
        for _ in 0..RESTARTS {
            thread::sleep(Duration::from_millis(700));
            let before = server_pid(&volume);
            println!("{}", ok(&["restart", text(&volume)]).trim());
            assert_ne!(server_pid(&volume), before);
            assert!(is_gone(before));
        }
        thread::sleep(Duration::from_millis(300));
        eventually("each has written some files", || {
            counts.iter().all(|count| count.load(Ordering::SeqCst) > 10)
        });
        drop(ending);
        writers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    println!("files, and the slowest write with its fsync: {written:?}");
    run("umount", &[text(&mnt)]);
    let device = ok(&["detach", text(&volume)]);
    assert!(device.contains("detached"));

    let attached = ok(&["attach", text(&volume), "--via=fuse"]);
    run("e2fsck", &["-fn", attached.trim()]);
    ok(&["detach", text(&volume)]);
    ok(&["attach", text(&volume), "--mount", text(&mnt), "--via=fuse"]);
    for (writer, (count, _)) in (0..).zip(&written) {
        assert!(*count > 10, "{written:?}");
        for number in 0..*count {
            let read = fs::read(mnt.join(format!("{writer}-{number}"))).unwrap();
            assert!(read == content(writer, number), "{writer}-{number}");
        }
    }
    ok(&["detach", text(&mnt)]);
    ok(&["check", text(&volume)]);
}

/// Held for writing while all servers of this machine are restarted, and for reading by tests that would notice.
static ALL: RwLock<()> = RwLock::new(());

fn not_all() -> RwLockReadGuard<'static, ()> {
    ALL.read().unwrap_or_else(PoisonError::into_inner)
}

/// Creates a short script.
fn script(path: &Path, lines: &str) -> String {
    fs::write(path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("--program={}", path.display())
}

/// Restarts all servers of this machine, this volume's too.
fn restart_all(volume: &Path) {
    let _guard = ALL.write().unwrap_or_else(PoisonError::into_inner);
    let out = vellum(&["restart", "--all"]);
    // Other servers of this machine may have to go on.
    let (done, failed) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(
        out.status.success() || !failed.contains(text(volume)),
        "{failed}"
    );
    assert!(done.contains(text(volume)), "{done}");
}

#[test]
fn a_failed_takeover_leaves_the_old_server_running() {
    if !can_attach("a_failed_takeover_leaves_the_old_server_running") {
        return;
    }
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    ok(&["create", text(&volume), "--size=256M"]);
    fails(1, &["restart", text(&volume)], &["nothing is attached"]);
    let nowhere = dir.path().join("nowhere");
    fails(1, &["restart", text(&nowhere)], &["nothing is attached"]);
    let mnt = mounted(&volume, &[]);
    let serves = |number: u64, pid: Option<i32>| {
        let file = mnt.join(format!("{number}"));
        let mut written = File::create(&file).unwrap();
        written.write_all(&content(9, number)).unwrap();
        written.sync_all().unwrap();
        let now = server_pid(&volume);
        assert!(pid.is_none_or(|pid| pid == now));
        now
    };
    let first = serves(0, None);

    // It fails at once, or does not understand the request.
    let broken = script(&dir.path().join("broken"), "echo broken here >&2; exit 3");
    let restart = ["restart", text(&volume), &broken];
    fails(
        1,
        &restart,
        &["cannot take over", "broken here", "continues"],
    );
    serves(1, Some(first));
    let none = format!("--program={}", nowhere.display());
    fails(2, &["restart", text(&volume), &none], &["nowhere"]);
    serves(2, Some(first));

    // It seems to work, and then fails: the old program serves again.
    let late = "echo 'willing to take over, version 1'; sleep 1; echo late trouble >&2; exit 4";
    let late = script(&dir.path().join("late"), late);
    let restart = ["restart", text(&volume), &late];
    fails(
        1,
        &restart,
        &["late trouble", "the old one serves it again"],
    );
    let second = serves(3, None);
    assert_ne!(second, first);
    assert_eq!(fs::read(mnt.join("1")).unwrap(), content(9, 1));
    let comm = fs::read_to_string(format!("/proc/{second}/comm")).unwrap();
    assert_eq!(comm.trim(), "vellum");

    // And that server can be restarted as well.
    ok(&["restart", text(&mnt)]);
    serves(4, None);
    restart_all(&volume);
    assert_ne!(serves(5, None), second);
    let third = serves(6, None);
    // SAFETY: the server of this test.
    unsafe { libc::kill(third, libc::SIGKILL) };
    eventually("it is dead", || is_gone(third));
    fails(1, &["restart", text(&volume)], &["is dead", "detach"]);
    vellum(&["detach", text(&volume)]);

    // Only a restart may start such a server.
    let fuse = dir.path().join("fuse");
    fs::create_dir(&fuse).unwrap();
    let serve = ["serve", text(&volume), "--fuse", text(&fuse)];
    let alone = [&serve[..], &["--take-over=77"]].concat();
    fails(1, &alone, &["vellum restart"]);
}

#[test]
fn an_encrypted_volume_is_opened_with_its_key_before_its_server_stops() {
    if !can_attach("an_encrypted_volume_is_opened_with_its_key_before_its_server_stops") {
        return;
    }
    let _guard = not_all();
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    let key = dir.path().join("key");
    fs::write(&key, noise(5, 64)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let key_file = format!("--key-file={}", key.display());
    let create = ["create", text(&volume), "--size=256M", "--encrypt"];
    ok(&[&create[..], &[&key_file]].concat());
    let mnt = mounted(&volume, &[&key_file]);
    fs::write(mnt.join("file"), b"content").unwrap();
    let before = server_pid(&volume);
    fails(2, &["restart", text(&volume)], &["encrypted"]);
    assert_eq!(server_pid(&volume), before);
    ok(&["restart", text(&volume), &key_file]);
    assert_ne!(server_pid(&volume), before);
    assert_eq!(fs::read(mnt.join("file")).unwrap(), b"content");
    fs::write(mnt.join("more"), b"more").unwrap();
    ok(&["detach", text(&mnt)]);
}

#[test]
fn a_restart_keeps_snapshots_and_is_refused_while_one_is_attached() {
    if !can_attach("a_restart_keeps_snapshots_and_is_refused_while_one_is_attached") {
        return;
    }
    let _guard = not_all();
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    let snapshot = format!("{}@old", volume.display());
    let old = dir.path().join("old");
    fs::create_dir(&old).unwrap();
    ok(&["create", text(&volume), "--size=256M"]);
    let mnt = mounted(&volume, &[]);
    let holds = |mount: &Path, content: &[u8]| {
        assert_eq!(fs::read(mount.join("file")).unwrap(), content);
    };
    fs::write(mnt.join("file"), b"before").unwrap();
    ok(&["snapshot", text(&volume), "old", "--freeze"]);
    fs::write(mnt.join("file"), b"after").unwrap();
    run("sync", &["-f", text(&mnt)]);
    let first = server_pid(&volume);

    let attach = ["attach", &snapshot, "--mount", text(&old)];
    ok(&attach);
    let why = [&*snapshot, "is attached", "vellum detach"];
    fails(1, &["restart", text(&volume)], &why);
    assert_eq!(server_pid(&volume), first);
    holds(&old, b"before");
    ok(&["detach", &snapshot]);

    ok(&["restart", text(&volume)]);
    assert_ne!(server_pid(&volume), first);
    assert!(ok(&["snapshots", text(&volume)]).contains("old"));
    ok(&attach);
    holds(&old, b"before");
    holds(&mnt, b"after");
    ok(&["detach", &snapshot]);
    ok(&["detach", text(&volume)]);

    // With a separate server.
    ok(&[&attach[..], &["--via=fuse"]].concat());
    fails(1, &["restart", &snapshot], &["server's memory", "detach"]);
    holds(&old, b"before");
    ok(&["detach", &snapshot]);
}

#[test]
fn a_killed_restart_leaves_a_server_that_can_be_detached() {
    if !can_attach("a_killed_restart_leaves_a_server_that_can_be_detached") {
        return;
    }
    let _guard = not_all();
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    ok(&["create", text(&volume), "--size=256M"]);
    let mnt = mounted(&volume, &[]);
    let first = server_pid(&volume);
    // It takes over, but does not report it.
    let server = env!("CARGO_BIN_EXE_vellum");
    let lines = format!("echo 'willing to take over, version 1'\nexec {server} \"$@\" >/dev/null");
    let silent = script(&dir.path().join("silent"), &lines);
    let mut restart = Command::new(server)
        .args(["restart", text(&volume), &silent])
        .spawn()
        .unwrap();
    eventually("the first server is gone", || is_gone(first));
    fs::write(mnt.join("file"), b"content").unwrap();
    run("sync", &["-f", text(&mnt)]);
    restart.kill().unwrap();
    restart.wait().unwrap();
    // What it says is in a log that has not got its name.
    let uuid = uuid_of(&volume);
    let logs = || {
        let all = fs::read_dir("/run/vellum").unwrap().flatten();
        let names = all.map(|file| file.file_name().into_string().unwrap());
        let logs = names.filter(|name| name.starts_with(&format!("{uuid}.log")));
        logs.collect::<Vec<_>>()
    };
    assert!(logs().len() > 1, "{:?}", logs());
    let second = server_pid(&volume);
    let again = vellum(&["restart", text(&volume)]);
    let left = logs();
    let third = server_pid(&volume);
    run("timeout", &["30", server, "detach", text(&volume)]);
    assert!(again.status.success() && third != second, "{again:?}");
    assert_eq!(left, [format!("{uuid}.log")]);
    assert_eq!(logs(), [""; 0]);
    ok(&["attach", text(&volume), "--mount", text(&mnt), "--via=fuse"]);
    assert_eq!(fs::read(mnt.join("file")).unwrap(), b"content");
    ok(&["detach", text(&volume)]);
}

#[test]
fn a_log_that_somebody_removed_ends_nothing() {
    if !can_attach("a_log_that_somebody_removed_ends_nothing") {
        return;
    }
    let _guard = not_all();
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    ok(&["create", text(&volume), "--size=256M"]);
    let mnt = mounted(&volume, &[]);
    let first = server_pid(&volume);
    fs::write(mnt.join("file"), b"content").unwrap();
    fs::remove_file(format!("/run/vellum/{}.log", uuid_of(&volume))).unwrap();
    let restarted = vellum(&["restart", text(&volume)]);
    let second = server_pid(&volume);
    // Before anything is asserted: what is mounted on a dead server would stay.
    let _ = Command::new("sync").arg("-f").arg(&mnt).status();
    let read = fs::read(mnt.join("file"));
    let detached = vellum(&["detach", text(&volume)]);
    assert!(detached.status.success(), "{detached:?}");
    assert!(
        restarted.status.success() && second != first,
        "{restarted:?}"
    );
    assert_eq!(read.unwrap(), b"content");
}

/// Who may write to a volume's folder can put another one there, and so does who restores a backup. What was served goes on.
#[test]
fn what_takes_a_volumes_place_is_not_served_under_its_mount() {
    if !can_attach("what_takes_a_volumes_place_is_not_served_under_its_mount") {
        return;
    }
    let _guard = not_all();
    let dir = dir();
    let [volume, moved, other, copy] =
        ["a.v", "a.old", "other.v", "copy.v"].map(|name| dir.path().join(name));
    ok(&["create", text(&volume), "--size=64M"]);
    ok(&["create", text(&other), "--size=64M"]);
    let mnt = mounted(&volume, &[]);
    fs::write(mnt.join("file"), b"content").unwrap();
    run("sync", &["-f", text(&mnt)]);
    fs::copy(&volume, &copy).unwrap();
    let others = || [&other, &copy].map(|path| fs::read(path).unwrap());
    let before = others();
    let first = server_pid(&volume);
    let mut seen = Vec::new();
    for another in [&other, &copy] {
        fs::rename(&volume, &moved).unwrap();
        symlink(another, &volume).unwrap();
        let out = vellum(&["restart", text(&mnt)]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        fs::rename(&moved, &volume).unwrap();
        seen.push((out.status.code(), server_pid(&volume) == first, said));
    }
    // It is replaced while its successors begin: by programs that open what they are handed, and one that does not.
    let swap = format!(
        "mv {0} {1}; ln -s {2} {0}",
        text(&volume),
        text(&moved),
        text(&other)
    );
    for (more, code) in [(", what it is handed", 0), ("", 1)] {
        let willing = format!("echo 'willing to take over, version 1{more}'");
        let server = env!("CARGO_BIN_EXE_vellum");
        let lines = format!("{swap}\n{willing}\nexec {server} \"$@\"");
        let swaps = script(&dir.path().join("swaps"), &lines);
        let out = vellum(&["restart", text(&mnt), &swaps]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        fs::rename(&moved, &volume).unwrap();
        seen.push((out.status.code(), out.status.code() == Some(code), said));
    }
    let content = fs::read(mnt.join("file"));
    let after = others();
    let restarted = vellum(&["restart", text(&volume)]);
    let detached = vellum(&["detach", text(&mnt)]);
    assert!(before == after, "another volume was written: {seen:?}");
    assert_eq!(content.unwrap(), b"content", "{seen:?}");
    for (code, is_right, said) in &seen[..2] {
        assert!(*code == Some(1) && *is_right, "{seen:?}");
        assert!(said.contains("no longer what its server serves"), "{said}");
    }
    assert!(seen[2].1 && seen[3].1, "{seen:?}");
    let said = &seen[3].2;
    assert!(
        said.contains("replaced meanwhile") && said.contains("the old one serves it again"),
        "{said}"
    );
    assert!(
        restarted.status.success() && detached.status.success(),
        "{restarted:?} {detached:?}"
    );
    ok(&["check", text(&volume)]);
}

/// A file system in memory, removed afterwards.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn size(&self, how: &str, size: &str) {
        let options = format!("{how}size={size}");
        let mount = ["-t", "tmpfs", "-o", &options, "vellum-test"];
        run("mount", &[&mount[..], &[text(&self.0)]].concat());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", text(&self.0)]).status();
    }
}

/// What is left to write would find no room, and nobody would serve meanwhile.
#[test]
fn a_server_without_room_below_goes_on() {
    if !can_attach("a_server_without_room_below_goes_on") {
        return;
    }
    let _guard = not_all();
    let dir = dir();
    let host = Tmpfs(dir.path().join("host"));
    fs::create_dir(&host.0).unwrap();
    host.size("", "48M");
    let volume = host.0.join("v");
    ok(&["create", text(&volume), "--size=128M"]);
    let device = ok(&["attach", text(&volume), "--via=fuse"]);
    let of = format!("of={}", device.trim());
    run("dd", &["if=/dev/urandom", &of, "bs=1M", "count=60"]);
    let before = server_pid(&volume);
    let mut restart = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["restart", text(&volume)])
        .stderr(File::create(dir.path().join("said")).unwrap())
        .spawn()
        .unwrap();
    let mut ended = None;
    for _ in 0..300 {
        thread::sleep(Duration::from_millis(100));
        ended = restart.try_wait().unwrap();
        if ended.is_some() {
            break;
        }
    }
    let is_there = !is_gone(before);
    host.size("remount,", "200M");
    let _ = restart.wait();
    let said = fs::read_to_string(dir.path().join("said")).unwrap();
    // The server tries again from time to time.
    let restarted = || vellum(&["restart", text(&volume)]).status.success();
    eventually("it is restarted", restarted);
    vellum(&["detach", text(&volume)]);
    assert!(
        ended.is_some_and(|status| status.code() == Some(1)),
        "{said}"
    );
    assert!(said.contains("no room") && is_there, "{said}");
    ok(&["check", text(&volume)]);
}

/// With a server's connection one can answer the kernel in its place, so only the server's owner gets it.
#[test]
fn a_group_on_the_control_socket_gets_no_connection() {
    if !can_attach("a_group_on_the_control_socket_gets_no_connection") {
        return;
    }
    let _guard = not_all();
    let dir = dir();
    let (volume, control) = (dir.path().join("v"), dir.path().join("control"));
    let fuse = dir.path().join("fuse");
    fs::create_dir(&fuse).unwrap();
    ok(&["create", text(&volume), "--size=64M"]);
    let serve = [
        text(&volume),
        "--fuse",
        text(&fuse),
        "--control",
        text(&control),
    ];
    let handed = |more: &[&str]| {
        let server = Server::start(dir.path(), &[&serve[..], more].concat());
        let mut stream = UnixStream::connect(&control).unwrap();
        let order = br#"{"command":"hand-over","order":"ask"}"#;
        stream.write_all(&[&order[..], b"\n"].concat()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert_eq!(server.term(), Some(0));
        answer
    };
    let answer = handed(&["--socket-group=root"]);
    assert!(
        answer.contains(r#""ok":false"#) && answer.contains("group"),
        "{answer}"
    );
    let answer = handed(&[]);
    assert!(answer.contains(r#""ok":true"#), "{answer}");
}
