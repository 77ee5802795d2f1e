//! Properties as a user sees them: chosen when a volume is created, changed at rest and while it is served, and never lost.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, can_attach, dir, fails, ok, text, vellum};
use nbd_client::NbdClient;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use vellum_core::format::properties::{Properties, Value as Stored};
use vellum_device::change_at_rest;
use vellum_medium::{FileMedium, OpenOptions};

/// Returns a property with everything reported about it.
fn told(volume: &str, name: &str) -> Value {
    serde_json::from_str(&ok(&["get", volume, name, "--json"])).unwrap()
}

/// Returns a counter of the core.
fn counter(volume: &str, name: &str) -> u64 {
    let stats: Value = serde_json::from_str(&ok(&["stats", volume, "--json"])).unwrap();
    stats[0]["stats"]["core"][name].as_u64().unwrap()
}

fn value(volume: &str, name: &str) -> String {
    ok(&["get", volume, name]).trim_end().to_owned()
}

#[test]
fn stored_properties_stay_and_a_flag_is_for_one_run() {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    let (v, socket) = (text(&path), text(&socket));
    let made = ok(&["create", v, "--size=64M", "--set=compress=lz4,label=photos"]);
    let chose = made.lines().last().unwrap();
    assert!(
        chose.contains("compress=lz4") && chose.contains("delta=on") && chose.contains("photos"),
        "{made}"
    );
    ok(&["set", v, "freed=on", "buffer=16M"]);
    assert_eq!(told(v, "compress")["source"], "volume");
    assert_eq!(told(v, "delta")["source"], "default");

    let flags = [v, "--socket", socket, "--with=compress=off"];
    let server = Server::start(dir.path(), &flags);
    let shown = told(v, "compress");
    assert_eq!(
        (&shown["value"], &shown["source"], &shown["stored"]),
        (&"off".into(), &"this run".into(), &"lz4".into())
    );
    assert!(ok(&["get", v]).contains("the volume has lz4"));
    assert_eq!(
        (value(v, "buffer"), value(v, "freed")),
        ("16M".into(), "on".into())
    );
    // Changed while the volume is served: stored, and effective unless a flag overrides it.
    let said = vellum(&["set", v, "compress=zstd:3", "delta=off", "buffer=32M"]);
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("the server keeps using off"), "{said}");
    assert!(said.contains("until then it is 16M"), "{said}");
    assert_eq!(
        (value(v, "compress"), value(v, "delta")),
        ("off".into(), "off".into())
    );
    assert_eq!(told(v, "buffer")["until_restart"], "16M");
    let said = vellum(&["set", v, "mount-options=noatime"]);
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("until then it is empty"), "{said}");
    server.kill();

    for (name, expected) in [
        ("compress", "zstd:3"),
        ("delta", "off"),
        ("buffer", "32M"),
        ("label", "photos"),
    ] {
        assert_eq!(value(v, name), expected);
        assert_eq!(told(v, name)["source"], "volume");
    }
    ok(&["set", v, "compress=default", "delta=default"]);
    assert_eq!(
        (value(v, "compress"), value(v, "delta")),
        ("zstd".into(), "on".into())
    );
    ok(&["check", v]);
}

#[test]
fn an_invalid_change_is_named_and_changes_nothing() {
    let dir = dir();
    let path = dir.path().join("v");
    let v = text(&path);
    fails(
        2,
        &["create", v, "--size=64M", "--set=compress=lzma"],
        &["compress=lzma", "zstd"],
    );
    fails(
        2,
        &[
            "create",
            v,
            "--size=64M",
            "--layout=ordered",
            "--set=delta=on",
        ],
        &["delta", "ordered"],
    );
    assert!(!path.exists());
    ok(&["create", v, "--size=64M"]);
    let before = fs::read(&path).unwrap();
    for (change, says) in [
        ("compress", "NAME=VALUE"),
        ("compres=zstd", "no property is called \"compres\""),
        ("compress=zstd:22", "zstd:9"),
        ("buffer=1K", "8M to 8G"),
        ("buffer=lots", "8M to 8G"),
        ("freed=yes", "on, off"),
        ("hash=md5", "--research hash=VALUE"),
        ("persistence=strong", "ordered, shadow"),
        ("journals=60M+8M", "past the volume"),
        ("journals=1M+1000", "multiples of 4096"),
        ("label=a\nb", "controls a terminal"),
    ] {
        // The first change alone would be accepted.
        fails(2, &["set", v, "zero=off", change], &[says]);
        fails(2, &["serve", v, "--socket=s", "--with", change], &[]);
    }
    fails(1, &["set", v, "rewind=default"], &["rewind"]);
    assert!(fs::read(&path).unwrap() == before, "it was written to");
    fails(2, &["get", v, "compres"], &["compres"]);
    fails(2, &["get", v, "persistence"], &["ordered, shadow"]);
    fails(1, &["get", "/nonexistent/v"], &["/nonexistent/v"]);
}

