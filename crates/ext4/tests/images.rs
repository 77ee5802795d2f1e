//! File systems made by mke2fs, compared with what dumpe2fs and debugfs report.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::{Bytes, Image, MIB, has_tools, range};
use std::collections::BTreeSet;
use vellum_ext4::journal::{Alignment, Journal, JournalBlock, Layout, Unaligned};
use vellum_ext4::{
    Allowance, FileSystem, Metadata, MetadataKind, NoJournal, Partitioning, Scan, Span,
};

const TOOLS: &[&str] = &["mke2fs", "dumpe2fs", "debugfs", "tune2fs"];

/// A name, a size in MiB, and mke2fs's arguments.
type Case = (&'static str, u64, &'static str);

const MATRIX: &[Case] = &[
    ("ext4", 128, "-t ext4"),
    ("ext4 1K", 128, "-t ext4 -b 1024"),
    ("ext4 2K", 128, "-t ext4 -b 2048"),
    ("ext4 4K", 600, "-t ext4 -b 4096"),
    ("ext4 8K", 600, "-t ext4 -b 8192"),
    ("ext4 64K", 2048, "-t ext4 -b 65536"),
    ("ext3", 128, "-t ext3"),
    ("ext3 1K", 256, "-t ext3 -b 1024 -J size=80"),
    ("ext3 4K", 600, "-t ext3 -b 4096 -J size=64"),
    ("ext3 64K", 2048, "-t ext3 -b 65536"),
    ("narrow", 128, "-t ext4 -b 4096 -O ^64bit"),
    ("no checksums", 128, "-t ext4 -b 4096 -O ^metadata_csum"),
    (
        "uninit_bg",
        300,
        "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg",
    ),
    (
        "uninit_bg, narrow",
        300,
        "-t ext4 -b 1024 -O ^metadata_csum,^64bit,uninit_bg",
    ),
    ("seeded", 128, "-t ext4 -b 4096 -O metadata_csum_seed"),
    ("meta_bg", 600, "-t ext4 -b 1024 -O meta_bg,^resize_inode"),
    (
        "meta_bg 4K",
        9000,
        "-t ext4 -b 4096 -O meta_bg,^resize_inode",
    ),
    ("no flex_bg", 600, "-t ext4 -b 4096 -O ^flex_bg"),
    (
        "sparse_super2",
        600,
        "-t ext4 -b 4096 -O sparse_super2,^resize_inode",
    ),
    (
        "all backups",
        600,
        "-t ext4 -b 4096 -O ^sparse_super,^resize_inode",
    ),
    ("bigalloc", 600, "-t ext4 -b 4096 -O bigalloc -C 65536"),
    ("bigalloc 1K", 600, "-t ext4 -b 1024 -O bigalloc -C 16384"),
    ("small inodes", 128, "-t ext4 -b 4096 -I 128"),
    ("large inodes", 128, "-t ext4 -b 4096 -I 1024"),
    ("fast_commit", 128, "-t ext4 -b 4096 -O fast_commit"),
    ("large journal", 3000, "-t ext4 -b 4096 -J size=1024"),
    ("small journal", 128, "-t ext4 -b 4096 -J size=4"),
    (
        "no extents",
        600,
        "-t ext4 -b 4096 -O ^extent,^64bit -J size=128",
    ),
    (
        "journal at the end",
        600,
        "-t ext4 -b 4096 -J size=16,location=500M",
    ),
    ("label", 128, "-t ext4 -b 4096 -L sixteen-letters!"),
];

fn make(folder: &std::path::Path, (name, mib, arguments): Case) -> Image {
    let image = Image::new(folder, "image", mib * MIB);
    assert!(image.make(arguments, &[]).is_some(), "{name}");
    image
}

/// Makes a journal on a device of its own. Returns its UUID.
fn make_journal(device: &Image, block_bytes: &str) -> String {
    device.make("-O journal_dev -b", &[block_bytes]).unwrap();
    device.head("Filesystem UUID").unwrap()
}

