//! The FUSE front end over a RAM disk: as a file, and as a loop device with a real ext4 on it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use vellum_device::block::BlockDevice;
use vellum_frontend::finder::{Finder, Found};
use vellum_frontend::fuse::{FuseError, FuseExport, FuseServer};
use vellum_frontend::testing::{RamDisk, skipped};
use vellum_frontend::unaligned::ByteDevice;

/// True if this machine can mount; prints a message otherwise.
fn can_mount(test: &str) -> bool {
    // SAFETY: no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    let fuse = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    if !(root && fuse) {
        skipped(format_args!("{test}: needs root and /dev/fuse"));
    }
    root && fuse
}

fn disk(blocks: u64) -> Arc<RamDisk> {
    Arc::new(RamDisk::new(blocks, 1024, 1024))
}

fn mount(ram: &Arc<RamDisk>, dir: &Path) -> FuseServer {
    FuseServer::mount(
        dir,
        vec![FuseExport {
            name: "disk".into(),
            device: ram.clone().into(),
        }],
    )
    .unwrap()
}

fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap();
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program} {args:?}: {text}");
    text
}

#[test]
fn a_file_is_no_directory_to_mount_on() {
    if !can_mount("a_file_is_no_directory_to_mount_on") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"content").unwrap();
    let refused = FuseServer::mount(&file, Vec::new());
    assert!(
        matches!(refused, Err(FuseError::Mount { .. })),
        "{refused:?}"
    );
    assert_eq!(fs::read(&file).unwrap(), b"content");
}

#[test]
fn a_directory_that_holds_something_is_not_mounted_on() {
    if !can_mount("a_directory_that_holds_something_is_not_mounted_on") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"content").unwrap();
    let refused = FuseServer::mount(dir.path(), Vec::new());
    assert!(
        matches!(refused, Err(FuseError::NotEmpty { .. })),
        "{refused:?}"
    );
    assert_eq!(fs::read(&file).unwrap(), b"content");
}

/// A container that starts copies the machine's mounts, including this one.
#[test]
fn a_copy_of_the_mount_elsewhere_does_not_hold_an_unmount_up() {
    if !can_mount("a_copy_of_the_mount_elsewhere_does_not_hold_an_unmount_up") {
        return;
    }
    let (ram, dir) = (disk(64), tempfile::tempdir().unwrap());
    let server = mount(&ram, dir.path());
    let copy = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .args(["echo; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut copy) = copy else {
        skipped("a_copy_of_the_mount_elsewhere: it needs unshare(1)");
        return;
    };
    let mut said = [0];
    let copied = copy.stdout.take().unwrap().read(&mut said).unwrap();
    let began = Instant::now();
    server.unmount().unwrap();
    let took = began.elapsed();
    copy.kill().unwrap();
    copy.wait().unwrap();
    assert!(copied == 0 || took < Duration::from_secs(20), "{took:?}");
}

/// A volume must know, because a commit block may wait for what it never gets.
#[test]
fn a_write_without_memory_is_refused_and_the_disk_is_told() {
    if !can_mount("a_write_without_memory_is_refused_and_the_disk_is_told") {
        return;
    }
    let (ram, dir) = (disk(64), tempfile::tempdir().unwrap());
    let server = mount(&ram, dir.path());
    let path = dir.path().join("disk");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let held = ram.without_memory().unwrap();
    for (offset, length) in [(8192, 8192), (512, 512)] {
        let refused = file.write_at(&vec![7; length], offset).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOSPC));
    }
    assert_eq!(*ram.refused.lock(), [(2, 2), (0, 1)]);
    ram.frames().refuse_writes(None);
    drop(held);
    file.write_at(&[7; 8192], 8192).unwrap();
    drop(file);
    server.unmount().unwrap();
}

