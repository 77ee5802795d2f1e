//! What a machine does to a server under a mounted ext4: it stops the server, denies it descriptors and room for its volume,
//! sets its clock, removes its medium, kills it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, eventually, noise, ok, run, server_pid, skipped, text, vellum};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Returns a guard. While a test has it, no other test of this program gives `list`, which asks all servers of this machine: it would
/// take the last descriptor of one, and remove the socket of a dead one.
fn no_list() -> MutexGuard<'static, ()> {
    static LISTS: Mutex<()> = Mutex::new(());
    LISTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns what `list` prints.
fn list() -> String {
    let _guard = no_list();
    ok(&["list"])
}

/// A volume that is detached when the test ends, even if it fails.
struct Disk(PathBuf);

impl Disk {
    /// Makes a volume, and a folder to mount it at.
    fn made(volume: &Path, mount: &Path, size: &str) -> Self {
        fs::create_dir(mount).unwrap();
        ok(&["create", text(volume), "--size", size]);
        Self(volume.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        vellum(&["detach", text(&self.0)]);
    }
}

/// Returns the arguments that mount what is on a volume.
fn to_attach<'a>(volume: &'a Path, mount: &'a Path) -> [&'a str; 5] {
    ["attach", text(volume), "--via=fuse", "--mount", text(mount)]
}

/// Writes a file and syncs it.
fn put(mount: &Path, n: u64) {
    let mut file = File::create(mount.join(n.to_string())).unwrap();
    file.write_all(&noise(n, 200_000)).unwrap();
    file.sync_all().unwrap();
}

/// `VELLUM_STOP_SECONDS=60` for longer.
#[test]
fn a_server_continues_after_a_stop_and_without_descriptors() {
    if !can_attach("a_server_continues_after_a_stop_and_without_descriptors") {
        return;
    }
    let dir = dir();
    let (volume, mount) = (dir.path().join("v"), dir.path().join("m"));
    let _disk = Disk::made(&volume, &mount, "64M");
    let attach = to_attach(&volume, &mount);
    ok(&[&attach[..], &["--mkfs"]].concat());
    let pid = server_pid(&volume);
    put(&mount, 0);

    // The server is stopped: a write waits, and is there once the server continues.
    let still = std::env::var("VELLUM_STOP_SECONDS").map_or(2, |seconds| seconds.parse().unwrap());
    let still = Duration::from_secs(still);
    // SAFETY: a process started by this test, by its recorded number.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    std::thread::scope(|scope| {
        let began = Instant::now();
        let writer = scope.spawn(|| put(&mount, 1));
        std::thread::sleep(still);
        assert!(!writer.is_finished(), "it synced what nobody has taken");
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        writer.join().unwrap();
        assert!(began.elapsed() >= still);
    });

    // The thread that accepts connections works again: the signals woke it, and it reserves a new descriptor.
    ok(&["stats", text(&volume)]);
    let nobody_lists = no_list();
    // It may open nothing more: the mount continues, and a command waits until it may again.
    let limit = |count: &str| run("prlimit", &["--pid", &pid.to_string(), count]);
    limit("--nofile=4:");
    put(&mount, 2);
    // One descriptor was reserved for the next client, and for no other.
    ok(&["stats", text(&volume)]);
    let mut asked = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["snapshot", text(&volume), "s"])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    put(&mount, 3);
    assert!(asked.try_wait().unwrap().is_none(), "it can open something");
    limit("--nofile=1024:");
    drop(nobody_lists);
    assert!(asked.wait().unwrap().success());
    put(&mount, 4);

    ok(&["detach", text(&volume)]);
    assert!(ok(&["check", text(&volume)]).contains("is sound"));
    ok(&attach);
    for n in 0..5 {
        let found = fs::read(mount.join(n.to_string())).unwrap();
        assert!(found == noise(n, 200_000), "file {n}");
    }
}

/// A small file system for a volume's file. One in memory is unsuitable: there the page cache is all there is, and an error
/// about room may be from another write than the last one.
struct Host(PathBuf);