/// Gives a file system the journal with this UUID. mke2fs wants a block device for that; it would write only the superblock's fields.
fn give_journal(home: &Image, uuid: &str) {
    for set in ["feature has_journal", &format!("ssv journal_uuid {uuid}")] {
        home.run("debugfs", &["-w", "-R", set], &[]).unwrap();
    }
}

fn only(scan: &Scan) -> &FileSystem {
    assert_eq!(scan.file_systems.len(), 1, "{scan:?}");
    &scan.file_systems[0]
}

fn journal(found: &FileSystem) -> &Journal {
    found.journal.as_ref().unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the scanned blocks of the journal, in blocks of the file system.
fn blocks(found: &FileSystem, journal: &Journal) -> Vec<u64> {
    let unit = u64::from(found.block_bytes);
    journal
        .extents
        .iter()
        .flat_map(|span| {
            let first = (span.start - found.partition.start) / unit;
            first..first + span.bytes / unit
        })
        .collect()
}

fn check_journal(name: &str, image: &Image, found: &FileSystem) {
    let expected = image.journal_blocks();
    let journal = journal(found);
    assert_eq!(blocks(found, journal), expected, "{name}");
    let head = |key| image.head(key).unwrap_or_default();
    assert_eq!(
        journal.blocks.to_string(),
        head("Total journal blocks"),
        "{name}"
    );
    assert_eq!(journal.format.block_bytes, found.block_bytes);
    assert_eq!(journal.format.first, JournalBlock(1));
    // The extents are as long as possible.
    assert!(
        journal
            .extents
            .windows(2)
            .all(|pair| pair[0].end() != pair[1].start)
    );
    let layout = Layout::new(&journal.extents, found.block_bytes);
    for (index, block) in expected.iter().enumerate() {
        let place = found.partition.start + block * u64::from(found.block_bytes);
        let index = JournalBlock(index as u32);
        assert_eq!(layout.place_of(index), Some(place), "{name}");
        assert_eq!(layout.block_at(place), Some(index), "{name}");
        assert_eq!(layout.block_at(place + 512), None, "{name}");
    }
    assert_eq!(layout.place_of(JournalBlock(expected.len() as u32)), None);
    let aligned = match found.block_bytes {
        small @ ..4096 => Alignment::Unaligned(Unaligned::BlockSize(small)),
        _ => Alignment::Aligned,
    };
    assert_eq!(journal.alignment, aligned, "{name}");
}

#[test]
fn every_kind_that_mke2fs_makes() {
    if !has_tools(TOOLS) {
        return;
    }
    for case in MATRIX {
        let folder = common::folder();
        let name = case.0;
        let image = make(folder.path(), *case);
        let scan = image.scan();
        let found = only(&scan);
        assert_eq!(scan.partitioning, Partitioning::Whole, "{name}");
        assert!(scan.table_faults.is_empty(), "{name}");
        assert_eq!(found.partition, Span::new(0, image.bytes), "{name}");
        let head = |key| image.head(key).unwrap();
        assert_eq!(found.uuid.to_string(), head("Filesystem UUID"), "{name}");
        let label = match head("Filesystem volume name").as_str() {
            "<none>" => String::new(),
            label => label.to_owned(),
        };
        assert_eq!(found.label, label, "{name}");
        assert_eq!(found.block_bytes.to_string(), head("Block size"), "{name}");
        let count: u64 = head("Block count").parse().unwrap();
        assert_eq!(
            found.home.bytes,
            count * u64::from(found.block_bytes),
            "{name}"
        );
        let listed = head("Filesystem features");
        for feature in found.features.to_string().split(' ') {
            assert!(listed.contains(feature), "{name}: {feature} in {listed}");
        }
        check_journal(name, &image, found);
        check_metadata(name, &image, found);
        check_watches(&image, &scan);
        println!(
            "{name}: {} extents, {} watches",
            journal(found).extents.len(),
            scan.watch.iter().count()
        );
    }
}

/// Checks that the watched places of a scan do not change by reading, and do by a change anywhere in them.
fn check_watches(image: &Image, scan: &Scan) {
    for watch in scan.watch.iter().step_by(7) {
        let page = watch.span.start / 4096 * 4096;
        let mut bytes = image.read(page, 4096);
        assert!(!scan.touched(page, &bytes));
        assert!(scan.overlaps(watch.span));
        bytes[(watch.span.end() - 1 - page) as usize] ^= 1;
        assert!(scan.touched(page, &bytes), "{watch:?}");
    }
}

/// Returns the metadata that dumpe2fs lists: (kind, first block, blocks).
fn listed(image: &Image) -> BTreeSet<(u8, u64, u64)> {
    let text = image.run("dumpe2fs", &[], &[]).unwrap();
    let mut all = BTreeSet::new();
    let mut descriptors = None;
    for line in text.lines() {
        for part in line.trim().split(", ") {
            let Some((what, place)) = part.split_once(" at ") else {
                continue;
            };
            let place = place.split([' ', '(']).next().unwrap();
            let place = place.trim_end_matches(',');
            if !place.starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            let (first, last) = range(place);
            let count = last - first + 1;
            match what {
                "Primary superblock" | "Backup superblock" => {
                    all.insert((0, first, 1));
                }
                "Group descriptors" | "Group descriptor" => {
                    descriptors = Some((first, count));
                    all.insert((1, first, count));
                }
                "Reserved GDT blocks" => {
                    let (at, held) = descriptors.take().unwrap();
                    assert_eq!(at + held, first);
                    all.remove(&(1, at, held));
                    all.insert((1, at, held + count));
                }
                "Block bitmap" => {
                    all.insert((2, first, 1));
                }
                "Inode bitmap" => {
                    all.insert((3, first, 1));
                }
                "Inode table" => {
                    all.insert((4, first, count));
                }
                _ => {}
            }
        }
    }
    all
}

fn check_metadata(name: &str, image: &Image, found: &FileSystem) {
    let file = image.open();
    let mut source = Bytes::of(&file);
    let mut allowance = Allowance::default();
    let mut metadata = Metadata::new(found, image.bytes / 4096, &mut allowance).unwrap();
    let mut all = BTreeSet::new();
    while let Some(next) = metadata.next(&mut source) {
        let next = next.unwrap_or_else(|e| panic!("{name}: {e}"));
        let unit = u64::from(found.block_bytes);
        let kind = match next.kind {
            MetadataKind::Superblock => 0,
            MetadataKind::GroupDescriptors => 1,
            MetadataKind::BlockBitmap => 2,
            MetadataKind::InodeBitmap => 3,
            MetadataKind::InodeTable => 4,
        };
        all.insert((kind, next.span.start / unit, next.span.bytes / unit));
    }
    let expected = listed(image);
    let missing: Vec<_> = expected.difference(&all).take(8).collect();
    let extra: Vec<_> = all.difference(&expected).take(8).collect();
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{name}: missing {missing:?}, extra {extra:?}"
    );
}

