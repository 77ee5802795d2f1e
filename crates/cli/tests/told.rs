//! What a person sees: `list`, and `stats` in a dozen lines, in full, as JSON, and repeatedly.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, can_attach, dir, eventually, fails, noise, ok, server_pid, text, vellum};
use nbd_client::NbdClient;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Returns what `list` says of a volume: others may run on this machine.
fn listed(path: &Path) -> Option<Value> {
    let all: Value = serde_json::from_str(&ok(&["list", "--json"])).unwrap();
    let all = all.as_array().unwrap().clone();
    all.into_iter().find(|it| it["path"] == text(path))
}

/// Returns the same, once its server answers: on a busy machine `list` may not wait long enough for it.
fn served(path: &Path) -> Value {
    let mut it = None;
    eventually("it is served", || {
        it = listed(path);
        it.as_ref().is_some_and(|it| it["state"] == "serving")
    });
    it.unwrap()
}

#[test]
fn served_volumes_are_listed_and_dead_ones_are_not() {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    let v = text(&path);
    ok(&["create", v, "--size=64M", "--set=label=photos"]);
    assert_eq!(listed(&path), None);
    let server = Server::start(dir.path(), &[v, "--socket", text(&socket)]);
    let it = served(&path);
    assert_eq!(
        (&it["state"], &it["pid"], &it["label"], &it["bytes"]),
        (
            &"serving".into(),
            &server.pid().into(),
            &"photos".into(),
            &(64 << 20).into()
        )
    );
    assert!(it["places"][0].as_str().unwrap().contains(text(&socket)));
    eventually("a line with its label and size", || {
        let shown = ok(&["list"]);
        let line = shown.lines().find(|line| line.contains(v)).unwrap();
        line.contains("(photos)") && line.contains("64 MiB")
    });
    // Its socket is left behind.
    server.kill();
    assert_eq!(listed(&path), None);
}

/// Detaches when a test fails.
struct Attached<'a>(&'a str);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        vellum(&["detach", self.0]);
    }
}

