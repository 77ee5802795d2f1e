//! What root does in folders of other people, and what a server takes over from whoever started it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, fails, ok, server_pid, text};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Whoever owns the folder has put links to a victim at each name that a migration might write to.
#[test]
fn a_migration_writes_through_nobodys_links() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    let victim = path("victim");
    fs::write(&victim, "theirs").unwrap();
    let (from, to) = (path("a"), path("b"));
    ok(&["create", text(&from), "--size", "16M"]);
    for suffix in [".migrating.new", ".migrating.target"] {
        symlink(&victim, path(&format!("b{suffix}"))).unwrap();
    }
    ok(&["migrate", text(&from), text(&to), "--layout", "ordered"]);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
    fs::remove_file(&to).unwrap();
    symlink(&victim, path("b.migrating")).unwrap();
    let layout = ["--layout", "ordered"];
    fails(
        1,
        &[&["migrate", text(&from), text(&to)], &layout[..]].concat(),
        &["b.migrating", "remove it"],
    );
    assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
}

/// Without a search path the shell's rule is "the folder that one is in": nothing of it may run as root.
#[test]
fn an_attached_server_has_no_environment_and_no_folder_and_gives_no_power() {
    if !can_attach("an_attached_server_has_no_environment_and_no_folder_and_gives_no_power") {
        return;
    }
    let dir = dir();
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let enemy = dir.path().join("mkfs.ext4");
    let ran = dir.path().join("ran");
    fs::write(&enemy, format!("#!/bin/sh\ntouch {}\n", text(&ran))).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&enemy, mode).unwrap();
    for tool in ["mount", "losetup"] {
        fs::copy(&enemy, dir.path().join(tool)).unwrap();
    }
    ok(&["create", text(&dir.path().join("a")), "--size", "32M"]);
    let out = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args([
            "attach",
            "a",
            "--via=fuse",
            "--mkfs",
            "--mount",
            text(&mount),
        ])
        .current_dir(dir.path())
        .env_remove("PATH")
        .env("SECRET", "of the one who attached")
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    assert!(!ran.exists(), "a program of the working folder was run");
    let process = Path::new("/proc").join(server_pid(&dir.path().join("a")).to_string());
    let environment = fs::read(process.join("environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains("SECRET"));
    assert_eq!(fs::read_link(process.join("cwd")).unwrap(), Path::new("/"));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(text(&mount)));
    let line = line.unwrap().to_owned();
    ok(&["detach", text(&mount)]);
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
}
