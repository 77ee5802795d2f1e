//! A thin volume that ext4 has filled is mounted again, files on it are deleted, and new ones are written: after an orderly end
//! and after kill -9. With `VELLUM_LONG=1` on each layout, and in each data mode of the file system.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::chain::unmount;
use common::{can_attach, dir, kill_server, ok, run, text, vellum};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE_BYTES: usize = 1 << 20;

/// Returns bytes that neither compress nor repeat.
fn bytes(number: u64) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let words = std::iter::repeat_with(word).take(FILE_BYTES / 8);
    words.flatten().collect()
}

fn write(path: &Path, number: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&bytes(number))?;
    file.sync_all()
}

/// An attached volume.
struct Attached {
    dir: tempfile::TempDir,
    options: Option<&'static str>,
    device: String,
    files: u64,
}

impl Attached {
    fn new(layout: &str, options: Option<&'static str>) -> Self {
        let mut it = Self {
            dir: dir(),
            options,
            device: String::new(),
            files: 0,
        };
        fs::create_dir(it.mount()).unwrap();
        let volume = it.volume();
        let sizes = ["--size=512M", "--medium-size=64M", "--layout", layout];
        ok(&[&["create", text(&volume)], &sizes[..]].concat());
        it.attach(&["--mkfs"]);
        it
    }

    fn volume(&self) -> PathBuf {
        self.dir.path().join("v")
    }

    fn mount(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn attach(&mut self, more: &[&str]) {
        let (volume, mount) = (self.volume(), self.mount());
        let mut args = vec!["attach", text(&volume), "--mount", text(&mount)];
        args.extend(more);
        args.extend(["--via", "fuse"]);
        if let Some(options) = self.options {
            args.extend(["--options", options]);
        }
        let said = ok(&args);
        self.device = said.split(' ').next().unwrap().to_owned();
    }

    /// Writes until there is no room, or the file system has failed.
    fn fill(&mut self) {
        while write(&self.mount().join(format!("f{}", self.files)), self.files).is_ok() {
            self.files += 1;
            assert!(self.files < 64, "it is never full");
        }
        assert!(self.files > 20, "{} MiB", self.files);
    }

    /// Deletes the oldest files; the newest are still unchanged.
    fn delete_and_write_again(&mut self) {
        let mount = self.mount();
        for file in 0..self.files / 2 {
            fs::remove_file(mount.join(format!("f{file}"))).unwrap();
        }
        run("sync", &["-f", text(&mount)]);
        run("fstrim", &[text(&mount)]);
        let last = self.files - 1;
        let found = fs::read(mount.join(format!("f{last}"))).unwrap();
        assert!(found == bytes(last), "what was synced is there");
        for file in 100..100 + self.files / 4 {
            write(&mount.join(format!("f{file}")), file).unwrap();
        }
    }

    fn end(self) {
        let volume = self.volume();
        ok(&["detach", text(&volume)]);
        ok(&["check", text(&volume)]);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Left by a failed test.
        vellum(&["detach", text(&self.volume())]);
    }
}

const LAYOUTS: [&str; 3] = ["log", "ordered", "shadow"];
const WAYS: [Option<&str>; 2] = [None, Some("data=ordered")];

fn each(test: &str, then: impl Fn(&mut Attached)) {
    if !can_attach(test) {
        return;
    }
    let long = std::env::var_os("VELLUM_LONG").is_some();
    for layout in &LAYOUTS[..if long { LAYOUTS.len() } else { 1 }] {
        for options in &WAYS[..if long { WAYS.len() } else { 1 }] {
            eprintln!("{layout} {options:?}");
            let mut it = Attached::new(layout, *options);
            it.fill();
            then(&mut it);
            it.delete_and_write_again();
            it.end();
        }
    }
}

#[test]
fn a_full_volume_is_attached_again_and_files_are_deleted() {
    each(
        "a_full_volume_is_attached_again_and_files_are_deleted",
        |it| {
            ok(&["detach", text(&it.volume())]);
            it.attach(&[]);
        },
    );
}

#[test]
fn a_full_volume_whose_server_was_killed_is_attached_again() {
    each(
        "a_full_volume_whose_server_was_killed_is_attached_again",
        |it| {
            kill_server(&it.volume());
            it.attach(&[]);
        },
    );
}

/// The usual steps of a user who knows nothing of Vellum: unmount, mount, delete.
#[test]
fn a_full_volume_is_mounted_again_while_it_is_served() {
    each("a_full_volume_is_mounted_again_while_it_is_served", |it| {
        unmount(&it.mount());
        std::thread::sleep(Duration::from_secs(3));
        let options = it.options.unwrap_or("data=journal");
        run("mount", &["-o", options, &it.device, text(&it.mount())]);
    });
}