impl Host {
    fn new(dir: &Path) -> Self {
        let (image, at) = (dir.join("image"), dir.join("host"));
        File::create(&image).unwrap().set_len(96 << 20).unwrap();
        let options = ["-q", "-m", "0", "-O", "^has_journal"];
        run("mkfs.ext4", &[&options[..], &[text(&image)]].concat());
        fs::create_dir(&at).unwrap();
        run("mount", &["-o", "loop", text(&image), text(&at)]);
        Self(at)
    }

    /// Fills the file system completely.
    fn fill(&self) {
        let mut hog = File::create(self.0.join("hog")).unwrap();
        while hog.write_all(&[1; 4096]).is_ok() {}
        hog.sync_all().unwrap();
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("hog")).unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Writes and syncs files until one fails. Returns how many succeeded, and how long the last one took.
fn put_until_it_fails(mount: &Path, from: u64) -> (u64, Duration) {
    for n in from.. {
        let began = Instant::now();
        let put = File::create(mount.join(n.to_string())).and_then(|mut file| {
            file.write_all(&noise(n, 200_000))
                .and_then(|()| file.sync_all())
        });
        if put.is_err() {
            return (n, began.elapsed());
        }
        assert!(n < 1000, "there is always room");
    }
    unreachable!("it counts on")
}

fn holds(mount: &Path, files: u64) {
    for n in 0..files {
        let found = fs::read(mount.join(n.to_string())).unwrap();
        assert!(found == noise(n, 200_000), "file {n}");
    }
}

/// Runs a command that must fail within `seconds` seconds. Returns its output.
fn fails_within(seconds: u64, args: &[&str]) -> String {
    let began = Instant::now();
    let out = vellum(args);
    assert!(!out.status.success(), "{args:?} does not fail");
    assert!(
        began.elapsed() < Duration::from_secs(seconds),
        "{args:?} took {:?}",
        began.elapsed()
    );
    String::from_utf8(out.stderr).unwrap()
}

/// No write or command waits long, and what was synced is there once there is room.
#[test]
fn a_full_file_system_below_a_volume_blocks_no_one() {
    if !can_attach("a_full_file_system_below_a_volume_blocks_no_one") {
        return;
    }
    let dir = dir();
    let host = Host::new(dir.path());
    let (volume, mount) = (host.0.join("v"), dir.path().join("m"));
    let _disk = Disk::made(&volume, &mount, "256M");
    let attach = to_attach(&volume, &mount);
    let device = ok(&[&attach[..], &["--mkfs"]].concat());
    let device = device.split_whitespace().next().unwrap();
    for n in 0..5 {
        put(&mount, n);
    }
    host.fill();
    let (synced, refused_in) = put_until_it_fails(&mount, 5);
    assert!(
        refused_in < Duration::from_secs(30),
        "refused in {refused_in:?}"
    );
    holds(&mount, synced);
    let health = vellum(&["health", text(&volume)]);
    let health = String::from_utf8(health.stdout).unwrap();
    assert!(
        health.contains("the storage below the volume is full"),
        "{health}"
    );

    // There is room again, and the server continues by itself; ext4 needs a new mount.
    host.make_room();
    run("umount", &[text(&mount)]);
    eventually("it can be mounted again", || {
        let mut again = Command::new("mount");
        again.args(["-o", "data=journal", device, text(&mount)]);
        again.status().unwrap().success()
    });
    holds(&mount, synced);
    put(&mount, synced);

    // A detach without room returns. Its server waits, until it receives a signal.
    host.fill();
    let (synced, _) = put_until_it_fails(&mount, synced + 1);
    let pid = server_pid(&volume);
    let said = fails_within(30, &["detach", text(&volume)]);
    assert!(said.contains(&format!("`kill {pid}`")), "{said}");
    // SAFETY: a process started by this test, by its recorded number.
    unsafe { libc::kill(pid, libc::SIGTERM) };
    eventually("it ends", || {
        Path::new(&format!("/proc/{pid}/exe")).read_link().is_err()
    });
    // An attach returns, too: a file system with an unfinished journal cannot be mounted.
    let said = fails_within(30, &attach);
    assert!(said.contains("no room"), "{said}");
    assert!(
        !list().contains(text(&volume)),
        "it has left something behind"
    );

    host.make_room();
    assert!(ok(&["check", text(&volume)]).contains("is sound"));
    ok(&attach);
    holds(&mount, synced);
    put(&mount, synced);
    ok(&["detach", text(&volume)]);
}

/// A library that a program is started with: it advances the clock by the seconds in the file.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *ahead;
__attribute__((constructor)) static void start(void) {
  int file = open(getenv("VELLUM_TEST_CLOCK"), O_RDONLY);
  ahead = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
  if (file < 0 || ahead == MAP_FAILED) abort();
}
int clock_gettime(clockid_t which, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, which, now);
  if (!failed && which == CLOCK_REALTIME && ahead) now->tv_sec += *ahead;
  return failed;
}
"#;

