//! A volume and a copy of its file have one UUID, by which servers are found: neither is taken for the other.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, can_attach, dir, fails, ok, text, vellum};
use std::fs;
use std::path::{Path, PathBuf};

/// A volume and its copy, and a folder for each one's server.
fn pair(dir: &Path) -> [(PathBuf, PathBuf); 2] {
    let both = ["volume", "copy"].map(|name| {
        let folder = dir.join(name);
        fs::create_dir(&folder).unwrap();
        (folder.join("v"), folder)
    });
    ok(&["create", text(&both[0].0), "--size=64M"]);
    fs::copy(&both[0].0, &both[1].0).unwrap();
    both
}

#[test]
fn who_asks_about_a_copy_is_not_told_of_the_other() {
    let dir = dir();
    let [(volume, one), (copy, two)] = pair(dir.path());
    let (volume, copy) = (text(&volume), text(&copy));
    let server = Server::start(&one, &[volume, "--socket", text(&one.join("s"))]);
    for ask in [
        &["stats", copy][..],
        &["policy", copy],
        &["journal", "list", copy],
        &["dedup", copy, "--status"],
    ] {
        fails(1, ask, &["copy"]);
    }
    let socket = text(&two.join("s")).to_owned();
    fails(1, &["serve", copy, "--socket", &socket], &[copy, "UUID"]);
    let beside = Server::start(&two, &[copy, "--read-only", "--socket", &socket]);
    assert!(beside.said().contains("--control"), "{}", beside.said());
    assert_eq!(beside.term(), Some(0));
    ok(&["stats", volume]);
    assert_eq!(server.term(), Some(0));
    for ask in [
        &["stats", "/nonexistent/v"][..],
        &["policy", "/nonexistent/v"],
        &["journal", "list", "/nonexistent/v"],
        &["dedup", "/nonexistent/v"],
    ] {
        fails(1, ask, &["/nonexistent/v"]);
    }
}

#[test]
fn several_read_only_servers_share_a_volume() {
    let dir = dir();
    let [(volume, one), (_, two)] = pair(dir.path());
    let servers = [&one, &two].map(|folder| {
        let socket = folder.join("s");
        let flags = [text(&volume), "--read-only", "--socket", text(&socket)];
        Server::start(folder, &flags)
    });
    ok(&["stats", text(&volume)]);
    for server in servers {
        assert_eq!(server.term(), Some(0));
    }
}

#[test]
fn a_refused_attach_leaves_a_server_its_control_socket() {
    if !can_attach("a_refused_attach_leaves_a_server_its_control_socket") {
        return;
    }
    let dir = dir();
    let [(volume, folder), _] = pair(dir.path());
    let volume = text(&volume);
    let server = Server::start(&folder, &[volume, "--socket", text(&folder.join("s"))]);
    fails(1, &["attach", volume], &["served"]);
    ok(&["stats", volume]);
    assert_eq!(server.term(), Some(0));
}

/// Ends with the test, however that ends.
struct Attached(String);

impl Drop for Attached {
    fn drop(&mut self) {
        vellum(&["detach", self.0.trim()]);
    }
}

#[test]
fn a_copys_detach_leaves_the_volume_attached() {
    if !can_attach("a_copys_detach_leaves_the_volume_attached") {
        return;
    }
    let dir = dir();
    let [(volume, folder), (copy, _)] = pair(dir.path());
    let moved = folder.join("moved");
    let (volume, copy, moved) = (text(&volume), text(&copy), text(&moved));
    let _attached = Attached(ok(&["attach", volume, "--via=fuse"]));
    fails(1, &["attach", copy, "--via=fuse"], &[volume, "copy"]);
    let said = vellum(&["detach", copy]);
    let said = String::from_utf8_lossy(&said.stdout);
    let still = vellum(&["stats", volume]).status.success();
    // By where it is now, which no attach wrote down.
    fs::rename(volume, moved).unwrap();
    let detached = ok(&["detach", moved]);
    assert!(said.contains("nothing is attached"), "{said}");
    assert!(still, "the volume was detached in the copy's place");
    assert_eq!(detached, "detached\n");
}
