//! A file that a server of files has lent to one of its clients.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Duration;
use vellum_medium::lock::LockError;
use vellum_medium::{FileMedium, OpenError, OpenOptions, Prealloc};

const WRITE: OpenOptions = OpenOptions { read_only: false };
const BYTES: u64 = 1 << 20;

/// Servers of files lend a file to a client that has it to itself, and call it back when somebody else opens it.
#[test]
fn a_file_that_is_lent_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v");
    drop(FileMedium::create(&path, BYTES, Prealloc::Sparse).unwrap());
    // SAFETY: whoever has a lease is told by this signal, which would end the process.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    let holder = fs::File::options().write(true).open(&path).unwrap();
    // SAFETY: an open file, and no pointers.
    let lease =
        |kind: libc::c_int| unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, kind) };
    if lease(libc::F_WRLCK) != 0 {
        let mut stderr = std::io::stderr();
        writeln!(stderr, "SKIP: no leases in the folder of temporary files").unwrap();
        return;
    }
    let kept = FileMedium::open(&path, WRITE).unwrap_err();
    assert!(
        matches!(kept, OpenError::Locked(LockError::Lent { .. })),
        "{kept}"
    );
    std::thread::scope(|scope| {
        let opened = scope.spawn(|| FileMedium::open(&path, WRITE));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(lease(libc::F_UNLCK), 0);
        opened.join().unwrap().unwrap();
    });
}
