//! File systems with false metadata.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

mod common;
#[path = "../../../fuzz/src/ext4.rs"]
#[allow(dead_code, reason = "only the mounted volume is used here")]
mod ext4;

use common::{Image, MIB, has_tools};
use std::collections::BTreeMap;
use vellum_ext4::freed::{Freed, NotFollowed};
use vellum_ext4::made::{self, Writer};
use vellum_ext4::{
    Allowance, FileSystem, Metadata, NoJournal, Scan, Source, Span, StoodAside, Unreadable, limits,
    scan,
};

const TOOLS: &[&str] = &["mke2fs", "debugfs", "dumpe2fs"];
const PAGE: usize = 4096;
const SUPERBLOCK: u64 = 1024;

/// An image in memory whose bytes can be changed; unwritten bytes are zero.
#[derive(Clone)]
struct Memory {
    pages: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
    unreadable: Option<u64>,
    read_bytes: u64,
}

impl Memory {
    fn of(image: &Image) -> Self {
        let mut pages = BTreeMap::new();
        let empty = Image {
            path: image.path.with_extension("empty"),
            bytes: image.bytes,
        };
        std::fs::File::create(&empty.path)
            .unwrap()
            .set_len(image.bytes)
            .unwrap();
        common::changes(&empty, image, |offset, bytes| {
            pages.insert(offset, bytes.to_vec());
        });
        Self {
            pages,
            bytes: image.bytes,
            unreadable: None,
            read_bytes: 0,
        }
    }

    fn byte(&mut self, at: u64) -> &mut u8 {
        let page = at / PAGE as u64 * PAGE as u64;
        let bytes = self.pages.entry(page).or_insert_with(|| vec![0; PAGE]);
        &mut bytes[(at - page) as usize]
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            *self.byte(at + i as u64) = *byte;
        }
    }

    fn get(&mut self, at: u64, length: u64) -> Vec<u8> {
        (at..at + length).map(|at| *self.byte(at)).collect()
    }

    fn scan(&mut self) -> Scan {
        self.read_bytes = 0;
        let blocks = self.bytes / PAGE as u64;
        scan(self, blocks)
    }
}

impl Source for Memory {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        assert!(offset.is_multiple_of(PAGE as u64) && out.len().is_multiple_of(PAGE));
        assert!(offset + out.len() as u64 <= self.bytes);
        self.read_bytes += out.len() as u64;
        for (i, page) in out.chunks_mut(PAGE).enumerate() {
            let at = offset + (i * PAGE) as u64;
            if self.unreadable == Some(at) {
                return Err(Unreadable {
                    offset: at,
                    bytes: PAGE as u64,
                });
            }
            match self.pages.get(&at) {
                Some(bytes) => page.copy_from_slice(bytes),
                None => page.fill(0),
            }
        }
        Ok(())
    }
}

/// Checks what must be true of any result: journals lie within bounds, and no byte belongs to two of them.
fn check(memory: &mut Memory) -> Scan {
    let scan = memory.scan();
    assert!(memory.read_bytes <= limits::READ_BYTES);
    let volume = Span::new(0, memory.bytes);
    let mut all = Vec::new();
    for found in &scan.file_systems {
        assert!(volume.contains(found.partition) && found.partition.contains(found.home));
        if let Ok(journal) = &found.journal {
            let unit = u64::from(journal.format.block_bytes);
            assert_eq!(unit, u64::from(found.block_bytes));
            let total: u64 = journal.extents.iter().map(|span| span.bytes).sum();
            assert_eq!(total, u64::from(journal.blocks) * unit);
            for span in &journal.extents {
                assert!(span.bytes > 0 && span.bytes.is_multiple_of(unit));
                assert!(volume.contains(*span));
                assert!(journal.is_external || found.home.contains(*span));
                all.push(*span);
            }
            let format = journal.format;
            assert!(format.first < format.end && format.end.0 <= journal.blocks);
        }
        let blocks = memory.bytes / PAGE as u64;
        walk(found, memory, blocks, &mut Allowance::default());
    }
    all.sort();
    assert!(all.windows(2).all(|pair| !pair[0].overlaps(pair[1])));
    scan
}