#[test]
fn a_file_reads_back_what_was_written_at_any_alignment() {
    if !can_mount("a_file_reads_back_what_was_written_at_any_alignment") {
        return;
    }
    let (ram, dir) = (disk(1024), tempfile::tempdir().unwrap());
    let server = mount(&ram, dir.path());
    let path = dir.path().join("disk");
    assert_eq!(fs::metadata(&path).unwrap().len(), 4 << 20);
    let names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["disk"]);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut model = vec![0u8; 4 << 20];
    // A fixed walk over offsets and lengths of every alignment.
    let mut x: u64 = 0x9E37_79B9_7F4A_7C15;
    for i in 0..300u64 {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let unit = if i % 3 == 0 { 4096 } else { 512 };
        let at = (x >> 20) % ((4 << 20) / unit) * unit;
        let len = (((x >> 8) % 40 + 1) * unit).min((4 << 20) - at);
        let bytes = vec![i as u8 | 1; len as usize];
        file.write_all_at(&bytes, at).unwrap();
        model[at as usize..(at + len) as usize].copy_from_slice(&bytes);
    }
    let mut all = vec![0; 4 << 20];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all == model);
    assert_eq!(
        file.read_at(&mut [0; 10], 4 << 20).unwrap(),
        0,
        "past the end there is nothing"
    );
    assert_eq!(
        file.write_at(&[0; 10], 4 << 20).unwrap_err().raw_os_error(),
        Some(libc::EFBIG)
    );
    assert_eq!(
        file.set_len(1).unwrap_err().raw_os_error(),
        Some(libc::EPERM)
    );
    let before = ram.flushes.load(Ordering::Relaxed);
    file.sync_all().unwrap();
    // Not exactly one more: a process started by another test closes its copy of this descriptor, which flushes.
    assert!(ram.flushes.load(Ordering::Relaxed) > before);
    drop(file);
    server.unmount().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_write_with_o_dsync_is_durable_when_it_is_answered() {
    if !can_mount("a_write_with_o_dsync_is_durable_when_it_is_answered") {
        return;
    }
    let (ram, dir) = (disk(16), tempfile::tempdir().unwrap());
    let _server = mount(&ram, dir.path());
    for flags in [0, libc::O_DSYNC, libc::O_SYNC] {
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(dir.path().join("disk"))
            .unwrap();
        for (at, length) in [(0, 4096), (512, 512)] {
            let before = ram.durable_writes.load(Ordering::Relaxed);
            file.write_all_at(&vec![1; length], at).unwrap();
            assert_eq!(
                ram.durable_writes.load(Ordering::Relaxed) - before,
                u64::from(flags != 0),
                "flags {flags:o}, {length} bytes"
            );
        }
    }
}

#[test]
fn holes_are_punched_found_and_read_as_zeros() {
    if !can_mount("holes_are_punched_found_and_read_as_zeros") {
        return;
    }
    use std::os::fd::AsRawFd;
    let (ram, dir) = (disk(256), tempfile::tempdir().unwrap());
    let _server = mount(&ram, dir.path());
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(dir.path().join("disk"))
        .unwrap();
    file.write_all_at(&vec![7; 64 * 4096], 0).unwrap();
    let punch = |mode, at, len| {
        // SAFETY: a valid descriptor.
        assert_eq!(
            unsafe { libc::fallocate(file.as_raw_fd(), mode, at, len) },
            0
        );
    };
    punch(
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        4096,
        8 * 4096,
    );
    assert_eq!(ram.discarded.load(Ordering::Relaxed), 8);
    punch(libc::FALLOC_FL_ZERO_RANGE, 20 * 4096 + 512, 4096);
    let mut all = vec![1; 64 * 4096];
    file.read_exact_at(&mut all, 0).unwrap();
    let zero = |at: usize| {
        (4096..9 * 4096).contains(&at) || (20 * 4096 + 512..21 * 4096 + 512).contains(&at)
    };
    assert!(
        all.iter()
            .enumerate()
            .all(|(at, &b)| b == if zero(at) { 0 } else { 7 })
    );
    // SAFETY: a valid descriptor.
    let seek = |at, whence| unsafe { libc::lseek(file.as_raw_fd(), at, whence) };
    assert_eq!(seek(0, libc::SEEK_HOLE), 4096);
    assert_eq!(seek(4096, libc::SEEK_DATA), 9 * 4096);
    assert_eq!(seek(64 * 4096, libc::SEEK_DATA), -1);
}

/// Removes a loop device and a mount, whatever happened.
struct Loop(String, PathBuf);
impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.1).output();
        let _ = Command::new("losetup").args(["-d", &self.0]).output();
    }
}

