//! Servers that do not answer. In a program of its own: while it runs, everything that asks all servers of this machine waits.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, dir, eventually, fails, ok, text, vellum};
use serde_json::Value;
use std::fs::remove_file;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// The socket of a server that hangs: it listens, and answers nothing.
struct Hung {
    path: String,
    _socket: UnixListener,
}

impl Hung {
    fn of(volume: &Path) -> Self {
        let told = vellum(&["stats", text(volume)]).stderr;
        let told = String::from_utf8(told).unwrap();
        let path = told.split("(there is no ").nth(1).unwrap();
        let path = path.split(')').next().unwrap().to_owned();
        let _socket = UnixListener::bind(&path).unwrap();
        Self { path, _socket }
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = remove_file(&self.path);
    }
}

/// Runs the command. Returns its output, and how long it took.
fn timed(args: &[&str]) -> (String, Duration) {
    let began = Instant::now();
    let told = vellum(args).stdout;
    (String::from_utf8(told).unwrap(), began.elapsed())
}

#[test]
fn servers_that_hang_do_not_hide_others() {
    let dirs = [dir(), dir(), dir()];
    let [first, second, well] = dirs.each_ref().map(|dir| dir.path().join("a"));
    for volume in [&first, &second, &well] {
        ok(&["create", text(volume), "--size", "16M"]);
    }
    let socket = dirs[2].path().join("s");
    let options = ["--socket", text(&socket), text(&well)];
    let server = Server::start(dirs[2].path(), &options);
    let hung = [Hung::of(&first), Hung::of(&second)];
    // A monitoring program usually waits 10 s. A busy machine is slow now and then, but not each time.
    let mut told = String::new();
    eventually("metrics in less than 9 s", || {
        let took;
        (told, took) = timed(&["metrics"]);
        took < Duration::from_secs(9)
    });
    assert!(told.contains(&format!("volume=\"{}\"", text(&well))));
    let silent = told
        .lines()
        .filter(|line| line.starts_with("vellum_health{") && line.ends_with(" 3.0"));
    assert!(silent.count() >= 2, "{told}");
    let states = |listed: &Value, pid: u32| {
        let all = listed.as_array().unwrap().iter();
        let its = all.filter(|it| it["pid"] == pid);
        its.map(|it| it["state"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    // Both are waited for at the same time.
    eventually("a list in less than 6 s, with the one that is well", || {
        let (listed, took) = timed(&["list", "--json"]);
        let listed = serde_json::from_str(&listed).unwrap();
        assert_eq!(states(&listed, std::process::id()), ["silent"; 2]);
        let is_well = states(&listed, server.pid() as u32) == ["serving"];
        is_well && took < Duration::from_secs(6)
    });
    let (lines, _) = timed(&["list"]);
    drop(hung);
    // Not those of other tests, which stop servers too.
    let why = format!("does not answer: process {} ", std::process::id());
    let silent = lines.lines().filter(|line| line.contains(&why));
    assert_eq!(silent.count(), 2, "{lines}");
}

#[test]
fn a_stopped_server_is_told_by_all_commands_with_what_to_do() {
    let dir = dir();
    let (volume, socket) = (dir.path().join("a"), dir.path().join("s"));
    let volume = text(&volume);
    ok(&["create", volume, "--size", "16M"]);
    let server = Server::start(dir.path(), &["--socket", text(&socket), volume]);
    let go_on = format!("`kill -CONT {}`", server.pid());
    server.signal(libc::SIGSTOP);
    for command in [
        &["stats", volume][..],
        &["get", volume],
        &["set", volume, "fold=on"],
        &["snapshots", volume],
        &["grow", volume, "--size", "32M"],
    ] {
        fails(1, command, &[volume, "does not answer", &go_on]);
    }
    let [health, list, metrics] =
        [&["health", volume][..], &["list"], &["metrics"]].map(|command| vellum(command).stdout);
    server.signal(libc::SIGCONT);
    for told in [health, list] {
        let told = String::from_utf8(told).unwrap();
        let line = told.lines().find(|line| line.contains(volume)).unwrap();
        assert!(line.contains(&go_on), "{told}");
    }
    let metrics = String::from_utf8(metrics).unwrap();
    let label = format!("volume=\"{volume}\"}} 3.0");
    assert!(metrics.contains(&label), "{metrics}");
}