/// Walks the metadata to the end. Returns how many groups were reported, and the last error.
fn walk(
    found: &FileSystem,
    memory: &mut Memory,
    blocks: u64,
    allowance: &mut Allowance,
) -> (u64, Option<StoodAside>) {
    let before = std::mem::take(&mut memory.read_bytes);
    let (mut groups, mut end) = (0, None);
    if let Some(mut metadata) = Metadata::new(found, blocks, allowance) {
        while let Some(next) = metadata.next(memory) {
            match next {
                Ok(span) => {
                    assert!(found.home.contains(span.span));
                    groups = groups.max(span.group + 1);
                    let is_over = matches!(end, Some(StoodAside::Limit { .. }));
                    assert!(!is_over, "a limit is told last");
                }
                Err(aside) => end = Some(aside),
            }
        }
    }
    assert!(memory.read_bytes <= limits::METADATA_READ_BYTES);
    memory.read_bytes = before;
    (groups, end)
}

fn make(folder: &std::path::Path, mib: u64, arguments: &str) -> Image {
    let image = Image::new(folder, "image", mib * MIB);
    image.make(arguments, &[]).unwrap();
    image
}

fn journal_reason(found: &FileSystem) -> StoodAside {
    match &found.journal {
        Err(NoJournal::StoodAside(aside)) => aside.clone(),
        other => panic!("{other:?}"),
    }
}

/// Bytes of everything that a scan reads are changed at random, from a seed.
#[test]
fn random_changes() {
    if !has_tools(TOOLS) {
        return;
    }
    let kinds = [
        "-t ext4 -b 4096",
        "-t ext4 -b 4096 -O ^metadata_csum,^64bit",
        "-t ext3 -b 1024",
        "-t ext4 -b 1024 -O ^metadata_csum,^resize_inode,meta_bg",
    ];
    for arguments in kinds {
        let folder = common::folder();
        let sound = Memory::of(&make(folder.path(), 64, arguments));
        let first = check(&mut sound.clone());
        assert!(first.file_systems[0].journal.is_ok());
        let mut state = 7u64;
        let mut random = move |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut places: Vec<Span> = first.watch.iter().map(|watch| watch.span).collect();
        places.push(Span::new(1024, 1024));
        let journal = first.file_systems[0].journal.as_ref().unwrap();
        places.push(Span::new(journal.extents[0].start, 1024));
        let (mut trusted, mut asides) = (0, std::collections::BTreeSet::new());
        for _ in 0..3000 {
            let mut memory = sound.clone();
            for _ in 0..=random(3) {
                let place = places[random(places.len() as u64) as usize];
                let at = place.start + random(place.bytes);
                let bit = 1 << random(8);
                *memory.byte(at) = match random(4) {
                    0 => 0xFF,
                    1 => 0,
                    2 => random(256) as u8,
                    _ => *memory.byte(at) ^ bit,
                };
            }
            for found in check(&mut memory).file_systems {
                match found.journal {
                    Ok(_) => trusted += 1,
                    Err(NoJournal::StoodAside(aside)) => {
                        asides.insert(format!("{aside:?}").chars().take(60).collect::<String>());
                    }
                    Err(_) => {}
                }
            }
        }
        println!("{arguments}: {trusted} trusted, {} reasons", asides.len());
        assert!(trusted > 0 && asides.len() > 3, "{asides:?}");
    }
}