/// Returns the snapshots that the volume has taken by itself and kept.
fn history(volume: &Path) -> Vec<String> {
    let told = ok(&["snapshots", text(volume)]);
    let names = told.lines().filter_map(|line| line.split(' ').next());
    names
        .filter(|name| name.starts_with("auto-"))
        .map(str::to_owned)
        .collect()
}

/// Builds the library, if there is a compiler.
fn clock(dir: &Path, test: &str) -> Option<PathBuf> {
    let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o", text(&library), text(&source)])
        .status();
    if !built.is_ok_and(|built| built.success()) {
        skipped(format_args!("{test}: no C compiler (Debian's package gcc)"));
        return None;
    }
    Some(library)
}

#[test]
fn a_clock_that_jumps_costs_no_snapshots() {
    let test = "a_clock_that_jumps_costs_no_snapshots";
    if !can_attach(test) {
        return;
    }
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    let Some(library) = clock(dir.path(), test) else {
        return;
    };
    let ahead = at("ahead");
    fs::write(&ahead, 0i64.to_ne_bytes()).unwrap();
    let leap = |years: i64| {
        let seconds = years * 365 * 86_400;
        let file = fs::OpenOptions::new().write(true).open(&ahead).unwrap();
        std::os::unix::fs::FileExt::write_at(&file, &seconds.to_ne_bytes(), 0).unwrap();
    };
    let (volume, fuse) = (at("v"), at("fuse"));
    fs::create_dir(&fuse).unwrap();
    ok(&["create", text(&volume), "--size", "64M"]);
    ok(&[
        "set",
        text(&volume),
        "snapshot-every=1s",
        "snapshot-keep=5m:1s",
    ]);
    let log = at("log");
    let started = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["serve", "--fuse", text(&fuse), text(&volume)])
        .env("LD_PRELOAD", &library)
        .env("VELLUM_TEST_CLOCK", &ahead)
        .stdout(File::create(&log).unwrap())
        .stderr(File::create(at("errors")).unwrap())
        .spawn();
    let mut server = common::Running(started.unwrap());
    let said = || fs::read_to_string(&log).unwrap();
    eventually("ready", || said().contains("ready: "));
    let mut written = 0;
    // Writes until there are that many snapshots.
    let mut until = |count: usize| {
        eventually("snapshots", || {
            written += 1;
            let disk = fs::OpenOptions::new().write(true).open(fuse.join("v"));
            disk.unwrap().write_all(&noise(written, 4096)).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            history(&volume).len() >= count
        });
    };
    until(5);
    for years in [10, 0, 900, -40, 0] {
        leap(years);
        let before = history(&volume);
        until(before.len() + 2);
        let after = history(&volume);
        let lost: Vec<_> = before.iter().filter(|one| !after.contains(one)).collect();
        assert!(lost.is_empty(), "{years} years: {lost:?} of {before:?}");
    }
    // It also works before 1970 and after the year 9999.
    for years in [-100, 9000, 0] {
        leap(years);
        until(history(&volume).len());
    }
    // SAFETY: a process started by this test.
    unsafe { libc::kill(server.0.id() as i32, libc::SIGTERM) };
    assert!(server.0.wait().unwrap().success());
    let wrong = fs::read_to_string(at("errors")).unwrap();
    assert!(!wrong.contains("panicked"), "{wrong}");
    assert!(ok(&["check", text(&volume)]).contains("is sound"));
}

