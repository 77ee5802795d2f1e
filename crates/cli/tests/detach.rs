//! `detach` undoes the kernel's bindings of the given volume, whatever the records of dead attachments say; and the server's
//! last messages are shown and kept.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{
    Server, can_attach, dir, eventually, fails, ok, program, run, server_pid, text, vellum,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A volume, detached when the test ends.
struct Disk(PathBuf);

impl Disk {
    fn new(path: PathBuf, size: &str) -> Self {
        ok(&["create", text(&path), "--size", size]);
        Self(path)
    }

    /// Attaches it over FUSE. Returns its block device.
    fn attach(&self, more: &[&str]) -> PathBuf {
        let said = ok(&[&["attach", text(&self.0), "--via=fuse"], more].concat());
        said.split_whitespace().next().unwrap().into()
    }

    /// Sends its server a signal, and waits for its end.
    fn end_server(&self, signal: i32) {
        let pid = server_pid(&self.0);
        // SAFETY: a process started by this test, by its recorded number.
        unsafe { libc::kill(pid, signal) };
        // After its `attach` has ended only init reaps a server; without init it stays a zombie.
        eventually("the server is gone", || !is_running(pid));
    }

    fn is_served(&self) -> bool {
        ok(&["info", text(&self.0)]).contains("served now          yes")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        vellum(&["detach", text(&self.0)]);
    }
}

fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Returns the number of mounts on a directory.
fn mounts_on(dir: &Path) -> usize {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let word = format!(" {} ", text(dir));
    mounts.lines().filter(|line| line.contains(&word)).count()
}

/// Returns what a loop device is bound to: its file, and the number of that binding.
fn binding(device: &Path) -> Option<(String, String)> {
    let folder = Path::new("/sys/block").join(device.file_name().unwrap());
    let file = fs::read_to_string(folder.join("loop/backing_file")).ok()?;
    Some((file, fs::read_to_string(folder.join("diskseq")).ok()?))
}

#[test]
fn a_detach_undoes_only_present_bindings() {
    if !can_attach("a_detach_undoes_only_present_bindings") {
        return;
    }
    let dir = dir();
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let disk = |name: &str| Disk::new(dir.path().join(name), "32M");
    let dead = ["a", "b", "c"].map(disk);
    for round in 0..4 {
        for disk in &dead {
            let device = disk.attach(&["--mkfs", "--force", "--mount", text(&mount)]);
            disk.end_server(libc::SIGKILL);
            run("umount", &["-l", text(&mount)]);
            run("losetup", &["-d", text(&device)]);
        }
        let live = disk(&format!("live{round}"));
        let device = live.attach(&["--mkfs", "--mount", text(&mount)]);
        let named = [&mount, &device][round % 2];
        assert_eq!(ok(&["detach", text(named)]), "detached\n");
        assert_eq!(mounts_on(&mount), 0, "round {round}: still mounted");
        assert!(!live.is_served(), "round {round}: still served");
        for disk in &dead {
            assert_eq!(ok(&["detach", text(&disk.0)]), "detached\n");
        }
    }
}

/// A dead attachment's record names a device that another volume has by now: that volume keeps it.
#[test]
fn a_detach_of_a_dead_attachment_leaves_others_alone() {
    if !can_attach("a_detach_of_a_dead_attachment_leaves_others_alone") {
        return;
    }
    let dir = dir();
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let dead = Disk::new(dir.path().join("dead"), "32M");
    let device = dead.attach(&["--mkfs", "--mount", text(&mount)]);
    dead.end_server(libc::SIGKILL);
    run("umount", &["-l", text(&mount)]);
    run("losetup", &["-d", text(&device)]);
    let other = File::create(dir.path().join("other")).unwrap();
    other.set_len(1 << 20).unwrap();
    let path = dir.path().join("other");
    // Another test may have taken the number in the meantime: it will return it.
    eventually("the device's number is free", || {
        let bound = program("losetup", &[text(&device), text(&path)]).output();
        bound.unwrap().status.success()
    });
    let before = binding(&device);
    let said = ok(&["detach", text(&dead.0)]);
    let after = binding(&device);
    run("losetup", &["-d", text(&device)]);
    assert_eq!(said, "detached\n");
    assert!(before.is_some() && before == after, "{before:?} {after:?}");
}

#[test]
fn volumes_in_use_at_once_do_not_block_each_other() {
    if !can_attach("volumes_in_use_at_once_do_not_block_each_other") {
        return;
    }
    let dir = dir();
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let disk = Disk::new(dir.path().join(name), "32M");
            scope.spawn(move || {
                for _ in 0..8 {
                    let device = disk.attach(&[]);
                    assert_eq!(ok(&["detach", text(&device)]), "detached\n");
                }
            });
        }
    });
}

