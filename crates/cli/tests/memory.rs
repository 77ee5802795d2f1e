//! A policy that asks for more memory than there is: it is refused, and what is served goes on.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, dir, fails, ok, text};
use nbd_client::NbdClient;

/// Bytes of address space that the server may have from now on.
fn limit(server: &Server, bytes: u64) {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: our own child, not yet waited for; the limit is read alone.
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

/// Bytes of address space that it has.
fn size(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn an_index_that_there_is_no_memory_for_is_refused() {
    let dir = dir();
    let (small, large) = (dir.path().join("a.vellum"), dir.path().join("b.vellum"));
    let (socket, small, large) = (dir.path().join("s"), text(&small), text(&large));
    ok(&["create", small, "--size=64M"]);
    // An index has 64 bytes for each block at most: 512 MiB.
    ok(&["create", large, "--size=32G", "--medium-size=2G"]);
    let server = Server::start(dir.path(), &[small, large, "--socket", text(&socket)]);
    let mut client = NbdClient::connect(&socket, "a.vellum").unwrap();
    client.write(0, &[7; 4096]).unwrap();
    limit(&server, size(&server) + (320 << 20));

    fails(
        1,
        &["policy", large, "dedup=on,index=32G"],
        &["536870912 bytes", "index="],
    );
    for volume in [small, large] {
        assert!(ok(&["policy", volume, "--json"]).contains("\"dedup\":false"));
    }
    // A smaller one is had, and nobody has noticed.
    ok(&["policy", large, "dedup=on,index=8M"]);
    client.write(4096, &[8; 4096]).unwrap();
    client.flush().unwrap();
    assert_eq!(server.term(), Some(0));
}
