//! Journals that the kernel wrote: what is read from them, against debugfs's reading and against what a replay
//! makes of them. As root: the images are mounted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::{Image, MIB, changes, has_tools, run};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use vellum_ext4::FileSystem;
use vellum_ext4::journal::{
    Block, Followed, Follower, Journal, JournalBlock, JournalFormat, Layout,
};

const TOOLS: &[&str] = &["mke2fs", "debugfs", "dumpe2fs", "e2fsck", "mount", "umount"];
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// A name, what mke2fs is told, how it is mounted, and the version of the journal's checksums that the kernel
/// chooses.
const MATRIX: &[(&str, &[&str], &str, u32)] = &[
    (
        "checksums v3",
        &["-t", "ext4", "-b", "4096"],
        "data=journal",
        3,
    ),
    (
        "async commit",
        &["-t", "ext4", "-b", "4096"],
        "data=journal,journal_async_commit",
        3,
    ),
    (
        "no checksums",
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"],
        "data=journal",
        0,
    ),
    (
        "checksums v1",
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^64bit"],
        "data=journal,journal_checksum",
        1,
    ),
    ("ext3", &["-t", "ext3", "-b", "4096"], "data=journal", 0),
    ("ext3 1K", &["-t", "ext3", "-b", "1024"], "data=journal", 0),
    ("ordered", &["-t", "ext4", "-b", "2048"], "data=ordered", 3),
    (
        "fast commit",
        &["-t", "ext4", "-b", "4096", "-O", "fast_commit"],
        "data=ordered",
        3,
    ),
];

/// Unmounts when a test fails as well.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Image, on: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(on).unwrap();
        let options = format!("loop,{options}");
        run(Command::new("mount")
            .args(["-o", &options])
            .arg(&image.path)
            .arg(on))?;
        Some(Self(on.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(Command::new("umount").arg(&self.0));
    }
}

/// Whether it can be done at all; says so if not.
fn can_mount(folder: &Path) -> bool {
    if !has_tools(TOOLS) {
        return false;
    }
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("SKIP: not root, nothing can be mounted");
        return false;
    }
    let probe = Image::new(folder, "probe", 16 * MIB);
    probe
        .run("mke2fs", &["-F", "-q", "-t", "ext4", "-b", "4096"], &[])
        .unwrap();
    let can = Mounted::new(&probe, &folder.join("probed"), "data=journal").is_some();
    if !can {
        println!("SKIP: no loop devices, or no ext4, in this kernel");
    }
    can
}

/// Files that come and go, large and small; blocks that begin with the journal's magic; directories that are
/// removed, whose blocks are revoked.
fn work(on: &Path, rounds: std::ops::Range<u32>) {
    let mut state = u64::from(rounds.start);
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        (state >> 33) as u32
    };
    for round in rounds {
        let folder = on.join(format!("d{round}"));
        std::fs::create_dir(&folder).unwrap();
        for file in 0..12 {
            let length = random() % 60_000;
            let mut bytes: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            if file % 3 == 0 {
                for block in bytes.chunks_mut(4096) {
                    let magic = MAGIC.len().min(block.len());
                    block[..magic].copy_from_slice(&MAGIC[..magic]);
                }
            }
            std::fs::write(folder.join(format!("f{file}")), bytes).unwrap();
        }
        sync(on);
        if let Some(old) = round.checked_sub(2) {
            std::fs::remove_dir_all(on.join(format!("d{old}"))).unwrap();
            sync(on);
        }
    }
}

fn sync(on: &Path) {
    run(Command::new("sync").arg("-f").arg(on)).unwrap();
}

/// The log's live part as recovery sees it: from `s_start`, transaction by transaction, to the first block that
/// is not the next one's. Calls for every block of it, in the order in which they were written.
fn walk(image: &Image, journal: &Journal, mut each: impl FnMut(JournalBlock, &[u8])) -> (u32, u32) {
    let format = &journal.format;
    let layout = Layout::new(&journal.extents, format.block_bytes);
    let read = |block| {
        let place = layout.place_of(block).unwrap();
        image.read(place, format.block_bytes as usize)
    };
    let superblock = read(journal.superblock);
    let word = |at: usize| u32::from_be_bytes(superblock[at..at + 4].try_into().unwrap());
    let (mut expected, mut at) = (word(0x18), JournalBlock(word(0x1C)));
    let (mut wraps, mut commits) = (0, 0);
    let next = |at: JournalBlock, wraps: &mut u32| {
        let next = format.after(at);
        *wraps += u32::from(next < at);
        next
    };
    while at.0 != 0 && wraps < 2 {
        let bytes = read(at);
        let parsed = Block::parse(&bytes, format);
        let mut copies = 0;
        match parsed {
            Block::Descriptor(found) if found.sequence.0 == expected => {
                copies = found.tags().count();
            }
            Block::Revoke(found) if found.sequence.0 == expected => {}
            Block::Commit { sequence } if sequence.0 == expected => {
                expected += 1;
                commits += 1;
            }
            _ => break,
        }
        each(at, &bytes);
        at = next(at, &mut wraps);
        for _ in 0..copies {
            each(at, &read(at));
            at = next(at, &mut wraps);
        }
    }
    (commits, wraps)
}

