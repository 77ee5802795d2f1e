//! A volume with snapshots and a schedule grows, while in use and while not: each snapshot reads as before.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, fails, noise, ok, text, vellum};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const MIB: usize = 1 << 20;

/// A volume with a mounted ext4; detached when the test ends.
struct Disk {
    volume: PathBuf,
    mount: PathBuf,
}

impl Disk {
    fn attach(&self, more: &[&str]) {
        let (volume, mount) = (text(&self.volume), text(&self.mount));
        ok(&[&["attach", volume, "--via=fuse", "--mount", mount], more].concat());
    }

    /// Rewrites all of its files.
    fn write(&self, round: u64) {
        for number in 0..30 {
            let mut made = File::create(self.mount.join(number.to_string())).unwrap();
            made.write_all(&noise(round * 100 + number, MIB)).unwrap();
            made.sync_all().unwrap();
        }
    }

    /// Returns all bytes of a snapshot, without the zeros at its end.
    fn seen(&self, name: &str) -> Vec<u8> {
        let snapshot = format!("{}@{name}", text(&self.volume));
        let device = ok(&["attach", &snapshot, "--via=fuse"]);
        let mut bytes = Vec::new();
        File::open(device.trim())
            .unwrap()
            .read_to_end(&mut bytes)
            .unwrap();
        ok(&["detach", &snapshot]);
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        bytes.truncate(end + 1);
        bytes
    }

    fn collections(&self) -> u64 {
        let told = ok(&["stats", text(&self.volume), "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told[0]["stats"]["core"]["collections"].as_u64().unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        vellum(&["detach", text(&self.volume)]);
    }
}

fn grow(volume: &Path, size: &str, file_system: &[&str]) {
    let told = ok(&[&["grow", text(volume), "--size", size], file_system].concat());
    assert!(told.contains("now"), "{told}");
}

#[test]
fn each_snapshot_reads_as_before() {
    if !can_attach("each_snapshot_reads_as_before") {
        return;
    }
    let dir = dir();
    let disk = Disk {
        volume: dir.path().join("disk.vellum"),
        mount: dir.path().join("mnt"),
    };
    fs::create_dir(&disk.mount).unwrap();
    let volume = text(&disk.volume);
    ok(&["create", volume, "--size", "96M"]);
    ok(&["set", volume, "snapshot-every=1h"]);
    disk.attach(&["--mkfs"]);
    disk.write(1);
    ok(&["snapshot", volume, "a"]);
    disk.write(2);
    ok(&["snapshot", volume, "b"]);
    let before = ["a", "b"].map(|name| disk.seen(name));
    assert!(before[0] != before[1]);
    // A user with an open snapshot would lose it.
    let open = format!("{volume}@a");
    ok(&["attach", &open, "--via=fuse"]);
    fails(1, &["grow", volume, "--size", "128M"], &["`a` is in use"]);
    ok(&["detach", &open]);
    grow(&disk.volume, "128M", &[]);
    let as_before = || {
        for (name, before) in ["a", "b"].into_iter().zip(&before) {
            assert!(disk.seen(name) == *before, "snapshot {name}");
        }
    };
    as_before();
    disk.write(3);
    as_before();
    ok(&["detach", volume]);
    grow(&disk.volume, "144M", &["--fs"]);
    ok(&["check", volume]);
    disk.attach(&[]);
    as_before();
    for round in 4..30 {
        disk.write(round);
        if disk.collections() > 40 {
            break;
        }
    }
    assert!(disk.collections() > 40, "{}", disk.collections());
    as_before();
    assert_eq!(ok(&["get", volume, "snapshot-every"]), "1h\n");
    ok(&["detach", volume]);
    ok(&["check", volume]);
}