#[test]
fn ext4_lives_on_a_loop_device_over_it() {
    if !can_mount("ext4_lives_on_a_loop_device_over_it") {
        return;
    }
    let (ram, dir, fs_dir) = (
        disk(16 * 1024),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let server = mount(&ram, dir.path());
    let disk = dir.path().join("disk");
    let device = run(
        "losetup",
        &["-f", "--show", "--direct-io=on", disk.to_str().unwrap()],
    )
    .trim()
    .to_owned();
    let attached = Loop(device.clone(), fs_dir.path().to_owned());
    assert_eq!(run("losetup", &["-nO", "DIO", &device]).trim(), "1");
    run("mkfs.ext4", &["-q", &device]);
    run(
        "mount",
        &[
            "-o",
            "data=journal,journal_async_commit",
            &device,
            fs_dir.path().to_str().unwrap(),
        ],
    );
    let before = ram.flushes.load(Ordering::Relaxed);
    for i in 0..20u8 {
        let file = fs::File::create(fs_dir.path().join(format!("f{i}"))).unwrap();
        file.write_all_at(&vec![i; 10_000], 0).unwrap();
        file.sync_all().unwrap();
    }
    assert!(
        ram.flushes.load(Ordering::Relaxed) >= before + 20,
        "every fsync reaches the device"
    );
    fs::remove_file(fs_dir.path().join("f0")).unwrap();
    run("sync", &[]);
    run("fstrim", &[fs_dir.path().to_str().unwrap()]);
    assert!(
        ram.discarded.load(Ordering::Relaxed) > 1000,
        "fstrim reaches the device"
    );
    run("umount", &[fs_dir.path().to_str().unwrap()]);
    run("e2fsck", &["-fn", &device]);
    run("mount", &[&device, fs_dir.path().to_str().unwrap()]);
    for i in 1..20u8 {
        assert_eq!(
            fs::read(fs_dir.path().join(format!("f{i}"))).unwrap(),
            vec![i; 10_000]
        );
    }
    drop(attached);
    server.unmount().unwrap();
}

#[test]
fn bad_names_and_places_are_refused() {
    let export = |name: &str| FuseExport {
        name: name.into(),
        device: disk(1).into(),
    };
    let dir = tempfile::tempdir().unwrap();
    for name in ["", ".", "..", "a/b", "a\0b"] {
        assert!(matches!(
            FuseServer::mount(dir.path(), vec![export(name)]),
            Err(FuseError::Name(_))
        ));
    }
    assert!(matches!(
        FuseServer::mount(dir.path(), vec![export("a"), export("a")]),
        Err(FuseError::Twice(_))
    ));
    let missing = dir.path().join("missing");
    assert!(matches!(
        FuseServer::mount(&missing, vec![export("a")]),
        Err(FuseError::Mount { .. })
    ));
}

/// A file found by its name, filled with the first byte of the name.
fn found(name: &str) -> Option<Found> {
    let ram = disk(4);
    ByteDevice::from(ram.clone())
        .write(0, &[name.as_bytes()[0]; 4096], false)
        .ok()?;
    Some(Found {
        of: "disk".into(),
        name: name.to_owned(),
        number: 1,
        device: ram.into(),
    })
}

#[test]
fn a_found_file_is_not_handed_over_while_it_is_open() {
    if !can_mount("a_found_file_is_not_handed_over_while_it_is_open") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let exports = || {
        vec![FuseExport {
            name: "disk".into(),
            device: disk(4).into(),
        }]
    };
    let first = FuseServer::mount_finding(dir.path(), exports(), Some(Arc::new(found))).unwrap();
    let take_over = |connection: &OwnedFd| {
        let finder: Option<Finder> = Some(Arc::new(found));
        FuseServer::take_over(dir.path(), exports(), finder, connection).unwrap()
    };
    let begins = |name: &str| {
        let mut byte = [0];
        let mut file = fs::File::open(dir.path().join(name)).unwrap();
        file.read_exact(&mut byte).unwrap();
        byte[0]
    };
    let open = fs::File::open(dir.path().join("a")).unwrap();
    assert_eq!(first.in_use().as_deref(), Some("a"));
    let refused = first.hand_over();
    // If it was not refused, something must answer: the end of the test would wait for that for ever.
    let _second = refused.as_ref().ok().map(take_over);
    assert!(
        matches!(&refused, Err(FuseError::InUse(name)) if name == "a"),
        "{refused:?}"
    );
    assert_eq!(begins("a"), b'a');
    drop(open);
    let began = Instant::now();
    while first.in_use().is_some() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The kernel caches a looked-up file for a while.
    let connection = first.hand_over().unwrap();
    let second = take_over(&connection);
    assert_eq!(begins("b"), b'b');
    assert_eq!(begins("a"), b'a');
    second.unmount().unwrap();
}

#[test]
fn what_was_written_to_a_found_file_is_forgotten_at_its_last_close() {
    if !can_mount("what_was_written_to_a_found_file_is_forgotten_at_its_last_close") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = FuseServer::mount_finding(dir.path(), Vec::new(), Some(Arc::new(found))).unwrap();
    let path = dir.path().join("a");
    let begins = |file: &fs::File| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, 0).unwrap();
        byte[0]
    };
    for _ in 0..3 {
        let mut how = OpenOptions::new();
        let writer = how.read(true).write(true).open(&path).unwrap();
        let reader = fs::File::open(&path).unwrap();
        assert_eq!((begins(&writer), begins(&reader)), (b'a', b'a'));
        writer.write_all_at(&[9; 4096], 0).unwrap();
        assert_eq!(begins(&reader), 9);
        drop(writer);
        assert_eq!(begins(&reader), 9, "it is still open");
        drop(reader);
        let began = Instant::now();
        while server.in_use().is_some() && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    server.unmount().unwrap();
}

