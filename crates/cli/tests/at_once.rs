//! Two commands for one volume at the same time, and commands that are killed on their way.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{Server, can_attach, dir, eventually, ok, run, text};
use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn started(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A clone on two loop devices would be two file systems on the same blocks.
#[test]
fn a_second_attach_of_a_clone_is_refused() {
    if !can_attach("a_second_attach_of_a_clone_is_refused") {
        return;
    }
    let dir = dir();
    let (volume, clone) = (
        dir.path().join("disk.vellum"),
        dir.path().join("disk.vellum@c"),
    );
    ok(&["create", text(&volume), "--size=64M"]);
    ok(&["attach", text(&volume), "--via=fuse"]);
    ok(&["snapshot", text(&volume), "s"]);
    ok(&["clone", &format!("{}@s", text(&volume)), "c"]);
    for _ in 0..5 {
        let both: Vec<_> = (0..2).map(|_| started(&["attach", text(&clone)])).collect();
        let ended = both
            .into_iter()
            .map(|mut one| one.wait().unwrap().success());
        assert_eq!(ended.filter(|success| *success).count(), 1);
        ok(&["detach", text(&clone)]);
    }
    ok(&["detach", text(&volume)]);
}

/// The loop devices over files with this end, also over what is not mounted any more.
fn loops_over(end: &str) -> Vec<String> {
    let all = fs::read_dir("/sys/block").unwrap().flatten();
    let over = all.filter_map(|block| {
        let file = fs::read_to_string(block.path().join("loop/backing_file")).ok()?;
        let name = block.file_name().into_string().unwrap();
        file.trim_end().ends_with(end).then_some(name)
    });
    over.collect()
}

/// Otherwise a loop device could stay on a file that no server shows any more.
#[test]
fn an_attach_of_a_snapshot_and_a_detach_of_its_volume_wait_for_each_other() {
    if !can_attach("an_attach_of_a_snapshot_and_a_detach_of_its_volume_wait_for_each_other") {
        return;
    }
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    let volume = text(&volume);
    let name = format!("s{}", std::process::id());
    let snapshot = format!("{volume}@{name}");
    ok(&["create", volume, "--size=64M"]);
    ok(&["attach", volume, "--via=fuse"]);
    ok(&["snapshot", volume, &name]);
    for round in 0..40 {
        let mut attach = started(&["attach", &snapshot]);
        std::thread::sleep(std::time::Duration::from_millis(round % 20 * 4));
        let mut detach = started(&["detach", volume]);
        attach.wait().unwrap();
        detach.wait().unwrap();
        let _ = common::vellum(&["detach", &snapshot]);
        let _ = common::vellum(&["detach", volume]);
        let left = loops_over(&format!("/disk@{name}"));
        for device in &left {
            run("losetup", &["--detach", &format!("/dev/{device}")]);
        }
        assert!(left.is_empty(), "round {round}: {left:?}");
        ok(&["attach", volume, "--via=fuse"]);
    }
    ok(&["detach", volume]);
}

/// The lock of a volume is removed with its record, and whoever waits for it must not hold the removed one.
#[test]
fn concurrent_attaches_and_detaches_wait_for_each_other() {
    if !can_attach("concurrent_attaches_and_detaches_wait_for_each_other") {
        return;
    }
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    let volume = text(&volume);
    ok(&["create", volume, "--size=64M"]);
    for _ in 0..5 {
        ok(&["attach", volume, "--via=fuse"]);
        let (attach, detach) = (["attach", volume, "--via=fuse"], ["detach", volume]);
        let all: Vec<_> = [&detach[..], &attach, &attach, &attach]
            .map(started)
            .into_iter()
            .collect();
        let ended: Vec<bool> = all
            .into_iter()
            .map(|mut one| one.wait().unwrap().success())
            .collect();
        assert!(ended[0], "detach");
        // At most one of them has attached it. In either case the next round can.
        let attached = ended[1..].iter().filter(|attached| **attached).count();
        assert!(attached <= 1, "{ended:?}");
        ok(&detach);
    }
}

/// A stopped server. Ended with its test, whatever happens: whoever looks at its FUSE folder would hang.
struct Stopped(i32);

impl Stopped {
    fn of(server: i32) -> Self {
        // SAFETY: a child of a child of this process.
        unsafe { libc::kill(server, libc::SIGSTOP) };
        Self(server)
    }

    fn goes_on(self) {
        // SAFETY: as above.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
        std::mem::forget(self);
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: as above; nobody has waited for it.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

/// Starts an attach, and stops its server before it is ready. Returns `None` if they were faster.
fn caught(volume: &str) -> Option<(Child, Stopped)> {
    let mut attach = started(&["attach", volume, "--via=fuse"]);
    let children = format!("/proc/{0}/task/{0}/children", attach.id());
    let (mut server, mut has_ended) = (None, false);
    eventually("it has started a server", || {
        let found = fs::read_to_string(&children).unwrap_or_default();
        server = found.split(' ').find_map(|pid| pid.parse::<i32>().ok());
        has_ended = attach.try_wait().unwrap().is_some();
        // Until it runs its own program, its parent waits for it.
        let is_serving = server.is_some_and(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|word| word == b"serve")
        });
        is_serving || has_ended
    });
    let stopped = server.filter(|_| !has_ended).map(Stopped::of)?;
    if attach.try_wait().unwrap().is_some() {
        stopped.goes_on();
        return None;
    }
    Some((attach, stopped))
}

#[test]
fn a_killed_attach_has_recorded_its_server() {
    if !can_attach("a_killed_attach_has_recorded_its_server") {
        return;
    }
    let dir = dir();
    let volume = dir.path().join("disk.vellum");
    ok(&["create", text(&volume), "--size=64M"]);
    let caught = (0..10).find_map(|_| {
        let caught = caught(text(&volume));
        if caught.is_none() {
            ok(&["detach", text(&volume)]);
        }
        caught
    });
    let (mut attach, stopped) = caught.unwrap();
    let server = stopped.0;
    let info: serde_json::Value =
        serde_json::from_str(&ok(&["info", text(&volume), "--json"])).unwrap();
    let record = format!("/run/vellum/{}.json", info["uuid"].as_str().unwrap());
    eventually("the server is recorded", || {
        let record = fs::read(&record).unwrap_or_default();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap_or_default();
        record["server"]["pid"] == server
    });
    attach.kill().unwrap();
    attach.wait().unwrap();
    stopped.goes_on();
    ok(&["detach", text(&volume)]);
    eventually("its server is gone", || {
        !Path::new(&format!("/proc/{server}")).exists()
    });
}

/// `vellum restart` that is killed while the old server answers what it has read.
#[test]
fn a_server_continues_if_its_successor_is_gone() {
    if !can_attach("a_server_continues_if_its_successor_is_gone") {
        return;
    }
    let dir = dir();
    let (volume, control) = (dir.path().join("v"), dir.path().join("control"));
    let fuse = dir.path().join("fuse");
    fs::create_dir(&fuse).unwrap();
    ok(&["create", text(&volume), "--size=64M"]);
    let serve = [
        text(&volume),
        "--fuse",
        text(&fuse),
        "--control",
        text(&control),
    ];
    let server = Server::start(dir.path(), &serve);
    for _ in 0..3 {
        let mut stream = UnixStream::connect(&control).unwrap();
        // So the answer cannot be sent, however late this thread goes on.
        stream.shutdown(Shutdown::Read).unwrap();
        let order = b"{\"command\":\"hand-over\",\"order\":\"now\"}\n";
        stream.write_all(order).unwrap();
        drop(stream);
        std::thread::sleep(std::time::Duration::from_millis(300));
        // A dead mount would not answer, or with an error.
        run(
            "timeout",
            &[
                "30",
                "dd",
                &format!("if={}/v", text(&fuse)),
                "of=/dev/null",
                "bs=4k",
                "count=1",
                "iflag=direct",
            ],
        );
    }
    assert_eq!(server.term(), Some(0));
}
