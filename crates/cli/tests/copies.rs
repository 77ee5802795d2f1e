//! A volume and a copy of its file have the same UUID, by which servers are found: one must not be mistaken for the other.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, can_attach, dir, fails, ok, run, text, vellum};
use std::fs;
use std::path::{Path, PathBuf};

/// A volume and its copy, and a directory for the server of each.
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
fn a_question_about_a_copy_is_not_answered_for_the_original() {
    let dir = dir();
    let [(volume, one), (copy, two)] = pair(dir.path());
    let (volume, copy) = (text(&volume), text(&copy));
    let server = Server::start(&one, &[volume, "--socket", text(&one.join("s"))]);
    for ask in [
        &["stats", copy][..],
        &["get", copy],
        &["set", copy, "zero=off"],
        &["journal", "list", copy],
        &["dedup", copy, "--status"],
    ] {
        fails(1, ask, &["copy"]);
    }
    let socket = text(&two.join("s")).to_owned();
    let before = fs::read(copy).unwrap();
    fails(1, &["serve", copy, "--socket", &socket], &[copy, "UUID"]);
    assert!(fs::read(copy).unwrap() == before, "it was written to");
    let beside = Server::start(&two, &[copy, "--read-only", "--socket", &socket]);
    // Each is asked about its own.
    for asked in [volume, copy] {
        assert!(ok(&["stats", asked]).contains(&format!(", {asked})")));
    }
    assert_eq!(beside.term(), Some(0));
    ok(&["stats", volume]);
    assert_eq!(server.term(), Some(0));
    for ask in [
        &["stats", "/nonexistent/v"][..],
        &["get", "/nonexistent/v"],
        &["set", "/nonexistent/v", "zero=off"],
        &["journal", "list", "/nonexistent/v"],
        &["dedup", "/nonexistent/v"],
    ] {
        fails(1, ask, &["/nonexistent/v"]);
    }
}

#[test]
fn a_volume_and_its_copy_in_one_server_are_not_written() {
    let dir = dir();
    let [(volume, folder), (copy, _)] = pair(dir.path());
    let before = fs::read(&volume).unwrap();
    let socket = folder.join("s");
    let (one, two) = (
        format!("one={}", volume.display()),
        format!("two={}", copy.display()),
    );
    let serve = ["serve", &one, &two, "--socket", text(&socket)];
    fails(1, &serve, &[text(&copy), "UUID"]);
    for file in [volume, copy] {
        assert!(fs::read(&file).unwrap() == before, "{}", file.display());
    }
}

/// An interrupted migration continues into its target, but not into a copy of it that is being served.
#[test]
fn a_copy_of_a_served_volume_is_not_migrated_into() {
    let dir = dir();
    let [(volume, folder), (copy, _)] = pair(dir.path());
    let source = dir.path().join("source");
    ok(&["create", text(&source), "--size=64M"]);
    let info = |path: &Path| -> serde_json::Value {
        serde_json::from_str(&ok(&["info", text(path), "--json"])).unwrap()
    };
    let state = serde_json::json!({
        "source": info(&source)["uuid"], "life": info(&source)["life"], "target": info(&copy)["uuid"],
        "asked": {"layout": "log", "over_provisioning": null, "medium_size": null}, "blocks_done": 0,
    });
    fs::write(copy.with_extension("migrating"), state.to_string()).unwrap();
    let migrate = ["migrate", text(&source), text(&copy), "--layout=log"];
    let server = Server::start(
        &folder,
        &[text(&volume), "--socket", text(&folder.join("s"))],
    );
    let before = fs::read(&copy).unwrap();
    fails(1, &migrate, &[text(&copy), "UUID"]);
    assert!(fs::read(&copy).unwrap() == before, "it was written to");
    assert_eq!(server.term(), Some(0));
    fails(1, &migrate, &["not marked as half a copy"]);
}

/// Unbound with the test, however it ends.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Self {
        Self(run("losetup", &["--find", "--show", text(file)]))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", self.0.trim()]);
    }
}

#[test]
fn a_loop_device_over_a_served_volume_is_that_volume() {
    if !can_attach("a_loop_device_over_a_served_volume_is_that_volume") {
        return;
    }
    let dir = dir();
    let [(volume, one), (other, two)] = pair(dir.path());
    let device = Loop::over(&volume);
    let path = device.0.trim();
    let (new, socket) = (dir.path().join("new"), two.join("s"));
    let (new, socket) = (text(&new), text(&socket));
    let flags = [text(&volume), "--socket", text(&one.join("s"))].map(str::to_owned);
    let server = Server::start(&one, &flags.each_ref().map(String::as_str));
    let before = fs::read(&volume).unwrap();
    ok(&["create", text(&other), "--size=64M", "--force"]);
    for refused in [
        &["serve", path, "--socket", socket][..],
        &["serve", path, "--socket", socket, "--read-only"],
        &["record", path, "--output", new, "--socket", socket],
        &["attach", path],
        &["create", path, "--force"],
        &["check", path],
        &["dump", path],
        &["migrate", path, new, "--layout=log"],
        &["migrate", text(&other), path, "--layout=log", "--force"],
    ] {
        fails(1, refused, &[path, text(&volume), "is already served"]);
    }
    assert!(fs::read(&volume).unwrap() == before, "it was written to");
    assert_eq!(server.term(), Some(0));
    let server = Server::start(&one, &[path, "--socket", text(&one.join("s"))]);
    fails(1, &["check", text(&volume)], &["is already served"]);
    assert_eq!(server.term(), Some(0));
    // If two files cannot be shown to differ, they may be the same.
    let server = Server::start(&one, &flags.each_ref().map(String::as_str));
    let copy = dir.path().join("copy.img");
    fs::copy(&volume, &copy).unwrap();
    let image = Loop::over(&copy);
    let path = image.0.trim();
    fails(1, &["create", path, "--force"], &[path, "UUID"]);
    assert_eq!(server.term(), Some(0));
    ok(&["create", path, "--force"]);
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

/// Detached with the test, however it ends.
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
    // By its new path, which no attach recorded.
    fs::rename(volume, moved).unwrap();
    let detached = ok(&["detach", moved]);
    assert!(said.contains("nothing is attached"), "{said}");
    assert!(still, "the volume was detached in the copy's place");
    assert_eq!(detached, "detached\n");
}
