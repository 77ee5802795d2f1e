//! Whatever a client wrote to its volume, a search for file systems ends in an answer, and everything reported about a journal
//! lies on the volume.
//!
//! The volumes are sound ones with changes, and without checksums, which would stop a fuzzer.

use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_ext4::files::Files;
use vellum_ext4::freed::Freed;
use vellum_ext4::journal::{
    Alignment, Block, Commits, Content, Followed, Follower, Head, Journal, JournalBlock,
    JournalFeatures, JournalFormat, Layout, Log, Mark, Reader, Refusal, Sequence, Told,
    Transactions, Verdict,
};
use vellum_ext4::{
    Allowance, Dynamic, FileSystem, Metadata, Scan, Source, Span, Unreadable, Uuid, limits, scan,
};

const PAGE: usize = 4096;
const VOLUME_BLOCKS: u64 = 4096;
/// Where the second volume's partition begins.
const PARTITION: u64 = 1 << 20;

/// A volume with some pages that are not zero.
pub struct Volume {
    pages: BTreeMap<u64, Vec<u8>>,
    read_bytes: u64,
}

impl Source for Volume {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        assert!(offset.is_multiple_of(PAGE as u64) && out.len().is_multiple_of(PAGE));
        assert!(offset + out.len() as u64 <= VOLUME_BLOCKS * PAGE as u64);
        self.read_bytes += out.len() as u64;
        for (i, page) in out.chunks_mut(PAGE).enumerate() {
            match self.pages.get(&(offset + (i * PAGE) as u64)) {
                Some(bytes) => page.copy_from_slice(bytes),
                None => page.fill(0),
            }
        }
        Ok(())
    }
}

impl Volume {
    /// Returns the pages that are not zero, by the byte where each begins.
    pub fn pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().map(|(at, bytes)| (*at, &bytes[..]))
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            let at = at + i as u64;
            let page = at / PAGE as u64 * PAGE as u64;
            let bytes = self.pages.entry(page).or_insert_with(|| vec![0; PAGE]);
            bytes[(at - page) as usize] = *byte;
        }
    }

    fn little(&mut self, at: u64, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    fn big(&mut self, at: u64, value: u32) {
        self.put(at, &value.to_be_bytes());
    }
}

/// Returns a sound ext4 on the whole volume, or a sound ext3 in a partition of it.
pub fn sound(has_extents: bool) -> Volume {
    let mut volume = Volume {
        pages: BTreeMap::new(),
        read_bytes: 0,
    };
    let (start, log_block) = match has_extents {
        true => (0, 2),
        false => (PARTITION, 0),
    };
    let unit = 1024u64 << log_block;
    let first = u64::from(log_block == 0);
    let blocks = (VOLUME_BLOCKS * PAGE as u64 - start) / unit;
    let per_group = 8 * unit;
    let groups = (blocks - first).div_ceil(per_group);
    if !has_extents {
        volume.put(446 + 4, &[0x83]);
        volume.little(446 + 8, (start / 512) as u32);
        volume.little(446 + 12, (blocks * unit / 512) as u32);
        volume.put(510, &[0x55, 0xAA]);
    }
    let superblock = start + 1024;
    let inodes_per_group = 64;
    for (at, value) in [
        (0x00, inodes_per_group * groups),
        (0x04, blocks),
        (0x14, first),
        (0x18, log_block),
        (0x1C, log_block),
        (0x20, per_group),
        (0x24, per_group),
        (0x28, inodes_per_group),
        (0x38, 0xEF53),
        (0x4C, 1),
        (0x58, 256),
        (0x5C, 4),
        (0x60, if has_extents { 0x40 } else { 0 }),
        (0xE0, 8),
    ] {
        volume.little(superblock + at, value as u32);
    }
    let descriptors = start + (first + 1) * unit;
    let table = first + 4;
    for group in 0..groups {
        for (at, block) in [(0, first + 2), (4, first + 3), (8, table)] {
            volume.little(descriptors + 32 * group + at, block as u32);
        }
    }
    let place = Place {
        start,
        unit,
        inode: start + table * unit + 7 * 256,
        journal: table + 64,
    };
    let (inode, length) = (place.inode, limits::JOURNAL_BLOCKS_MIN);
    volume.little(inode, 0x8180);
    volume.little(inode + 0x04, (length * unit) as u32);
    volume.little(inode + 0x1A, 1);
    if has_extents {
        put_extents(&mut volume, place);
    } else {
        put_indirect(&mut volume, place);
    }
    put_journal(&mut volume, place);
    volume
}

