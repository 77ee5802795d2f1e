//! Servers that do not answer. In a program of its own: while it runs, everything that asks all servers of this machine waits.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, dir, ok, text, vellum};
use std::time::{Duration, Instant};

#[test]
fn servers_that_hang_do_not_hide_the_metrics_of_others() {
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
    hung.iter().for_each(|server| server.signal(libc::SIGCONT));
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains(&format!("volume=\"{}\"", text(&well))));
    let silent = told
        .lines()
        .filter(|line| line.starts_with("vellum_health{") && line.ends_with(" 3.0"));
    assert!(silent.count() >= 2, "{told}");
    // A monitoring program usually waits 10 s.
    assert!(took < Duration::from_secs(9), "{took:?}");
}
