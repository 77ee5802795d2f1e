//! A server does not hand over while a commit block waits: it would count without what it commits.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod common;
#[allow(dead_code, reason = "a part is used")]
#[path = "../../../fuzz/src/ext4.rs"]
mod ext4;
#[path = "../../device/tests/common/log.rs"]
mod log;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, can_attach, dir, eventually, fails, ok, run, server_pid, text};
use nbd_client::NbdClient;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK: u64 = 4096;
/// Where the journal is, and the blocks of files that a transaction changes.
const JOURNAL: u64 = 68;
const HOME: u32 = 1400;

/// Makes a volume with a file system that has a journal.
fn with_ext4(dir: &Path, volume: &Path) {
    ok(&["create", text(volume), "--size=64M"]);
    let socket = dir.join("s");
    let server = Server::start(dir, &[text(volume), "--socket", text(&socket)]);
    let mut client = NbdClient::connect(&socket, "v").unwrap();
    for (at, bytes) in ext4::mounted().pages() {
        client.write(at, bytes).unwrap();
    }
    client.flush().unwrap();
    drop(client);
    assert_eq!(server.term(), Some(0));
}

/// Writes a block past the page cache, and makes nothing durable, as a file system does in mid-commit.
fn put(dir: &Path, device: &str, block: u64, bytes: &[u8]) {
    let from = dir.join("block");
    fs::write(&from, bytes).unwrap();
    let (from, to) = (format!("if={}", text(&from)), format!("of={device}"));
    let seek = format!("seek={block}");
    let how = ["bs=4096", "oflag=direct", "conv=notrunc", "status=none"];
    run("dd", &[&[&*from, &to, &seek][..], &how].concat());
}

fn stats(volume: &str) -> Value {
    let told: Value = serde_json::from_str(&ok(&["stats", volume, "--json"])).unwrap();
    told[0]["stats"].clone()
}

#[test]
fn a_server_does_not_hand_over_while_a_commit_block_waits() {
    if !can_attach("a_server_does_not_hand_over_while_a_commit_block_waits") {
        return;
    }
    let dir = dir();
    let (dir, path) = (dir.path(), dir.path().join("v"));
    let volume = text(&path);
    with_ext4(dir, &path);
    let device = ok(&["attach", volume, "--via=fuse"]);
    let device = device.trim();
    eventually("the journal is known", || {
        let found = &stats(volume)["write_once"]["file_systems"];
        found.as_array().is_some_and(|found| !found.is_empty())
    });
    let mut superblock = vec![0; BLOCK as usize];
    let read = File::open(device).unwrap();
    let got = read.read_exact_at(&mut superblock, JOURNAL * BLOCK);
    got.unwrap();
    drop(read);
    log::begin(&mut superblock, 1, 1);
    put(dir, device, JOURNAL, &superblock);
    let copies = [[1; BLOCK as usize], [2; BLOCK as usize]];
    let copies = copies.each_ref().map(<[u8; BLOCK as usize]>::as_slice);
    let homes = [(HOME, 0), (HOME + 1, 0)];
    put(dir, device, JOURNAL + 4, &log::commit(1));
    assert_eq!(stats(volume)["commits"]["waiting"], 1);
    let (first, byte) = (server_pid(&path), (JOURNAL + 4) * BLOCK);
    let says = format!("the journal commit block at byte {byte} waits");
    fails(1, &["restart", volume], &[volume, &says, "run e2fsck"]);
    // It serves on, and the commit goes on.
    assert_eq!(server_pid(&path), first);
    put(
        dir,
        device,
        JOURNAL + 1,
        &log::descriptor(1, &homes, &copies),
    );
    for (at, copy) in (JOURNAL + 2..).zip(copies) {
        put(dir, device, at, copy);
    }
    assert_eq!(stats(volume)["commits"]["waiting"], 0);
    ok(&["restart", volume]);
    assert_ne!(server_pid(&path), first);
    ok(&["detach", volume]);
    ok(&["check", volume]);
}
