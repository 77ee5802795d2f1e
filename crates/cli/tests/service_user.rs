//! `serve --user`: a server started by root does not serve as root, and leaves nothing behind in root's directories.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[allow(dead_code, reason = "other tests use more of it")]
mod forced;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{Server, dir, eventually, fails, noise, ok, skipped, text};
use nbd_client::NbdClient;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Debian's `nobody`; and numbers that no list of users has.
const NOBODY: u32 = 65534;
const NUMBERS: &str = "54321:54322";

fn is_root(test: &str) -> bool {
    // SAFETY: no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        skipped(format_args!("{test}: needs root"));
    }
    is_root
}

/// Returns the kernel's data on each thread of this process that runs its own code.
fn threads(pid: i32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("status")).ok();
    let mut all: Vec<String> = threads.flatten().filter_map(status).collect();
    all.retain(|status| !status.starts_with("Name:\tiou-"));
    all
}

fn field<'a>(status: &'a str, name: &str) -> Vec<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or("none").split_whitespace().collect()
}

fn is_only(status: &str, uid: u32, gid: u32) {
    let (uid, gid) = (uid.to_string(), gid.to_string());
    assert_eq!(field(status, "Uid:"), [uid.as_str(); 4], "{status}");
    assert_eq!(field(status, "Gid:"), [gid.as_str(); 4], "{status}");
    assert!(field(status, "Groups:").is_empty(), "{status}");
    for rights in ["CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(status, rights), ["0000000000000000"], "{status}");
    }
    assert_eq!(field(status, "NoNewPrivs:"), ["1"], "{status}");
}

/// Returns this server's files in root's directories.
fn own_files(volume: &Path, sockets: [&Path; 2]) -> Vec<PathBuf> {
    let told = ok(&["info", text(volume), "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let uuid = told["uuid"].as_str().unwrap();
    let own = Path::new("/run/vellum").join(format!("{uuid}.control"));
    sockets
        .into_iter()
        .map(Path::to_owned)
        .chain([own])
        .collect()
}

/// Tells clients to end, even if `look` fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs clients that write and read back during `look`.
fn serves_while<T>(socket: &Path, look: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut client = NbdClient::connect(socket, "a").unwrap();
            let mut rounds = 0;
            while rounds < 20 || !over.load(Ordering::Relaxed) {
                rounds += 1;
                let (data, at) = (noise(rounds, 1 << 16), rounds % 100 * (1 << 16));
                client.write(at, &data).unwrap();
                client.flush().unwrap();
                let mut found = vec![0; data.len()];
                client.read(at, &mut found).unwrap();
                assert!(found == data, "round {rounds}");
            }
        });
        let ends = Ends(&over);
        let seen = look();
        drop(ends);
        client.join().unwrap();
        seen
    })
}

#[test]
fn a_server_serves_as_its_user_and_cleans_up_as_root() {
    if !is_root("a_server_serves_as_its_user_and_cleans_up_as_root") {
        return;
    }
    // The directory is root's, and no other user may even list it.
    let dir = dir();
    let [volume, socket, control] = ["a", "nbd", "control"].map(|name| dir.path().join(name));
    ok(&["create", text(&volume), "--size", "64M"]);
    let files = own_files(&volume, [&socket, &control]);
    let args = [
        text(&volume),
        "--socket",
        text(&socket),
        "--control",
        text(&control),
        "--user",
    ];
    for (user, (uid, gid)) in [("nobody", (NOBODY, NOBODY)), (NUMBERS, (54321, 54322))] {
        let server = Server::start(dir.path(), &[&args[..], &[user]].concat());
        assert!(files.iter().all(|file| file.exists()), "{files:?}");
        serves_while(&socket, || {
            let threads = threads(server.pid());
            assert!(threads.len() > 3, "{} threads", threads.len());
            threads.iter().for_each(|status| is_only(status, uid, gid));
            ok(&["set", text(&volume), "dedup=on", "label=x"]);
            ok(&["scrub", text(&volume)]);
            let stats = ok(&["stats", text(&volume), "--all"]);
            assert!(
                stats.contains(&format!("root's rights (it is {user})")),
                "{stats}"
            );
        });
        assert_eq!(server.term(), Some(0));
        assert!(!files.iter().any(|file| file.exists()), "{files:?}");
        ok(&["check", text(&volume)]);
    }
    // Even if that user could do nothing about it.
    let server = Server::start(dir.path(), &[&args[..], &["nobody"]].concat());
    serves_while(&socket, || ());
    server.kill();
    eventually("no socket", || !files.iter().any(|file| file.exists()));
    ok(&["check", text(&volume)]);
}