/// Where the journal of a file system is.
#[derive(Clone, Copy)]
struct Place {
    /// The byte at which the file system begins, and the bytes of its blocks.
    start: u64,
    unit: u64,
    /// The byte of its inode.
    inode: u64,
    /// Its first block.
    journal: u64,
}

/// Says where the journal is: a root, a leaf, two extents.
fn put_extents(volume: &mut Volume, place: Place) {
    let Place {
        start,
        unit,
        inode,
        journal,
    } = place;
    let length = limits::JOURNAL_BLOCKS_MIN;
    let leaf = journal - 1;
    volume.little(inode + 0x20, 0x8_0000);
    volume.put(inode + 0x28, &[0x0A, 0xF3, 1, 0, 4, 0, 1, 0]);
    volume.little(inode + 0x28 + 16, leaf as u32);
    let at = start + leaf * unit;
    volume.put(at, &[0x0A, 0xF3, 2, 0, 0x54, 1, 0, 0]);
    for (i, (block, length, to)) in [(0, 500, journal), (500, length - 500, journal + 600)]
        .into_iter()
        .enumerate()
    {
        let at = at + 12 + 12 * i as u64;
        volume.little(at, block as u32);
        volume.little(at + 4, length as u32);
        volume.little(at + 8, to as u32);
    }
}

/// Says where the journal is: twelve blocks, a block of 256 numbers, and three such blocks under another.
fn put_indirect(volume: &mut Volume, place: Place) {
    let Place {
        start,
        unit,
        inode,
        journal,
    } = place;
    let length = limits::JOURNAL_BLOCKS_MIN;
    let indirect = |i: u64| journal - 10 + i;
    for i in 0..12 {
        volume.little(inode + 0x28 + 4 * i, (journal + i) as u32);
    }
    volume.little(inode + 0x28 + 48, indirect(0) as u32);
    volume.little(inode + 0x28 + 52, indirect(1) as u32);
    for i in 0..3 {
        volume.little(start + indirect(1) * unit + 4 * i, indirect(2 + i) as u32);
    }
    for i in 12..length {
        let (block, index) = match (i - 12) / 256 {
            0 => (indirect(0), (i - 12) % 256),
            part => (indirect(1 + part), (i - 12) % 256),
        };
        volume.little(start + block * unit + 4 * index, (journal + i) as u32);
    }
}

/// Returns the sound ext4, mounted.
pub fn mounted() -> Volume {
    let mut volume = sound(true);
    volume.little(1024 + 0x60, 0x44);
    volume
}

/// Checks what must be true of any answer.
fn hold(volume: &mut Volume, found: &Scan) {
    let all = Span::new(0, VOLUME_BLOCKS * PAGE as u64);
    assert!(volume.read_bytes <= limits::READ_BYTES);
    for found in &found.file_systems {
        assert!(all.contains(found.partition) && found.partition.contains(found.home));
        if let Ok(journal) = &found.journal {
            hold_journal(found, journal);
        }
        hold_metadata(volume, found);
        hold_dynamic(volume, found);
        hold_files(volume, found);
    }
}

