//! The file system below a volume is full: each error says so, names the file as the user does, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{dir, fails, ok, program, skipped, text};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A file system of 32 MiB, unmounted when the test ends.
struct Small(PathBuf);

impl Small {
    fn new(on: &Path) -> Option<Self> {
        fs::create_dir(on).unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=32M", "vellum-test", text(on)];
        let done = program("mount", &mount).output();
        if !done.is_ok_and(|done| done.status.success()) {
            skipped("a full file system: it needs root, to mount a small one");
            return None;
        }
        Some(Self(on.to_owned()))
    }

    fn fill(&self) {
        let mut file = File::create(self.0.join("fill")).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = program("umount", &[text(&self.0)]).status();
    }
}

#[test]
fn a_full_file_system_is_named_and_nothing_is_left_on_it() {
    let dir = dir();
    let [large, archive] = ["large", "archive"].map(|name| dir.path().join(name));
    let (large, archive) = (text(&large), text(&archive));
    let Some(small) = Small::new(&dir.path().join("small")) else {
        return;
    };
    let [volume, new] = ["volume", "new"].map(|name| small.0.join(name));
    let (volume, new) = (text(&volume), text(&new));
    ok(&["create", large, "--size=64M"]);
    ok(&["dump", large, "--whole", archive]);
    ok(&["create", volume, "--size=64M"]);
    small.fill();
    let left = small.names();
    fails(
        1,
        &["create", new, "--size=64M", "--preallocate"],
        &[&format!("in {new}: free some, or make it sparse")],
    );
    let written = format!("write of {new} at byte");
    let advice = "free some room there, and give the same command again";
    for args in [
        &["create", new, "--size=64M"][..],
        &["restore", archive, new],
        &["migrate", large, new, "--layout=log"],
        &["rescue", large, new],
    ] {
        fails(1, args, &[&written, "No space left", advice]);
        assert_eq!(small.names(), left, "{args:?}");
    }
    let unwritten = format!("{new} is not written: ");
    for args in [&["pack", large, new][..], &["dump", large, "--whole", new]] {
        fails(1, args, &[&unwritten, "No space left", advice]);
        assert_eq!(small.names(), left, "{args:?}");
    }
    let written = format!("write of {volume} at byte");
    fails(1, &["grow", volume, "--size=128M"], &[&written, advice]);
    // What it needs is there already.
    ok(&["set", volume, "compress=off"]);
    fs::remove_file(small.0.join("fill")).unwrap();
    ok(&["check", volume]);
    ok(&["grow", volume, "--size=128M"]);
    ok(&["snapshot", volume, "s"]);
    assert_eq!(ok(&["get", volume, "compress"]).trim(), "off");
}
