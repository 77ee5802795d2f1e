//! `vellum dedup`: a sweep is stopped, continues after a restart, and is told to hurry.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, dir, eventually, fails, ok, text, vellum};
use nbd_client::NbdClient;
use serde_json::Value;

/// Pairs of equal blocks.
const PAIRS: u64 = 600;

#[test]
fn a_sweep_stops_continues_after_a_restart_and_hurries_on_request() {
    let dir = dir();
    let (disk, socket) = (dir.path().join("d.vellum"), dir.path().join("s"));
    let disk = text(&disk);
    // 32 pairs a second leave time to stop it.
    let args = [
        disk,
        "--socket",
        text(&socket),
        "--with=sweep-rate=256K,compress=off,delta=off",
    ];
    ok(&["create", disk, "--size=64M"]);
    let server = Server::start(dir.path(), &args);
    let mut client = NbdClient::connect(&socket, "d.vellum").unwrap();
    for copy in 0..2 {
        for content in 0..PAIRS {
            let block: Vec<u8> = (0..512).flat_map(|_| (content + 1).to_le_bytes()).collect();
            client
                .write((copy * PAIRS + content) * 4096, &block)
                .unwrap();
        }
    }
    client.flush().unwrap();
    drop(client);

    let told = || -> Value {
        let line = ok(&["dedup", disk, "--status", "--json"]);
        serde_json::from_str(&line).unwrap()
    };
    let merged = || told()["core"]["merged_blocks"].as_u64().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| vellum(&["dedup", disk]));
        eventually("it has merged some", || merged() > 5);
        assert!(ok(&["dedup", disk, "--stop"]).contains("left at"));
        let ended = waits.join().unwrap();
        assert_eq!(ended.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&ended.stderr).contains("stopped before its end"));
    });
    assert!(merged() < PAIRS);
    assert_eq!(server.term(), Some(0));

    let server = Server::start(dir.path(), &args);
    assert!(ok(&["dedup", disk, "--status"]).contains("left at"));
    assert!(ok(&["dedup", disk, "--now"]).contains("went on at"));
    assert_eq!(told()["core"]["live_blocks"], PAIRS);
    assert_eq!(told()["left_at"], Value::Null);
    // There is no sweep to stop.
    ok(&["dedup", disk, "--stop"]);
    for args in [["--now", "--rate=1M"], ["--stop", "--now"]] {
        fails(2, &["dedup", disk, args[0], args[1]], &["cannot be used"]);
    }
    assert_eq!(server.term(), Some(0));
}