fn hold_metadata(volume: &mut Volume, found: &FileSystem) {
    let mut allowance = Allowance::default();
    let Some(mut metadata) = Metadata::new(found, VOLUME_BLOCKS, &mut allowance) else {
        return;
    };
    let read_before = volume.read_bytes;
    while let Some(next) = metadata.next(volume) {
        assert!(next.map_or(true, |span| found.home.contains(span.span)));
    }
    assert!(volume.read_bytes - read_before <= limits::METADATA_READ_BYTES);
    volume.read_bytes = read_before;
}

fn hold_dynamic(volume: &mut Volume, found: &FileSystem) {
    let read_before = volume.read_bytes;
    let mut allowance = Allowance::default();
    let Some(mut dynamic) = Dynamic::new(found, VOLUME_BLOCKS, &mut allowance) else {
        return;
    };
    // Enough for all of a sound one; a cyclic one may report as much as it may read.
    for _ in 0..5000 {
        match dynamic.next(volume) {
            Some(Ok(span)) => assert!(found.home.contains(span.span)),
            Some(Err(_)) => {}
            None => break,
        }
    }
    assert!(volume.read_bytes - read_before <= limits::DYNAMIC_READ_BYTES);
    volume.read_bytes = read_before;
}

fn hold_files(volume: &mut Volume, found: &FileSystem) {
    let read_before = volume.read_bytes;
    let blocks: Vec<u64> = (0..VOLUME_BLOCKS).collect();
    let files = Files::of(found, VOLUME_BLOCKS, &blocks, volume);
    assert!(files.hits.len() <= limits::FILES_HITS);
    for hit in &files.hits {
        let block = Span::new(hit.block * PAGE as u64, PAGE as u64);
        assert!(found.home.overlaps(block));
    }
    for block in (0..VOLUME_BLOCKS).step_by(61) {
        assert!(files.tell(block).iter().all(|told| !told.contains('\n')));
    }
    volume.read_bytes = read_before;
}

fn hold_journal(found: &FileSystem, journal: &Journal) {
    let unit = u64::from(journal.format.block_bytes);
    let total: u64 = journal.extents.iter().map(|span| span.bytes).sum();
    assert_eq!(total, u64::from(journal.blocks) * unit);
    let mut extents = journal.extents.clone();
    extents.sort();
    assert!(extents.windows(2).all(|pair| !pair[0].overlaps(pair[1])));
    assert!(extents.iter().all(|span| found.home.contains(*span)));
    assert!(journal.format.first < journal.format.end);
    assert!(journal.format.end.0 <= journal.blocks);
}

/// Scans a sound volume with changes chosen by the bytes: which of the relevant pages, the offset, and the new bytes. Returns
/// what was found.
pub fn scan_changed(bytes: &[u8]) -> Option<Scan> {
    let (kind, edits) = bytes.split_first()?;
    let mut volume = sound(kind & 1 == 0);
    let pages: Vec<u64> = volume.pages.keys().copied().collect();
    for edit in edits.chunks_exact(5) {
        let page = pages[usize::from(edit[0]) % pages.len()];
        let at = u64::from(u16::from_le_bytes([edit[1], edit[2]])) % PAGE as u64;
        volume.put(page + at, &[edit[3]]);
        if edit[4] & 1 != 0 {
            volume.put(page + (at + 1) % PAGE as u64, &[edit[4]]);
        }
    }
    let found = scan(&mut volume, VOLUME_BLOCKS);
    hold(&mut volume, &found);
    Some(found)
}

/// Checks that what is reported lies on the volume. Returns how much it is.
fn hold_told(told: Told, home: Span, layout: &Layout, superblock: JournalBlock) -> usize {
    let Told::Complete(complete) = told else {
        return 0;
    };
    for (at, place) in &complete {
        assert!(home.contains(Span::new(*at, 1024)));
        let place = layout.block_at(*place).expect("in the journal");
        assert_ne!(place, superblock);
    }
    complete.len()
}

