//! Write-once journaling as its user sees it: the commands, and a real ext4 on the chain of `attach`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, can_attach, dir, fails, ok, run, text};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(args)).unwrap()
}

fn counter(volume: &str, path: &str) -> u64 {
    let stats = json(&["stats", volume, "--json"]);
    stats
        .pointer(&format!("/0/stats/{path}"))
        .and_then(Value::as_u64)
        .unwrap()
}

#[test]
fn policies_and_journals_are_shown_and_switched() {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    let (v, s) = (text(&path), text(&socket));
    ok(&["create", v, "--size=64M"]);
    let serve = ["serve", v, "--socket", s];
    for (flag, says) in [
        ("--with=write-once=maybe", "on, off"),
        ("--with=speed=high", "compress, delta"),
        ("--research=write-once=maybe", "paper, descriptor"),
        ("--journal=4K", "START+LENGTH"),
        ("--journal=60M+8M", "past the volume"),
    ] {
        fails(2, &[&serve[..], &[flag]].concat(), &[says]);
    }
    let config = dir.path().join("vellum.toml");
    fs::write(
        &config,
        "[serve]\nwith = \"zero=off\"\nresearch = \"write-once=paper\"\n",
    )
    .unwrap();
    ok(&["set", v, "journals=1M+4M,8M+4M"]);
    let server = Server::start(dir.path(), &[v, "--socket", s, "--config", text(&config)]);
    let stats = json(&["stats", v, "--json"]);
    let write_once = &stats[0]["stats"]["write_once"];
    assert_eq!(
        (&write_once["policy"], &write_once["hash"]),
        (&"paper".into(), &"head64".into())
    );
    assert!(ok(&["get", v]).contains("paper"));
    assert_eq!(ok(&["get", v, "zero"]), "off\n");
    fails(2, &["set", v, "hash=rot13"], &["--research hash="]);

    let set = |start: &str, length: &str| ok(&["journal", "set", v, start, length]);
    assert!(ok(&["journal", "list", v]).contains("set by hand at byte 1048576, 4 MiB"));
    assert_eq!(counter(v, "core/pool_blocks"), 2048);
    assert!(set("16M", "128K").contains("byte 16777216"));
    assert_eq!(counter(v, "core/pool_blocks"), 2080);
    for (code, start, length, says) in [
        (2, "1000", "4K", "multiples of 4096"),
        (1, "1M", "4K", "set before"),
        (1, "1T", "4K", "past the volume"),
        (2, "20M", "0", "the length not 0"),
    ] {
        fails(code, &["journal", "set", v, start, length], &[says]);
    }
    fails(2, &["journal", "set", v, "here", "4K"], &["not a size"]);
    assert!(ok(&["get", v, "journals"]).contains("1M+4M,8M+4M,16M+128K"));
    assert!(ok(&["journal", "clear", v]).contains("no file system"));
    assert_eq!(counter(v, "core/pool_blocks"), 0);
    assert_eq!(server.term(), Some(0));
    // A flag applies to its run, whatever is stored.
    let flag = "--journal=20M+4M";
    let server = Server::start(dir.path(), &[v, "--socket", s, flag, "--journal=28M+4M"]);
    assert_eq!(counter(v, "core/pool_blocks"), 2048);
    fails(1, &["journal", "set", v, "16M", "128K"], &["--journal"]);
    assert_eq!(server.term(), Some(0));
    ok(&["check", v]);
}

/// Creates files of many sizes below `root`; the same seed gives the same files.
fn fill(root: &Path, seed: u64, files: u64) {
    for n in 0..files {
        fs::write(root.join(format!("{seed}-{n}")), content(seed, n)).unwrap();
    }
    run("sync", &["-f", text(root)]);
}

fn content(seed: u64, n: u64) -> Vec<u8> {
    let mut word = seed << 32 | n << 8 | 1;
    let words = std::iter::repeat_with(move || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n);
        word
    });
    let bytes = 1 + (n * 7919 % 60_000) as usize;
    words.flat_map(u64::to_le_bytes).take(bytes).collect()
}

fn compare(root: &Path, seed: u64, files: u64) {
    for n in 0..files {
        let path = root.join(format!("{seed}-{n}"));
        assert!(fs::read(&path).unwrap() == content(seed, n), "{seed}-{n}");
    }
}

/// Detaches when a test fails.
struct Attached<'a>(&'a str);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        common::vellum(&["detach", self.0]);
    }
}

#[test]
fn a_real_ext4_is_written_once() {
    if !can_attach("a_real_ext4_is_written_once") {
        return;
    }
    let dir = dir();
    let (path, mount) = (dir.path().join("v"), dir.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    let (v, m) = (text(&path), text(&mount));
    ok(&["create", v, "--size=512M"]);
    let attached = Attached(v);
    let mounted = |flags: &[&str]| {
        ok(&[&["attach", v, "--via=fuse", "--mount", m], flags].concat());
    };
    for (seed, policy) in [
        (1, "--with=write-once=on"),
        (2, "--research=write-once=descriptor"),
    ] {
        let mkfs: &[&str] = if seed == 1 { &["--mkfs"] } else { &[] };
        mounted(&[&[policy], mkfs].concat());
        common::eventually("the journal is found", || {
            ok(&["journal", "list", v]).contains("journal watched")
        });
        fill(&mount, seed, 300);
        run("umount", &[m]);
        let written = counter(v, "core/home_writes");
        let remapped = counter(v, "core/remapped_blocks");
        assert!(written > 2000, "{policy}: {written} written home");
        assert!(
            remapped * 10 > written * 9,
            "{policy}: {remapped} of {written} remapped: {}",
            ok(&["stats", v])
        );
        assert!(counter(v, "write_once/commits") > 0, "{policy}");
        ok(&["detach", v]);
        ok(&["check", v]);
    }

    // Switched under load.
    mounted(&[]);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| fill(&mount, 3, 600));
        for change in [
            "write-once=off",
            "write-once=on",
            "compress=lz4",
            "delta=off",
        ]
        .iter()
        .cycle()
        {
            ok(&["set", v, change]);
            if load.is_finished() {
                break;
            }
        }
    });
    ok(&["detach", v]);
    ok(&["check", v]);
    mounted(&["--with=write-once=off"]);
    for (seed, files) in [(1, 300), (2, 300), (3, 600)] {
        compare(&mount, seed, files);
    }
    ok(&["detach", v]);
    drop(attached);
    let server = Server::start(dir.path(), &[v, "--fuse", m]);
    run("e2fsck", &["-fn", text(&mount.join("v"))]);
    assert_eq!(server.term(), Some(0));
}
