//! Common backup programs copy a snapshot, and later what has changed since: over NBD, with QEMU's dirty bitmaps.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, dir, ok, run, skipped, text};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

const SIZE: usize = 64 << 20;

struct Served {
    volume: PathBuf,
    socket: PathBuf,
    _server: Server,
}

impl Served {
    fn new(dir: &Path) -> Self {
        let (volume, socket) = (dir.join("disk"), dir.join("nbd"));
        ok(&["create", text(&volume), "--size", "64M"]);
        let server = Server::start(dir, &[text(&volume), "--socket", text(&socket)]);
        Self {
            volume,
            socket,
            _server: server,
        }
    }

    fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", text(&self.socket))
    }

    /// Fills runs of bytes, each with a number; 0 discards.
    fn write(&self, runs: &[(Range<usize>, u8)]) {
        let mut args = vec!["-f".to_owned(), "raw".to_owned()];
        for (bytes, fill) in runs {
            let (start, length) = (bytes.start, bytes.len());
            let order = match fill {
                0 => format!("discard {start} {length}"),
                fill => format!("write -P {fill} {start} {length}"),
            };
            args.extend(["-c".to_owned(), order]);
        }
        args.extend(["-c".to_owned(), "flush".to_owned(), self.uri("disk")]);
        run(
            "qemu-io",
            &args.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }

    fn snapshot(&self, name: &str) {
        ok(&["snapshot", text(&self.volume), name]);
    }

    /// Returns a full copy of an export.
    fn copy(&self, export: &str, to: &Path) -> Vec<u8> {
        let uri = self.uri(export);
        run(
            "qemu-img",
            &["convert", "-f", "raw", "-O", "raw", &uri, text(to)],
        );
        fs::read(to).unwrap()
    }

    /// Returns what libnbd reads of a context: runs, and the state of each.
    fn map(&self, export: &str, context: &str) -> Vec<(Range<usize>, u64)> {
        let context = format!("--map={context}");
        let told = run("nbdinfo", &["--json", &context, &self.uri(export)]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let runs = told.as_array().unwrap().iter();
        let number = |run: &serde_json::Value, key: &str| run[key].as_u64().unwrap();
        runs.map(|run| {
            let start = number(run, "offset") as usize;
            let end = start + number(run, "length") as usize;
            (start..end, number(run, "type"))
        })
        .collect()
    }

    fn changed(&self, export: &str, since: &str) -> Vec<Range<usize>> {
        let all = self.map(export, &format!("qemu:dirty-bitmap:{since}"));
        assert_eq!(all.last().unwrap().0.end, SIZE);
        let changed = all.into_iter().filter(|(_, state)| *state == 1);
        changed.map(|(bytes, _)| bytes).collect()
    }

    /// Returns the same as read by QEMU itself, which shows changed runs as no data.
    fn changed_by_qemu(&self, export: &str, since: &str) -> Vec<Range<usize>> {
        let socket = text(&self.socket);
        let image = format!(
            "driver=nbd,server.type=unix,server.path={socket},export={export},\
             x-dirty-bitmap=qemu:dirty-bitmap:{since}"
        );
        let told = run(
            "qemu-img",
            &["map", "--output=json", "--image-opts", &image],
        );
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let runs = told.as_array().unwrap().iter();
        let dirty = runs.filter(|run| !run["data"].as_bool().unwrap());
        dirty
            .map(|run| {
                let start = run["start"].as_u64().unwrap() as usize;
                start..start + run["length"].as_u64().unwrap() as usize
            })
            .collect()
    }
}

fn missing() -> bool {
    let missing = ["qemu-img", "qemu-io", "nbdinfo"]
        .into_iter()
        .find(|program| Command::new(program).arg("--version").output().is_err());
    if let Some(program) = missing {
        skipped(format_args!("{program} is not installed"));
    }
    missing.is_some()
}

#[test]
fn the_changes_turn_a_copy_of_a_snapshot_into_the_next() {
    if missing() {
        return;
    }
    let dir = dir();
    let served = Served::new(dir.path());
    let mib = |from: usize, to: usize| from << 20..to << 20;
    served.write(&[(mib(1, 3), 1), (mib(10, 12), 2), (mib(40, 41), 3)]);
    served.snapshot("monday");
    served.write(&[(mib(2, 4), 4), (mib(10, 11), 0), (4096..8192, 5)]);
    served.snapshot("tuesday");
    served.write(&[(mib(50, 51), 6), (mib(40, 41), 7)]);

    let mut copy = served.copy("disk@monday", &dir.path().join("monday"));
    assert_eq!(copy[40 << 20], 3);
    let tuesday = served.copy("disk@tuesday", &dir.path().join("tuesday"));
    assert_ne!(copy, tuesday);
    let changed = served.changed("disk@tuesday", "monday");
    let expected = [4096..8192, mib(2, 4), mib(10, 11)];
    assert_eq!(changed, expected);
    assert_eq!(served.changed_by_qemu("disk@tuesday", "monday"), expected);
    for bytes in changed {
        copy[bytes.clone()].copy_from_slice(&tuesday[bytes]);
    }
    assert!(copy == tuesday);

    // The changes of the volume itself, until now.
    let since = served.changed("disk", "tuesday");
    assert_eq!(since, [mib(40, 41), mib(50, 51)]);
    let all = [4096..8192, mib(2, 4), mib(10, 11), mib(40, 41), mib(50, 51)];
    assert_eq!(served.changed("disk", "monday"), all);
}

#[test]
fn only_listed_comparisons_are_given() {
    if missing() {
        return;
    }
    let dir = dir();
    let served = Served::new(dir.path());
    served.write(&[(4096..8192, 1)]);
    served.snapshot("monday");
    served.snapshot("tuesday");
    let told = run("nbdinfo", &[&served.uri("disk")]);
    for name in ["monday", "tuesday"] {
        assert!(
            told.contains(&format!("qemu:dirty-bitmap:{name}")),
            "{told}"
        );
    }
    // A snapshot is compared with older ones only.
    let told = run("nbdinfo", &[&served.uri("disk@tuesday")]);
    assert!(told.contains("bitmap:monday") && !told.contains("bitmap:tuesday"));
    for (export, since) in [("disk@monday", "tuesday"), ("disk", "friday")] {
        let map = format!("--map=qemu:dirty-bitmap:{since}");
        let out = Command::new("nbdinfo")
            .args([&map, &served.uri(export)])
            .output()
            .unwrap();
        assert!(!out.status.success(), "{out:?}");
    }
    // A clone is compared with nothing, and nothing with a clone.
    ok(&[
        "clone",
        &format!("{}@monday", text(&served.volume)),
        "clone",
    ]);
    let told = run("nbdinfo", &[&served.uri("disk@clone")]);
    assert!(!told.contains("dirty-bitmap"), "{told}");
    let told = run("nbdinfo", &[&served.uri("disk")]);
    assert!(!told.contains("bitmap:clone"), "{told}");
    ok(&["delete", text(&served.volume), "clone"]);
    // Ranges where the snapshot has no data are reported as holes.
    served.write(&[(1 << 20..2 << 20, 2)]);
    let map = served.map("disk@tuesday", "base:allocation");
    assert_eq!(map, [(0..4096, 3), (4096..8192, 0), (8192..SIZE, 3)]);
    // A deleted snapshot is no longer a base, even for a client that has selected it.
    ok(&["delete", text(&served.volume), "monday"]);
    let told = run("nbdinfo", &[&served.uri("disk")]);
    assert!(!told.contains("monday"), "{told}");
}

/// The server of a clone or of a snapshot opens the whole volume.
#[test]
fn clients_of_a_snapshot_see_nothing_else_of_its_volume() {
    if missing() {
        return;
    }
    let dir = dir();
    let served = Served::new(dir.path());
    served.write(&[(4096..8192, 1)]);
    served.snapshot("monday");
    served.snapshot("tuesday");
    let (volume, socket) = (served.volume.clone(), served.socket.clone());
    ok(&["clone", &format!("{}@monday", text(&volume)), "clone"]);
    drop(served);
    for part in ["clone", "tuesday"] {
        let export = format!("part={}@{part}", text(&volume));
        let server = Server::start(dir.path(), &[&export, "--socket", text(&socket)]);
        let uri = |name: &str| format!("nbd+unix:///{name}?socket={}", text(&socket));
        // The volume's changes are not those of the part.
        let told = run("nbdinfo", &[&uri("part")]);
        assert!(!told.contains("dirty-bitmap"), "{part}: {told}");
        for other in ["monday", "tuesday", "clone"] {
            let asked = Command::new("nbdinfo")
                .arg(uri(&format!("part@{other}")))
                .output()
                .unwrap();
            assert!(!asked.status.success(), "{other} by {part}: {asked:?}");
        }
        assert_eq!(server.term(), Some(0));
    }
}
