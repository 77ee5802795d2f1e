//! A request for more memory than there is is refused, and the server continues; and small tasks need little memory.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, dir, fails, ok, run, text};
use nbd_client::NbdClient;
use std::path::Path;

/// Limits the server's address space from now on.
fn limit(server: &Server, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: a child of this process, not yet waited for; the limit is only read.
    let set = unsafe {
        libc::prlimit(
            server.pid(),
            libc::RLIMIT_AS,
            &raw const limit,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Returns the bytes of address space that it has.
fn size(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn an_index_too_large_for_memory_is_refused() {
    let dir = dir();
    let (small, large) = (dir.path().join("a.vellum"), dir.path().join("b.vellum"));
    let (socket, small, large) = (dir.path().join("s"), text(&small), text(&large));
    ok(&["create", small, "--size=64M"]);
    // An index has at most 64 bytes for each block: 512 MiB.
    ok(&["create", large, "--size=32G", "--medium-size=2G"]);
    let server = Server::start(dir.path(), &[small, large, "--socket", text(&socket)]);
    let mut client = NbdClient::connect(&socket, "a.vellum").unwrap();
    client.write(0, &[7; 4096]).unwrap();
    limit(&server, size(&server) + (320 << 20));

    fails(
        1,
        &["set", large, "dedup=on", "dedup-memory=32G"],
        &["536870912 bytes", "dedup-memory="],
    );
    for volume in [small, large] {
        assert_eq!(ok(&["get", volume, "dedup"]), "off\n");
    }
    // A smaller one succeeds, and clients notice nothing.
    ok(&["set", large, "dedup=on", "dedup-memory=8M"]);
    client.write(4096, &[8; 4096]).unwrap();
    client.flush().unwrap();
    assert_eq!(server.term(), Some(0));
}

/// A volume that was served by a larger machine opens nevertheless, with as much as there is, and says so.
#[test]
fn a_volume_opens_though_its_index_is_too_large_for_memory() {
    let dir = dir();
    let (volume, socket) = (dir.path().join("b.vellum"), dir.path().join("s"));
    let (volume, socket) = (text(&volume), text(&socket));
    // Its index takes 2 GiB: far more than what threads may use for stacks and heaps, which is in the usual size.
    ok(&["create", volume, "--size=128G", "--medium-size=8G"]);
    let args = [volume, "--socket", socket];
    let server = Server::start(dir.path(), &args);
    let usual = size(&server);
    assert_eq!(server.term(), Some(0));
    ok(&["set", volume, "dedup=on", "dedup-memory=64G"]);

    let server = Server::start_limited(dir.path(), usual + (100 << 20), &args);
    assert!(server.said().contains("dedup-memory"), "{}", server.said());
    let shown: serde_json::Value =
        serde_json::from_str(&ok(&["get", volume, "dedup-memory", "--json"])).unwrap();
    assert_eq!(
        (&shown["value"], &shown["source"]),
        (&"64G".into(), &"volume".into())
    );
    assert!(shown["in_force"].is_string(), "{shown}");
    // Unrelated properties can be changed as usual.
    ok(&["set", volume, "label=small"]);
    let mut client = NbdClient::connect(Path::new(socket), "b.vellum").unwrap();
    client.write(4096, &[8; 4096]).unwrap();
    client.flush().unwrap();
    assert_eq!(server.term(), Some(0));
    ok(&["check", volume]);
}

/// A thin volume may be larger than memory could list: unmapped blocks cost a check nothing.
#[test]
fn a_check_of_an_empty_volume_of_4_tib_takes_little_memory() {
    let dir = dir();
    let volume = dir.path().join("large");
    ok(&["create", text(&volume), "--size", "4T"]);
    let check = format!(
        "ulimit -v 1000000 && exec {} check {}",
        env!("CARGO_BIN_EXE_vellum"),
        text(&volume)
    );
    run("sh", &["-c", &check]);
}
