//! A commit block is never on the medium without what it commits. A real ext4 in `data=journal,journal_async_commit` makes
//! commits of many MiB, over FUSE, whose threads pass on the requests of one commit in any order, or over ublk with as many
//! queues as there are. A spy between front end and volume cuts the power at a moment drawn for each life; `spy.rs` has the
//! kinds. After each life the journal blocks that a flush covered must be there, the kernel must be able to mount what is left,
//! e2fsck must find nothing, and synced data must be there.
//!
//! `LIVES=n` sets the number of lives of each layout (a few by default), `MIB=n` the size of commits, otherwise 1 to 32;
//! `LAYOUT=shadow` or `log` selects that layout; `CUT=AfterFlush` that kind; `SEED=n` the first life; `WAY=ublk` as
//! `tests/async_ublk.sh` does.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod common;
#[path = "async_commit/spy.rs"]
mod spy;
#[path = "async_commit/wander.rs"]
mod wander;

use common::chain::{Chain, Way, unmount};
use common::{can_attach, dir, eventually, fails, ok, run, text};
use spy::{CUTS, Cut, Eye, Seen, Spy};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vellum_core::format::areas::Layout;
use vellum_device::pack::Compression;
use vellum_device::policy::Policy;
use vellum_device::{CreateOptions, OpenOptions, Volume};
use vellum_frontend::unaligned::ByteDevice;
use vellum_medium::{FaultMedium, Medium, Plan};
use wander::Wanderer;

const BLOCKS: u64 = 160 << 10;

/// What is between the file system and the volume.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    Nothing,
    /// Another loop device, which goes through the page cache of the first. What it has completed is passed on only at a flush,
    /// including the superblock with which a log begins, so there are no asynchronous commits.
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
    eye: Eye,
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
        let spy = Spy::new(&volume, medium, seed);
        let eye = spy.eye();
        let chain = Chain::by(Way::asked_for(), fuse, Arc::new(spy).into());
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
            eye,
        }
    }

    /// Takes the chain down. What the spy knows remains.
    fn down(self) -> Eye {
        if self.between == Between::PageCache {
            run("losetup", &["-d", &self.device]);
        }
        drop(self.chain);
        // A loop device disappears when its last user does, and so does the file below it. Until then the volume runs, and
        // would write to the medium what the next one must not see.
        eventually("nobody has the volume", || {
            Arc::strong_count(&self.volume) == 1
        });
        drop(self.volume);
        self.eye
    }

    /// Finds the journal: the extents of its file, in blocks of the device and of the file.
    fn find_journal(&self) {
        let stat = run("debugfs", &["-R", "stat <8>", &self.device]);
        let extents = stat
            .lines()
            .skip_while(|line| !line.starts_with("EXTENTS"))
            .nth(1);
        let extents = extents.unwrap().split(", ");
        // Like `(0-32766):68-32834`; the tree's own block has no blocks of the file.
        let ends = |text: &str| {
            let (start, last) = text.split_once('-').unwrap_or((text, text));
            let number = |n: &str| n.trim_matches(['(', ')']).parse::<u64>();
            Some((number(start).ok()?, number(last).ok()? + 1))
        };
        let piece = |text: &str| {
            let (of_file, of_device) = text.split_once(':')?;
            Some((ends(of_file)?, ends(of_device)?))
        };
        let mut log = Vec::new();
        for ((from, _), (start, end)) in extents.filter_map(piece) {
            // The first block is the superblock.
            log.push((start + u64::from(from == 0), end));
        }
        let blocks: u64 = log.iter().map(|(start, end)| end - start).sum();
        assert_eq!(blocks, 160 * 256 - 1, "{stat}");
        self.eye.follow(log);
    }
}

/// Returns the contents of the `n`th file, without repetitions.
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

/// Writes files of this size one after the other, each synced, until the power is cut. `synced` is the number of the last one
/// synced.
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
        // jbd2 ignores the result of the flush after an asynchronous commit, so no fsync without power counts.
        if one(n).is_err() || medium.is_off() {
            return;
        }
        synced.store(n, Ordering::SeqCst);
    }
}

