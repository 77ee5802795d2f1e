//! Partition tables as sfdisk writes them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;

use common::{Image, MIB, gpt, has_tools};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use vellum_ext4::journal::{Alignment, Unaligned};
use vellum_ext4::made::{FileSystem, Writer};
use vellum_ext4::{NoJournal, Partitioning, Scan, Source, Span, StoodAside, Unreadable, scan};

const TOOLS: &[&str] = &["mke2fs", "dumpe2fs", "debugfs", "sfdisk"];

fn divide(image: &Image, script: &str, options: &[&str]) {
    let mut child = Command::new("sfdisk")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-q", "--no-reread", "--no-tell-kernel"])
        .args(options)
        .arg(&image.path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
}

fn ext4(folder: &std::path::Path, name: &str, mib: u64) -> Image {
    let image = Image::new(folder, name, mib * MIB);
    image
        .run("mke2fs", &["-F", "-q", "-t", "ext4", "-b", "4096"], &[])
        .unwrap();
    image
}

fn homes(scan: &Scan) -> Vec<Span> {
    scan.file_systems.iter().map(|found| found.home).collect()
}

/// Checks that each file system of the volume is where it was put, with the journal that it has when it is alone.
fn check(volume: &Image, places: &[(u64, &Image)], partitioning: Partitioning) -> Scan {
    let scan = volume.scan();
    assert_eq!(scan.partitioning, partitioning);
    let expected: Vec<_> = places
        .iter()
        .map(|(at, image)| Span::new(*at, image.bytes))
        .collect();
    assert_eq!(homes(&scan), expected);
    for ((at, image), found) in places.iter().zip(&scan.file_systems) {
        let alone = image.scan();
        let alone = alone.file_systems[0].journal.as_ref().unwrap();
        let here = found.journal.as_ref().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(
            found.uuid.to_string(),
            image.head("Filesystem UUID").unwrap()
        );
        let moved: Vec<_> = alone
            .extents
            .iter()
            .map(|span| Span::new(span.start + at, span.bytes))
            .collect();
        assert_eq!(here.extents, moved);
    }
    scan
}

#[test]
fn gpt_and_its_backup() {
    if !has_tools(TOOLS) {
        return;
    }
    let folder = common::folder();
    let (a, b) = (ext4(folder.path(), "a", 40), ext4(folder.path(), "b", 60));
    let volume = Image::new(folder.path(), "volume", 128 * MIB);
    divide(
        &volume,
        "label: gpt\nstart=2048, size=81920\nstart=90112, size=122880\n",
        &[],
    );
    let places = [(MIB, &a), (44 * MIB, &b)];
    for (at, image) in places {
        volume.place(at, image);
    }
    let scan = check(&volume, &places, Partitioning::Gpt);
    // Adding or removing a partition writes the entries.
    let entries = volume.read(0, 8192);
    assert!(!scan.touched(0, &entries));
    let mut changed = entries.clone();
    changed[1024 + 32] ^= 8;
    assert!(scan.touched(0, &changed));

    // The first bytes of the header, then of the entries, are lost.
    for lost in [512, 1024] {
        volume.write(lost, &[0xFF; 64]);
        let scan = check(&volume, &places, Partitioning::GptBackup);
        assert_eq!(scan.table_faults.is_empty(), lost == 512);
        assert!(scan.touched(0, &entries), "the mended table is of interest");
        volume.write(lost, &entries[lost as usize..][..64]);
    }
    // Both are lost.
    volume.write(512, &[0xFF; 64]);
    volume.write(volume.bytes - 512, &[0xFF; 64]);
    assert_eq!(homes(&volume.scan()), []);
}

/// A volume with sectors of 4096 bytes. Not every sfdisk supports them; this is what it would write.
#[test]
fn gpt_with_large_sectors() {
    if !has_tools(TOOLS) {
        return;
    }
    const SECTOR: usize = 4096;
    let folder = common::folder();
    let a = ext4(folder.path(), "a", 40);
    let volume = Image::new(folder.path(), "volume", 64 * MIB);
    let table = gpt(SECTOR, &[(512, 512 + 10240 - 1)]);
    volume.write(0, &table);
    volume.place(2 * MIB, &a);
    check(&volume, &[(2 * MIB, &a)], Partitioning::Gpt);
}

#[test]
fn mbr_with_logical_partitions() {
    if !has_tools(TOOLS) {
        return;
    }
    let folder = common::folder();
    let images: Vec<_> = (0..4)
        .map(|i| ext4(folder.path(), &format!("part{i}"), 20 + i))
        .collect();
    let volume = Image::new(folder.path(), "volume", 200 * MIB);
    divide(
        &volume,
        "label: dos\n\
         start=2048, size=43008, type=83\n\
         start=51200, size=348160, type=5\n\
         start=53248, size=43008, type=83\n\
         start=102400, size=45056, type=83\n\
         start=153600, size=47104, type=83\n",
        &[],
    );
    let places = [
        (MIB, &images[0]),
        (26 * MIB, &images[1]),
        (50 * MIB, &images[2]),
        (75 * MIB, &images[3]),
    ];
    for (at, image) in places {
        volume.place(at, image);
    }
    check(&volume, &places, Partitioning::Mbr);

    // A chain that leads back to its first link still ends.
    let second = volume.read(51200 * 512, 512);
    let mut looped = second.clone();
    looped[446 + 16 + 8..446 + 16 + 12].fill(0);
    volume.write(51200 * 512, &looped);
    let scan = volume.scan();
    assert!(matches!(scan.table_faults[..], [StoodAside::Limit { .. }]));
    assert_eq!(scan.file_systems.len(), 2, "{:?}", homes(&scan));
}

/// Sector 63, as under DOS: blocks of the file system are not aligned with those of the device.
#[test]
fn a_partition_that_is_not_aligned() {
    if !has_tools(TOOLS) {
        return;
    }
    let folder = common::folder();
    let a = ext4(folder.path(), "a", 40);
    let volume = Image::new(folder.path(), "volume", 64 * MIB);
    divide(&volume, "label: dos\nstart=63, size=81920, type=83\n", &[]);
    volume.place(63 * 512, &a);
    let scan = check(&volume, &[(63 * 512, &a)], Partitioning::Mbr);
    let journal = scan.file_systems[0].journal.as_ref().unwrap();
    let home = scan.file_systems[0].home;
    assert_eq!(
        journal.alignment,
        Alignment::Unaligned(Unaligned::Partition(home))
    );
}

/// The volume was one file system before it was partitioned, and its superblock was not wiped: which of them is real
/// cannot be known.
#[test]
fn a_superblock_that_was_left_behind() {
    if !has_tools(TOOLS) {
        return;
    }
    let folder = common::folder();
    let volume = ext4(folder.path(), "volume", 128);
    let a = ext4(folder.path(), "a", 40);
    divide(
        &volume,
        "label: dos\nstart=2048, size=81920, type=83\n",
        &["--wipe", "never"],
    );
    volume.place(MIB, &a);
    let scan = volume.scan();
    assert_eq!(scan.file_systems.len(), 2);
    for found in &scan.file_systems {
        assert!(
            matches!(
                found.journal,
                Err(NoJournal::StoodAside(
                    StoodAside::Overlap { .. } | StoodAside::Field { .. }
                ))
            ),
            "{:?}",
            found.journal
        );
    }
    // Once it is wiped, which is a write that the scan watches, the other one is trusted.
    assert!(scan.touched(0, &[0; 4096]));
    volume.write(1024, &[0; 1024]);
    check(&volume, &[(MIB, &a)], Partitioning::Mbr);
}

/// A volume in memory: blocks that are not zero.
#[derive(Default)]
struct Memory(BTreeMap<u64, Vec<u8>>);

impl Source for Memory {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        for (at, page) in (offset..).step_by(4096).zip(out.chunks_mut(4096)) {
            page.fill(0);
            if let Some(block) = self.0.get(&(at / 4096)) {
                page.copy_from_slice(block);
            }
        }
        Ok(())
    }
}

