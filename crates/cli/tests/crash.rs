//! kill -9 of the server under a raw writer and under a mounted ext4: nothing durable is missing.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "../src/nbd_client.rs"]
#[allow(dead_code, reason = "the command uses more of it")]
mod nbd_client;

use common::{
    Server, can_attach, dir, eventually, fails, kill_server, ok, replayed_and_faultless, text,
    vellum,
};
use nbd_client::NbdClient;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const BLOCK: usize = 4096;
/// Blocks that the raw writer uses: few, so that each is overwritten often.
const BLOCKS: u64 = 512;

fn number(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Returns a block filled with the number of the write it is from.
fn stamp(block: u64, count: u64) -> Vec<u8> {
    let word = (block << 40 | count).to_le_bytes();
    word.repeat(BLOCK / word.len())
}

/// Returns the write that a block is from; the block must be whole.
fn read_stamp(client: &mut NbdClient, block: u64) -> u64 {
    let mut bytes = vec![0; BLOCK];
    client.read(block * BLOCK as u64, &mut bytes).unwrap();
    let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    if word == 0 {
        assert!(bytes.iter().all(|b| *b == 0), "block {block} is a mixture");
        return 0;
    }
    assert_eq!(word >> 40, block, "block {block} holds another's bytes");
    let count = word & ((1 << 40) - 1);
    assert!(bytes == stamp(block, count), "block {block} is a mixture");
    count
}

/// What the writer knows. Writes are numbered; it has the last one of each block, and the newest that a flush covered.
#[derive(Default)]
struct Known {
    history: Vec<u64>,
    durable: u64,
    /// For layouts without a common order of blocks: what each block was found to be when the server last started, and how many
    /// writes there had been.
    found: Vec<u64>,
    before: u64,
}

#[test]
fn a_raw_writer_misses_nothing_durable_after_kill_9() {
    killed_under_a_raw_writer("log", 8, check);
    killed_under_a_raw_writer("shadow", 4, check);
    killed_under_a_raw_writer("ordered", 4, check_each);
}

/// Compares a device with what is known.
type Check = fn(&mut NbdClient, &mut Known, u64);

fn killed_under_a_raw_writer(layout: &str, lives: u64, check: Check) {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    ok(&["create", text(&path), "--size=64M", "--layout", layout]);
    let export = format!("disk={}", path.display());
    let serve = [&*export, "--socket", text(&socket)];
    let known = Arc::new(Mutex::new(Known::default()));
    let mut seed = 1;
    for life in 0..lives {
        let server = Server::start(dir.path(), &serve);
        let mut client = NbdClient::connect(&socket, "disk").unwrap();
        check(&mut client, &mut known.lock().unwrap(), life);
        let before = known.lock().unwrap().durable;
        // Writes until the server is gone.
        let writer = {
            let (known, mut seed) = (Arc::clone(&known), seed + life * 7919);
            std::thread::spawn(move || {
                loop {
                    let block = number(&mut seed) % BLOCKS;
                    let count = {
                        let mut known = known.lock().unwrap();
                        known.history.push(block);
                        known.history.len() as u64
                    };
                    if client
                        .write(block * BLOCK as u64, &stamp(block, count))
                        .is_err()
                    {
                        return;
                    }
                    if number(&mut seed).is_multiple_of(16) {
                        if client.flush().is_err() {
                            return;
                        }
                        known.lock().unwrap().durable = count;
                    }
                }
            })
        };
        eventually("some writes are durable", || {
            known.lock().unwrap().durable > before + 40
        });
        std::thread::sleep(Duration::from_millis(50 + number(&mut seed) % 200));
        server.kill();
        writer.join().unwrap();
    }
    let server = Server::start(dir.path(), &serve);
    let mut client = NbdClient::connect(&socket, "disk").unwrap();
    let mut known = known.lock().unwrap();
    check(&mut client, &mut known, 99);
    assert!(known.durable > 100, "the test wrote next to nothing");
    drop(client);
    assert_eq!(server.term(), Some(0));
    ok(&["check", text(&path)]);
}

/// The device holds exactly the effect of a prefix of the writes, which includes everything durable.
fn check(client: &mut NbdClient, known: &mut Known, life: u64) {
    let found: Vec<u64> = (0..BLOCKS).map(|block| read_stamp(client, block)).collect();
    let prefix = found.iter().copied().max().unwrap_or(0);
    assert!(
        prefix >= known.durable,
        "life {life}: write {} was durable, the newest found is {prefix}",
        known.durable
    );
    let mut last = HashMap::new();
    for (i, block) in known.history.iter().enumerate().take(prefix as usize) {
        last.insert(*block, i as u64 + 1);
    }
    for (block, count) in found.iter().enumerate() {
        let want = last.get(&(block as u64)).copied().unwrap_or(0);
        assert_eq!(
            *count, want,
            "life {life}: block {block} is not as after write {prefix}"
        );
    }
    // Writes after the prefix never happened.
    known.history.truncate(prefix as usize);
    client.flush().unwrap();
    known.durable = prefix;
}

/// Each block is from some instant not before its durable version, and nothing that was lost comes back.
fn check_each(client: &mut NbdClient, known: &mut Known, life: u64) {
    let mut least = std::mem::take(&mut known.found);
    least.resize(BLOCKS as usize, 0);
    let last_found = least.clone();
    for number in known.before..known.durable {
        least[known.history[number as usize] as usize] = number + 1;
    }
    for block in 0..BLOCKS {
        let (found, at) = (read_stamp(client, block), block as usize);
        let least = least[at];
        assert!(
            found >= least,
            "life {life}: block {block} is of write {found}, and {least} was durable"
        );
        let is_its = found == last_found[at]
            || found > known.before && known.history.get(found as usize - 1) == Some(&block);
        assert!(is_its, "life {life}: block {block} is of write {found}");
        known.found.push(found);
    }
    client.flush().unwrap();
    known.before = known.history.len() as u64;
    known.durable = known.before;
}

#[test]
fn signals_during_start_up_leave_a_good_volume() {
    let dir = dir();
    let (path, socket) = (dir.path().join("v"), dir.path().join("s"));
    ok(&["create", text(&path), "--size=64M"]);
    for delay_us in [0, 200, 500, 1000, 2000, 4000, 8000, 16_000] {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGKILL] {
            let server = Server::spawn(dir.path(), &[text(&path), "--socket", text(&socket)]);
            std::thread::sleep(Duration::from_micros(delay_us));
            server.signal(signal);
            server.kill();
        }
    }
    ok(&["check", text(&path)]);
}

