//! A commit block is not there without what it commits: a real ext4 in `data=journal,journal_async_commit` with commits of many MiB,
//! over FUSE, whose threads hand over the requests of one commit in any order. A spy between front end and volume turns the power
//! off when a part of a transaction comes behind its commit block and a chunk has been sealed between the two; else it goes off
//! anywhere. After each life the kernel must be able to mount what is left, e2fsck must find nothing, and what was synced must be there.
//!
//! `LIVES=n` for as many (of each layout; a few by default), `MIB=n` for commits of that size, else of 1 to 32; `LAYOUT=shadow`
//! or `log` for that layout alone.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod common;

use common::chain::{Chain, unmount};
use common::{can_attach, dir, eventually, fails, ok, run, text};
use parking_lot::Mutex;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vellum_core::addr::Lba;
use vellum_core::format::areas::Layout;
use vellum_device::block::{BlockDevice, Extent, Op, Replies, Request};
use vellum_device::frames::FramePool;
use vellum_device::pack::Compression;
use vellum_device::policy::Policy;
use vellum_device::{CreateOptions, OpenOptions, Volume};
use vellum_medium::{FaultMedium, Medium, Plan};

const BLOCKS: u64 = 160 << 10;
/// What a commit block begins with.
const COMMIT: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];

#[derive(Default)]
struct Seen {
    journal: (u64, u64),
    /// A commit block has been handed to the volume, and no flush since; so many chunks were sealed then.
    commit: Option<u64>,
    commits: u64,
    /// Requests of a journal behind the commit block of their transaction.
    late: u64,
    is_armed: bool,
    has_cut: bool,
}

/// Looks at what goes by; changes nothing, but may turn the power off.
struct Spy {
    volume: Arc<Volume>,
    medium: Arc<FaultMedium>,
    seen: Arc<Mutex<Seen>>,
    seed: u64,
}

impl Spy {
    fn sealed(&self) -> u64 {
        let core = self.volume.stats().core;
        core.get("host_chunks")
            .or_else(|| core.get("groups"))
            .copied()
            .unwrap_or(0)
    }
}

impl BlockDevice for Spy {
    fn blocks(&self) -> u64 {
        self.volume.blocks()
    }

    fn read_only(&self) -> bool {
        self.volume.read_only()
    }

    fn frames(&self) -> &Arc<FramePool> {
        self.volume.frames()
    }

    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        self.volume.extents(lba, blocks, max)
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        let (mut commits, mut others, mut flushes) = (0, 0, false);
        let (first, end) = self.seen.lock().journal;
        for request in requests.iter() {
            flushes |= request.op == Op::Flush;
            let is_journal = request.lba.0 > first && request.lba.0 < end;
            if is_journal && matches!(request.op, Op::Write { .. }) {
                let is_commit = |index: &usize| request.frames.block(*index).starts_with(&COMMIT);
                match (0..request.frames.len()).any(|index| is_commit(&index)) {
                    true => commits += 1,
                    false => others += 1,
                }
            }
        }
        if flushes {
            self.seen.lock().commit = None;
        }
        self.volume.submit(requests, replies);
        if commits + others == 0 {
            return;
        }
        let sealed = self.sealed();
        let mut seen = self.seen.lock();
        match seen.commit {
            Some(before) if commits == 0 => {
                seen.late += others;
                if seen.is_armed && !seen.has_cut && sealed > before {
                    seen.has_cut = true;
                    self.medium.power_cut(self.seed);
                }
            }
            _ => {}
        }
        seen.commits += commits;
        if commits > 0 {
            seen.commit = Some(sealed);
        }
    }
}

/// What is between the file system and the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    /// One more loop device, which goes through the page cache of the first. What is answered is not sent on before a flush, also the
    /// superblock with which a log begins: so no asynchronous commits.
    PageCache,
}

impl Between {
    fn options(self) -> &'static str {
        match self {
            Self::Nothing => "data=journal,journal_async_commit",
            Self::PageCache => "data=journal",
        }
    }
}

