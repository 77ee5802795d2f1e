//! Servers that do not answer. In a program of its own: while it runs, everything that asks all servers of this machine waits.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, dir, fails, ok, text, vellum};
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
    let began = Instant::now();
    let told = vellum(&["metrics"]);
    let took = began.elapsed();
    let began = Instant::now();
    let listed = vellum(&["list", "--json"]);
    let listing = began.elapsed();
    let lines = vellum(&["list"]);
    drop(hung);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains(&format!("volume=\"{}\"", text(&well))));
    let silent = told
        .lines()
        .filter(|line| line.starts_with("vellum_health{") && line.ends_with(" 3.0"));
    assert!(silent.count() >= 2, "{told}");
    // A monitoring program usually waits 10 s.
    assert!(took < Duration::from_secs(9), "{took:?}");
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let states = |pid: u32| {
        let all = listed.as_array().unwrap().iter();
        let its = all.filter(move |it| it["pid"] == pid);
        its.map(|it| it["state"].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(states(std::process::id()), ["silent"; 2]);
    assert_eq!(states(server.pid() as u32), ["serving"]);
    let lines = String::from_utf8(lines.stdout).unwrap();
    // Not those of other tests, which stop servers too.
    let why = format!("does not answer: process {} ", std::process::id());
    let silent = lines.lines().filter(|line| line.contains(&why));
    assert_eq!(silent.count(), 2, "{lines}");
    // Both were waited for at the same time.
    assert!(listing < Duration::from_secs(6), "{listing:?}");
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