/// Detaches, whatever happened.
struct Attached<'a>(&'a Path);
impl Drop for Attached<'_> {
    fn drop(&mut self) {
        let _ = vellum(&["detach", text(self.0)]);
    }
}

#[test]
fn attach_and_detach_from_a_file_to_a_mounted_ext4() {
    if !can_attach("attach_and_detach_from_a_file_to_a_mounted_ext4") {
        return;
    }
    let dir = dir();
    let (path, mount) = (dir.path().join("v"), dir.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    ok(&["create", text(&path), "--size=256M"]);
    fails(
        1,
        &["attach", text(&path), "--mount", "/nonexistent"],
        &["/nonexistent"],
    );
    let _attached = Attached(&path);
    let said = ok(&["attach", text(&path), "--mkfs", "--mount", text(&mount)]);
    assert!(said.contains("/dev/loop"), "{said}");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|l| l.contains(text(&mount))).unwrap();
    assert!(
        line.contains("data=journal") && line.contains("journal_async_commit"),
        "{line}"
    );
    fails(1, &["attach", text(&path)], &["attached already"]);
    fs::write(mount.join("file"), b"content").unwrap();
    // In use: refused with advice, and still intact.
    let open = File::open(mount.join("file")).unwrap();
    fails(1, &["detach", text(&path)], &["fuser -vm"]);
    drop(open);
    assert_eq!(ok(&["detach", text(&mount)]), "detached\n");
    let nothing = |path| format!("nothing is attached as {}\n", text(path));
    assert_eq!(ok(&["detach", text(&path)]), nothing(&path));
    assert_eq!(ok(&["detach", text(&mount)]), nothing(&mount));
    assert!(!mount.join("file").exists());
    ok(&["check", text(&path)]);
    fails(2, &["attach", text(&path), "--mkfs"], &["--force"]);
    assert!(
        ok(&["info", text(&path)]).contains("served now          no"),
        "a refused attach leaves no server"
    );
    ok(&["attach", text(&path), "--mount", text(&mount)]);
    assert_eq!(fs::read(mount.join("file")).unwrap(), b"content");
    ok(&["detach", text(&path)]);
}

/// Files that a thread writes and syncs one by one, until it is told to stop.
#[derive(Default)]
struct SyncedFiles {
    /// How many are synced.
    synced: AtomicU64,
    killed: AtomicBool,
    stop: AtomicBool,
}

impl SyncedFiles {
    fn content(n: u64) -> Vec<u8> {
        stamp(n & 0xFF_FFFF, n).repeat(n as usize % 5 + 1)
    }

