//! Servers that do not answer. In a program of its own: while it runs, everything that asks all servers of this machine waits.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, dir, ok, text, vellum};
use std::time::{Duration, Instant};

#[test]
fn servers_that_hang_do_not_hide_others() {
    let dirs = [dir(), dir(), dir()];
    let servers = dirs.each_ref().map(|dir| {
        let (volume, socket) = (dir.path().join("a"), dir.path().join("s"));
        ok(&["create", text(&volume), "--size", "16M"]);
        let options = ["--socket", text(&socket), text(&volume)];
        Server::start(dir.path(), &options)
    });
    let (hung, well) = (&servers[..2], dirs[2].path().join("a"));
    hung.iter().for_each(|server| server.signal(libc::SIGSTOP));
    let began = Instant::now();
    let told = vellum(&["metrics"]);
    let took = began.elapsed();
    let began = Instant::now();
    let listed = vellum(&["list", "--json"]);
    let listing = began.elapsed();
    let lines = vellum(&["list"]);
    hung.iter().for_each(|server| server.signal(libc::SIGCONT));
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains(&format!("volume=\"{}\"", text(&well))));
    let silent = told
        .lines()
        .filter(|line| line.starts_with("vellum_health{") && line.ends_with(" 3.0"));
    assert!(silent.count() >= 2, "{told}");
    // A monitoring program usually waits 10 s.
    assert!(took < Duration::from_secs(9), "{took:?}");
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let state = |pid: i32| {
        let mut all = listed.as_array().unwrap().iter();
        all.find(|it| it["pid"] == pid).unwrap()["state"].clone()
    };
    assert_eq!(state(servers[0].pid()), "silent");
    assert_eq!(state(servers[1].pid()), "silent");
    assert_eq!(state(servers[2].pid()), "serving");
    let lines = String::from_utf8(lines.stdout).unwrap();
    let silent = lines
        .lines()
        .filter(|line| line.contains("does not answer"));
    assert_eq!(silent.count(), 2, "{lines}");
    // Both were waited for at the same time.
    assert!(listing < Duration::from_secs(6), "{listing:?}");
}