/// Does the same until the power is cut, by the spy or by the time limit. Returns how many commit blocks had proceeded unjudged
/// by then: without power those that still wait proceed, and write nothing.
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
        let mut wanderer = Wanderer::of(&chain.device);
        let began = Instant::now();
        // An emulated guest is slow.
        let slow = [1, 5][usize::from(Way::asked_for() == Way::Ublk)];
        let secs = slow * Duration::from_millis(1500 + 997 * (life % 3));
        let mut unjudged = 0;
        while began.elapsed() < secs {
            let now = chain.volume.stats().commits.unjudged;
            if faulty.is_off() {
                return unjudged;
            }
            unjudged = now;
            wanderer.go_on();
            std::thread::sleep(Duration::from_millis(1));
        }
        faulty.power_cut(life);
        unjudged
    })
}

/// Checks that what is on the medium after a life can be mounted and has what was synced; otherwise returns the error.
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
    // A later file that was not synced may be there in part, and then the one before it is gone.
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

/// The results of all lives.
#[derive(Default)]
struct Tally {
    seen: Seen,
    waited: u64,
    redeemed: u64,
    /// The spy's cuts, by kind.
    cuts: BTreeMap<Cut, u64>,
    /// Lives in which this machine was too slow for the scout to find the journal in time: the first commit block proves
    /// nothing there.
    unknown: u64,
}

impl Tally {
    fn add(&mut self, seen: Seen, cut: Cut) {
        self.seen.commits += seen.commits;
        self.seen.late += seen.late;
        self.seen.covered += seen.covered;
        let cut = if seen.has_cut { cut } else { Cut::Anywhere };
        *self.cuts.entry(cut).or_default() += 1;
    }
}

/// A volume, and its results so far.
struct World {
    layout: Layout,
    between: Between,
    faulty: Arc<FaultMedium>,
    dir: tempfile::TempDir,
    /// The last file that was synced.
    synced: AtomicU64,
    tally: Tally,
}

