//! Journals written by the kernel: what is read from them, compared with debugfs and with the kernel's own replay.
//! Needs root, because the images are mounted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::{Bytes, Image, MIB, changes, gpt, has_tools, run, skipped};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use vellum_ext4::journal::{
    Block, Followed, Follower, Journal, JournalBlock, JournalFormat, Layout,
};
use vellum_ext4::{Allowance, FileSystem, Metadata, Scan, Span};

const TOOLS: &[&str] = &[
    "mke2fs", "debugfs", "dumpe2fs", "mount", "umount", "losetup",
];
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// A name, mke2fs's arguments, the mount options, and the version of the journal's checksums that the kernel chooses.
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

/// Unmounts even if a test fails.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Image, on: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir_all(on).unwrap();
        // The kernel must not write by itself while the image is read.
        let options = format!("loop,commit=300,{options}");
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

/// A part of a volume as a device, which an external journal requires.
struct Loop(String);

impl Loop {
    fn new(image: &Image, part: Span) -> Option<Self> {
        let (start, bytes) = (part.start.to_string(), part.bytes.to_string());
        let text = run(Command::new("losetup")
            .args([
                "--find",
                "--show",
                "--offset",
                &start,
                "--sizelimit",
                &bytes,
            ])
            .arg(&image.path))?;
        Some(Self(text.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run(Command::new("losetup").args(["--detach", &self.0]));
    }
}

/// Lets the kernel replay the journal of a file system. (e2fsck 1.47 is unsuitable: it wraps at the journal's end even
/// if the fast-commit area lies there.)
fn replay(image: &Image, part: Span, folder: &Path, options: &str) {
    let device = Loop::new(image, part).unwrap();
    let on = folder.join("replayed");
    std::fs::create_dir_all(&on).unwrap();
    let options = format!("ro{options}");
    let mut mount = Command::new("mount");
    run(mount.args(["-o", &options, &device.0]).arg(&on)).unwrap();
    drop(Mounted(on));
    run(Command::new("sync").arg(&device.0)).unwrap();
}

/// True if the tests can run here; prints a message otherwise.
fn can_mount(folder: &Path) -> bool {
    if !has_tools(TOOLS) {
        return false;
    }
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        skipped("not root, nothing can be mounted");
        return false;
    }
    let probe = Image::new(folder, "probe", 16 * MIB);
    probe
        .run("mke2fs", &["-F", "-q", "-t", "ext4", "-b", "4096"], &[])
        .unwrap();
    let can = Mounted::new(&probe, &folder.join("probed"), "data=journal").is_some();
    if !can {
        skipped("no loop devices, or no ext4, in this kernel");
    }
    can
}

/// Creates and deletes files, large and small; blocks that begin with the journal's magic; and directories that are
/// removed, so that their blocks are revoked.
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

/// Walks the log's live part as recovery does: from `s_start`, transaction by transaction, to the first that is
/// incomplete. Calls `each` for every block of it, in the order of the writes. Returns how many transactions there are,
/// and how often the log wraps in them.
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
    let (mut wraps, mut passed, mut commits) = (0, 0, 0);
    let mut transaction = Vec::new();
    while at.0 != 0 && passed < journal.blocks {
        let bytes = read(at);
        let (mut copies, mut is_commit) = (0, false);
        match Block::parse(&bytes, format) {
            Block::Descriptor(found) if found.sequence.0 == expected => {
                copies = found.tags().count();
            }
            Block::Revoke(found) if found.sequence.0 == expected => {}
            Block::Commit { sequence } if sequence.0 == expected => is_commit = true,
            _ => break,
        }
        transaction.push((at, bytes));
        at = format.after(at);
        for _ in 0..copies {
            transaction.push((at, read(at)));
            at = format.after(at);
        }
        passed += 1 + copies as u32;
        if is_commit {
            expected += 1;
            commits += 1;
            wraps += u32::from(
                transaction
                    .iter()
                    .any(|(block, _)| format.after(*block) < *block),
            );
            transaction
                .drain(..)
                .for_each(|(at, bytes)| each(at, &bytes));
        }
    }
    (commits, wraps)
}

/// Copies a mounted image, at a moment when nothing writes to it.
fn copy(image: &Image, snapshot: &Image) {
    for _ in 0..50 {
        std::fs::copy(&image.path, &snapshot.path).unwrap();
        let mut still = true;
        changes(snapshot, image, |_, _| still = false);
        if still {
            return;
        }
    }
    panic!("the image never rests");
}

/// Overwrites blocks that a replay restores, except the metadata that the kernel needs before that.
fn wipe<'a>(image: &Image, found: &FileSystem, homes: impl Iterator<Item = &'a u64>) {
    let file = image.open();
    let mut allowance = Allowance::default();
    let mut metadata = Metadata::new(found, image.bytes / 4096, &mut allowance).unwrap();
    let next = || metadata.next(&mut Bytes::of(&file));
    let fixed: Vec<Span> = std::iter::from_fn(next).map(|m| m.unwrap().span).collect();
    let bytes = vec![0xEE; found.block_bytes as usize];
    let mut wiped = 0;
    for home in homes {
        let block = Span::new(*home, u64::from(found.block_bytes));
        if !fixed.iter().any(|span| span.overlaps(block)) {
            image.write(*home, &bytes);
            wiped += 1;
        }
    }
    assert!(wiped > 0);
}

