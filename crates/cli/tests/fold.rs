//! `vellum fold`: sparse pages are reclaimed, and what cannot be folded is reported.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, dir, fails, ok, text};
use nbd_client::NbdClient;
use serde_json::Value;

const BLOCKS: u64 = 600;

/// A sixteenth of a block, which does not compress, depends on the content.
fn block(content: u64) -> Vec<u8> {
    let mut words = vec![0; 512];
    let mut word = content;
    for out in words.iter_mut().take(32) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *out = word;
    }
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

#[test]
fn sparse_pages_are_reclaimed() {
    let dir = dir();
    let (disk, socket) = (dir.path().join("f.vellum"), dir.path().join("s"));
    let disk = text(&disk);
    ok(&["create", disk, "--size=64M", "--set=compress=lz4,delta=off"]);
    let args = [disk, "--socket", text(&socket)];
    let server = Server::start(dir.path(), &args);
    let mut client = NbdClient::connect(&socket, "f.vellum").unwrap();
    let content = |lba: u64| lba + if lba.is_multiple_of(4) { 1 } else { 10_000 };
    for lba in 0..BLOCKS {
        client.write(lba * 4096, &block(lba + 1)).unwrap();
    }
    client.flush().unwrap();
    for lba in 0..BLOCKS {
        if !lba.is_multiple_of(4) {
            client.write(lba * 4096, &block(content(lba))).unwrap();
        }
    }
    client.flush().unwrap();

    let told = || -> Value {
        let line = ok(&["fold", disk, "--status", "--json"]);
        serde_json::from_str(&line).unwrap()
    };
    let pages = |told: &Value| told["core"]["packed_pages"].as_u64().unwrap();
    let before = pages(&told());
    assert!(ok(&["fold", disk]).contains("pages given up"));
    let after = told();
    assert_eq!(after["sweeps"], 1);
    assert!(pages(&after) < before, "{before} pages, and now {after}");
    // All that are left, except pages that were made with one.
    let folded = after["core"]["folded_blocks"].as_u64().unwrap();
    assert!((BLOCKS / 5..=BLOCKS / 4).contains(&folded), "{folded}");
    assert!(ok(&["fold", disk, "--now"]).contains("pages given up   0"));
    ok(&["fold", disk, "--stop"]);
    for lba in 0..BLOCKS {
        let mut read = [0; 4096];
        client.read(lba * 4096, &mut read).unwrap();
        assert!(read[..] == block(content(lba)), "LBA {lba}");
    }
    drop(client);
    ok(&["set", disk, "fold=on", "compress=off"]);
    fails(1, &["fold", disk], &["compress=off"]);
    assert_eq!(server.term(), Some(0));
    ok(&["check", disk]);
}
