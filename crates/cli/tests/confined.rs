//! What a running server has given up, according to the kernel's data on each of its threads.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod forced;

use common::{Server, can_attach, dir, ok, server_pid, skipped, text};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or("none")
        .trim_start_matches(':')
        .trim()
        .to_owned()
}

/// Fails unless each thread of this server is confined.
fn is_confined(pid: i32) {
    let process = Path::new("/proc").join(pid.to_string());
    let limits = fs::read_to_string(process.join("limits")).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let words: Vec<_> = core.unwrap().split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "a core dump may be made");
    let mut threads = 0;
    for thread in fs::read_dir(process.join("task")).unwrap().flatten() {
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else {
            continue;
        };
        // The kernel's own workers run no code of the server.
        if field(&status, "Name").starts_with("iou-") {
            continue;
        }
        threads += 1;
        assert_eq!(field(&status, "NoNewPrivs"), "1", "{status}");
        assert_eq!(field(&status, "Seccomp"), "2", "no filter: {status}");
    }
    assert!(threads > 3, "{threads} threads");
}

#[test]
fn an_nbd_server_is_confined() {
    let dir = dir();
    let (volume, socket) = (dir.path().join("a"), dir.path().join("nbd"));
    ok(&["create", text(&volume), "--size", "16M"]);
    let server = Server::start(dir.path(), &[text(&volume), "--socket", text(&socket)]);
    is_confined(server.pid());
    let stats = ok(&["stats", text(&volume)]);
    let line = stats
        .lines()
        .find(|line| line.trim_start().starts_with("confined"));
    let line = line.unwrap_or_else(|| panic!("{stats}")).to_owned();
    assert!(line.contains("no core dumps, no new privileges"), "{line}");
    assert_eq!(server.term(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn a_fuse_server_is_confined_and_unmounts() {
    if !can_attach("a_fuse_server_is_confined_and_unmounts") {
        return;
    }
    let dir = dir();
    let (volume, folder) = (dir.path().join("a"), dir.path().join("fuse"));
    fs::create_dir(&folder).unwrap();
    ok(&["create", text(&volume), "--size", "16M"]);
    let server = Server::start(dir.path(), &[text(&volume), "--fuse", text(&folder)]);
    is_confined(server.pid());
    let file = fs::OpenOptions::new()
        .write(true)
        .open(folder.join("a"))
        .unwrap();
    file.write_all_at(&common::noise(1, 1 << 20), 4096).unwrap();
    drop(file);
    assert_eq!(server.term(), Some(0));
    assert!(!folder.join("a").exists());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(text(&folder)));
}

#[test]
fn an_attached_server_is_confined() {
    if !can_attach("an_attached_server_is_confined") {
        return;
    }
    let dir = dir();
    let (volume, mount) = (dir.path().join("a"), dir.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    ok(&["create", text(&volume), "--size", "64M"]);
    ok(&[
        "attach",
        text(&volume),
        "--via=fuse",
        "--mkfs",
        "--mount",
        text(&mount),
    ]);
    let pid = server_pid(&volume);
    let confined = std::panic::catch_unwind(|| is_confined(pid));
    fs::write(mount.join("file"), common::noise(1, 1 << 20)).unwrap();
    // Operations on a volume while it is served.
    let served = std::panic::catch_unwind(|| {
        ok(&["set", text(&volume), "dedup=on", "delta=on", "label=x"]);
        for command in ["dedup", "fold", "scrub"] {
            ok(&[command, text(&volume)]);
        }
        ok(&["stats", text(&volume), "--all"])
    });
    ok(&["detach", text(&mount)]);
    confined.unwrap();
    served.unwrap();
    ok(&["check", text(&volume)]);
}

/// The kernel gives the files of an undumpable process to root.
#[test]
fn a_servers_user_cannot_read_its_memory() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        skipped("a_servers_user_cannot_read_its_memory: needs root");
        return;
    }
    const NOBODY: u32 = 65534;
    let dir = dir();
    let (volume, socket) = (dir.path().join("a"), dir.path().join("nbd"));
    ok(&["create", text(&volume), "--size", "16M"]);
    for path in [dir.path(), &volume] {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    for (allowed, owner) in [("", 0), ("core-dumps", NOBODY)] {
        let server = Server::start_as(
            dir.path(),
            NOBODY,
            ("VELLUM_ALLOW", allowed),
            &[text(&volume), "--socket", text(&socket)],
        );
        let memory = Path::new("/proc")
            .join(server.pid().to_string())
            .join("maps");
        assert_eq!(memory.metadata().unwrap().uid(), owner, "{allowed}");
        assert_eq!(server.term(), Some(0));
    }
}

/// Each of these is a way out of a compromised server: the server is made to try it while it serves.
#[test]
fn a_compromised_server_is_refused_every_way_out() {
    const NAME: &str = "a_compromised_server_is_refused_every_way_out";
    if !forced::can(NAME) {
        return;
    }
    let dir = dir();
    let (volume, socket) = (dir.path().join("a"), dir.path().join("nbd"));
    let folder = dir.path().join("fuse");
    fs::create_dir(&folder).unwrap();
    ok(&["create", text(&volume), "--size", "16M"]);
    let mut ways = vec![vec!["--socket", text(&socket)]];
    if can_attach(NAME) {
        ways.push(vec!["--fuse", text(&folder)]);
    }
    for way in ways {
        let server = Server::start(dir.path(), &[&[text(&volume)], &way[..]].concat());
        let refusals = [-libc::EPERM, -libc::EACCES, -libc::ENOSYS].map(i64::from);
        let mut passed = Vec::new();
        for (what, call, path, arguments) in forced::ways_out() {
            let answer = forced::system_call(server.pid(), call, path, arguments);
            if !refusals.contains(&answer) {
                passed.push(format!("{what}: {answer}"));
            }
        }
        assert!(passed.is_empty(), "{way:?} {passed:?}");
        // It may still do what it needs, and continues to run.
        assert!(forced::system_call(server.pid(), libc::SYS_getpid, "", [0; 6]) > 0);
        let pid = server.pid().unsigned_abs().into();
        let own = [pid, pid, 0, 0, 0, 0];
        assert_eq!(
            forced::system_call(server.pid(), libc::SYS_tgkill, "", own),
            0
        );
        if !way.contains(&"--socket") {
            let mut how = fs::OpenOptions::new();
            let file = how.read(true).write(true).open(folder.join("a")).unwrap();
            file.write_all_at(&common::noise(2, 1 << 20), 0).unwrap();
            file.sync_all().unwrap();
        }
        ok(&["stats", text(&volume)]);
        assert_eq!(server.term(), Some(0), "{way:?}");
        ok(&["check", text(&volume)]);
    }
}

/// The server tries the same with one of its two fences lifted: the other one still holds, and the lifted one is seen to be
/// missing. With both, each refuses with its own error: landlock with EACCES, the filter of system calls with EPERM.
#[test]
fn each_fence_holds_without_the_other() {
    const NAME: &str = "each_fence_holds_without_the_other";
    if !forced::can(NAME) {
        return;
    }
    let dir = dir();
    let (volume, socket) = (dir.path().join("a"), dir.path().join("nbd"));
    ok(&["create", text(&volume), "--size", "16M"]);
    for (lifted, by_rules, by_filter) in [
        ("", true, true),
        ("files", false, true),
        ("calls", true, false),
    ] {
        // Not the directory of its sockets, where it may remove files.
        let apart = common::dir();
        let doomed = apart.path().join("doomed");
        let server = Server::start_with(
            dir.path(),
            ("VELLUM_ALLOW", lifted),
            &[text(&volume), "--socket", text(&socket)],
        );
        if server.said().contains("NOT ") {
            skipped(format_args!("{NAME}: {}", server.said()));
            return;
        }
        let told = ok(&["stats", text(&volume)]);
        assert_eq!(told.contains("no files but its own"), by_rules, "{told}");
        assert_eq!(told.contains("no system calls but"), by_filter, "{told}");
        let mut tried = 0;
        for tid in forced::threads(server.pid()) {
            fs::write(&doomed, "").unwrap();
            let call = |call, path, how| forced::by_thread(tid, call, path, how);
            let Some(answer) = call(libc::SYS_unlinkat, text(&doomed), forced::UNLINK) else {
                continue;
            };
            tried += 1;
            let refused = -i64::from(libc::EACCES);
            let expected = if by_rules { refused } else { 0 };
            assert_eq!(answer, expected, "{lifted:?}: unlink by thread {tid}");
            assert_eq!(doomed.exists(), by_rules, "{lifted:?}: thread {tid}");
            let Some(answer) = call(libc::SYS_socket, "", forced::SOCKET) else {
                continue;
            };
            let refused = answer == -i64::from(libc::EPERM);
            assert!(
                refused == by_filter && (refused || answer > 0),
                "{lifted:?}: {answer} by {tid}"
            );
        }
        assert!(tried > 3, "{tried} threads");
        ok(&["stats", text(&volume)]);
        assert_eq!(server.term(), Some(0), "{lifted:?}");
    }
}
