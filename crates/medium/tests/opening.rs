//! Every error that a path can have, and every kind of file and file system that works on this machine.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Memory, run};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_medium::lock::LockError;
use vellum_medium::{
    Engine, FileMedium, Io, Kind, Medium, OpenError, OpenOptions, Prealloc, Tuning,
};

const WRITE: OpenOptions = OpenOptions { read_only: false };
const READ: OpenOptions = OpenOptions { read_only: true };
const BYTES: u64 = 1 << 20;

fn open(path: impl AsRef<Path>) -> OpenError {
    FileMedium::open(path, WRITE).unwrap_err()
}

fn is_root() -> bool {
    // SAFETY: a system call without arguments.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn a_path_that_is_no_medium_is_refused_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v");
    let e = open(&path);
    assert!(matches!(e, OpenError::NotFound { .. }), "{e}");
    assert!(
        e.to_string().contains("vellum create") && e.to_string().contains(path.to_str().unwrap())
    );
    assert!(matches!(open(""), OpenError::NotFound { .. }));
    assert!(matches!(open(folder.path()), OpenError::Directory { .. }));
    assert!(matches!(open("/dev/null"), OpenError::WrongKind { .. }));
    let pipe = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    assert!(matches!(open(&pipe), OpenError::WrongKind { .. })); // and does not wait for a writer
    assert_eq!(vellum_medium::lock::holder(&pipe), None);

    for (bytes, name) in [
        (0, "empty"),
        (BYTES + 1, "odd"),
        (BYTES - 512, "truncated"),
        (4096, "tiny"),
    ] {
        let path = folder.path().join(name);
        fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        let e = open(&path);
        let expected = match bytes % 4096 {
            0 => matches!(e, OpenError::TooSmall { .. }),
            _ => matches!(e, OpenError::NotMultiple { .. }),
        };
        assert!(
            expected && e.to_string().contains(&bytes.to_string()),
            "{e}"
        );
    }
}

#[test]
fn creation_refuses_impossible_media() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v");
    let create = |bytes, prealloc| FileMedium::create(&path, bytes, prealloc).unwrap_err();
    assert!(matches!(
        create(BYTES + 1, Prealloc::Full),
        OpenError::NotMultiple { .. }
    ));
    assert!(matches!(
        create(4096, Prealloc::Full),
        OpenError::TooSmall { .. }
    ));
    let huge = 1 << 62;
    let e = create(huge, Prealloc::Full);
    assert!(
        matches!(e, OpenError::NoSpace { .. } | OpenError::FileTooLong { .. }),
        "{e}"
    );
    assert!(matches!(
        create(u64::MAX - 4095, Prealloc::Sparse),
        OpenError::TooLarge { .. }
    ));
    assert!(!path.exists(), "what could not be made whole is gone again");
    let e = FileMedium::create(folder.path().join("no/v"), BYTES, Prealloc::Full).unwrap_err();
    assert!(matches!(e, OpenError::NoFolder { .. }), "{e}");
    assert!(matches!(
        FileMedium::create(folder.path(), BYTES, Prealloc::Full),
        Err(OpenError::Directory { .. })
    ));
    fs::write(&path, "precious").unwrap();
    assert!(matches!(
        create(BYTES, Prealloc::Full),
        OpenError::Exists { .. }
    ));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_new_file_has_its_size_its_space_and_a_private_mode() {
    let folder = tempfile::tempdir().unwrap();
    for prealloc in [Prealloc::Full, Prealloc::Sparse] {
        let path = folder.path().join(format!("{prealloc:?}"));
        let medium = FileMedium::create(&path, BYTES, prealloc).unwrap();
        assert_eq!(medium.blocks(), BYTES / 4096);
        assert_eq!(medium.name(), path.to_str().unwrap());
        drop(medium);
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(
            (meta.len(), meta.permissions().mode() & 0o777),
            (BYTES, 0o600)
        );
        assert_eq!(meta.blocks() * 512 >= BYTES, prealloc == Prealloc::Full);
        // Detected again when it is opened.
        let medium = FileMedium::open(&path, WRITE).unwrap();
        assert_eq!(medium.wants_discard(), prealloc == Prealloc::Sparse);
    }
}