/// With its other fences down, only the user protects root's files.
#[test]
fn a_server_cannot_become_root_again() {
    const NAME: &str = "a_server_cannot_become_root_again";
    if !forced::can(NAME) {
        return;
    }
    let dir = dir();
    let (volume, socket) = (dir.path().join("a"), dir.path().join("nbd"));
    ok(&["create", text(&volume), "--size", "16M"]);
    let args = [text(&volume), "--socket", text(&socket)];
    let lifted = ("VELLUM_ALLOW", "files,calls");
    for user in [None, Some("nobody")] {
        let user_args = user.map(|user| ["--user", user]);
        let all = [&args[..], user_args.as_ref().map_or(&[], |u| &u[..])].concat();
        let server = Server::start_with(dir.path(), lifted, &all);
        let forced = |call, path, how| forced::system_call(server.pid(), call, path, how);
        let opened = forced(libc::SYS_openat, "/etc/shadow", forced::OPEN);
        let root = forced(libc::SYS_setresuid, "", [0; 6]);
        let groups = forced(libc::SYS_setgroups, "", [0; 6]);
        let answers = match user {
            None => opened >= 0 && root == 0 && groups == 0,
            Some(_) => {
                opened == -i64::from(libc::EACCES) && [root, groups] == [-i64::from(libc::EPERM); 2]
            }
        };
        assert!(answers, "{user:?}: {opened} {root} {groups}");
        assert_eq!(server.term(), Some(0));
    }
}

/// As `attach --via nbd --user` starts it: its memory is locked, and the limit must not return with the loss of root.
#[test]
fn an_attached_server_serves_as_its_user() {
    const NAME: &str = "an_attached_server_serves_as_its_user";
    if !is_root(NAME) {
        return;
    }
    let dir = dir();
    let (volume, socket) = (dir.path().join("a"), dir.path().join("nbd"));
    ok(&["create", text(&volume), "--size", "64M"]);
    let args = ["--socket", text(&socket), "--syslog", "--user", NUMBERS];
    for may_lift_limits in [true, false] {
        if !may_lift_limits {
            const CAP_SYS_RESOURCE: u64 = 24;
            // SAFETY: no pointers. What this thread starts does not get the right.
            let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0) };
            assert_eq!(dropped, 0);
        }
        let server = Server::start(dir.path(), &[&[text(&volume)], &args[..]].concat());
        serves_while(&socket, || {
            let all = threads(server.pid());
            all.iter().for_each(|status| is_only(status, 54321, 54322));
            let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
            let limit = field(&limits, "Max locked memory")[0];
            let locked = field(&all[0], "VmLck:")[0];
            assert!(locked == "0" || limit == "unlimited", "{locked} of {limit}");
        });
        assert_eq!(server.term(), Some(0));
    }
    assert!(!socket.exists());
    ok(&["check", text(&volume)]);
}

#[test]
fn impossible_users_are_refused() {
    let dir = dir();
    let (volume, socket) = (dir.path().join("a"), dir.path().join("nbd"));
    ok(&["create", text(&volume), "--size", "16M"]);
    let serve = ["serve", text(&volume), "--socket", text(&socket)];
    for (user, says) in [
        ("no-such-user", "there is no user"),
        ("root", "nothing to give up"),
        ("5:0", "nothing to give up"),
    ] {
        fails(2, &[&serve[..], &["--user", user]].concat(), &[says]);
    }
    let way = ["serve", text(&volume), "--ublk", "--user", NUMBERS];
    fails(2, &way, &["--user is for --socket and --tcp"]);
    let way = [
        "serve",
        text(&volume),
        "--fuse",
        text(dir.path()),
        "--user",
        NUMBERS,
    ];
    fails(2, &way, &["--user is for --socket and --tcp"]);
    for via in [&[][..], &["--via=fuse"], &["--via=ublk"]] {
        let attach = ["attach", text(&volume), "--user", NUMBERS];
        fails(
            2,
            &[&attach[..], via].concat(),
            &["--user is for --via nbd"],
        );
    }
    let way = ["attach", text(&volume), "--via=nbd", "--user", NUMBERS];
    fails(
        2,
        &[&way[..], &["--survive-shutdown"]].concat(),
        &["a shutdown spares only servers of root"],
    );
    assert!(!socket.exists());
    if !is_root("impossible_users_are_refused") {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    command.args(serve).args(["--user", NUMBERS]).uid(NOBODY);
    let answer = command.output().unwrap();
    let said = String::from_utf8_lossy(&answer.stderr);
    assert!(
        answer.status.code() == Some(2) && said.contains("only root can become"),
        "{said}"
    );
}
