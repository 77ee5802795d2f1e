//! A migration that is interrupted: it says what is left and what to do, and what is left is refused without a trace.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, eventually, fails, ok, run, text};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The files of this folder whose names begin like this.
fn files(folder: &str, begin: &str) -> Vec<String> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(begin)).collect()
}

/// A volume with more data than a migration copies between two looks at its signals.
fn filled(path: &Path) {
    ok(&["create", text(path), "--size=512M", "--set=compress=off"]);
    let device = ok(&["attach", text(path), "--via=fuse"]);
    let to = format!("of={}", device.trim());
    run(
        "dd",
        &["if=/dev/urandom", &to, "bs=1M", "count=400", "conv=fsync"],
    );
    ok(&["detach", text(path)]);
}

/// Starts a migration, and interrupts it as soon as there is its state.
fn interrupted(migrate: &[&str], state: &Path) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(migrate)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut has_ended = false;
    eventually("it copies", || {
        has_ended = child.try_wait().unwrap().is_some();
        has_ended || state.exists()
    });
    if !has_ended {
        // SAFETY: a child of this process, not yet waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    }
    child.wait_with_output().unwrap()
}

#[test]
fn an_interrupted_migration_says_what_to_do_and_leaves_half_a_copy() {
    if !can_attach("an_interrupted_migration_says_what_to_do_and_leaves_half_a_copy") {
        return;
    }
    let dir = dir();
    let [source, target, state] = ["a", "b", "b.migrating"].map(|name| dir.path().join(name));
    let (a, b) = (text(&source), text(&target));
    filled(&source);
    let migrate = ["migrate", a, b, "--layout=ordered"];
    let mut out = interrupted(&migrate, &state);
    for _ in 0..4 {
        // It was faster than this test.
        if out.status.success() {
            fs::remove_file(&target).unwrap();
            out = interrupted(&migrate, &state);
        }
    }
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{said}");
    for told in [
        "interrupted: ",
        "are copied",
        "same command",
        b,
        text(&state),
    ] {
        assert!(said.contains(told), "{told} is not in {said}");
    }
    // It is refused, and neither a log nor a lock is left.
    fails(1, &["attach", b, "--via=fuse"], &["half a copy"]);
    let info: serde_json::Value = serde_json::from_str(&ok(&["info", b, "--json"])).unwrap();
    let uuid = info["uuid"].as_str().unwrap();
    assert_eq!(files("/run/vellum", uuid), [""; 0]);
    assert_eq!(
        files("/var/log/vellum", &format!("b-{}", &uuid[..8])),
        [""; 0]
    );
    let ended = ok(&migrate);
    assert!(ended.contains("copied and compared"), "{ended}");
    ok(&["check", b]);
}