/// What debugfs reads: (home block, journal block, flags).
fn logdump(image: &Image) -> BTreeSet<(u64, u32, u32)> {
    let text = image
        .run("debugfs", &["-R", "logdump -a"], &[])
        .expect("debugfs reads it");
    text.lines()
        .filter_map(|line| {
            let rest = line.trim().strip_prefix("FS block ")?;
            let (home, rest) = rest.split_once(" logged at journal block ")?;
            let (place, flags) = rest.split_once(" (flags 0x")?;
            let flags = u32::from_str_radix(flags.trim_end_matches(')'), 16).unwrap();
            Some((home.parse().unwrap(), place.parse().unwrap(), flags))
        })
        .collect()
}

fn tags(image: &Image, format: &JournalFormat, journal: &Journal) -> BTreeSet<(u64, u32, u32)> {
    let mut found = BTreeSet::new();
    walk(image, journal, |at, bytes| {
        if let Block::Descriptor(descriptor) = Block::parse(bytes, format) {
            let mut place = at;
            for tag in descriptor.tags() {
                place = format.after(place);
                let flags = u32::from(tag.is_escaped)
                    | u32::from(tag.has_same_uuid) << 1
                    | u32::from(tag.is_deleted) << 2
                    | u32::from(tag.is_last) << 3;
                found.insert((tag.home.0, place.0, flags));
            }
        }
    });
    found
}

/// What a follower has in the end: for each home block, its copy.
fn follow(image: &Image, found: &FileSystem, journal: &Journal) -> (BTreeMap<u64, u64>, u64) {
    let mut follower = Follower::new(journal, found.home);
    let layout = follower.layout().clone();
    let (mut copies, mut revokes) = (BTreeMap::new(), 0);
    walk(image, journal, |at, bytes| {
        let place = layout.place_of(at).unwrap();
        // By its place in the volume, as a device would: it finds the block itself.
        follower.written(place, bytes, &mut |followed| match followed {
            Followed::Copy { home, place } => {
                copies.insert(home, place);
            }
            Followed::Revoked { home } => {
                revokes += 1;
                copies.remove(&home);
            }
        });
    });
    (copies, revokes)
}