#[test]
fn a_command_waits_for_another_one_of_the_volume() {
    if !can_attach("a_command_waits_for_another_one_of_the_volume") {
        return;
    }
    let dir = dir();
    let disk = Disk::new(dir.path().join("disk.vellum"), "64M");
    disk.attach(&[]);
    let served: serde_json::Value = serde_json::from_str(&ok(&["list", "--json"])).unwrap();
    let mut served = served.as_array().unwrap().iter();
    let ours = served.find(|one| one["path"] == text(&disk.0)).unwrap();
    let lock = format!("/run/vellum/{}.lock", ours["uuid"].as_str().unwrap());
    let lock = File::options().write(true).open(lock).unwrap();
    lock.lock().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            lock.unlock().unwrap();
        });
        ok(&["detach", text(&disk.0)]);
    });
}

#[test]
fn a_stopped_server_leaves_no_dead_mount_or_device() {
    if !can_attach("a_stopped_server_leaves_no_dead_mount_or_device") {
        return;
    }
    let dir = dir();
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let disk = Disk::new(dir.path().join("v"), "64M");
    let mut device = disk.attach(&["--mkfs", "--mount", text(&mount)]);
    fs::write(mount.join("file"), b"content").unwrap();
    File::open(mount.join("file")).unwrap().sync_all().unwrap();
    for _ in 0..3 {
        let old = binding(&device);
        disk.end_server(libc::SIGTERM);
        let first = std::mem::replace(&mut device, disk.attach(&["--mount", text(&mount)]));
        assert_eq!(mounts_on(&mount), 1);
        assert_eq!(fs::read(mount.join("file")).unwrap(), b"content");
        assert!(old.is_some() && binding(&first) != old, "{first:?} leaked");
    }
    let old = binding(&device);
    ok(&["detach", text(&disk.0)]);
    assert_eq!(mounts_on(&mount), 0);
    assert!(binding(&device) != old, "{device:?} leaked");
}

/// The kernel would wait for it in an unmount that no signal ends.
#[test]
fn a_server_that_is_only_stopped_is_not_waited_for() {
    if !can_attach("a_server_that_is_only_stopped_is_not_waited_for") {
        return;
    }
    let dir = dir();
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let disk = Disk::new(dir.path().join("v"), "64M");
    disk.attach(&["--mkfs", "--mount", text(&mount)]);
    let pid = server_pid(&disk.0);
    let tell = |signal| {
        // SAFETY: a process started by this test, by its recorded number.
        unsafe { libc::kill(pid, signal) };
    };
    tell(libc::SIGSTOP);
    let what = format!("kill -CONT {pid}");
    fails(1, &["detach", text(&mount)], &["is stopped", &what]);
    tell(libc::SIGCONT);
    fs::write(mount.join("file"), b"content").unwrap();
    ok(&["detach", text(&mount)]);
    assert_eq!(mounts_on(&mount), 0);
}

#[test]
fn nothing_to_detach_is_a_failure_unless_something_may_have_been_attached_so() {
    let dir = dir();
    fails(
        1,
        &["detach", "nosuch"],
        &["nothing is attached as ", "nosuch"],
    );
    let file = dir.path().join("file");
    fs::write(&file, "no volume").unwrap();
    fails(1, &["detach", text(&file)], &["nothing is attached"]);
    let disk = Disk::new(dir.path().join("v"), "32M");
    for path in [text(dir.path()), text(&disk.0)] {
        let said = ok(&["detach", path]);
        assert!(
            said.ends_with(&format!("nothing is attached as {path}\n")),
            "{said}"
        );
    }
    // What is only served: that helps nobody who is told to detach it.
    let socket = dir.path().join("s");
    let server = Server::start(dir.path(), &[text(&disk.0), "--socket", text(&socket)]);
    let said = ok(&["detach", text(&disk.0)]);
    let pid = server.pid();
    assert!(said.contains(&format!("process {pid} serves it")), "{said}");
    let why = ["if it is attached", &format!("`kill {pid}`")];
    fails(1, &["check", text(&disk.0)], &why);
}