/// A fuzzer never hits a checksum, so this makes tags of equal copies, or such a copy.
fn with_the_same_copies(kind: u8, seed: u32, block: &mut [u8]) {
    match kind {
        0 => block.fill(7),
        1 => {
            let seed = crc32c::crc32c_append(!seed, &[0; 4]);
            let sum = !crc32c::crc32c_append(seed, &[7; 1024]);
            let tags = block[12..1020].chunks_exact_mut(16);
            tags.for_each(|tag| tag[12..].copy_from_slice(&sum.to_be_bytes()));
        }
        _ => {}
    }
}

/// Writes the journal's superblock.
fn put_journal(volume: &mut Volume, place: Place) {
    let at = place.start + place.journal * place.unit;
    for (offset, value) in [
        (0, 0xC03B_3998),
        (4, 4),
        (0x0C, place.unit),
        (0x10, limits::JOURNAL_BLOCKS_MIN),
        (0x14, 1),
        (0x40, 1),
    ] {
        volume.big(at + offset, value as u32);
    }
}

/// A journal of two pieces.
fn journal_of(format: JournalFormat) -> Journal {
    let piece = |start: u64, blocks: u64| Span::new(start * 1024, blocks * 1024);
    Journal {
        extents: vec![piece(5000, 700), piece(100, 500)],
        format,
        is_empty: true,
        blocks: 1200,
        fast_commit_blocks: 176,
        uuid: Uuid::default(),
        superblock: JournalBlock(0),
        is_external: false,
        alignment: Alignment::Aligned,
    }
}