#[test]
fn what_the_kernel_wrote() {
    let folder = tempfile::tempdir().unwrap();
    if !can_mount(folder.path()) {
        return;
    }
    let mut wrapped = 0;
    for (name, arguments, options, version) in MATRIX {
        let folder = tempfile::tempdir().unwrap();
        let image = Image::new(folder.path(), "image", 192 * MIB);
        let mut all = vec!["-F", "-q", "-J", "size=4"];
        all.extend(*arguments);
        image.run("mke2fs", &all, &[]).unwrap();
        let before = image.scan();
        let snapshot = Image {
            path: folder.path().join("snapshot"),
            bytes: image.bytes,
        };
        {
            let on = folder.path().join("mounted");
            let mounted = Mounted::new(&image, &on, options);
            assert!(mounted.is_some(), "{name}");
            // Until the log wraps, if it does: where its live part begins is the kernel's affair.
            for round in 0..60 {
                work(&on, round..round + 1);
                let now = image.scan();
                let journal = now.file_systems[0].journal.as_ref();
                if round > 10 && journal.is_ok_and(|now| walk(&image, now, |_, _| {}).1 > 0) {
                    break;
                }
            }
            // Written while it is mounted: as after a crash, but whole.
            std::fs::copy(&image.path, &snapshot.path).unwrap();
        }
        let scan = snapshot.scan();
        assert_eq!(scan.file_systems.len(), 1);
        let found = &scan.file_systems[0];
        let journal = found
            .journal
            .as_ref()
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let features = journal.format.features;
        let checksums = if features.checksum_v3() {
            3
        } else {
            u32::from(features.checksum_v1())
        };
        assert_eq!(checksums, *version, "{name}");
        assert_eq!(features.fast_commit(), *name == "fast commit");
        assert_eq!(journal.fast_commit_blocks > 0, features.fast_commit());
        assert!(found.features.needs_recovery(), "{name}");
        // The kernel set features of the journal and the recovery flag: the scan before has to notice.
        let superblock = snapshot.read(0, 4096);
        assert!(before.touched(0, &superblock), "{name}");

        let (commits, wraps) = walk(&snapshot, journal, |_, _| {});
        let found_tags = tags(&snapshot, &journal.format, journal);
        let escaped = found_tags
            .iter()
            .filter(|(.., flags)| flags & 1 != 0)
            .count();
        let (copies, revokes) = follow(&snapshot, found, journal);
        println!(
            "{name}: {commits} commits, {} tags, {escaped} escaped, {revokes} revokes, {wraps} wraps, {} copies at the end",
            found_tags.len(),
            copies.len()
        );
        wrapped += wraps;
        assert!(commits > 2 && !copies.is_empty(), "{name}");
        assert_eq!(escaped > 0, options.contains("data=journal"), "{name}");
        // debugfs 1.47 wraps at the journal's end also when the fast-commit area lies there; the kernel and
        // e2fsck, whose replay is below, wrap before it.
        if !features.fast_commit() || wraps == 0 {
            assert_eq!(found_tags, logdump(&snapshot), "{name}");
        }

        // A replay brings each copy home, and nothing else is there.
        let recorded = |offset| snapshot.read(offset, found.block_bytes as usize);
        let expected: Vec<_> = copies
            .iter()
            .map(|(home, place)| (*home, recorded(*place)))
            .collect();
        // Fast commits are no copies of blocks, and no part of what is followed.
        let layout = Layout::new(&journal.extents, journal.format.block_bytes);
        for block in journal.format.end.0..journal.blocks {
            let place = layout.place_of(JournalBlock(block)).unwrap();
            snapshot.write(place, &vec![0; found.block_bytes as usize]);
        }
        let replayed = snapshot.run("e2fsck", &["-y", "-E", "journal_only"], &[]);
        assert!(replayed.is_some(), "{name}");
        let own =
            found.home.start + 1024 / u64::from(found.block_bytes) * u64::from(found.block_bytes);
        for (home, bytes) in expected {
            // e2fsck says in the superblock that it was there.
            if home != own {
                let same = snapshot.read(home, bytes.len()) == bytes;
                assert!(same, "{name}: the block at byte {home}");
            }
        }
        let after = snapshot.scan();
        assert!(!after.file_systems[0].features.needs_recovery());
        assert_eq!(
            after.file_systems[0].journal.as_ref().map(|j| &j.extents),
            Ok(&journal.extents)
        );
    }
    assert!(wrapped > 0, "no log that wraps was among them");
}

/// The places that a scan depends on hold counters and lie beside busy inodes. Work must not set off a scan.
#[test]
fn what_is_of_no_interest() {
    let folder = tempfile::tempdir().unwrap();
    if !can_mount(folder.path()) {
        return;
    }
    for (name, arguments, options, _) in MATRIX {
        let folder = tempfile::tempdir().unwrap();
        let image = Image::new(folder.path(), "image", 192 * MIB);
        let mut all = vec!["-F", "-q", "-J", "size=4"];
        all.extend(*arguments);
        image.run("mke2fs", &all, &[]).unwrap();
        let on = folder.path().join("mounted");
        let _mounted = Mounted::new(&image, &on, options).unwrap();
        std::fs::write(on.join("first"), "commits").unwrap();
        sync(&on);
        std::fs::remove_file(on.join("first")).unwrap();
        let snapshot = Image {
            path: folder.path().join("snapshot"),
            bytes: image.bytes,
        };
        std::fs::copy(&image.path, &snapshot.path).unwrap();
        let scan = snapshot.scan();
        work(&on, 0..30);
        let (mut changed, mut touched) = (0, Vec::new());
        changes(&snapshot, &image, |offset, bytes| {
            changed += 1;
            if scan.touched(offset, bytes) {
                touched.push(offset);
            }
        });
        println!("{name}: {changed} blocks changed");
        assert!(changed > 100, "{name}");
        // A journal's first revoke block is a feature of it.
        let revoke = scan.file_systems[0].journal.as_ref().unwrap();
        let superblock = revoke.extents[0].start / 4096 * 4096;
        touched.retain(|at| revoke.format.features.revoke() || *at != superblock);
        assert_eq!(touched, [], "{name}");
    }
}