/// What is broken: the place, the bytes put there, and the field that is reported.
fn faults(inode: u64, journal_at: u64) -> Vec<(u64, &'static [u8], &'static str)> {
    let (sb, extent, descriptor) = (SUPERBLOCK, inode + 0x28, 4096);
    let faults: &[(u64, &'static [u8], &'static str)] = &[
        (sb + 0x4C, &[9], "s_rev_level"),
        (sb + 0x18, &[7], "s_log_block_size"),
        (sb + 0x14, &[1], "s_first_data_block"),
        (sb + 0x04, &[0, 0, 0, 0xF0], "s_blocks_count"),
        (sb + 0x150, &[1], "s_blocks_count"),
        (sb + 0x04, &[0, 0, 0, 0], "s_blocks_count"),
        (sb + 0x20, &[0, 0, 0, 0], "s_clusters_per_group"),
        (sb + 0x20, &[1, 0x80, 0, 0], "s_clusters_per_group"),
        (sb + 0x58, &[100, 0], "s_inode_size"),
        (sb + 0x28, &[1, 0, 0, 0], "s_inodes_per_group"),
        (sb, &[1, 1, 1, 1], "s_inodes_count"),
        (sb + 0xFE, &[33, 0], "s_desc_size"),
        (sb + 0xE0, &[0, 0, 0, 0xFF], "s_journal_inum"),
        (sb + 0xD0, &[1], "s_journal_inum"),
        (sb + 0x62, &[0xFF], "s_feature_incompat"),
        (sb + 0x10C + 8, &[0xAA], "s_jnl_blocks"),
        (descriptor + 8, &[0, 0, 0, 0xFF], "bg_inode_table"),
        (descriptor + 8, &[0, 0, 0, 0], "i_mode"),
        (inode, &[0, 0x40], "i_mode"),
        (inode + 0x1A, &[0, 0], "i_links_count"),
        (inode + 0x20, &[0, 8, 8], "i_flags"),
        (inode + 0x04, &[1], "i_size"),
        (inode + 0x6C, &[1], "i_size"),
        (extent, &[0], "eh_magic"),
        (extent + 2, &[0], "eh_entries"),
        (extent + 2, &[9], "eh_entries"),
        (extent + 4, &[5], "eh_max"),
        (extent + 6, &[6], "eh_depth"),
        (extent + 12, &[1], "ee_block"),
        (extent + 16, &[0, 0], "ee_len"),
        (extent + 16, &[1, 0x80], "ee_len"),
        (extent + 16, &[1, 0], "ee_block"),
        (extent + 18, &[1], "block"),
        (journal_at, &[0], "h_magic"),
        (journal_at + 4, &[0, 0, 0, 5], "h_blocktype"),
        (journal_at + 0x0C, &[0, 0, 4, 0], "s_blocksize"),
        (journal_at + 0x10, &[0, 1], "s_maxlen"),
        (journal_at + 0x10, &[0, 0, 0, 9], "s_maxlen"),
        (journal_at + 0x14, &[0, 0, 0, 0], "s_first"),
        (journal_at + 0x14, &[1], "s_first"),
        (journal_at + 0x28, &[0, 0, 1, 0], "s_feature_incompat"),
        (journal_at + 0x28, &[0, 0, 0, 0x18], "s_feature_incompat"),
        (journal_at + 0x28, &[0, 0, 0, 0x10], "s_checksum_type"),
        (journal_at + 0x28, &[0, 0, 0, 0x20, 0, 0, 0, 0], ""),
        (journal_at + 0x40, &[0, 0, 0, 2], "s_nr_users"),
    ];
    faults.to_vec()
}

/// A copy with other bytes at one place. The inode and its copy in the superblock stay consistent.
fn broken(sound: &Memory, inode: u64, (at, bytes): (u64, &[u8])) -> Memory {
    let mut memory = sound.clone();
    memory.put(at, bytes);
    if (inode..inode + 0x80).contains(&at) {
        let copy = SUPERBLOCK + 0x10C;
        let root = memory.get(inode + 0x28, 60);
        memory.put(copy, &root);
        for (from, to) in [(inode + 0x6C, 60), (inode + 4, 64)] {
            let size = memory.get(from, 4);
            memory.put(copy + to, &size);
        }
    }
    memory
}

