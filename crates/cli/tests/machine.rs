//! What a machine does to a server under a mounted ext4: it has it stand still for a while, and leaves it no descriptor to open.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, noise, ok, run, server_pid, text, vellum};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A volume that is detached when the test ends, also when it fails.
struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        vellum(&["detach", text(&self.0)]);
    }
}

/// Writes a file and syncs it.
fn put(mount: &Path, n: u64) {
    let mut file = File::create(mount.join(n.to_string())).unwrap();
    file.write_all(&noise(n, 200_000)).unwrap();
    file.sync_all().unwrap();
}

/// `VELLUM_STOP_SECONDS=60` for longer.
#[test]
fn a_server_that_stood_still_or_could_open_nothing_goes_on() {
    if !can_attach("a_server_that_stood_still_or_could_open_nothing_goes_on") {
        return;
    }
    let dir = dir();
    let (volume, mount) = (dir.path().join("v"), dir.path().join("m"));
    fs::create_dir(&mount).unwrap();
    ok(&["create", text(&volume), "--size", "64M"]);
    let _disk = Disk(volume.clone());
    let attach = [
        "attach",
        text(&volume),
        "--via=fuse",
        "--mount",
        text(&mount),
    ];
    ok(&[&attach[..], &["--mkfs"]].concat());
    let pid = server_pid(&volume);
    put(&mount, 0);

    // It stands still: a write waits, and is there when it goes on.
    let still = std::env::var("VELLUM_STOP_SECONDS").map_or(2, |seconds| seconds.parse().unwrap());
    let still = Duration::from_secs(still);
    // SAFETY: a process that we started, by its recorded number.
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

    // It may open nothing more: what is mounted goes on, and a command waits until it may again.
    let limit = |count: &str| run("prlimit", &["--pid", &pid.to_string(), count]);
    limit("--nofile=4:");
    put(&mount, 2);
    // A descriptor was set aside for the next one who asks, and for nobody else.
    ok(&["stats", text(&volume)]);
    let mut asked = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["snapshot", text(&volume), "s"])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    put(&mount, 3);
    assert!(asked.try_wait().unwrap().is_none(), "it can open something");
    limit("--nofile=1024:");
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