/// Its file is empty from then on, like that of a loop device or a stick that was pulled out.
#[test]
fn a_missing_medium_is_an_error_at_once() {
    if !can_attach("a_missing_medium_is_an_error_at_once") {
        return;
    }
    let dir = dir();
    let (volume, mount) = (dir.path().join("v"), dir.path().join("m"));
    let _disk = Disk::made(&volume, &mount, "64M");
    ok(&[&to_attach(&volume, &mount)[..], &["--mkfs"]].concat());
    put(&mount, 0);
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    File::options()
        .write(true)
        .open(&volume)
        .unwrap()
        .set_len(0)
        .unwrap();
    let began = Instant::now();
    assert!(fs::read(mount.join("0")).is_err(), "it reads what is gone");
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    let health = vellum(&["health", text(&volume)]);
    assert_eq!(health.status.code(), Some(2), "{health:?}");
    assert!(list().contains(text(&volume)));
    let began = Instant::now();
    ok(&["detach", text(&mount)]);
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
}

fn uuid_of(volume: &Path) -> String {
    let told = ok(&["info", text(volume), "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    told["uuid"].as_str().unwrap().to_owned()
}

/// When the last process of a mount namespace ends, the kernel may unmount before it closes that process's files.
#[test]
fn the_last_server_in_a_mount_namespace_ends_when_killed() {
    if !can_attach("the_last_server_in_a_mount_namespace_ends_when_killed") {
        return;
    }
    let dir = dir();
    let (volume, mount) = (dir.path().join("v"), dir.path().join("m"));
    let _disk = Disk::made(&volume, &mount, "256M");
    let own = ["--mount", "--propagation", "private"];
    let program = [env!("CARGO_BIN_EXE_vellum")];
    let attach = to_attach(&volume, &mount);
    run(
        "unshare",
        &[&own[..], &program, &attach, &["--mkfs"]].concat(),
    );
    let pid = server_pid(&volume);
    let inside = |words: &[&str]| {
        let mounts = format!("--mount=/proc/{pid}/ns/mnt");
        run("nsenter", &[&[mounts.as_str()], words].concat())
    };
    // Data that are still to be written when it is unmounted.
    let file = format!("of={}", mount.join("0").display());
    inside(&["dd", "if=/dev/urandom", &file, "bs=1M", "count=8"]);
    let fuse = format!("/run/vellum/{}.fuse", uuid_of(&volume));
    let number = inside(&["stat", "-c", "%d", &fuse]);
    // SAFETY: the server started by this test.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let is_there = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|told| !told.contains("State:\tZ"))
    };
    let began = Instant::now();
    while is_there() && began.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let waits_for_itself = is_there();
    if waits_for_itself {
        let all = "/sys/fs/fuse/connections";
        let number = number.trim();
        let abort = format!("mount -t fusectl none {all}; echo 1 >{all}/{number}/abort");
        run("unshare", &["--mount", "sh", "-c", &abort]);
    }
    assert!(!waits_for_itself);
}

#[test]
fn list_removes_the_socket_of_a_killed_server() {
    let dir = dir();
    let volume = dir.path().join("v");
    ok(&["create", text(&volume), "--size", "64M"]);
    let uuid = uuid_of(&volume);
    let socket = dir.path().join("s");
    let server = common::Server::start(dir.path(), &[text(&volume), "--socket", text(&socket)]);
    list();
    // SAFETY: no preconditions.
    let control = match unsafe { libc::geteuid() } {
        0 => PathBuf::from(format!("/run/vellum/{uuid}.control")),
        _ => {
            skipped("list_removes_the_socket_of_a_killed_server: not run as root");
            return server.kill();
        }
    };
    assert!(control.exists(), "a server that lives keeps its own");
    let _nobody_else_lists = no_list();
    server.kill();
    assert!(control.exists());
    ok(&["list"]);
    assert!(!control.exists());
}