#[test]
fn what_cannot_be_mounted_is_refused_and_nothing_is_hidden() {
    if !can_attach("what_cannot_be_mounted_is_refused_and_nothing_is_hidden") {
        return;
    }
    let dir = dir();
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let [one, two] = ["one", "two"].map(|name| Disk::new(dir.path().join(name), "64M"));
    let at = |disk: &Disk| text(&disk.0).to_owned();
    let (one, two) = (at(&one), at(&two));
    let to_mount = ["attach", &one, "--via=fuse", "--mount", text(&mount)];
    let empty =
        format!("vellum: no file system is found on {one}: `vellum attach {one} --mkfs` makes one");
    fails(1, &to_mount, &[&empty]);
    ok(&[&to_mount[..], &["--mkfs"]].concat());
    ok(&["snapshot", &one, "s"]);
    let snapshot = format!("{one}@s");
    for other in [&two, &snapshot] {
        let over = ["attach", other, "--via=fuse", "--mount", text(&mount)];
        let why = format!("{one} (/dev/loop");
        fails(1, &over, &[&why, "is mounted there"]);
    }
    assert_eq!(mounts_on(&mount), 1);
    ok(&["detach", &one]);
    let typo = format!("{one}@nope");
    fails(
        1,
        &["attach", &typo, "--via=fuse"],
        &["vellum: ", "there is no snapshot nope"],
    );
    let kept = fs::read_dir("/var/log/vellum")
        .into_iter()
        .flatten()
        .flatten();
    let mut names = kept.map(|entry| entry.file_name().into_string().unwrap());
    assert!(
        !names.any(|name| name.starts_with("one@nope")),
        "a log of a mistyped name is kept"
    );
}

/// A file system in memory, removed afterwards.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn size(&self, how: &str, size: &str) {
        let options = format!("{how}size={size}");
        run(
            "mount",
            &["-t", "tmpfs", "-o", &options, "vellum-test", text(&self.0)],
        );
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", text(&self.0)]).status();
    }
}

/// A `detach` in the background, with its output in a file.
fn detach(volume: &Path, said: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["detach", text(volume)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(said).unwrap())
        .spawn()
        .unwrap()
}

#[test]
fn a_detach_that_waits_for_room_says_so_and_can_be_interrupted() {
    if can_attach("a_detach_that_waits_for_room_says_so_and_can_be_interrupted") {
        waits_for_room(true);
    }
}

#[test]
fn a_detach_after_room_was_made_does_not_say_that_there_is_none() {
    if can_attach("a_detach_after_room_was_made_does_not_say_that_there_is_none") {
        waits_for_room(false);
    }
}

/// A detach that waits for room is interrupted, and called again: while there is none (`again`), or when the server has found it.
fn waits_for_room(again: bool) {
    let dir = dir();
    let (host, told) = (Tmpfs(dir.path().join("host")), dir.path().join("told"));
    fs::create_dir(&host.0).unwrap();
    host.size("", "48M");
    let disk = Disk::new(host.0.join("v"), "128M");
    let (volume, device) = (disk.0.clone(), disk.attach(&[]));
    run(
        "dd",
        &[
            "if=/dev/urandom",
            &format!("of={}", text(&device)),
            "bs=1M",
            "count=60",
        ],
    );
    let pid = server_pid(&volume);
    let said = || fs::read_to_string(&told).unwrap();
    let mut first = detach(&volume, &told);
    eventually("it says why it waits", || said().contains("no room"));
    // What has no room, and what to do.
    for part in [text(&volume), "Free some (`df", &format!("`kill {pid}`")] {
        assert!(said().contains(part), "no {part:?} in {}", said());
    }
    // SAFETY: a child of this process, not yet waited for.
    unsafe { libc::kill(first.id() as i32, libc::SIGINT) };
    assert_eq!(first.wait().unwrap().code(), Some(1));
    // So it said why while it waited.
    assert!(said().contains("interrupted"), "{}", said());
    // The next one continues to wait: it does not end the server before that has written what it must.
    let mut second = again.then(|| detach(&volume, &told));
    if let Some(second) = &mut second {
        eventually("it says why it waits, again", || said().contains("no room"));
        assert!(is_running(pid) && second.try_wait().unwrap().is_none());
    }
    host.size("remount,", "200M");
    let mut last = second.unwrap_or_else(|| {
        eventually("the server ends", || !is_running(pid));
        detach(&volume, &told)
    });
    assert!(last.wait().unwrap().success(), "{}", said());
    assert_eq!(said().contains("no room"), again, "{}", said());
    let kept = said();
    let kept = kept
        .lines()
        .find_map(|l| l.strip_prefix("what the server said is in "));
    let kept = PathBuf::from(kept.unwrap());
    let log = fs::read_to_string(&kept).unwrap();
    fs::remove_file(kept).unwrap();
    assert!(log.contains("Z ") && log.contains("no room"), "{log}");
    ok(&["check", text(&volume)]);
    drop(disk);
}
