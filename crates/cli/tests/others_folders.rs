//! What root does in other users' directories, and what a server inherits from the process that started it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{can_attach, dir, eventually, fails, ok, server_pid, skipped, text};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

/// The owner of the directory has put links to a victim at each name that a migration might write to.
#[test]
fn a_migration_follows_no_links() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    let victim = path("victim");
    fs::write(&victim, "theirs").unwrap();
    let (from, to) = (path("a"), path("b"));
    ok(&["create", text(&from), "--size", "16M"]);
    for suffix in [".migrating.new", ".migrating.target"] {
        symlink(&victim, path(&format!("b{suffix}"))).unwrap();
    }
    ok(&["migrate", text(&from), text(&to), "--layout", "ordered"]);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
    fs::remove_file(&to).unwrap();
    symlink(&victim, path("b.migrating")).unwrap();
    let layout = ["--layout", "ordered"];
    fails(
        1,
        &[&["migrate", text(&from), text(&to)], &layout[..]].concat(),
        &["b.migrating", "remove it"],
    );
    assert_eq!(fs::read_to_string(&victim).unwrap(), "theirs");
}

/// The same for a rescue. A link to a device is the worst: what is on it would be written over.
#[test]
fn a_rescue_follows_no_links() {
    if !can_attach("a_rescue_follows_no_links") {
        return;
    }
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    let (from, to, victim) = (path("a"), path("b"), path("victim"));
    ok(&["create", text(&from), "--size", "16M"]);
    fs::write(&victim, vec![7; 64 << 20]).unwrap();
    let losetup = |args: &[&str]| {
        let out = Command::new("losetup").args(args).output().unwrap();
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    let device = losetup(&["--find", "--show", text(&victim)]);
    symlink(&device, path("b.rescuing")).unwrap();
    ok(&["rescue", text(&from), text(&to)]);
    losetup(&["--detach", &device]);
    assert!(fs::read(&victim).unwrap().iter().all(|byte| *byte == 7));
    ok(&["check", text(&to)]);
}

/// Without a search path a shell searches the current directory: nothing in it may run as root.
#[test]
fn an_attach_passes_on_no_environment_and_mounts_nosuid() {
    if !can_attach("an_attach_passes_on_no_environment_and_mounts_nosuid") {
        return;
    }
    let dir = dir();
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let enemy = dir.path().join("mkfs.ext4");
    let ran = dir.path().join("ran");
    fs::write(&enemy, format!("#!/bin/sh\ntouch {}\n", text(&ran))).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&enemy, mode).unwrap();
    for tool in ["mount", "losetup"] {
        fs::copy(&enemy, dir.path().join(tool)).unwrap();
    }
    ok(&["create", text(&dir.path().join("a")), "--size", "32M"]);
    let out = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args([
            "attach",
            "a",
            "--via=fuse",
            "--mkfs",
            "--mount",
            text(&mount),
        ])
        .current_dir(dir.path())
        .env_remove("PATH")
        .env("SECRET", "of the one who attached")
        .output()
        .unwrap();
    assert!(out.status.success(), "{out:?}");
    assert!(!ran.exists(), "a program of the working folder was run");
    let process = Path::new("/proc").join(server_pid(&dir.path().join("a")).to_string());
    let environment = fs::read(process.join("environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains("SECRET"));
    assert_eq!(fs::read_link(process.join("cwd")).unwrap(), Path::new("/"));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(text(&mount)));
    let line = line.unwrap().to_owned();
    ok(&["detach", text(&mount)]);
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
}

/// Who may write to the folder above a mount point must not lead root elsewhere.
#[test]
fn a_mount_point_that_is_replaced_by_a_link_is_not_followed() {
    if !can_attach("a_mount_point_that_is_replaced_by_a_link_is_not_followed") {
        return;
    }
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    let (volume, mount, victim) = (path("a"), path("mnt"), path("victim"));
    fs::create_dir(&mount).unwrap();
    fs::create_dir(&victim).unwrap();
    ok(&["create", text(&volume), "--size", "32M"]);
    ok(&["attach", text(&volume), "--via=fuse", "--mkfs"]);
    // Others may look at all loop devices of this machine just now.
    let detached = || common::vellum(&["detach", text(&volume)]).status.success();
    eventually("it is detached", detached);
    let info: serde_json::Value =
        serde_json::from_str(&ok(&["info", text(&volume), "--json"])).unwrap();
    let record = format!("/run/vellum/{}.json", info["uuid"].as_str().unwrap());
    let attach = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args([
            "attach",
            text(&volume),
            "--via=fuse",
            "--mount",
            text(&mount),
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Its server is about to start: the mount point has been looked at.
    eventually("the attach is recorded", || Path::new(&record).exists());
    fs::rename(&mount, path("moved")).unwrap();
    symlink(&victim, &mount).unwrap();
    let out = attach.wait_with_output().unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let led_on = mounts.lines().find(|line| line.contains(text(dir.path())));
    let led_on = led_on.map(str::to_owned);
    eventually("it is detached again", detached);
    assert_eq!(led_on, None);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("replaced"), "{said}");
}

/// Whoever may write to a volume's folder can put a pipe there between a look at the volume and its opening.
#[test]
fn a_pipe_that_takes_a_volumes_place_is_not_waited_for() {
    if Command::new("strace").arg("--version").output().is_err() {
        skipped("a_pipe_that_takes_a_volumes_place_is_not_waited_for: needs strace");
        return;
    }
    let dir = dir();
    let [volume, moved, pipe] = ["v", "moved", "pipe"].map(|name| dir.path().join(name));
    ok(&["create", text(&volume), "--size", "16M"]);
    common::run("mkfifo", &[text(&pipe)]);
    for order in ["info", "check"] {
        // Its opening takes four seconds, after which the pipe is there.
        let told = dir.path().join(order);
        let strace = [
            "timeout",
            "--signal=KILL",
            "20",
            "strace",
            "-f",
            "-o",
            text(&told),
        ];
        let slow = [
            "-e",
            "trace=openat",
            "-e",
            "inject=openat:delay_enter=4000000",
        ];
        let only = [
            "-P",
            text(&volume),
            env!("CARGO_BIN_EXE_vellum"),
            order,
            text(&volume),
        ];
        let all = [&strace[..], &slow, &only].concat();
        let began = Command::new(all[0])
            .args(&all[1..])
            .stderr(Stdio::piped())
            .spawn();
        let began = began.unwrap();
        std::thread::sleep(std::time::Duration::from_secs(1));
        fs::rename(&volume, &moved).unwrap();
        fs::rename(&pipe, &volume).unwrap();
        let out = began.wait_with_output().unwrap();
        fs::rename(&volume, &pipe).unwrap();
        fs::rename(&moved, &volume).unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{order}: {said}");
        assert!(said.contains("neither a regular file"), "{order}: {said}");
    }
}

/// Returns what a user of this number and group reads from a socket: the first bytes of an answer, or the error.
fn as_another(user: u32, group: u32, socket: &Path, says: &str) -> Result<String, i32> {
    use std::io::{Read, Write};
    let socket = socket.to_owned();
    let says = says.to_owned();
    // In Linux each thread has its own user; the library's calls would change all threads.
    let asked = std::thread::spawn(move || {
        // SAFETY: system calls that keep no pointers.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_setgroups, 0, 0), 0);
            assert_eq!(libc::syscall(libc::SYS_setresgid, group, group, group), 0);
            assert_eq!(libc::syscall(libc::SYS_setresuid, user, user, user), 0);
        }
        let stream = std::os::unix::net::UnixStream::connect(socket);
        let mut stream = stream.map_err(|e| e.raw_os_error().unwrap())?;
        stream.write_all(says.as_bytes()).unwrap();
        let mut bytes = [0; 8];
        stream.read_exact(&mut bytes).unwrap();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    });
    asked.join().unwrap()
}

#[test]
fn a_named_group_may_use_the_sockets() {
    const NAME: &str = "a_named_group_may_use_the_sockets";
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        skipped(format_args!("{NAME}: needs root"));
        return;
    }
    const GROUP: u32 = 64_123;
    const USER: u32 = 64_124;
    let dir = dir();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(dir.path(), mode).unwrap();
    let at = |name: &str| dir.path().join(name);
    let (volume, nbd, control) = (at("a"), at("nbd"), at("control"));
    ok(&["create", text(&volume), "--size", "16M"]);
    let usual = [
        text(&volume),
        "--socket",
        text(&nbd),
        "--control",
        text(&control),
    ];
    let group = GROUP.to_string();
    for (named, group_gets) in [(vec![], false), (vec!["--socket-group", &group], true)] {
        let server = common::Server::start(dir.path(), &[&usual[..], &named].concat());
        let stats = "{\"command\":\"stats\"}\n";
        for (socket, says, answer) in [(&nbd, "", "NBDMAGIC"), (&control, stats, "{\"ok\":tr")] {
            let told = as_another(USER, GROUP, socket, says);
            let expected = match group_gets {
                true => Ok(answer.to_owned()),
                false => Err(libc::EACCES),
            };
            assert_eq!(told, expected, "{socket:?} {named:?}");
            // A user outside the group is refused, even with every other name.
            let stranger = as_another(USER, USER, socket, says);
            assert_eq!(stranger, Err(libc::EACCES), "{socket:?} {named:?}");
        }
        assert_eq!(server.term(), Some(0));
        assert!(!nbd.exists() && !control.exists());
    }
    let stranger = [
        "serve",
        text(&volume),
        "--socket",
        text(&nbd),
        "--socket-group",
        "nobody's",
    ];
    fails(2, &stranger, &["there is no group", "getent group"]);
    let alone = [
        "serve",
        text(&volume),
        "--fuse",
        text(dir.path()),
        "--socket-group",
        "root",
    ];
    fails(2, &alone, &["--socket", "--control"]);
}