/// Each impossible value of a field is reported with the field's name.
#[test]
fn the_field_at_fault_is_named() {
    if !has_tools(TOOLS) {
        return;
    }
    let folder = common::folder();
    let image = make(folder.path(), 64, "-t ext4 -b 4096 -O ^metadata_csum");
    let mut sound = Memory::of(&image);
    let scan = sound.scan();
    let journal = scan.file_systems[0].journal.as_ref().unwrap();
    let journal_at = journal.extents[0].start;
    let text = image.run("debugfs", &["-R", "imap <8>"], &[]).unwrap();
    let place = text.split("at block ").nth(1).unwrap();
    let (block, offset) = place.trim().split_once(", offset 0x").unwrap();
    let inode_at = block.parse::<u64>().unwrap() * 4096 + u64::from_str_radix(offset, 16).unwrap();
    for (at, bytes, field) in faults(inode_at, journal_at) {
        let mut memory = broken(&sound, inode_at, (at, bytes));
        let scan = check(&mut memory);
        let found = &scan.file_systems[0];
        if field.is_empty() {
            // A fast-commit area of the default length: a journal of 1024 blocks has no room for it.
            let journal = found.journal.as_ref();
            assert!(
                journal.is_ok_and(|j| j.fast_commit_blocks == 256)
                    || journal_reason(found).to_string().contains("s_num_fc_blks")
            );
            continue;
        }
        let reason = journal_reason(found).to_string();
        assert!(reason.contains(field), "{field} at {at:#x}: {reason}");
        // A repair is noticed.
        let page = at / 4096 * 4096;
        let mended = sound.clone().get(page, 4096);
        assert!(scan.touched(page, &mended), "{field}");
    }
}

/// A journal whose superblock, inode or descriptors cannot be read.
#[test]
fn pages_that_cannot_be_read() {
    if !has_tools(TOOLS) {
        return;
    }
    let folder = common::folder();
    let image = make(folder.path(), 64, "-t ext3 -b 1024");
    let mut sound = Memory::of(&image);
    let scan = sound.scan();
    let pages: std::collections::BTreeSet<u64> = scan
        .watch
        .iter()
        .map(|watch| watch.span.start / 4096 * 4096)
        .collect();
    assert!(pages.len() > 3);
    for page in pages {
        let mut memory = sound.clone();
        memory.unreadable = Some(page);
        let found = check(&mut memory);
        if let [found] = &found.file_systems[..] {
            let reason = journal_reason(found);
            assert!(matches!(reason, StoodAside::Unreadable(_)), "{reason}");
        }
        let mended = sound.clone().get(page, 4096);
        assert!(found.touched(page, &mended));
    }
}

/// Indirect blocks that point to themselves: the file's length ends the walk, and its blocks are found to be in one
/// place.
#[test]
fn a_tree_that_leads_to_itself() {
    if !has_tools(TOOLS) {
        return;
    }
    let folder = common::folder();
    let mut memory = looped(folder.path());
    let found = check(&mut memory);
    let reason = journal_reason(&found.file_systems[0]).to_string();
    assert!(
        reason.contains("i_block") || reason.contains("extents"),
        "{reason}"
    );
}

/// An ext3 of 256 MiB; each indirect block of its journal contains only pointers to itself.
fn looped(folder: &std::path::Path) -> Memory {
    let mut memory = Memory::of(&make(folder, 256, "-t ext3 -b 1024 -J size=40"));
    let scan = memory.scan();
    let indirect: Vec<Span> = scan
        .watch
        .iter()
        .map(|watch| watch.span)
        .filter(|span| span.bytes == 1024 && span.start > 4096)
        .collect();
    assert!(indirect.len() > 100);
    for span in &indirect {
        let own = ((span.start / 1024) as u32).to_le_bytes();
        memory.put(span.start, &own.repeat(256));
    }
    memory
}