impl Memory {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let block = self.0.entry(at / 4096).or_insert_with(|| vec![0; 4096]);
        block[(at % 4096) as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Puts a partition table at `at`: kinds, first sectors, and numbers of sectors.
    fn divide(&mut self, at: u64, partitions: &[(u8, u32, u32)]) {
        self.put(at + 510, &[0x55, 0xAA]);
        for (entry, (kind, first, count)) in (at + 446..).step_by(16).zip(partitions) {
            self.put(entry + 4, &[*kind]);
            self.put(entry + 8, &first.to_le_bytes());
            self.put(entry + 12, &count.to_le_bytes());
        }
    }

    /// Puts a mounted file system at `at`.
    fn put_ext4(&mut self, at: u64, blocks: u64) {
        let made = FileSystem {
            blocks,
            journal: (100, 2048),
            bitmaps: 50,
            inodes: 60,
            leaf: 61,
        };
        for (block, bytes) in made.made() {
            self.put(at + block * 4096, &bytes);
        }
        let superblock = Writer::new(0, [1; 16]).superblock(2048, [1; 16], (0, 0));
        self.put(at + made.journal.0 * 4096, &superblock);
    }
}

const SECTORS: u32 = (MIB / 512) as u32;

/// What lies in one partition never becomes a file system over another one. The same table with sectors of 4096 bytes names a
/// place inside the first partition.
#[test]
fn an_mbr_is_read_with_sectors_of_512_bytes_only() {
    let mut volume = Memory::default();
    let victim = 32 * MIB;
    volume.divide(
        0,
        &[
            (0x83, SECTORS, 30 * SECTORS),
            (0x83, 32 * SECTORS, 64 * SECTORS),
        ],
    );
    volume.put_ext4(victim, 64 * MIB / 4096);
    let blocks = 512 * MIB / 4096;
    let alone = scan(&mut volume, blocks);
    assert_eq!(homes(&alone), [Span::new(victim, 64 * MIB)]);
    assert!(alone.file_systems[0].journal.is_ok());
    volume.put_ext4(8 * MIB, 240 * MIB / 4096);
    let forged = scan(&mut volume, blocks);
    assert_eq!(homes(&forged), [Span::new(victim, 64 * MIB)]);
    assert!(forged.file_systems[0].journal.is_ok());
}

/// The same for the chain of logical partitions.
#[test]
fn a_chain_of_logical_partitions_is_read_with_sectors_of_512_bytes_only() {
    let mut volume = Memory::default();
    let victim = 32 * MIB;
    volume.divide(
        0,
        &[
            (0x05, SECTORS, 2 * SECTORS),
            (0x83, 4 * SECTORS, 27 * SECTORS),
            (0x83, 32 * SECTORS, 64 * SECTORS),
        ],
    );
    volume.divide(MIB, &[(0x83, 8, SECTORS)]);
    volume.put_ext4(victim, 64 * MIB / 4096);
    volume.divide(8 * MIB, &[(0x83, 1, (200 * MIB / 4096) as u32)]);
    volume.put_ext4(8 * MIB + 4096, 200 * MIB / 4096);
    let forged = scan(&mut volume, 512 * MIB / 4096);
    assert_eq!(homes(&forged), [Span::new(victim, 64 * MIB)]);
    assert!(forged.file_systems[0].journal.is_ok());
}