#[test]
fn a_discard_gives_a_sparse_file_s_space_back() {
    let folder = tempfile::tempdir().unwrap();
    for engine in [Engine::Auto, Engine::Threads] {
        let path = folder.path().join(format!("{engine:?}"));
        let tuning = Tuning {
            engine,
            ..Tuning::default()
        };
        let medium = FileMedium::create_tuned(&path, BYTES, Prealloc::Sparse, &tuning).unwrap();
        let mut memory = Memory::new(256);
        run(
            &medium,
            vec![memory.io(0, Kind::Write { durable: true }, 0, 0, 256)],
        );
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= BYTES);
        run(
            &medium,
            vec![Io::new(0, Kind::Discard { blocks: 256 }, Pba(0))],
        );
        let meta = fs::metadata(&path).unwrap();
        assert!(meta.blocks() * 512 < BYTES / 2 && meta.len() == BYTES);
    }
}

#[test]
fn the_environment_forbids_io_uring() {
    // In a separate process: the environment is shared by all threads.
    if std::env::var_os("VELLUM_NO_URING").is_some() {
        let folder = tempfile::tempdir().unwrap();
        let medium = FileMedium::create(folder.path().join("v"), BYTES, Prealloc::Full).unwrap();
        assert_eq!(medium.engine(), "threads");
        return;
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_environment_forbids_io_uring"])
        .env("VELLUM_NO_URING", "1")
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn one_server_or_many_readers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v");
    let server = FileMedium::create(&path, BYTES, Prealloc::Full).unwrap();
    for options in [READ, WRITE] {
        let e = FileMedium::open(&path, options).unwrap_err();
        let OpenError::Locked(LockError::Held { holder, .. }) = &e else {
            panic!("{e}")
        };
        assert_eq!(holder.as_ref().unwrap().pid, std::process::id());
        assert!(
            e.to_string()
                .contains(&format!("process {}", std::process::id())),
            "{e}"
        );
    }
    drop(server);
    let readers = [
        FileMedium::open(&path, READ).unwrap(),
        FileMedium::open(&path, READ).unwrap(),
    ];
    assert!(matches!(open(&path), OpenError::Locked(_)));
    drop(readers);
    FileMedium::open(&path, WRITE).unwrap();
}

/// Returns false if that process was seen alive for a while: it dies slowly on a busy machine.
fn opens_unless_alive(path: &Path, process: u32) -> bool {
    let began = Instant::now();
    match FileMedium::open(path, WRITE) {
        Ok(_) => true,
        Err(OpenError::Locked(LockError::Held {
            holder: Some(holder),
            ..
        })) if holder.pid == process => {
            let waited = began.elapsed();
            assert!(waited >= Duration::from_millis(100), "given up too early");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// A server that was killed with I/O in flight releases its lock by itself, and its successor need not be started again.
#[test]
fn the_lock_of_a_killed_server_is_waited_for() {
    const PATH: &str = "VELLUM_TEST_KILLED";
    const TEST: &str = "the_lock_of_a_killed_server_is_waited_for";
    if let Some(path) = std::env::var_os(PATH) {
        let medium = FileMedium::open(path, WRITE).unwrap();
        let mut memory = Memory::new(256);
        println!("ready");
        loop {
            let io = memory.io(0, Kind::Write { durable: true }, 0, 0, 256);
            run(&medium, vec![io, Io::new(1, Kind::Sync, Pba(0))]);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v");
    drop(FileMedium::create(&path, BYTES, Prealloc::Full).unwrap());
    for _ in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(PATH, &path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("ready")));
        let (e, holder) = (open(&path), format!("process {}", child.id()));
        assert!(e.to_string().contains(&holder), "{e}");
        child.kill().unwrap();
        let began = Instant::now();
        // Before it is reaped.
        while !opens_unless_alive(&path, child.id()) {
            assert!(began.elapsed() < Duration::from_secs(60), "it stays alive");
        }
        child.wait().unwrap();
    }
}

#[test]
fn reading_only_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v");
    drop(FileMedium::create(&path, BYTES, Prealloc::Sparse).unwrap());
    let medium = FileMedium::open(&path, READ).unwrap();
    assert!(!medium.wants_discard());
    let e = medium.write(Pba(0), &[1; BLOCK_BYTES]).unwrap_err();
    assert!(e.to_string().contains("opened read-only"), "{e}");
    let mut memory = Memory::new(1);
    for io in [
        memory.io(0, Kind::Write { durable: false }, 0, 0, 1),
        Io::new(0, Kind::Discard { blocks: 1 }, Pba(0)),
    ] {
        medium.submit(&mut vec![io]);
        assert!(common::finish(&medium, 1)[0].result.is_err());
    }
    run(&medium, vec![memory.io(0, Kind::Read, 0, 0, 1)]);
}

#[test]
fn a_file_that_shrinks_under_us_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for medium in common::files(folder.path(), 64, Prealloc::Full) {
        fs::OpenOptions::new()
            .write(true)
            .open(medium.name())
            .unwrap()
            .set_len(4096 * 10)
            .unwrap();
        let mut memory = Memory::new(8);
        medium.submit(&mut vec![memory.io(0, Kind::Read, 6, 0, 8)]);
        let done = common::finish(&medium, 1);
        assert!(
            done[0]
                .result
                .as_ref()
                .unwrap_err()
                .to_string()
                .contains("shorter")
        );
        assert!(medium.read(Pba(20), &mut [0; BLOCK_BYTES]).is_err());
    }
}

#[test]
fn permissions_are_asked_for() {
    if is_root() {
        return; // nothing is forbidden to root
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("v");
    drop(FileMedium::create(&path, BYTES, Prealloc::Full).unwrap());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    assert!(matches!(open(&path), OpenError::Permission { .. }));
    FileMedium::open(&path, READ).unwrap();
}

/// A file system in memory of this size, if this process may mount one.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(at: &Path, options: &str) -> Option<Self> {
        let mounted = is_root()
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", options, "none"])
                .arg(at)
                .status()
                .is_ok_and(|s| s.success());
        if !mounted {
            eprintln!("not tested: no mount here");
        }
        mounted.then(|| Self(at.to_owned()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn full_and_read_only_file_systems_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let Some(tmpfs) = Tmpfs::mount(folder.path(), "size=2m") else {
        return;
    };
    let path = folder.path().join("v");
    let e = FileMedium::create(&path, 4 << 20, Prealloc::Full).unwrap_err();
    assert!(matches!(e, OpenError::NoSpace { .. }), "{e}");
    assert!(!path.exists());

    for engine in [Engine::Auto, Engine::Threads] {
        let tuning = Tuning {
            engine,
            ..Tuning::default()
        };
        let medium = FileMedium::create_tuned(&path, 4 << 20, Prealloc::Sparse, &tuning).unwrap();
        let mut memory = Memory::new(1024);
        medium.submit(&mut vec![memory.io(
            0,
            Kind::Write { durable: false },
            0,
            0,
            1024,
        )]);
        let done = common::finish(&medium, 1);
        assert!(done[0].result.as_ref().unwrap_err().is_full());
        // Room returns.
        run(
            &medium,
            vec![Io::new(0, Kind::Discard { blocks: 1024 }, Pba(0))],
        );
        run(
            &medium,
            vec![memory.io(0, Kind::Write { durable: true }, 5, 0, 10)],
        );
        drop(medium);
        if engine == Engine::Auto {
            fs::remove_file(&path).unwrap();
        }
    }
    let remount = ["-o", "remount,ro"];
    assert!(
        Command::new("mount")
            .args(remount)
            .arg(&tmpfs.0)
            .status()
            .unwrap()
            .success()
    );
    assert!(matches!(open(&path), OpenError::ReadOnly { .. }));
    let e = FileMedium::create(folder.path().join("w"), BYTES, Prealloc::Sparse).unwrap_err();
    assert!(matches!(e, OpenError::ReadOnly { .. }), "{e}");
    FileMedium::open(&path, READ).unwrap();
}

/// A loop device over a file, if this process may create one.
struct Loop(PathBuf);

impl Loop {
    fn attach(file: &Path) -> Option<Self> {
        Self::over(file, &[])
    }

    fn over(file: &Path, options: &[&str]) -> Option<Self> {
        let made = is_root()
            .then(|| {
                Command::new("losetup")
                    .args(["--find", "--show"])
                    .args(options)
                    .arg(file)
                    .output()
                    .ok()
            })
            .flatten()
            .filter(|made| made.status.success());
        if made.is_none() {
            eprintln!("not tested: no loop devices here");
        }
        Some(Self(String::from_utf8(made?.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn block_devices_work_and_are_claimed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    // Not a multiple of the block size: a partition may be like that.
    fs::File::create(&file)
        .unwrap()
        .set_len(BYTES + 512)
        .unwrap();
    let Some(device) = Loop::attach(&file) else {
        return;
    };
    for engine in [Engine::Auto, Engine::Threads] {
        let tuning = Tuning {
            engine,
            ..Tuning::default()
        };
        let medium = FileMedium::open_tuned(&device.0, WRITE, &tuning).unwrap();
        assert_eq!(medium.blocks(), BYTES / 4096);
        assert!(medium.is_direct() && medium.wants_discard());
        let mut memory = Memory::new(256);
        memory.block_mut(7).fill(7);
        run(
            &medium,
            vec![memory.io(0, Kind::Write { durable: true }, 0, 0, 256)],
        );
        let mut block = vec![0; BLOCK_BYTES];
        medium.read(Pba(7), &mut block).unwrap();
        assert_eq!(block, [7; BLOCK_BYTES]);
        run(&medium, vec![Io::new(0, Kind::Sync, Pba(0))]);
        assert!(fs::metadata(&file).unwrap().blocks() * 512 >= BYTES);
        run(
            &medium,
            vec![Io::new(0, Kind::Discard { blocks: 256 }, Pba(0))],
        );
        assert!(fs::metadata(&file).unwrap().blocks() * 512 < BYTES / 2);
        assert!(matches!(
            open(&device.0),
            OpenError::Locked(LockError::Claimed { .. })
        ));
        assert!(matches!(
            FileMedium::open(&device.0, READ),
            Err(OpenError::Locked(LockError::Held { .. }))
        ));
    }
    // Creation uses a part of it, and fails beyond its size.
    let e = FileMedium::create(&device.0, BYTES * 2, Prealloc::Full).unwrap_err();
    assert!(
        matches!(
            e,
            OpenError::TooLarge {
                bytes_max: BYTES,
                ..
            }
        ),
        "{e}"
    );
    assert_eq!(
        FileMedium::create(&device.0, BYTES / 2, Prealloc::Full)
            .unwrap()
            .blocks(),
        BYTES / 8192
    );
    assert_eq!(
        FileMedium::create(&device.0, 0, Prealloc::Full)
            .unwrap()
            .blocks(),
        BYTES / 4096
    );
}

#[test]
fn a_file_and_a_loop_device_over_it_have_one_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    fs::write(&file, vec![0; BYTES as usize]).unwrap();
    let (Some(device), Some(other)) = (Loop::attach(&file), Loop::attach(&file)) else {
        return;
    };
    let refused = |path: &Path, options| {
        let e = FileMedium::open(path, options).unwrap_err();
        assert!(matches!(e, OpenError::Locked(_)), "{e}");
        let pid = std::process::id();
        assert!(e.to_string().contains(&format!("process {pid}")), "{e}");
        e.to_string()
    };
    let server = FileMedium::open(&file, WRITE).unwrap();
    for options in [READ, WRITE] {
        let said = refused(&device.0, options);
        assert!(said.contains("loop device") && said.contains(file.to_str().unwrap()));
    }
    drop(server);
    let server = FileMedium::open(&device.0, WRITE).unwrap();
    for path in [&file, &other.0] {
        refused(path, READ);
        refused(path, WRITE);
    }
    drop(server);
    let readers = [&file, &device.0, &other.0].map(|path| FileMedium::open(path, READ).unwrap());
    refused(&file, WRITE);
    refused(&device.0, WRITE);
    drop(readers);
    FileMedium::open(&device.0, WRITE).unwrap();
}

#[test]
fn parts_of_a_file_have_servers_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    fs::write(&file, vec![0; 2 * BYTES as usize]).unwrap();
    let part = |at: u64| Loop::over(&file, &[&format!("--offset={at}"), "--sizelimit=1048576"]);
    let (Some(first), Some(second)) = (part(0), part(BYTES)) else {
        return;
    };
    let servers = [&first, &second].map(|part| FileMedium::open(&part.0, WRITE).unwrap());
    assert!(matches!(open(&file), OpenError::Locked(_)));
    drop(servers);
    FileMedium::open(&file, WRITE).unwrap();
}

/// A reader does not take the claim, and holds another lock on another node.
#[test]
fn a_reader_finds_a_server_on_another_node_of_its_device() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    fs::write(&file, vec![0; BYTES as usize]).unwrap();
    let Some(device) = Loop::attach(&file) else {
        return;
    };
    let rdev = fs::metadata(&device.0).unwrap().rdev();
    let node = Path::new("/dev/shm").join(format!("vellum-test-{}", std::process::id()));
    let (major, minor) = (libc::major(rdev), libc::minor(rdev));
    let made = Command::new("mknod")
        .arg(&node)
        .args(["b", &major.to_string(), &minor.to_string()])
        .status();
    let readable = made.unwrap().success() && fs::File::open(&node).is_ok();
    let server = FileMedium::open(&device.0, WRITE).unwrap();
    let refused = readable.then(|| FileMedium::open(&node, READ));
    drop(server);
    let taken = readable.then(|| FileMedium::open(&node, READ));
    let _ = fs::remove_file(&node);
    match (refused, taken) {
        (Some(refused), Some(taken)) => {
            assert!(matches!(refused, Err(OpenError::Locked(_))));
            taken.unwrap();
        }
        _ => eprintln!("not tested: no device nodes in /dev/shm here"),
    }
}

/// Like a drive that was pulled: the kernel reports "no room" for writes past its end.
#[test]
fn no_room_of_a_device_that_became_smaller_is_nothing_to_wait_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    fs::write(&file, vec![0; BYTES as usize]).unwrap();
    let Some(device) = Loop::attach(&file) else {
        return;
    };
    let medium = FileMedium::open(&device.0, WRITE).unwrap();
    let last = Pba(medium.blocks() - 1);
    medium.write(last, &[1; BLOCK_BYTES]).unwrap();
    let shorter = fs::File::options().write(true).open(&file).unwrap();
    shorter.set_len(BYTES / 2).unwrap();
    let told = Command::new("losetup").arg("-c").arg(&device.0).status();
    assert!(told.unwrap().success());
    let error = medium.write(last, &[1; BLOCK_BYTES]).unwrap_err();
    assert!(
        !error.is_full() && error.to_string().contains("the device is gone"),
        "{error}"
    );
}