struct Attached {
    faulty: Arc<FaultMedium>,
    volume: Arc<Volume>,
    chain: Chain,
    device: String,
    between: Between,
    seen: Arc<Mutex<Seen>>,
}

impl Attached {
    fn up(
        medium: &Arc<FaultMedium>,
        layout: Layout,
        between: Between,
        fuse: &Path,
        seed: u64,
    ) -> Self {
        let is_log = layout == Layout::Log;
        let policy = Policy {
            compression: match (is_log, seed % 3) {
                (true, 0) => Compression::ZSTD,
                (true, 1) => Compression::Lz4,
                _ => Compression::Off,
            },
            replay: is_log && (seed.is_multiple_of(2) || between == Between::PageCache),
            ..Policy::default()
        };
        let options = OpenOptions {
            policy,
            ..OpenOptions::default()
        };
        let dynamic: Arc<dyn Medium> = medium.clone();
        let volume = Arc::new(Volume::open(dynamic, &options).unwrap());
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let spy = Spy {
            volume: Arc::clone(&volume),
            medium: Arc::clone(medium),
            seen: Arc::clone(&seen),
            seed,
        };
        let chain = Chain::up(fuse, Arc::new(spy).into());
        let mut device = chain.device().to_owned();
        if between == Between::PageCache {
            let find = ["--find", "--show", "--direct-io=off", &device];
            device = run("losetup", &find).trim().to_owned();
        }
        Self {
            faulty: Arc::clone(medium),
            volume,
            chain,
            device,
            between,
            seen,
        }
    }

    fn down(self) {
        if self.between == Between::PageCache {
            run("losetup", &["-d", &self.device]);
        }
        drop(self.chain);
        // A loop device is gone when its last user is, and so the file below it: until then the volume goes on, and would take from the
        // medium what the next one has asked for.
        eventually("nobody has the volume", || {
            Arc::strong_count(&self.volume) == 1
        });
        drop(self.volume);
    }

    /// Where the journal is, in blocks: it is the file system's first large file, in one piece.
    fn find_journal(&self) {
        let stat = run("debugfs", &["-R", "stat <8>", &self.device]);
        let extents = stat
            .lines()
            .skip_while(|line| !line.starts_with("EXTENTS"))
            .nth(1);
        let blocks = extents
            .unwrap()
            .split(':')
            .nth(1)
            .unwrap()
            .split(',')
            .next()
            .unwrap();
        let mut ends = blocks.split('-').map(|n| n.trim().parse::<u64>().unwrap());
        let mut end = || ends.next().unwrap();
        self.seen.lock().journal = (end(), end() + 1);
    }
}

/// What is written as the `n`th file, that repeats nothing.
fn content(n: u64, bytes: u64) -> Vec<u8> {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes as usize);
    while out.len() < bytes as usize {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        out.extend_from_slice(&x.to_le_bytes());
    }
    out
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().expect(name))
}

/// Files of this size, one after the other, each synced, until there is no power. The last that was: its number.
fn write_on(mount: &Path, medium: &FaultMedium, synced: &AtomicU64, bytes: u64) {
    let one = |n: u64| -> std::io::Result<()> {
        let mut file = File::create(mount.join(format!("f{}", n % 3)))?;
        file.write_all(&n.to_le_bytes())?;
        file.write_all(&content(n, bytes))?;
        file.sync_all()?;
        File::open(mount)?.sync_all()
    };
    loop {
        let n = synced.load(Ordering::SeqCst) + 1;
        // Of the flush behind an asynchronous commit jbd2 does not look at the answer: without power no fsync is believed.
        if one(n).is_err() || medium.is_off() {
            return;
        }
        synced.store(n, Ordering::SeqCst);
    }
}