    fn write(&self, mount: &Path) {
        let mut n = self.synced.load(Ordering::SeqCst);
        while !self.stop.load(Ordering::SeqCst) {
            n += 1;
            let write = || -> std::io::Result<()> {
                let mut file = File::create(mount.join(format!("f{n}")))?;
                file.write_all(&Self::content(n))?;
                file.sync_all()?;
                File::open(mount)?.sync_all()
            };
            if write().is_err() {
                return;
            }
            // jbd2 ignores the result of the flush after an asynchronous commit, so an fsync on a device that is gone does not count.
            if !self.killed.load(Ordering::SeqCst) {
                self.synced.store(n, Ordering::SeqCst);
            }
        }
    }
}

#[test]
fn a_mounted_ext4_misses_nothing_synced_after_kill_9() {
    if !can_attach("a_mounted_ext4_misses_nothing_synced_after_kill_9") {
        return;
    }
    let dir = dir();
    let (path, mount) = (dir.path().join("v"), dir.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    ok(&["create", text(&path), "--size=256M"]);
    let _attached = Attached(&path);
    ok(&["attach", text(&path), "--mkfs", "--mount", text(&mount)]);
    let mut total = 0;
    for life in 0..3 {
        let files = Arc::new(SyncedFiles {
            synced: AtomicU64::new(total),
            ..SyncedFiles::default()
        });
        let writer = {
            let (files, mount) = (Arc::clone(&files), mount.clone());
            std::thread::spawn(move || files.write(&mount))
        };
        let before = total;
        eventually("some files are synced", || {
            files.synced.load(Ordering::SeqCst) > before + 40
        });
        files.killed.store(true, Ordering::SeqCst);
        kill_server(&path);
        files.stop.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        total = files.synced.load(Ordering::SeqCst);
        // Either is enough: an explicit detach, or an attach that finds the remains.
        if life % 2 == 0 {
            assert_eq!(ok(&["detach", text(&path)]), "detached\n");
        }
        let device = ok(&["attach", text(&path)]);
        replayed_and_faultless(device.trim(), &mount, "data=journal,journal_async_commit");
        ok(&["detach", text(&path)]);
        ok(&["attach", text(&path), "--mount", text(&mount)]);
        for n in 1..=total {
            let got = fs::read(mount.join(format!("f{n}"))).unwrap_or_default();
            assert!(
                got == SyncedFiles::content(n),
                "life {life}: synced file {n} of {total} is lost or changed"
            );
        }
    }
    ok(&["detach", text(&path)]);
    ok(&["check", text(&path)]);
    assert!(
        !fs::read_to_string("/proc/self/mounts")
            .unwrap()
            .contains(text(dir.path()))
    );
}

#[test]
fn an_interrupted_demo_leaves_nothing_mounted_or_running() {
    let root =
        can_attach("an_interrupted_demo_leaves_nothing_mounted_or_running, the part with ext4");
    let dir = dir();
    let ways: &[&[&str]] = if root {
        &[&[], &["--user-space"]]
    } else {
        &[&["--user-space"]]
    };
    for (n, delay_ms) in [30, 700, 2500].into_iter().enumerate() {
        for (which, way) in ways.iter().enumerate() {
            let mut demo = std::process::Command::new(env!("CARGO_BIN_EXE_vellum"))
                .args(["demo", "--scale=10", "--dir", text(dir.path())])
                .args(*way)
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let of_this_demo = format!("demo-{}", demo.id());
            std::thread::sleep(Duration::from_millis(delay_ms));
            // SAFETY: a child of this process, not yet waited for.
            unsafe {
                libc::kill(
                    demo.id() as i32,
                    [libc::SIGHUP, libc::SIGQUIT, libc::SIGINT, libc::SIGTERM][n + which],
                )
            };
            let ended = demo.wait().unwrap();
            // So early that it cannot have ended by itself.
            assert!(n > 0 || !ended.success(), "it went on");
            let name = text(dir.path());
            assert!(
                !fs::read_to_string("/proc/self/mounts")
                    .unwrap()
                    .contains(name),
                "still mounted"
            );
            assert_eq!(
                fs::read_dir(dir.path()).unwrap().count(),
                0,
                "files are left"
            );
            // A killed process may still be there for a moment.
            eventually("nothing runs in this folder", || {
                let mut processes = fs::read_dir("/proc").unwrap().flatten();
                !processes.any(|process| {
                    let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
                    String::from_utf8_lossy(&line).contains(name)
                })
            });
            for block in fs::read_dir("/sys/block").unwrap().flatten() {
                let backing =
                    fs::read_to_string(block.path().join("loop/backing_file")).unwrap_or_default();
                assert!(
                    !(backing.contains(&of_this_demo) || backing.contains(name)),
                    "{:?} is still bound to {backing}",
                    block.file_name()
                );
            }
        }
    }
}