/// Stores what a later version may have stored.
fn later(path: &Path) {
    let medium = FileMedium::open(path, OpenOptions { read_only: false }).unwrap();
    change_at_rest(&medium, |superblock| {
        let mut properties: Properties = superblock.properties().clone();
        properties.set("rewind", Some(Stored::text("7d")))?;
        properties.set("compress", Some(Stored::text("brotli")))?;
        Ok::<_, vellum_core::format::properties::PropertyError>(properties)
    })
    .unwrap();
}

#[test]
fn a_property_of_a_later_version_is_kept_and_reported() {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    let v = text(&path);
    ok(&["create", v, "--size=64M", "--set=label=old"]);
    later(&path);
    let kept = || {
        let all: Value = serde_json::from_str(&ok(&["get", v, "--json"])).unwrap();
        all["kept"].clone()
    };
    let both = serde_json::json!(["compress", "rewind"]);
    assert_eq!(kept(), both);
    ok(&["set", v, "label=new"]);
    let server = Server::start(dir.path(), &[v, "--socket", text(&socket)]);
    assert_eq!(value(v, "compress"), "zstd", "what is usual is in force");
    ok(&["set", v, "freed=on"]);
    assert_eq!(kept(), both);
    assert!(ok(&["get", v]).contains("this version does not know"));
    fails(2, &["set", v, "rewind=7d"], &["rewind"]);
    assert_eq!(server.term(), Some(0));
    assert_eq!((kept(), value(v, "label")), (both, "new".into()));
    // A read-only server does not write it.
    let args = [v, "--socket", text(&socket), "--read-only"];
    let server = Server::start(dir.path(), &args);
    fails(1, &["set", v, "label=newest"], &["--read-only"]);
    assert_eq!(value(v, "label"), "new");
    assert_eq!(server.term(), Some(0));
    ok(&["set", v, "rewind=default", "compress=lz4"]);
    assert_eq!(kept(), serde_json::json!([]));
}

/// Returns both, which were set together.
fn pair(v: &str) -> (String, String) {
    (value(v, "label"), value(v, "mount-options"))
}

#[test]
fn concurrent_changes_are_each_whole() {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    let v = text(&path);
    ok(&[
        "create",
        v,
        "--size=64M",
        "--set=label=n0",
        "--set=mount-options=n0",
    ]);
    let all_at_once = || {
        std::thread::scope(|scope| {
            for n in 1..=4 {
                let set = move |m| {
                    let (label, options) =
                        (format!("label=n{n}{m}"), format!("mount-options=n{n}{m}"));
                    ok(&["set", v, &label, &options]);
                };
                scope.spawn(move || (0..5).for_each(set));
            }
        });
        let (label, options) = pair(v);
        assert_eq!(label, options);
        assert!(label.len() == 3 && label.ends_with('4'), "{label}");
    };
    all_at_once();
    let server = Server::start(dir.path(), &[v, "--socket", text(&socket)]);
    ok(&["set", v, "label=n0", "mount-options=n0"]);
    all_at_once();
    let last = pair(v);
    assert_eq!(server.term(), Some(0));
    assert_eq!(pair(v), last);
}

/// `kill -9` of a server during, before or after a change: a change that was answered is there, and another one is there
/// completely or not at all.
#[test]
fn a_server_killed_during_a_change_leaves_the_old_or_the_new() {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    let v = text(&path);
    ok(&[
        "create",
        v,
        "--size=64M",
        "--set=label=n0",
        "--set=mount-options=n0",
    ]);
    let rounds = if std::env::var_os("VELLUM_LONG").is_some() {
        50
    } else {
        16
    };
    let (mut old, mut cut, mut answered) = ("n0".to_owned(), 0, 0);
    for round in 1..=rounds {
        let server = Server::start(dir.path(), &[v, "--socket", text(&socket)]);
        let new = format!("n{round}");
        let (label, options) = (format!("label={new}"), format!("mount-options={new}"));
        let mut set = Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(["set", v, &label, &options])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // From before the request to after the answer.
        std::thread::sleep(Duration::from_micros(700 * (round * 7 % 16)));
        server.kill();
        let is_answered = set.wait().unwrap().success();
        let (label, options) = pair(v);
        assert_eq!(label, options, "round {round}: of two changes");
        match is_answered {
            true => assert_eq!(label, new, "round {round}: it was answered"),
            false => assert!(label == old || label == new, "round {round}: {label}"),
        }
        cut += u32::from(!is_answered);
        answered += u32::from(is_answered);
        old = label;
    }
    eprintln!("{cut} changes cut short, {answered} answered");
    ok(&["check", v]);
}