/// The same, until the power goes: somebody turns it off, or it is time. Says how many commit blocks had gone on unjudged by then:
/// without power those go on that still wait, and write nothing.
fn write_until_cut(
    mount: &Path,
    chain: &Attached,
    synced: &AtomicU64,
    bytes: u64,
    life: u64,
) -> u64 {
    let faulty = &chain.faulty;
    std::thread::scope(|scope| {
        scope.spawn(|| write_on(mount, faulty, synced, bytes));
        let began = Instant::now();
        let secs = Duration::from_millis(1500 + 997 * (life % 3));
        let mut unjudged = 0;
        while began.elapsed() < secs {
            let now = chain.volume.stats().commits.unjudged;
            if faulty.is_off() {
                return unjudged;
            }
            unjudged = now;
            std::thread::sleep(Duration::from_millis(1));
        }
        faulty.power_cut(life);
        unjudged
    })
}

/// What is on the medium after a life can be mounted, and has what was synced; or what is wrong with it.
fn look(
    chain: &Attached,
    mount: &Path,
    options: &str,
    synced: u64,
    bytes: u64,
) -> Result<(), String> {
    let mounted = Command::new("mount")
        .args(["-o", options, &chain.device, text(mount)])
        .output()
        .unwrap();
    if !mounted.status.success() {
        return Err(format!(
            "it cannot be mounted: {}",
            String::from_utf8_lossy(&mounted.stderr)
        ));
    }
    let found = fs::read(mount.join(format!("f{}", synced % 3))).unwrap_or_default();
    let number = found
        .first_chunk::<8>()
        .map_or(0, |n| u64::from_le_bytes(*n));
    // A later one that was not synced may be there in part, and the one before it is gone then.
    let is_there = synced == 0
        || number > synced
        || (number == synced && found[8..] == content(synced, bytes))
        || found.is_empty();
    unmount(mount);
    let checked = Command::new("e2fsck")
        .args(["-fy", &chain.device])
        .output()
        .unwrap();
    match checked.status.code() {
        Some(0) if is_there => Ok(()),
        Some(0) => Err(format!("file {synced} was synced, and is not there")),
        code => Err(format!(
            "e2fsck ends with {code:?}: {}",
            String::from_utf8_lossy(&checked.stdout)
        )),
    }
}

fn make_file_system(device: &str) {
    run(
        "mkfs.ext4",
        &["-q", "-F", "-b", "4096", "-J", "size=160", device],
    );
}

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        ..Plan::default()
    }
}

/// How many blocks the volume has put home itself.
fn lives(layout: Layout, between: Between, lives: u64) -> u64 {
    let dir = dir();
    let (fuse, mount) = (dir.path().join("fuse"), dir.path().join("mnt"));
    fs::create_dir(&fuse).unwrap();
    fs::create_dir(&mount).unwrap();
    let faulty = Arc::new(FaultMedium::over_memory(BLOCKS, Plan::default()));
    Volume::create(
        &*faulty,
        &CreateOptions {
            layout,
            ..CreateOptions::default()
        },
    )
    .unwrap();
    let synced = AtomicU64::new(0);
    let first = env("SEED").unwrap_or(0);
    let (mut late, mut commits, mut waited, mut cuts, mut redeemed) = (0, 0, 0, 0, 0);
    for life in first..first + lives {
        let mib = env("MIB").unwrap_or([3, 1, 32, 2, 8, 16][life as usize % 6]);
        // Of long transactions nothing is pledged.
        let bytes = [200 << 10, mib << 20][usize::from(between == Between::Nothing)];
        faulty.set_plan(plan(life));
        let chain = Attached::up(&faulty, layout, between, &fuse, life);
        if life == first {
            make_file_system(&chain.device);
        }
        chain.find_journal();
        let options = between.options();
        run("mount", &["-o", options, &chain.device, text(&mount)]);
        // What comes behind a commit block is a danger to asynchronous commits alone.
        chain.seen.lock().is_armed = between == Between::Nothing && life % 4 != 3;
        let before = synced.load(Ordering::SeqCst);
        let unjudged = write_until_cut(&mount, &chain, &synced, bytes, life);
        unmount(&mount);
        let stats = chain.volume.stats().commits;
        let is_held = between == Between::PageCache || unjudged == 0;
        assert!(is_held, "{layout:?}, life {life}: {stats:?}");
        {
            let seen = chain.seen.lock();
            (late, commits) = (late + seen.late, commits + seen.commits);
            (waited, cuts) = (waited + stats.waited, cuts + u64::from(seen.has_cut));
        }
        chain.down();
        faulty.restart();
        let chain = Attached::up(&faulty, layout, between, &fuse, life);
        let number = synced.load(Ordering::SeqCst);
        let is_new = number > before;
        redeemed += chain.volume.stats().core["redeemed_blocks"];
        let found = look(
            &chain,
            &mount,
            options,
            if is_new { number } else { 0 },
            bytes,
        );
        chain.volume.stop().unwrap();
        chain.down();
        assert_eq!(
            found,
            Ok(()),
            "{layout:?}, life {life} of {mib} MiB a commit: SEED={life} LIVES=1 MIB={mib}"
        );
    }
    eprintln!(
        "{layout:?}: {lives} lives, {commits} commits, {late} requests behind their commit block, {waited} commit blocks \
         waited, {cuts} cuts behind a late request, {redeemed} blocks put home"
    );
    redeemed
}