/// Blocks are allocated in a pattern before the journal is made, so that it is in many pieces: in extents, more than a
/// leaf holds.
#[test]
fn journals_in_many_pieces() {
    if !has_tools(TOOLS) {
        return;
    }
    let cases = [
        ("-t ext4 -b 4096 -O ^has_journal", 5, 600),
        ("-t ext4 -b 1024 -O ^has_journal", 7, 200),
        ("-t ext4 -b 1024 -O ^has_journal,^metadata_csum", 3, 400),
        ("-t ext3 -b 1024 -O ^has_journal", 11, 100),
    ];
    for (arguments, step, extents_min) in cases {
        let folder = common::folder();
        let image = make(folder.path(), ("pieces", 256, arguments));
        let found = image.scan();
        assert_eq!(only(&found).journal, Err(NoJournal::Absent), "{arguments}");
        let count = image.bytes / u64::from(only(&found).block_bytes);
        let script = folder.path().join("script");
        // This also marks blocks in use, which nothing notices. A group that was never used has no bitmap to change; of
        // its three flags, BLOCK_UNINIT is cleared.
        let groups = image.head("Blocks per group").unwrap();
        let groups = count.div_ceil(groups.parse().unwrap());
        let used = (1..groups).map(|i| format!("set_block_group {i} flags 5\n"));
        let taken = (1..count / step).map(|i| format!("setb {}\n", i * step));
        let taken: String = used.chain(taken).collect();
        std::fs::write(&script, taken).unwrap();
        image
            .run("debugfs", &["-w", "-f", script.to_str().unwrap()], &[])
            .unwrap();
        image.run("tune2fs", &["-f", "-J", "size=16"], &[]).unwrap();
        let scan = image.scan();
        let found = only(&scan);
        check_journal("pieces", &image, found);
        check_watches(&image, &scan);
        let extents = journal(found).extents.len() as u64;
        println!("{arguments}: {extents} extents");
        assert!(extents >= extents_min, "{arguments}: {extents}");
    }
}