/// Detaches when a test fails.
struct Attached<'a>(&'a str);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        vellum(&["detach", self.0]);
    }
}

/// Returns the options of a mount.
fn mounted_with(m: &str) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let is_it = |line: &&str| line.split(' ').nth(1) == Some(m);
    mounts.lines().find(is_it).unwrap_or_default().to_owned()
}

#[test]
fn a_volume_attached_again_has_its_stored_properties() {
    if !can_attach("a_volume_attached_again_has_its_stored_properties") {
        return;
    }
    let dir = dir();
    let (path, mount) = (dir.path().join("v"), dir.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    let (v, m) = (text(&path), text(&mount));
    let set = "--set=compress=zstd:3,mount-options=data=journal,noatime";
    ok(&["create", v, "--size=512M", set]);
    let _attached = Attached(v);
    let attach = |more: &[&str]| {
        ok(&[&["attach", v, "--via=fuse", "--mount", m], more].concat());
    };
    attach(&["--mkfs"]);
    let line = mounted_with(m);
    assert!(
        line.contains("noatime") && line.contains("data=journal"),
        "{line}"
    );
    assert_eq!(value(v, "compress"), "zstd:3");
    fs::write(mount.join("a"), [7; 8192]).unwrap();
    ok(&[
        "set",
        v,
        "compress=lz4",
        "dedup=on",
        "mount-options=default",
    ]);
    ok(&["detach", v]);

    attach(&["--with=dedup=off", "-odata=journal"]);
    assert_eq!(
        (value(v, "compress"), value(v, "dedup")),
        ("lz4".into(), "off".into())
    );
    assert_eq!(told(v, "dedup")["source"], "this run");
    assert_eq!(told(v, "mount-options")["source"], "this run");
    let line = mounted_with(m);
    assert!(
        !line.contains("noatime") && !line.contains("journal_async_commit"),
        "{line}"
    );
    ok(&["detach", v]);

    attach(&[]);
    assert_eq!(value(v, "dedup"), "on");
    let line = mounted_with(m);
    assert!(line.contains("journal_async_commit"), "{line}");
    // The volume replays it, without any option.
    assert_eq!(told(v, "replay")["source"], "default");
    let file = fs::File::options()
        .write(true)
        .open(mount.join("a"))
        .unwrap();
    common::eventually("a commit is pledged", || {
        file.write_at(&[8; 4096], 0).unwrap();
        file.sync_all().unwrap();
        counter(v, "pledged_blocks") > 0
    });
    assert_eq!(
        fs::read(mount.join("a")).unwrap(),
        [[8; 4096], [7; 4096]].concat()
    );
    drop(file);
    ok(&["detach", v]);
    ok(&["check", v]);
}

/// Without options, and over any front end: compressed blocks share pages, and rewritten ones are deltas.
#[test]
fn a_volume_served_without_options_writes_least() {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    let v = text(&path);
    ok(&["create", v, "--size=64M"]);
    let server = Server::start(dir.path(), &[v, "--socket", text(&socket)]);
    let mut client = NbdClient::connect(&socket, "v").unwrap();
    let mut word = 1_u64;
    let half_a_byte = std::iter::repeat_with(|| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (word >> 40) as u8 & 15
    });
    let mut block: Vec<u8> = half_a_byte.take(4096).collect();
    for version in 1..=4 {
        block[100] = 200 + version;
        for lba in 0..64_u64 {
            client.write(lba * 4096, &block).unwrap();
        }
        client.flush().unwrap();
    }
    assert!(
        counter(v, "packed_blocks") > 64,
        "{}",
        ok(&["stats", v, "--json"])
    );
    assert!(counter(v, "delta_blocks") > 0, "{}", ok(&["stats", v]));
    assert_eq!(server.term(), Some(0));
    ok(&["check", v]);
}
