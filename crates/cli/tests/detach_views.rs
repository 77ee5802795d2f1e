//! `detach` of a volume whose snapshots are attached too: all of it goes, or nothing, and what it prints is what it did.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, fails, ok, text, vellum};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// A volume with an ext4 and two snapshots, and folders to mount on. All is detached when the test ends.
struct Machine {
    dir: tempfile::TempDir,
    volume: String,
}

impl Machine {
    /// Attached and mounted, and so is a snapshot; the other one is attached.
    fn new() -> Self {
        let dir = dir();
        let volume = text(&dir.path().join("v")).to_owned();
        let it = Self { dir, volume };
        ok(&["create", &it.volume, "--size=64M"]);
        let mount = |name: &str| {
            let path = it.dir.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let [main, one] = ["main", "one"].map(mount);
        let on = |path: &Path| format!("--mount={}", text(path));
        ok(&["attach", &it.volume, "--via=fuse", "--mkfs", &on(&main)]);
        for name in ["one", "two"] {
            ok(&["snapshot", &it.volume, name]);
        }
        ok(&["attach", &it.view("one"), &on(&one)]);
        it
    }

    fn view(&self, name: &str) -> String {
        format!("{}@{name}", self.volume)
    }

    fn mount(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// How many devices and how many mounts it has.
    fn has(&self) -> (usize, usize) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let ours = mounts.matches(text(self.dir.path())).count();
        let listed: serde_json::Value = serde_json::from_str(&ok(&["list", "--json"])).unwrap();
        let listed = listed.as_array().unwrap().iter();
        let devices = listed.filter(|it| it["path"] == self.volume.as_str());
        (devices.count(), ours)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        vellum(&["detach", &self.volume]);
    }
}

#[test]
fn what_goes_with_a_volume_is_told() {
    if !can_attach("what_goes_with_a_volume_is_told") {
        return;
    }
    let machine = Machine::new();
    let volume = &machine.volume;
    let (one, two) = (machine.view("one"), machine.view("two"));
    assert_eq!(
        ok(&["detach", volume]),
        format!("detached, and with it {one}\n")
    );
    assert_eq!(machine.has(), (0, 0));
    // Alone, on a server of its own, and with another one on that.
    ok(&["attach", &two, "--via=fuse"]);
    assert_eq!(ok(&["detach", volume]), format!("detached {two}\n"));
    ok(&["attach", &two, "--via=fuse"]);
    ok(&["attach", &one]);
    assert_eq!(
        ok(&["detach", volume]),
        format!("detached {two}, and with it {one}\n")
    );
    assert_eq!(machine.has(), (0, 0));
}

#[test]
fn nothing_is_detached_while_a_snapshot_is_in_use() {
    if !can_attach("nothing_is_detached_while_a_snapshot_is_in_use") {
        return;
    }
    let machine = Machine::new();
    let (one, two) = (machine.view("one"), machine.view("two"));
    let device = ok(&["attach", &two]);
    let device = device.trim();
    assert_eq!(machine.has(), (3, 2));
    // A folder of it is open, then the bare device, then the volume's own folder.
    let main = machine.mount("main");
    for (file, says) in [
        (
            machine.mount("one"),
            vec![one.as_str(), "nothing is detached"],
        ),
        (PathBuf::from(device), vec![&two, "nothing is detached"]),
        (main.clone(), vec![text(&main), "cannot unmount"]),
    ] {
        let held = File::open(&file).unwrap();
        fails(1, &["detach", &machine.volume], &says);
        assert_eq!(machine.has(), (3, 2), "{}", file.display());
        drop(held);
    }
    let said = ok(&["detach", &machine.volume]);
    assert!(
        [&one, &two].iter().all(|view| said.contains(*view)),
        "{said}"
    );
    assert_eq!(machine.has(), (0, 0));
}

#[test]
fn a_name_that_is_not_attached_is_an_error() {
    let dir = dir();
    let path = dir.path().join("v");
    let volume = text(&path);
    ok(&["create", volume, "--size=64M"]);
    ok(&["snapshot", volume, "one"]);
    let refused = |name: &str| {
        let view = format!("{volume}@{name}");
        let says = [&format!("nothing is attached as {view}"), "`vellum list`"];
        fails(1, &["detach", &view], &says);
    };
    ["one", "typo"].iter().for_each(|name| refused(name));
    if !can_attach("a_name_that_is_not_attached_is_an_error") {
        return;
    }
    ok(&["attach", volume, "--via=fuse"]);
    ["one", "typo"].iter().for_each(|name| refused(name));
    assert_eq!(ok(&["detach", volume]), "detached\n");
}