/// The maximum number of partitions, each containing that file system: they share one budget, and each
/// is listed.
#[test]
fn a_thousand_times_too_much() {
    if !has_tools(TOOLS) {
        return;
    }
    const AT: u64 = MIB;
    let folder = common::folder();
    let inner = looped(folder.path());
    let sectors = inner.bytes / 512;
    let partitions: Vec<(u64, u64)> = (0..u64::from(limits::GPT_ENTRIES))
        .map(|i| (AT / 512, AT / 512 + sectors + i))
        .collect();
    let mut memory = Memory {
        pages: inner
            .pages
            .iter()
            .map(|(at, page)| (at + AT, page.clone()))
            .collect(),
        bytes: inner.bytes + 4 * MIB,
        unreadable: None,
        read_bytes: 0,
    };
    memory.put(0, &common::gpt(512, &partitions));
    let started = std::time::Instant::now();
    let scan = memory.scan();
    println!(
        "{} KiB read in {:?}",
        memory.read_bytes / 1024,
        started.elapsed()
    );
    assert!(memory.read_bytes <= limits::READ_BYTES);
    // The volume itself has no file system.
    assert_eq!(scan.table_faults, []);
    assert_eq!(scan.file_systems.len(), partitions.len());
}

/// A volume too small for any structure.
#[test]
fn hardly_any_volume() {
    for blocks in 0..3 {
        for fill in [0, 0xFF, 0x53, 0xEF] {
            let mut memory = Memory {
                pages: (0..blocks).map(|i| (i * 4096, vec![fill; PAGE])).collect(),
                bytes: blocks * 4096,
                unreadable: None,
                read_bytes: 0,
            };
            assert!(check(&mut memory).file_systems.is_empty());
            if blocks > 0 {
                memory.put(1024 + 0x38, &[0x53, 0xEF]);
                let scan = check(&mut memory);
                assert!(scan.file_systems.iter().all(|found| found.journal.is_err()));
            }
        }
    }
}

/// A mounted ext4 with `groups` groups of one block each, on a volume of which little is written.
fn of_groups(groups: u64) -> Memory {
    let mut memory = Memory {
        pages: ext4::mounted()
            .pages()
            .map(|(at, page)| (at, page.to_vec()))
            .collect(),
        bytes: groups * PAGE as u64,
        unreadable: None,
        read_bytes: 0,
    };
    const INODES: u64 = 16;
    for (at, value) in [
        (0x00, INODES * groups),
        (0x04, groups),
        (0x20, 1),
        (0x24, 1),
        (0x28, INODES),
    ] {
        memory.put(1024 + at, &(value as u32).to_le_bytes());
    }
    memory
}

/// Returns the only file system found, which can be followed.
fn only(memory: &mut Memory) -> FileSystem {
    let mut scan = memory.scan();
    let found = scan.file_systems.pop().unwrap();
    assert!(found.journal.is_ok(), "{:?}", found.journal);
    found
}

#[test]
fn groups_of_one_block_are_walked_while_there_are_not_too_many() {
    let most = limits::METADATA_GROUPS;
    let blocks = 2 * most;
    // The descriptors are zero, except those of the sound volume.
    let mut memory = of_groups(most);
    let found = only(&mut memory);
    let mut allowance = Allowance::default();
    let (groups, end) = walk(&found, &mut memory, blocks, &mut allowance);
    assert_eq!(groups, most);
    assert!(matches!(end, Some(StoodAside::Field { .. })), "{end:?}");
    // The same again, as for another partition: nothing is left for it.
    let (groups, end) = walk(&found, &mut memory, blocks, &mut allowance);
    assert_eq!(groups, 0);
    assert!(matches!(end, Some(StoodAside::Limit { .. })), "{end:?}");

    let mut memory = of_groups(most + 1);
    let found = only(&mut memory);
    let mut allowance = Allowance::default();
    let mut metadata = Metadata::new(&found, blocks, &mut allowance).unwrap();
    let told = metadata.next_backup();
    assert!(
        matches!(told, Some(Err(StoodAside::Limit { limit, .. })) if limit == most),
        "{told:?}"
    );
    assert_eq!(metadata.next_backup(), None);
    // It has not taken the share of others.
    let mut memory = of_groups(most);
    let found = only(&mut memory);
    assert_eq!(walk(&found, &mut memory, blocks, &mut allowance).0, most);
}