#[test]
fn a_commit_block_is_not_there_without_what_it_commits() {
    if !can_attach("a_commit_block_is_not_there_without_what_it_commits") {
        return;
    }
    let only = std::env::var("LAYOUT").ok();
    for (layout, few) in [(Layout::Log, 3), (Layout::Shadow, 1)] {
        if only.as_ref().is_none_or(|only| only == layout.name()) {
            lives(layout, Between::Nothing, env("LIVES").unwrap_or(few));
        }
    }
}

/// The volume puts home itself what a journal has committed, though its blocks come through a page cache.
#[test]
fn a_page_cache_may_be_between() {
    if !can_attach("a_page_cache_may_be_between") {
        return;
    }
    let redeemed = lives(Layout::Log, Between::PageCache, env("LIVES").unwrap_or(2));
    assert!(redeemed > 0);
}

/// What is not followed is not mounted with the option.
#[test]
fn attach_leaves_the_option_out_where_it_is_not_held() {
    if !can_attach("attach_leaves_the_option_out_where_it_is_not_held") {
        return;
    }
    let dir = dir();
    let (path, mount) = (dir.path().join("v"), dir.path().join("mnt"));
    fs::create_dir(&mount).unwrap();
    ok(&["create", text(&path), "--size=256M"]);
    let device = ok(&["attach", text(&path)]);
    let device = device.trim();
    // Blocks of 1 KiB, then no journal at all, then one as it should be.
    run("mkfs.ext4", &["-q", "-F", "-b", "1024", device]);
    ok(&["detach", text(&path)]);
    let options = || {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounts
            .lines()
            .find(|line| line.contains(text(&mount)))
            .unwrap()
            .to_owned();
        ok(&["detach", text(&path)]);
        line
    };
    let attach = ["attach", text(&path), "--mount", text(&mount)];
    let out = common::vellum(&attach);
    assert!(out.status.success(), "{out:?}");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        said.contains("without journal_async_commit") && said.contains("1024"),
        "{said}"
    );
    let mounted = options();
    assert!(
        mounted.contains("data=journal") && !mounted.contains("async_commit"),
        "{mounted}"
    );
    let by_hand = [
        &attach[..],
        &["--options", "data=journal,journal_async_commit"],
    ]
    .concat();
    fails(
        2,
        &by_hand,
        &["journal_async_commit", "blocks of 1024 bytes"],
    );
    ok(&[&attach[..], &["--mkfs", "--force"]].concat());
    assert!(options().contains("journal_async_commit"));
    ok(&by_hand);
    assert!(options().contains("journal_async_commit"));
}