/// A block of a journal with these features: its kind, with flags, and what is in it.
fn made_block((features, kind): (u8, u8), seed: u32, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 1024];
    block[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
    block[7] = kind & 7;
    block[12..12 + content.len().min(1012)].copy_from_slice(&content[..content.len().min(1012)]);
    if kind & 0x40 != 0 && kind & 7 == 5 {
        // A fuzzer hardly hits the length of a revoke block's list.
        block[12..16].copy_from_slice(&(16 + content.len().min(1000) as u32).to_be_bytes());
    }
    if kind & 0x20 != 0 && features & 0x10 != 0 {
        with_the_same_copies(kind & 7, seed, &mut block);
    }
    let is_superblock = kind & 7 == 4;
    if is_superblock && kind & 0x40 != 0 {
        // All that is required of a superblock, except its features and where the log begins.
        for (at, word) in [(12, 1024), (16, 1024), (20, 1), (64, 1)] {
            block[at..at + 4].copy_from_slice(&u32::to_be_bytes(word));
        }
        block[48..64].fill(0);
        block[80] = 4;
    }
    if kind & 0x80 == 0 && (features & 0x18 != 0 || is_superblock) {
        let (at, seed) = match kind & 7 {
            4 => (252, !0),
            2 => (16, seed),
            _ => (1020, seed),
        };
        block[at..at + 4].fill(0);
        let sum = !crc32c::crc32c_append(!seed, &block);
        block[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    }
    block
}

/// Follows a journal to which the bytes are written: each block is a kind, a place, a length and as many bytes.
pub fn journal(bytes: &[u8]) -> usize {
    let Some((features, mut rest)) = bytes.split_first() else {
        return 0;
    };
    let format = JournalFormat {
        block_bytes: 1024,
        first: JournalBlock(1),
        end: JournalBlock(1024),
        features: JournalFeatures {
            compatible: 0,
            incompatible: u32::from(features & 0x3F),
        },
        seed: !crc32c::crc32c(&[0; 16]),
    };
    let journal = journal_of(format);
    let home = Span::new(1 << 20, 1 << 42);
    let layout = Layout::new(&journal.extents, 1024);
    let mut follower = Follower::new(&journal, home);
    let mut transactions = Transactions::new(Arc::new(Reader::new(&journal, home)));
    let begins = Head::Superblock(Some(Log {
        format,
        begin: Some((Sequence(0), JournalBlock(1))),
    }));
    let reader = Arc::clone(transactions.reader());
    transactions.written(JournalBlock(0), Content::Own(begins), &reader);
    let (mut said, mut next) = (0, JournalBlock(1));
    while let [kind, low, high, length, after @ ..] = rest {
        let (content, after) = after.split_at(after.len().min(usize::from(*length) * 4));
        rest = after;
        let block = made_block((*features, *kind), format.seed, content);
        if let Block::Descriptor(found) = Block::parse(&block, &format) {
            assert!(found.tags().count() <= 1024 / 8);
        }
        let at = JournalBlock(u32::from(u16::from_le_bytes([*low, *high])));
        // Every other block of the log is next to the one before, so that transactions can end.
        for at in [at, next] {
            let reader = Arc::clone(transactions.reader());
            let told = transactions.written(at, reader.read(at, &block), &reader);
            said += hold_told(told, home, &layout, journal.superblock);
        }
        next = format.after(next);
        follower.block(at, &block, &mut |followed| {
            said += 1;
            let (Followed::Copy { home: at, .. } | Followed::Revoked { home: at }) = followed;
            assert!(home.contains(Span::new(at, 1024)));
            if let Followed::Copy { place, .. } = followed {
                let place = layout.block_at(place).expect("in the journal");
                assert!((format.first..format.end).contains(&place));
            }
        });
    }
    said
}

/// Whatever is written to a journal, in whatever order, a commit block is complete only if all blocks before it have taken
/// effect. Each four bytes are a block: what happens to it, where it is, and its number.
pub fn commits(bytes: &[u8]) -> usize {
    let piece = |start: u64, blocks: u64| Span::new(start * 4096, blocks * 4096);
    let format = JournalFormat {
        block_bytes: 4096,
        first: JournalBlock(1),
        end: JournalBlock(1100),
        features: JournalFeatures::default(),
        seed: 0,
    };
    let journal = Journal {
        extents: vec![piece(5000, 700), piece(100, 500)],
        format,
        is_empty: true,
        blocks: 1200,
        fast_commit_blocks: 100,
        uuid: Uuid::default(),
        superblock: JournalBlock(0),
        is_external: false,
        alignment: Alignment::Aligned,
    };
    let layout = Layout::new(&journal.extents, 4096);
    let mut commits = Commits::new(&journal, 1 << 30).expect("it is on the volume");
    let (mut complete, mut effects) = (0, 0);
    for op in bytes.chunks_exact(4) {
        let at = u32::from(u16::from_le_bytes([op[1], op[2]]));
        let offset = layout
            .place_of(JournalBlock(at))
            .unwrap_or(u64::from(at) * 4096);
        let mut block = vec![0; 4096];
        let words = [0xC03B_3998, u32::from(op[0] & 7), u32::from(op[3])];
        for (word, to) in words.into_iter().zip(block.chunks_mut(4)) {
            to.copy_from_slice(&u32::to_be_bytes(word));
        }
        let log = [
            (12, 4096),
            (16, 1100),
            (20, 1),
            (24, op[3].into()),
            (28, at),
            (64, 1),
        ];
        for (to, word) in log.into_iter().filter(|_| op[0] & 7 == 4) {
            block[to..to + 4].copy_from_slice(&u32::to_be_bytes(word));
        }
        let span = Span::new(offset, 4096 * u64::from(op[0] >> 4));
        match commits.read(offset, &block) {
            Some((_, Mark::Superblock(log))) => commits.superblock(log),
            Some((at, Mark::Commit(sequence))) => {
                let before = Span::new(offset.saturating_sub(span.bytes), span.bytes);
                let verdict = commits.commit(at, sequence, before);
                complete += usize::from(verdict == Verdict::Complete);
            }
            None if op[0] & 8 == 0 => effects += usize::from(commits.took_effect(span)),
            None if op[0] & 16 == 0 => drop(commits.refused(span, Refusal::Failed)),
            None => drop(commits.refused(span, Refusal::NoRoom)),
        }
    }
    assert!(effects <= bytes.len());
    complete
}

/// Follows the free space of a mounted file system to which the bytes are written: each is a kind of request, a place and some
/// contents. A drop never hits a block of mke2fs or the journal. Returns how many blocks were dropped.
pub fn freed(bytes: &[u8]) -> u64 {
    let mut volume = mounted();
    let found = scan(&mut volume, VOLUME_BLOCKS);
    let [found] = &found.file_systems[..] else {
        return 0;
    };
    let mut allowance = Allowance::to_follow(1);
    let Ok(mut freed) = Freed::new(found, &mut volume, VOLUME_BLOCKS, &mut allowance) else {
        return 0;
    };
    let extents = found.journal.as_ref().map(|it| &it.extents[..]);
    let extents = extents.unwrap_or_default();
    let layout = Layout::new(extents, 4096);
    let place = |block| layout.place_of(JournalBlock(block)).unwrap_or(0);
    let (mut flushes, mut dropped, mut sequence, mut next) = (0, 0, 1u32, 1);
    let mut last = bitmap(0, 0);
    freed.written(place(0), &log_begins(sequence, next));
    for request in bytes.chunks_exact(4) {
        let [kind, at, from, to] = [request[0], request[1], request[2], request[3]];
        let mut block = vec![0; PAGE];
        let data = 1400 + u64::from(at) * 8;
        match kind % 10 {
            0 | 1 => {
                // A whole transaction: a descriptor of the bitmap, its copy, a commit.
                block[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
                block[7] = 1;
                block[8..12].copy_from_slice(&sequence.to_be_bytes());
                block[15] = 2;
                block[19] = 10 ^ (kind & 0x80) >> 7;
                let start = if at == 1 { from.into() } else { next };
                freed.written(place(start), &block);
                last = bitmap(from, to);
                freed.written(place(start + 1), &last);
                (block[7], block[15], block[19]) = (2, 0, 0);
                freed.written(place(start + 2), &block);
                sequence = sequence.wrapping_add(if kind & 0x70 == 0x40 { 7 } else { 1 });
                next += 3;
            }
            2 | 3 => {
                let other = bitmap(from, to);
                let home = if at == 0 { &other } else { &last };
                freed.written(2 * PAGE as u64, home);
            }
            4 => freed.answered(2 * PAGE as u64, kind & 0x80 == 0),
            5 => {
                flushes += 1;
                freed.flush(flushes);
                freed.flushed(flushes - u64::from(kind >> 7));
            }
            6 => {
                let count = u64::from(from);
                freed.blanked(Span::new(data * PAGE as u64, count * PAGE as u64));
            }
            7 => drop(freed.written(data * PAGE as u64, &block)),
            8 => drop(freed.written(place(0), &log_begins(sequence, next))),
            _ => {
                while let Some(span) = freed.take(u64::from(to) + 1) {
                    assert!(found.home.contains(span) && span.bytes > 0);
                    assert!(!extents.iter().any(|extent| extent.overlaps(span)));
                    assert!(span.start >= 8 * PAGE as u64, "superblock, bitmaps, inodes");
                    dropped += span.bytes / PAGE as u64;
                }
            }
        }
    }
    dropped
}

/// A superblock of the sound ext4's journal.
fn log_begins(sequence: u32, at: u32) -> Vec<u8> {
    let content = [0, 0, 0, sequence, at].map(u32::to_be_bytes).concat();
    let mut block = made_block((0, 0x44), 0, &content);
    block.resize(PAGE, 0);
    block[12..16].copy_from_slice(&(PAGE as u32).to_be_bytes());
    block
}

/// Returns a bitmap of the sound ext4 in which some data blocks are free.
fn bitmap(from: u8, to: u8) -> Vec<u8> {
    let mut bytes = vec![0xFF; PAGE];
    for byte in usize::from(from)..usize::from(to) {
        // Some bitmaps are false: they extend to blocks of mke2fs.
        bytes[(1400 / 8 + 2 * byte) % (VOLUME_BLOCKS as usize / 8)] = 0;
    }
    bytes
}