#[test]
fn a_journal_on_a_device_of_its_own() {
    if !has_tools(TOOLS) {
        return;
    }
    for size in ["1024", "2048", "4096", "65536"] {
        let folder = common::folder();
        let volume = Image::new(folder.path(), "volume", 2200 * MIB);
        let device = Image::new(folder.path(), "journal", 128 * MIB);
        let uuid = make_journal(&device, size);
        let scan = device.scan();
        assert!(scan.file_systems.is_empty(), "a journal is no file system");

        let home = Image::new(folder.path(), "home", 2000 * MIB);
        home.make("-t ext4 -O ^has_journal", &["-b", size]).unwrap();
        give_journal(&home, &uuid);
        let found = home.scan();
        let elsewhere = &only(&found).journal;
        assert!(
            matches!(elsewhere, Err(NoJournal::Elsewhere(found)) if found.to_string() == uuid),
            "{elsewhere:?}"
        );

        // Both in one volume. The table is written by hand: sfdisk has a separate test.
        let places = [(MIB, &home), (2050 * MIB, &device)];
        volume.write(0, &mbr(&places.map(|(at, image)| (at, image.bytes))));
        for (at, image) in places {
            volume.place(at, image);
        }
        let scan = volume.scan();
        let found = only(&scan);
        let journal = journal(found);
        assert!(journal.is_external);
        let first = device.head("Journal first block").unwrap();
        assert_eq!(journal.format.first.0.to_string(), first);
        assert_eq!(journal.superblock.0 + 1, journal.format.first.0);
        assert_eq!(journal.extents, [Span::new(2050 * MIB, device.bytes)]);
        assert_eq!(
            journal.blocks.to_string(),
            device.head("Total journal blocks").unwrap()
        );
        check_watches(&volume, &scan);
    }
}

fn mbr(partitions: &[(u64, u64)]) -> [u8; 512] {
    let mut sector = [0; 512];
    for (i, (start, bytes)) in partitions.iter().enumerate() {
        let entry = &mut sector[446 + 16 * i..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&((start / 512) as u32).to_le_bytes());
        entry[12..16].copy_from_slice(&((bytes / 512) as u32).to_le_bytes());
    }
    sector[510..].copy_from_slice(&[0x55, 0xAA]);
    sector
}

/// A copied partition has the same journal UUID: the owner cannot be known.
#[test]
fn two_owners_of_one_journal() {
    if !has_tools(TOOLS) {
        return;
    }
    let folder = common::folder();
    let device = Image::new(folder.path(), "journal", 16 * MIB);
    let uuid = make_journal(&device, "4096");
    let case = ("home", 64, "-t ext4 -b 4096 -O ^has_journal");
    let home = make(folder.path(), case);
    give_journal(&home, &uuid);
    let volume = Image::new(folder.path(), "volume", 256 * MIB);
    let places = [(MIB, &home), (80 * MIB, &home), (160 * MIB, &device)];
    volume.write(0, &mbr(&places.map(|(at, image)| (at, image.bytes))));
    for (at, image) in places {
        volume.place(at, image);
    }
    let scan = volume.scan();
    assert_eq!(scan.file_systems.len(), 2);
    for found in &scan.file_systems {
        let reason = found.journal.as_ref().unwrap_err().to_string();
        assert!(reason.contains("more than one owner"), "{reason}");
    }
}