impl World {
    fn new(layout: Layout, between: Between) -> Self {
        let world = Self {
            layout,
            between,
            faulty: Arc::new(FaultMedium::over_memory(BLOCKS, Plan::default())),
            dir: dir(),
            synced: AtomicU64::new(0),
            tally: Tally::default(),
        };
        let options = CreateOptions {
            layout,
            ..CreateOptions::default()
        };
        fs::create_dir(world.at("fuse")).unwrap();
        fs::create_dir(world.at("mnt")).unwrap();
        Volume::create(&*world.faulty, &options).unwrap();
        world
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn up(&self, life: u64) -> Attached {
        Attached::up(
            &self.faulty,
            self.layout,
            self.between,
            &self.at("fuse"),
            life,
        )
    }

    /// True if no journal was found in time in that many lives, or nothing was written home where that is what counts.
    fn proves_nothing(&self, lives: u64) -> bool {
        match self.between {
            Between::Nothing => self.tally.unknown == lives,
            Between::PageCache => self.tally.redeemed == 0,
        }
    }

    /// Runs one life until the power is cut, and checks what is left.
    fn live(&mut self, life: u64, is_first: bool) -> Result<(), String> {
        let mib = env("MIB").unwrap_or([3, 1, 32, 2, 8, 16][life as usize % 6]);
        // Long transactions are never pledged.
        let bytes = [200 << 10, mib << 20][usize::from(self.between == Between::Nothing)];
        let mount = self.at("mnt");
        self.faulty.set_plan(Plan::seeded(life));
        let chain = self.up(life);
        if is_first {
            make_file_system(&chain.device);
        }
        chain.find_journal();
        let options = self.between.options();
        let began = Instant::now();
        run("mount", &["-o", options, &chain.device, text(&mount)]);
        // The superblock that begins the log waits for the scout, but no longer than the scout may take.
        let is_known = began.elapsed() < Duration::from_millis(2500);
        // Requests after a commit block are dangerous only for asynchronous commits.
        let cut = match self.between {
            Between::Nothing => cut_of(life),
            Between::PageCache => Cut::Anywhere,
        };
        chain.eye.arm(cut);
        let before = self.synced.load(Ordering::SeqCst);
        let unjudged = write_until_cut(&mount, &chain, &self.synced, bytes, life);
        unmount(&mount);
        let stats = chain.volume.stats().commits;
        let is_held = self.between == Between::PageCache || unjudged == 0 || !is_known;
        assert!(is_held, "{:?}, life {life}: {stats:?}", self.layout);
        self.tally.unknown += u64::from(!is_known);
        self.tally.waited += stats.waited;
        self.tally.add(chain.eye.seen(), cut);
        let eye = chain.down();
        self.faulty.restart();
        let chain = self.up(life);
        let bytes_of = ByteDevice::from(Arc::clone(&chain.volume));
        let lost = eye.lost(|at, bytes| bytes_of.read(at, bytes).unwrap());
        drop(bytes_of);
        let number = self.synced.load(Ordering::SeqCst);
        let number = if number > before { number } else { 0 };
        self.tally.redeemed += chain.volume.stats().core["redeemed_blocks"];
        let mut found = look(&chain, &mount, options, number, bytes);
        chain.volume.stop().unwrap();
        chain.down();
        if !lost.is_empty() {
            let lost = format!("a flush had covered them, and they are lost: {lost:?}");
            found = Err(format!("{lost}; {found:?}"));
        }
        found.map_err(|why| format!("{cut:?}: {why}: SEED={life} LIVES=1 MIB={mib} CUT={cut:?}"))
    }
}

/// How many lives there are at most if all of them prove nothing, because this machine was too slow.
const MORE: u64 = 10;

/// Returns the kind that is set, or that of the life.
fn cut_of(life: u64) -> Cut {
    let Ok(asked) = std::env::var("CUT") else {
        return Cut::drawn(life);
    };
    let named = |cut: &&Cut| format!("{cut:?}") == asked;
    *CUTS.iter().find(named).expect("CUT")
}

/// Returns how many blocks the volume has written home itself.
fn lives(layout: Layout, between: Between, lives: u64) -> u64 {
    let mut world = World::new(layout, between);
    let first = env("SEED").unwrap_or(0);
    let mut next = first;
    let lacks = |world: &World, lives| lives < MORE && world.proves_nothing(lives);
    while next < first + lives || lacks(&world, next - first) {
        let found = world.live(next, next == first);
        assert_eq!(found, Ok(()), "{layout:?}, life {next}");
        next += 1;
    }
    let (asked_for, lives) = (lives, next - first);
    let Tally {
        seen,
        waited,
        redeemed,
        cuts,
        unknown,
    } = world.tally;
    eprintln!(
        "{layout:?}: {lives} lives, {} commits, {} of them covered by a flush, {} requests behind their \
         commit block, {waited} commit blocks waited, {redeemed} blocks put home, {unknown} lives with a \
         slow scout; cuts: {cuts:?}",
        seen.commits, seen.covered, seen.late
    );
    // A machine may be too slow for some lives, not for all.
    assert!(
        asked_for < 3 || unknown < lives,
        "no journal was found in time"
    );
    redeemed
}

#[test]
fn a_commit_block_is_not_there_without_what_it_commits() {
    let by_ublk = Way::asked_for() == Way::Ublk;
    if !by_ublk && !can_attach("a_commit_block_is_not_there_without_what_it_commits") {
        return;
    }
    let only = std::env::var("LAYOUT").ok();
    for (layout, few) in [(Layout::Log, 3), (Layout::Shadow, 1)] {
        if only.as_ref().is_none_or(|only| only == layout.name()) {
            lives(layout, Between::Nothing, env("LIVES").unwrap_or(few));
        }
    }
}

/// The volume writes home itself what a journal has committed, even if the blocks pass through a page cache.
#[test]
fn a_page_cache_may_be_between() {
    if !can_attach("a_page_cache_may_be_between") {
        return;
    }
    let redeemed = lives(Layout::Log, Between::PageCache, env("LIVES").unwrap_or(2));
    assert!(redeemed > 0);
}

/// A file system that is not followed is not mounted with the option.
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
    // Blocks of 1 KiB, then no journal, then a regular one.
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
