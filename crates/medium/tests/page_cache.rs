//! The page cache of a real kernel, and a device below it that fails. Needs root and loop devices.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_medium::{FileMedium, Medium, OpenOptions, Prealloc, Tuning};

const BLOCKS: u64 = 2048;

fn run(program: &str, args: &[&str]) -> Option<String> {
    let made = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(made.stdout).ok()?;
    made.status.success().then(|| text.trim().to_owned())
}

/// An ext4 on a loop device over a sparse file on a tmpfs that may be full.
struct Stack {
    folder: tempfile::TempDir,
    device: String,
}

impl Stack {
    fn new(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let [below, above] = ["below", "above"].map(|name| folder.path().join(name));
        fs::create_dir(&below).unwrap();
        fs::create_dir(&above).unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        // SAFETY: a system call without arguments.
        let is_root = unsafe { libc::geteuid() == 0 };
        let mounted = is_root
            && run(
                "mount",
                &[
                    "-t",
                    "tmpfs",
                    "-o",
                    "size=24M",
                    "vellum-test",
                    &text(&below),
                ],
            )
            .is_some();
        if !mounted {
            eprintln!("not tested: not root, or no tmpfs here");
            return None;
        }
        let disk = below.join("disk");
        fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
        let device = run("losetup", &["--find", "--show", &text(&disk)]);
        let stack = Self {
            folder,
            device: device.clone().unwrap_or_default(),
        };
        let made = device.and_then(|device| {
            run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0", &device])?;
            run("mount", &["-o", options, &device, &text(&above)])
        });
        if made.is_none() {
            eprintln!("not tested: no loop devices or no ext4 here");
        }
        made.map(|_| stack)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes the file system below run out of room, or gives it room again.
    fn set_full(&self, full: bool) {
        let path = self.path("below/fill");
        if !full {
            return fs::remove_file(path).unwrap();
        }
        let _ = fs::write(path, vec![1; 24 << 20]);
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        for name in ["above", "below"] {
            if name == "below" && !self.device.is_empty() {
                run("losetup", &["-d", &self.device]);
            }
            run("umount", &[self.path(name).to_str().unwrap()]);
        }
    }
}

fn blocks_that_are(medium: &FileMedium, fill: u8) -> usize {
    let mut bytes = vec![0; BLOCKS as usize * BLOCK_BYTES];
    medium.read(Pba(0), &mut bytes).unwrap();
    bytes
        .chunks(BLOCK_BYTES)
        .filter(|block| block.iter().all(|&byte| byte == fill))
        .count()
}

/// What Linux does, and how it is handled.
#[test]
fn data_that_a_failed_sync_left_in_the_page_cache_is_dropped() {
    let Some(stack) = Stack::new("data=ordered") else {
        return;
    };
    let path = stack.path("above/v");
    let tuning = Tuning {
        buffered: true,
        ..Tuning::default()
    };
    let bytes = BLOCKS * BLOCK_BYTES as u64;
    let medium = FileMedium::create_tuned(&path, bytes, Prealloc::Full, &tuning).unwrap();
    assert!(!medium.is_direct());
    stack.set_full(true);
    medium.write(Pba(0), &vec![7; bytes as usize]).unwrap();
    medium.sync().unwrap_err();
    stack.set_full(false);
    // The trap: it reads as written, and the next sync succeeds.
    medium.sync().unwrap();
    let believed = blocks_that_are(&medium, 7);
    medium.drop_cache().unwrap();
    let there = blocks_that_are(&medium, 7);
    assert_eq!(believed, BLOCKS as usize);
    assert!(
        there < believed,
        "{there} blocks are on the medium of {believed} that could be read"
    );
    // What is written again is there.
    medium.write(Pba(0), &vec![8; bytes as usize]).unwrap();
    medium.sync().unwrap();
    medium.drop_cache().unwrap();
    assert_eq!(blocks_that_are(&medium, 8), BLOCKS as usize);
}

/// A killed server's direct writes are on the disk, but what leads to them may be in the memory of the file system below.
#[test]
fn what_was_written_before_is_durable_when_a_medium_is_opened() {
    let Some(stack) = Stack::new("data=ordered,commit=300") else {
        return;
    };
    let path = stack.path("above/v");
    drop(FileMedium::create(&path, 1 << 20, Prealloc::Sparse).unwrap());
    let medium = FileMedium::open(&path, OpenOptions::default()).unwrap();
    assert!(medium.is_direct());
    medium.write(Pba(7), &[7; BLOCK_BYTES]).unwrap();
    drop(medium);
    let medium = FileMedium::open(&path, OpenOptions::default()).unwrap();
    medium.drop_cache().unwrap();
    // What a power cut would leave.
    let [disk, cut, after] = ["below/disk", "below/cut", "after"].map(|name| stack.path(name));
    fs::create_dir(&after).unwrap();
    let copied = [
        "--sparse=always",
        disk.to_str().unwrap(),
        cut.to_str().unwrap(),
    ];
    run("cp", &copied).unwrap();
    run(
        "mount",
        &["-o", "loop", cut.to_str().unwrap(), after.to_str().unwrap()],
    )
    .unwrap();
    let found = fs::read(after.join("v"));
    run("umount", &[after.to_str().unwrap()]).unwrap();
    let block = 7 * BLOCK_BYTES..8 * BLOCK_BYTES;
    assert!(found.unwrap()[block].iter().all(|&byte| byte == 7));
}

/// ext4 accepts `O_DIRECT` under `data=journal`, but uses the cache.
#[test]
fn direct_io_that_is_ignored_is_not_called_direct() {
    for (options, direct) in [("data=journal", false), ("data=ordered", true)] {
        let Some(stack) = Stack::new(options) else {
            return;
        };
        let path = stack.path("above/v");
        let medium = FileMedium::create(&path, 1 << 20, Prealloc::Sparse).unwrap();
        medium.write(Pba(0), &[7; 64 * BLOCK_BYTES]).unwrap();
        assert_eq!(medium.is_direct(), direct, "{options}");
        drop(medium);
        let medium = FileMedium::open(&path, OpenOptions::default()).unwrap();
        assert_eq!(medium.is_direct(), direct, "{options}");
        medium.drop_cache().unwrap();
        let mut block = [0; BLOCK_BYTES];
        medium.read(Pba(63), &mut block).unwrap();
        assert_eq!(block, [7; BLOCK_BYTES]);
    }
}