/// Returns what debugfs reads: (home block, journal block, flags).
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

/// Returns a follower's final result: the copy of each home block.
fn follow(image: &Image, found: &FileSystem, journal: &Journal) -> (BTreeMap<u64, u64>, u64) {
    let mut follower = Follower::new(journal, found.home);
    let layout = follower.layout().clone();
    let (mut copies, mut revokes) = (BTreeMap::new(), 0);
    walk(image, journal, |at, bytes| {
        let place = layout.place_of(at).unwrap();
        // By its place in the volume, as a device passes it: the follower finds the block itself.
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
fn journals_written_by_the_kernel_are_read_as_it_replays_them() {
    let folder = common::folder();
    if !can_mount(folder.path()) {
        return;
    }
    let mut wrapped = 0;
    for (name, arguments, options, version) in MATRIX {
        let folder = common::folder();
        let (before, snapshot) = crashed(name, folder.path(), arguments, options);
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
        // The kernel set features of the journal and the recovery flag: the earlier scan must notice.
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
            "{name}: {commits} commits, {} tags, {escaped} escaped, {revokes} revokes, \
             {wraps} wraps, {} copies at the end",
            found_tags.len(),
            copies.len()
        );
        wrapped += wraps;
        assert!(commits > 2 && !copies.is_empty(), "{name}");
        assert_eq!(escaped > 0, options.contains("data=journal"), "{name}");
        // debugfs 1.47 wraps where it should not, like e2fsck.
        if !features.fast_commit() || wraps == 0 {
            assert_eq!(found_tags, logdump(&snapshot), "{name}");
        }

        replays_copies(name, folder.path(), &snapshot, found, &copies);
    }
    assert!(wrapped > 0, "no log that wraps was among them");
}

/// A new file system, and its state after a crash that came when its log had wrapped, if it does.
fn crashed(name: &str, folder: &Path, arguments: &[&str], options: &str) -> (Scan, Image) {
    let image = Image::new(folder, "image", 192 * MIB);
    let mut all = vec!["-F", "-q", "-J", "size=4"];
    all.extend(arguments);
    image.run("mke2fs", &all, &[]).unwrap();
    let before = image.scan();
    let snapshot = Image {
        path: folder.join("snapshot"),
        bytes: image.bytes,
    };
    let on = folder.join("mounted");
    let mounted = Mounted::new(&image, &on, options);
    assert!(mounted.is_some(), "{name}");
    // Until the log wraps, if it does: the kernel chooses where its live part begins.
    for round in 0..60 {
        work(&on, round..round + 1);
        let now = image.scan();
        let journal = now.file_systems[0].journal.as_ref();
        if round > 10 && journal.is_ok_and(|now| walk(&image, now, |_, _| {}).1 > 0) {
            break;
        }
    }
    // Copied while it is mounted: the state after a crash, but complete.
    copy(&image, &snapshot);
    (before, snapshot)
}

/// A replay writes each copy home, and nothing else.
fn replays_copies(
    name: &str,
    folder: &Path,
    snapshot: &Image,
    found: &FileSystem,
    copies: &BTreeMap<u64, u64>,
) {
    let journal = found.journal.as_ref().unwrap();
    let recorded = |offset| snapshot.read(offset, found.block_bytes as usize);
    let expected: Vec<_> = copies
        .iter()
        .map(|(home, place)| (*home, recorded(*place)))
        .collect();
    // Fast commits are not copies of blocks, and are not followed.
    let layout = Layout::new(&journal.extents, journal.format.block_bytes);
    for block in journal.format.end.0..journal.blocks {
        let place = layout.place_of(JournalBlock(block)).unwrap();
        snapshot.write(place, &vec![0; found.block_bytes as usize]);
    }
    wipe(snapshot, found, copies.keys());
    replay(snapshot, Span::new(0, snapshot.bytes), folder, "");
    let own = found.home.start + 1024 / u64::from(found.block_bytes) * u64::from(found.block_bytes);
    for (home, bytes) in expected {
        // The kernel records the mount in the superblock.
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

/// Checksums of version 2, which kernels wrote from 3.5 to 3.17 and still replay: debugfs writes the log.
#[test]
fn a_log_with_checksums_v2() {
    let folder = common::folder();
    if !can_mount(folder.path()) {
        return;
    }
    for narrow in ["64bit", "^64bit"] {
        let folder = common::folder();
        let image = Image::new(folder.path(), "image", 64 * MIB);
        let mke2fs = ["-F", "-q", "-t", "ext4", "-b", "4096", "-O", narrow];
        image.run("mke2fs", &mke2fs, &[]).unwrap();
        let (script, content) = (folder.path().join("script"), folder.path().join("content"));
        // Free blocks whose copies are in a transaction; the second begins with the journal's magic.
        let homes = [9000, 9001, 9003];
        let mut bytes: Vec<u8> = (0..homes.len() * 4096).map(|i| (i / 16) as u8).collect();
        bytes[4096..][..4].copy_from_slice(&MAGIC);
        std::fs::write(&content, &bytes).unwrap();
        let content = content.to_str().unwrap();
        let commands = format!("jo -c -v 2\njw -b 9000,9001,9003 {content}\njc\n");
        std::fs::write(&script, commands).unwrap();
        image
            .run("debugfs", &["-w", "-f", script.to_str().unwrap()], &[])
            .unwrap();

        let scan = image.scan();
        let found = &scan.file_systems[0];
        let journal = found.journal.as_ref().unwrap();
        let features = journal.format.features;
        assert!(features.checksum_v2() && !features.checksum_v3());
        assert_eq!(walk(&image, journal, |_, _| {}).0, 1, "{narrow}");
        let written: Vec<_> = tags(&image, &journal.format, journal)
            .into_iter()
            .map(|(home, _, flags)| (home, flags & 1))
            .collect();
        assert_eq!(written, [(9000, 0), (9001, 1), (9003, 0)], "{narrow}");
        let (copies, _) = follow(&image, found, journal);
        let expected: Vec<u64> = [9000, 9003].map(|home| home * 4096).to_vec();
        assert_eq!(copies.into_keys().collect::<Vec<_>>(), expected, "{narrow}");
        replay(&image, Span::new(0, image.bytes), folder.path(), "");
        for (home, content) in homes.into_iter().zip(bytes.chunks(4096)) {
            assert_eq!(image.read(home * 4096, 4096), content, "{narrow}");
        }
    }
}

/// The places that a scan depends on contain counters and lie next to busy inodes. Ordinary work must not trigger a
/// scan.
#[test]
fn ordinary_work_triggers_no_scan() {
    let folder = common::folder();
    if !can_mount(folder.path()) {
        return;
    }
    for (name, arguments, options, _) in MATRIX {
        let folder = common::folder();
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
        // A journal's first revoke block sets a feature.
        let revoke = scan.file_systems[0].journal.as_ref().unwrap();
        let superblock = revoke.extents[0].start / 4096 * 4096;
        touched.retain(|at| revoke.format.features.revoke() || *at != superblock);
        assert_eq!(touched, [], "{name}");
    }
}

/// The journal in one partition, its file system in another.
#[test]
fn an_external_journal() {
    let folder = common::folder();
    if !can_mount(folder.path()) {
        return;
    }
    for size in ["4096", "1024"] {
        let volume = Image::new(folder.path(), size, 160 * MIB);
        let home = Span::new(MIB, 128 * MIB);
        let log = Span::new(130 * MIB, 8 * MIB);
        let partitions = [home, log].map(|s| (s.start / 512, s.end() / 512 - 1));
        volume.write(0, &gpt(512, &partitions));
        let snapshot = Image {
            path: folder.path().join(format!("{size}.snapshot")),
            bytes: volume.bytes,
        };
        {
            let (home, log) = (
                Loop::new(&volume, home).unwrap(),
                Loop::new(&volume, log).unwrap(),
            );
            let journal = format!("device={}", log.0);
            let make = |arguments: &[&str]| {
                run(Command::new("mke2fs")
                    .args(["-F", "-q", "-b", size])
                    .args(arguments))
                .unwrap();
            };
            make(&["-O", "journal_dev", &log.0]);
            // Otherwise the kernel initializes them during the replay, and records that in a group's descriptor.
            let now = ["-E", "lazy_itable_init=0"];
            make(&[&["-t", "ext4", "-J", &journal], &now[..], &[&home.0]].concat());
            let device = Image {
                path: home.0.clone().into(),
                bytes: 0,
            };
            let on = folder.path().join("mounted");
            let _mounted = Mounted::new(&device, &on, "data=journal").unwrap();
            work(&on, 0..7);
            run(Command::new("sync").args([&home.0, &log.0])).unwrap();
            copy(&volume, &snapshot);
        }
        let scan = snapshot.scan();
        assert_eq!(scan.file_systems.len(), 1);
        let found = &scan.file_systems[0];
        let journal = found.journal.as_ref().unwrap();
        assert!(journal.is_external);
        assert_eq!((found.partition, &journal.extents[..]), (home, &[log][..]));
        let (copies, _) = follow(&snapshot, found, journal);
        let unit = size.parse().unwrap();
        let recorded = |offset| snapshot.read(offset, unit);
        let expected: Vec<_> = copies
            .iter()
            .map(|(home, place)| (*home, recorded(*place)))
            .collect();
        println!("{size}: {} copies", expected.len());
        assert!(expected.len() > 30);
        {
            let log = Loop::new(&snapshot, log).unwrap();
            let option = format!(",journal_path={}", log.0);
            replay(&snapshot, home, folder.path(), &option);
        }
        for (at, bytes) in expected {
            // The kernel records the mount in the superblock.
            if at != home.start + 1024 / unit as u64 * unit as u64 {
                let same = snapshot.read(at, unit) == bytes;
                assert!(same, "{size}: the block at byte {at}");
            }
        }
    }
}