/// Who may write to the folder above must not lead a mount elsewhere.
#[test]
fn a_folder_that_is_replaced_by_a_link_is_not_followed() {
    if !can_mount("a_folder_that_is_replaced_by_a_link_is_not_followed") {
        return;
    }
    let top = tempfile::tempdir().unwrap();
    let top = top.path().canonicalize().unwrap();
    let (dir, link, victim) = (top.join("mnt"), top.join("link"), top.join("victim"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&victim).unwrap();
    std::os::unix::fs::symlink(&victim, &link).unwrap();
    let names = [&dir, &link].map(|path| std::ffi::CString::new(path.to_str().unwrap()).unwrap());
    let mounted = || {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let targets = table.lines().filter_map(|line| line.split(' ').nth(1));
        let ours = targets.filter(|target| target.starts_with(top.to_str().unwrap()));
        ours.map(PathBuf::from).collect::<Vec<_>>()
    };
    let ends = std::sync::atomic::AtomicBool::new(false);
    let swap = || {
        while !ends.load(Ordering::SeqCst) {
            let (one, other) = (names[0].as_ptr(), names[1].as_ptr());
            // SAFETY: two C strings that outlive the call. It fails while something is mounted on one of them.
            unsafe {
                libc::renameat2(
                    libc::AT_FDCWD,
                    one,
                    libc::AT_FDCWD,
                    other,
                    libc::RENAME_EXCHANGE,
                )
            };
        }
    };
    let ram = disk(64);
    let export = || FuseExport {
        name: "disk".into(),
        device: ram.clone().into(),
    };
    let is_folder = |path: &Path| path == dir || path == link;
    for _ in 0..100 {
        ends.store(false, Ordering::SeqCst);
        let served = std::thread::scope(|scope| {
            scope.spawn(swap);
            let served = FuseServer::mount(&dir, vec![export()]);
            ends.store(true, Ordering::SeqCst);
            served
        });
        let there = mounted();
        match &served {
            // The folder itself may have had the link's name when it was looked at, or have it now.
            Ok(server) => assert!(
                there == [server.dir().to_owned()]
                    || there.len() == 1 && [server.dir(), &there[0]].into_iter().all(is_folder),
                "{} is served: {there:?}",
                server.dir().display()
            ),
            Err(error) => assert!(!there.contains(&victim), "{error}: {there:?}"),
        }
        for path in there {
            let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
            // SAFETY: a C string that outlives the call.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) };
        }
        drop(served);
    }
}