#[test]
fn attached_volumes_are_listed_with_their_mount_until_detached() {
    if !can_attach("attached_volumes_are_listed_with_their_mount_until_detached") {
        return;
    }
    let dir = dir();
    let (path, mount) = (dir.path().join("v"), dir.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    let (v, m) = (text(&path), text(&mount));
    ok(&["create", v, "--size=256M"]);
    let _attached = Attached(v);
    ok(&["attach", v, "--via=fuse", "--mkfs", "--mount", m]);
    let it = served(&path);
    assert_eq!(
        (&it["state"], &it["via"]),
        (&"serving".into(), &"fuse".into())
    );
    assert_eq!(
        (&it["mounts"][0], &it["pid"]),
        (&m.into(), &server_pid(&path).into())
    );
    assert!(it["device"].as_str().unwrap().starts_with("/dev/loop"));
    assert!(ok(&["list"]).contains(m));
    // Killed: what it has left is reported, and what to do.
    // SAFETY: the server that this test has started.
    unsafe { libc::kill(server_pid(&path), libc::SIGKILL) };
    eventually("it is dead", || {
        listed(&path).is_some_and(|it| it["state"] == "dead")
    });
    assert!(ok(&["list"]).contains(&format!("vellum detach {v}")));
    ok(&["detach", v]);
    assert_eq!(listed(&path), None);
}

#[test]
fn each_attachment_is_listed_with_its_own_device() {
    if !can_attach("each_attachment_is_listed_with_its_own_device") {
        return;
    }
    let dir = dir();
    let path = dir.path().join("v");
    let v = text(&path);
    let snapshot = format!("{v}@one");
    ok(&["create", v, "--size=64M"]);
    ok(&["snapshot", v, "one"]);
    let _detached = Attached(v);
    let attach = |shown: &str| ok(&["attach", shown, "--via=fuse"]).trim().to_owned();
    let all = || -> Vec<(Value, Value)> {
        let all: Value = serde_json::from_str(&ok(&["list", "--json"])).unwrap();
        let all = all.as_array().unwrap().iter();
        all.filter(|it| it["path"] == v)
            .map(|it| (it["view"].clone(), it["device"].clone()))
            .collect()
    };
    // Alone, with a server of its own.
    let device = attach(&snapshot);
    assert_eq!(all(), [("one".into(), device.into())]);
    assert!(ok(&["list"]).contains(&snapshot));
    ok(&["detach", &snapshot]);
    // Beside the volume, on whose server it is.
    let first = attach(v);
    let second = attach(&snapshot);
    let both = [
        (Value::Null, first.clone().into()),
        ("one".into(), second.clone().into()),
    ];
    assert_eq!(all(), both);
    assert!(ok(&["list"]).contains(&snapshot));
    // Who names the snapshot's device does not mean the volume.
    assert_eq!(ok(&["detach", &second]), "detached\n");
    assert_eq!(all(), both[..1]);
    ok(&["detach", v]);
    let socket = dir.path().join("s");
    let server = Server::start(dir.path(), &[&snapshot, "--socket", text(&socket)]);
    assert_eq!(all(), [("one".into(), Value::Null)]);
    assert_eq!(server.term(), Some(0));
}

/// Returns a server with some writes, and the path of its volume.
fn written(dir: &Path) -> (Server, String) {
    let (path, socket) = (dir.join("v"), dir.join("s"));
    let v = text(&path).to_owned();
    ok(&["create", &v, "--size=64M"]);
    let server = Server::start(dir, &[&v, "--socket", text(&socket)]);
    let mut client = NbdClient::connect(&socket, "v").unwrap();
    for lba in 0..256_u64 {
        client.write(lba * 4096, &[lba as u8 | 1; 4096]).unwrap();
    }
    client.flush().unwrap();
    (server, v)
}

/// The file would grow again, with zeros in place of data.
#[test]
fn a_file_that_is_cut_short_under_its_server_promises_nothing_more() {
    for layout in ["log", "ordered", "shadow"] {
        let dir = dir();
        let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
        let v = text(&path);
        ok(&["create", v, "--size=64M", "--layout", layout]);
        let server = Server::start(dir.path(), &[v, "--socket", text(&socket)]);
        let mut client = NbdClient::connect(&socket, "v").unwrap();
        client.write(0, &[1; 4096]).unwrap();
        client.flush().unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(32 << 20).unwrap();
        // Reported before any request fails.
        fails(2, &["health", v], &[]);
        let wrote = client.write(4096, &[2; 4096]);
        let flushed = client.flush();
        assert!(flushed.is_err(), "{layout}: {wrote:?}, {flushed:?}");
        assert!(client.flush().is_err(), "{layout}: for ever");
        let out = vellum(&["health", v]);
        let said = String::from_utf8(out.stdout).unwrap();
        for part in ["CRITICAL", "POISONED", "CUT SHORT", "take your backup"] {
            assert!(said.contains(part), "{layout}: no {part:?} in {said}");
        }
        assert_eq!(server.said().matches("cut short").count(), 1, "{layout}");
        server.term();
        fails(1, &["serve", v, "--socket", text(&socket)], &["cut short"]);
    }
}

#[test]
fn a_file_that_is_deleted_under_its_server_is_not_well() {
    let dir = dir();
    let (_server, v) = written(dir.path());
    std::fs::remove_file(&v).unwrap();
    let out = vellum(&["health", &v]);
    let said = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("its file or device is GONE"), "{said}");
}

/// A snapshot of a full volume gives a warning before writes fail.
#[test]
fn a_snapshot_of_a_full_volume_says_how_little_can_be_written() {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    let v = text(&path);
    ok(&["create", v, "--size=32M"]);
    let _server = Server::start(dir.path(), &[v, "--socket", text(&socket)]);
    let mut client = NbdClient::connect(&socket, "v").unwrap();
    let mut write = |from: u64, to: u64, seed: u64| -> std::io::Result<()> {
        for at in (from << 20..to << 20).step_by(64 << 10) {
            client.write(at, &noise(seed + at, 64 << 10))?;
        }
        client.flush()
    };
    let snapshot = |name: &str| {
        let out = vellum(&["snapshot", v, name]);
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stderr).unwrap()
    };
    let left = || {
        let all: Value = serde_json::from_str(&ok(&["snapshots", v, "--json"])).unwrap();
        let bytes = |key: &str| all[key].as_u64().unwrap();
        (bytes("stored_bytes"), bytes("left_bytes"))
    };
    write(0, 12, 1).unwrap();
    assert_eq!(snapshot("early"), "");
    let (stored, room) = left();
    assert!(stored >= 12 << 20 && room > stored / 10, "{stored} {room}");
    ok(&["delete", v, "early"]);
    write(12, 32, 1).unwrap();
    let said = snapshot("late");
    let (_, room) = left();
    assert!(
        said.contains("can be written over") && said.lines().count() == 1,
        "{said:?} {room}"
    );
    // The figure is right: that much fits, and not much more.
    let fits = room >> 20;
    write(0, fits.saturating_sub(1), 1 << 40).unwrap();
    assert!(write(16, 32, 1 << 41).is_err(), "{room}");
}