/// Blocks of 64 KiB with descriptors of 1 KiB: the most that is read for a group.
#[test]
fn descriptors_are_read_up_to_a_limit() {
    const UNIT: u64 = 64 << 10;
    let groups = limits::METADATA_READ_BYTES / UNIT * (UNIT / 1024) + 1024;
    let mut memory = of_groups(groups);
    memory.bytes = groups * UNIT;
    memory.put(1024 + 0x18, &[6]);
    memory.put(1024 + 0x1C, &[6]);
    memory.put(1024 + 0x60, &[0xC4]);
    memory.put(1024 + 0xFE, &1024u16.to_le_bytes());
    memory.put(1024 + 0x28, &256u32.to_le_bytes());
    memory.put(1024, &(groups as u32 * 256).to_le_bytes());
    let found = memory.scan().file_systems.remove(0);
    assert_eq!(u64::from(found.block_bytes), UNIT);
    let blocks = memory.bytes / PAGE as u64;
    let (told, end) = walk(&found, &mut memory, blocks, &mut Allowance::default());
    assert!(told < groups, "{told}");
    assert!(matches!(end, Some(StoodAside::Limit { .. })), "{end:?}");
}

/// All bitmaps in one place: memory is bounded by the number of groups, not by that of distinct places.
#[test]
fn free_space_is_followed_in_so_many_groups_over_a_volume() {
    let most = limits::FREED_GROUPS;
    let blocks = 2 * most;
    let follow = |memory: &mut Memory, allowance: &mut Allowance| {
        let found = only(memory);
        memory.read_bytes = 0;
        let answer = Freed::new(&found, memory, blocks, allowance);
        (answer.map(drop), memory.read_bytes)
    };
    let mut allowance = Allowance::to_follow(1);
    let (answer, read) = follow(&mut of_groups(most + 1), &mut allowance);
    assert_eq!((answer, read), (Err(NotFollowed::TooLarge), 0));
    // Not too many, but invalid; and then another file system.
    let (answer, read) = follow(&mut of_groups(most), &mut allowance);
    assert_eq!(answer, Err(NotFollowed::Descriptors));
    assert!(read > 0);
    let (answer, read) = follow(&mut of_groups(1500), &mut allowance);
    assert_eq!((answer, read), (Err(NotFollowed::TooLarge), 0));
}

/// Many forged ones.
#[test]
fn file_systems_share_the_memory_for_freed_blocks() {
    let groups = limits::FREED_TRACKED as u64 + 100;
    let made = made::FileSystem {
        blocks: groups * 32_768,
        journal: (10_000, 2048),
        bitmaps: 100,
        inodes: 60,
        leaf: 61,
    };
    let made_at = |(block, bytes)| (block * 4096, bytes);
    let mut memory = Memory {
        pages: made.made().into_iter().map(made_at).collect(),
        bytes: made.blocks * 4096,
        unreadable: None,
        read_bytes: 0,
    };
    let superblock = Writer::new(0, [1; 16]).superblock(2048, [1; 16], (0, 0));
    memory.put(made.journal.0 * 4096, &superblock);
    let found = only(&mut memory);
    let (mut allowance, mut kept) = (Allowance::to_follow(16), 0);
    for _ in 0..16 {
        let mut freed = Freed::new(&found, &mut memory, made.blocks, &mut allowance).unwrap();
        for group in 0..groups {
            freed.written((group * 32_768 + 20_000) * 4096, &[7; PAGE]);
        }
        kept += freed.records();
    }
    assert!((1..=limits::FREED_TRACKED).contains(&kept), "{kept}");
}