#[test]
fn statistics_are_a_dozen_lines_or_all_of_them() {
    let dir = dir();
    let (server, v) = written(dir.path());
    let few = ok(&["stats", &v]);
    assert!((10..=14).contains(&few.lines().count()), "{few}");
    assert!(
        few.contains("wrote 1 MiB") && few.contains("health          well"),
        "{few}"
    );
    let json: Value = serde_json::from_str(&ok(&["stats", &v, "--json"])).unwrap();
    let got = json[0]["stats"]["medium"]["written_bytes"]
        .as_u64()
        .unwrap();
    let waited = &json[0]["stats"]["flushes"]["waited"]["longest_micros"];
    assert!(
        waited.as_u64().unwrap() > 0 && few.contains("each waited"),
        "{few}"
    );
    // The figure shown is the one counted.
    let each = format!("{:.2} for each byte", got as f64 / f64::from(1 << 20));
    assert!(few.contains(&each), "{each}: {few}");
    let all = ok(&["stats", &v, "--all"]);
    assert!(all.contains("core.remapped_blocks") && all.lines().count() > 100);
    assert_eq!(server.term(), Some(0));
}

#[test]
fn statistics_are_redrawn_until_q_is_pressed() {
    let dir = dir();
    let (server, v) = written(dir.path());
    // In a separate terminal.
    let command = format!(
        "stty rows 40 cols 120; {} stats {v} --watch 1",
        env!("CARGO_BIN_EXE_vellum")
    );
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shown = child.stdout.take().unwrap();
    let all = Arc::new(Mutex::new(Vec::new()));
    let reader = {
        let all = Arc::clone(&all);
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            // A terminal that has ended is an error.
            while let Ok(length @ 1..) = shown.read(&mut some) {
                all.lock().unwrap().extend(&some[..length]);
            }
        })
    };
    let drawn = || String::from_utf8_lossy(&all.lock().unwrap()).into_owned();
    eventually("it is drawn twice", || {
        drawn().matches("wrote 1 MiB").count() >= 2
    });
    let began = Instant::now();
    assert_eq!(child.try_wait().unwrap(), None, "it goes on by itself");
    child.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    let ended = child.wait().unwrap();
    assert!(
        ended.success() && began.elapsed() < Duration::from_secs(20),
        "{ended}"
    );
    reader.join().unwrap();
    let all = drawn();
    let times = all.matches("wrote 1 MiB").count();
    // Each time but the first it moves back up by as many lines as it has drawn.
    assert!(
        all.matches("F").count() >= times - 1 && all.contains("\u{1b}[J"),
        "{all:?}"
    );
    assert!(all.contains("flushes/s"), "{all:?}");
    assert_eq!(server.term(), Some(0));
}

/// `timeout` signals its child, and then the group of both.
#[test]
fn two_signals_at_once_end_a_server_in_order() {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    ok(&["create", text(&path), "--size=64M"]);
    let server = Server::start(dir.path(), &[text(&path), "--socket", text(&socket)]);
    server.signal(libc::SIGINT);
    assert_eq!(server.term(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn addresses_are_uris_whatever_the_names_are() {
    let dir = dir();
    let (path, socket) = (dir.path().join("my disk#1"), dir.path().join("a b%?é"));
    ok(&["create", text(&path), "--size=64M"]);
    let server = Server::start(dir.path(), &[text(&path), "--socket", text(&socket)]);
    let folder = text(dir.path());
    let uri = format!("nbd+unix:///my%20disk%231?socket={folder}/a%20b%25%3F%C3%A9");
    assert!(server.said().contains(&uri), "{}", server.said());
    assert_eq!(served(&path)["places"][0], uri);
    assert_eq!(server.term(), Some(0));
}

/// And a signal ends it.
#[test]
fn statistics_without_a_terminal_follow_each_other() {
    let dir = dir();
    let (server, v) = written(dir.path());
    let mut piped = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["stats", &v, "--json", "--watch=1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(piped.stdout.take().unwrap());
    let mut lines = String::new();
    for _ in 0..2 {
        output.read_line(&mut lines).unwrap();
    }
    // SAFETY: a child of this process, not yet waited for.
    unsafe { libc::kill(piped.id() as i32, libc::SIGINT) };
    output.read_to_string(&mut lines).unwrap();
    assert!(piped.wait().unwrap().success());
    assert!(
        lines.lines().count() >= 2 && !lines.contains('\u{1b}'),
        "{lines}"
    );
    assert!(
        lines
            .lines()
            .all(|line| serde_json::from_str::<Value>(line).is_ok())
    );
    assert_eq!(server.term(), Some(0));
}
