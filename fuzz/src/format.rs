//! Whatever is on a medium, decoding, recovery and checking end in an answer, and a volume that opens can be used.
//!
//! Checksums would stop a fuzzer, so here every checksum is 0.

use crate::disk::Disk;
use crate::life;
use vellum_core::addr::{BLOCK_BYTES, Generation, Lba, Leaf, Life, Pba, Segment, Seq, Vba};
use vellum_core::check::{Options, check};
use vellum_core::entry::Entry;
use vellum_core::format::areas::Layout;
use vellum_core::format::chunk::{ChunkHeader, Part, Record};
use vellum_core::format::geometry::{Params, plan};
use vellum_core::format::properties::{self as format_properties, Properties, Value};
use vellum_core::format::root::LeafSlot;
use vellum_core::format::summary::{Owner, Tag};
use vellum_core::format::superblock::Superblock;
use vellum_core::format::{
    self, SumKind, chunk as format_chunk, pack as format_pack, root as format_root,
    summary as format_summary,
};
use vellum_core::layout::{Recovered, rescue};
use vellum_core::recovery::recover;
use vellum_core::recovery::rescue::Trust;
use vellum_core::state::Map;

const UUID: [u8; 16] = *b"a fuzzed volume!";
const MEDIUM_BLOCKS: u64 = 1200;
const SEGMENT_BLOCKS: u32 = 64;
const LEAVES: u32 = 600;

fn nothing(_: &[u8]) -> u32 {
    0
}

/// Fits the bytes to the structure's length, and corrects the magic number, version, checksum and UUID (also its signature), so
/// that the rest is reached.
fn fit(bytes: &[u8], length: usize, magic: &[u8]) -> Vec<u8> {
    let mut fitted = bytes.to_vec();
    fitted.resize(length, 0);
    fitted[..magic.len()].copy_from_slice(magic);
    fitted[8..12].copy_from_slice(&1u32.to_le_bytes());
    fitted[12..16].fill(0);
    fitted[16..32].copy_from_slice(&UUID);
    fitted
}

fn geometry(sums: SumKind) -> Superblock {
    plan(&Params {
        medium_blocks: MEDIUM_BLOCKS,
        logical_blocks: None,
        over_provisioning: 100,
        segment_blocks: Some(SEGMENT_BLOCKS),
        uuid: UUID,
        secret: *b"a fuzzed volume!a fuzzed volume!",
        sums,
    })
    .expect("large enough")
}

/// A superblock: the bytes are XORed over a sound one.
pub fn superblock(bytes: &[u8]) {
    let _ = Superblock::decode(bytes, MEDIUM_BLOCKS, crc32c::crc32c);
    let changed = |sums| {
        let mut block = [0; BLOCK_BYTES];
        geometry(sums).encode(nothing, &mut block);
        for (byte, change) in block.iter_mut().zip(bytes) {
            *byte ^= change;
        }
        block
    };
    let (older, newer) = (changed(SumKind::Crc32c), changed(SumKind::Xxh3));
    let sizes = [MEDIUM_BLOCKS, u64::MAX];
    for (block, medium_blocks) in [older, newer]
        .iter()
        .flat_map(|block| sizes.map(|size| (block, size)))
    {
        let _ = Superblock::decode_head(block, medium_blocks, nothing);
        let Ok(found) = Superblock::decode(block, medium_blocks, nothing) else {
            continue;
        };
        let end = found.medium_blocks();
        assert!(end <= medium_blocks);
        if found.layout() != Layout::Log {
            let last = found.areas().data((found.areas().data_blocks() - 1) as u32);
            let tables: u64 = found.table_blocks().iter().sum();
            assert!(last.0 < end && found.table_at(tables - 1, 1).0 < end);
            let twins = [found.map_twin(0, 1), found.directory_twin(0, 1)];
            assert!(twins.into_iter().flatten().all(|twin| twin.0 < end));
            continue;
        }
        let last_root = found
            .root_place(Generation(1))
            .plus(found.root_blocks().into());
        let last_slot = found.leaf_slot(Leaf(found.leaves() - 1), 1);
        let last_segment = found.segment_start(Segment(found.segment_count() - 1));
        assert!(last_root.0 < end && last_slot.0 < end);
        let last_twin = found.root_twin(Generation(1));
        assert!(last_twin.is_none_or(|twin| twin.0 + u64::from(found.root_blocks()) < end));
        assert!(last_segment.0 + u64::from(found.segment_blocks()) < end);
        assert_eq!(
            found.segment_of(last_segment),
            Some((Segment(found.segment_count() - 1), 0))
        );
        assert!(found.usable_blocks() < found.segment_blocks());
        assert!(found.victim_limit() < found.usable_blocks());
        let _ = found.capacity_blocks();
        let mut again = [0; BLOCK_BYTES];
        found.encode(nothing, &mut again);
        assert_eq!(
            Superblock::decode(&again, medium_blocks, nothing),
            Ok(found)
        );
    }
}

/// Properties and their values.
pub fn properties(bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(format_properties::AREA.len())];
    let Ok(found) = Properties::decode(7, bytes) else {
        return;
    };
    for (name, value) in found.iter() {
        let _ = (value.as_switch(), value.as_number(), value.as_text());
        let _ = value.as_ranges();
        assert_eq!(found.get(name), Some(value));
        let mut set = found.clone();
        assert_eq!(set.set(name, Some(value.clone())), Ok(()));
        assert_eq!(set, found);
    }
    let mut again = vec![0; bytes.len()];
    assert_eq!(found.encode(&mut again), bytes.len());
    assert_eq!(again, bytes);
}

/// A chunk's header and its records.
pub fn chunk(bytes: &[u8]) {
    let _ = format_chunk::decode(bytes, crc32c::crc32c);
    let block = fit(bytes, BLOCK_BYTES, b"VELLUMCH");
    let Ok((header, records)) = format_chunk::decode(&block, nothing) else {
        return;
    };
    let owning = records
        .iter()
        .filter(|record| record.tag().is_some())
        .count();
    assert_eq!(owning, header.data_blocks as usize);
    let mut again = vec![0; BLOCK_BYTES];
    let names = format_chunk::names_of_before(&block);
    let mut bytes_of_names = Vec::new();
    if let Ok(names) = &names {
        bytes_of_names.resize(names.encoded_len(), 0);
        names.encode(&mut bytes_of_names);
    }
    format_chunk::encode(&header, &records, &bytes_of_names, nothing, &mut again);
    assert_eq!(format_chunk::decode(&again, nothing), Ok((header, records)));
    if names.is_ok() {
        assert_eq!(format_chunk::names_of_before(&again), names);
    }
}

/// A page of parts, in which one is looked up.
pub fn pack(bytes: &[u8]) {
    let (slot, bytes) = bytes.split_first().unwrap_or((&0, &[]));
    for magic in [b"VLPK".as_slice(), b"VELLUMCH"] {
        let page = fit(bytes, BLOCK_BYTES, magic);
        for slot in [*slot, slot % 32] {
            if let Ok((_, part, stored)) = format_pack::find(&page, slot, nothing) {
                assert_eq!((part.slot, usize::from(part.len)), (slot, stored.len()));
            }
        }
        let mut told = Vec::new();
        if format_pack::directory(&page, nothing, &mut told).is_ok() {
            assert!(told.len() <= BLOCK_BYTES / format_pack::OVERHEAD);
        }
    }
}

/// A root and its table.
pub fn root(bytes: &[u8]) {
    let _ = format_root::decode(bytes, &UUID, LEAVES, crc32c::crc32c);
    let block = fit(
        bytes,
        format_root::blocks(LEAVES) as usize * BLOCK_BYTES,
        b"VELLUMRT",
    );
    let Ok((header, slots)) = format_root::decode(&block, &UUID, LEAVES, nothing) else {
        return;
    };
    assert_eq!(slots.len(), LEAVES as usize);
    let mut again = vec![0; block.len()];
    format_root::encode(&header, &slots, nothing, &mut again);
    // The checksum of an absent leaf means nothing; everything else round-trips.
    assert_eq!(
        format_root::decode(&again, &UUID, LEAVES, nothing),
        Ok((header, slots))
    );
}

/// A leaf of the map.
pub fn leaf(bytes: &[u8]) {
    let mut block = [0; BLOCK_BYTES];
    let length = bytes.len().min(BLOCK_BYTES);
    block[..length].copy_from_slice(&bytes[..length]);
    let mut map = Map::new(3 * 1024 + 5);
    for leaf in [Leaf(0), Leaf(3)] {
        let inside = leaf.0 < 3 || block[5 * 4..].iter().all(|&byte| byte == 0);
        assert_eq!(map.load_leaf(leaf, &block), inside);
        for lba in [Lba(u64::from(leaf.0) * 1024), Lba(3 * 1024 + 4)] {
            let _ = map.get(lba);
        }
        assert!(map.iter().all(|(_, entry)| entry != Entry::Unmapped));
        let mut again = [0; BLOCK_BYTES];
        map.encode_leaf(leaf, &mut again);
        assert_eq!(again == block, inside);
    }
}

/// A segment's summary.
pub fn summary(bytes: &[u8]) {
    let count = 63;
    let segment = Segment(7);
    let _ = format_summary::decode(&UUID, segment, count, bytes, crc32c::crc32c);
    // The summary read as an open one that says nothing.
    let _ = format_summary::last_seq(&UUID, segment, 0, bytes, nothing);
    let block = fit(
        bytes,
        format_summary::blocks(SEGMENT_BLOCKS) as usize * BLOCK_BYTES,
        b"VELLUMSU",
    );
    let Ok(tags) = format_summary::decode(&UUID, segment, count, &block, nothing) else {
        return;
    };
    let last_seq =
        format_summary::last_seq(&UUID, segment, count, &block, nothing).expect("as before");
    let mut again = vec![0; block.len()];
    format_summary::encode(&UUID, segment, last_seq, &tags, nothing, &mut again);
    assert_eq!(
        format_summary::decode(&UUID, segment, count, &again, nothing),
        Ok(tags)
    );
}

/// Returns a sound volume with every kind of block.
fn sound() -> Disk {
    // 0, like every other checksum.
    let sb = geometry(SumKind::Crc32c);
    let mut disk = Disk::new(MEDIUM_BLOCKS);
    format::blank(&sb, nothing, &mut |at, bytes| disk.put(at, bytes));
    let at = |segment: u32, offset: u64| sb.segment_start(Segment(segment)).plus(offset);
    let mut block = vec![0; BLOCK_BYTES];
    for (seq, (segment, offset, records, next)) in (1..).zip(chunks(&at)) {
        let header = ChunkHeader {
            signature: UUID,
            seq: Seq(seq),
            life: Life(1),
            prev_life: Life(u64::from(seq > 1)),
            durable: Seq(seq.saturating_sub(2)),
            at: at(segment, offset),
            root_generation: Generation(1),
            head: u8::from(segment == 1),
            data_blocks: records.iter().filter(|r| r.tag().is_some()).count() as u32,
            next: next.map(Segment),
        };
        format_chunk::encode(&header, &records, &[], nothing, &mut block);
        disk.put(header.at, &block);
    }
    put_summary(&mut disk, &sb, &mut block);
    put_map(&mut disk, &sb, &mut block);
    disk
}

/// A chunk of the log: its segment, its offset there, its records, and the head's next segment.
type Chunk = (u32, u64, Vec<Record>, Option<u32>);

fn chunks(at: &dyn Fn(u32, u64) -> Pba) -> [Chunk; 7] {
    let lba = |lba: u64| Record::Data {
        lba: Lba(lba),
        sum: 0,
    };
    let share = |lba: u64| Record::Share {
        lba: Lba(lba),
        vba: Vba(0),
        pba: at(5, 2),
    };
    [
        (5, 0, vec![lba(0), lba(1), lba(2)], Some(0)),
        (
            0,
            0,
            vec![
                lba(3),
                Record::Zero {
                    lba: Lba(4),
                    blocks: 2,
                },
            ],
            None,
        ),
        (
            1,
            0,
            vec![Record::Move {
                lba: Lba(0),
                sum: 0,
                from: at(5, 1),
            }],
            None,
        ),
        (0, 2, vec![share(9)], None),
        (0, 3, vec![share(1), lba(6)], None),
        (
            1,
            2,
            vec![Record::MoveShared {
                vba: Vba(0),
                sum: 0,
                from: at(5, 2),
            }],
            None,
        ),
        (
            0,
            5,
            vec![Record::Discard {
                lba: Lba(3),
                blocks: 3,
            }],
            None,
        ),
    ]
}

/// Writes the summary of the first segment of the log.
fn put_summary(disk: &mut Disk, sb: &Superblock, block: &mut [u8]) {
    let at = sb.segment_start(Segment(5));
    let mut tags = vec![
        Tag {
            owner: Owner::None,
            sum: 0
        };
        sb.usable_blocks() as usize
    ];
    for (lba, tag) in (0..).zip(&mut tags[1..4]) {
        tag.owner = Owner::Lba(Lba(lba));
    }
    format_summary::encode(&UUID, Segment(5), Seq(1), &tags, nothing, block);
    disk.put(at.plus(sb.usable_blocks().into()), block);
}

/// Writes the first map checkpoint after the first chunk.
fn put_map(disk: &mut Disk, sb: &Superblock, block: &mut [u8]) {
    let at = sb.segment_start(Segment(5));
    let mut map = Map::new(sb.logical_blocks());
    for lba in 0..3 {
        map.set(Lba(lba), Entry::Plain(at.plus(1 + lba)));
    }
    map.encode_leaf(Leaf(0), block);
    disk.put(sb.leaf_slot(Leaf(0), 0), block);
    let mut slots = vec![LeafSlot::Absent; sb.leaves() as usize];
    slots[0] = LeafSlot::Slot0(0);
    let header = format_root::RootHeader {
        uuid: UUID,
        generation: Generation(2),
        seq: Seq(1),
        life: Life(1),
        durable: Seq(1),
        cursors: [0, 1].map(|segment| format_root::Cursor {
            segment: Segment(segment),
            offset: 0,
        }),
        swept: 0,
        scrubbed: 0,
    };
    let mut bytes = vec![0; sb.root_blocks() as usize * BLOCK_BYTES];
    format_root::encode(&header, &slots, nothing, &mut bytes);
    put_root(disk, sb, &bytes);
}

/// Writes both copies of the root of the second map checkpoint.
fn put_root(disk: &mut Disk, sb: &Superblock, bytes: &[u8]) {
    for at in sb.root_copies(Generation(2)) {
        disk.put(at, bytes);
    }
}

/// Returns a volume with some bytes changed: each 8 bytes of input give a block, an offset, a share of how the volume is used
/// if it can still be opened, and 4 new bytes.
fn edited(bytes: &[u8]) -> Disk {
    let mut disk = sound();
    let mut places: Vec<_> = disk.written.keys().copied().collect();
    places.sort_unstable();
    for edit in bytes.chunks_exact(8).take(64) {
        let place = usize::from(edit[0]) % places.len();
        let offset = usize::from(u16::from_le_bytes([edit[1], edit[2]])) % (BLOCK_BYTES - 3);
        if let Some(block) = disk.written.get_mut(&places[place]) {
            block[offset..offset + 4].copy_from_slice(&edit[4..]);
        }
    }
    disk
}

/// Rescues such a volume, with each level of trust: it ends in an answer, and what is found can be read. Returns whether
/// anything was found.
pub fn rescued(bytes: &[u8]) -> bool {
    [Trust::Certain, Trust::Newest].into_iter().all(|trust| {
        let mut disk = edited(bytes);
        let Ok((found, loss)) = rescue(&mut disk, MEDIUM_BLOCKS, nothing, trust) else {
            return false;
        };
        // Blocks of snapshots may be lost as well.
        let blocks = found.superblock().mapped_blocks();
        for (lba, length) in loss.lost.runs().chain(loss.guessed.runs()) {
            assert!(lba.0 + length <= blocks && length > 0);
            assert!(!(loss.lost.contains(lba) && loss.guessed.contains(lba)));
        }
        assert!(!bytes.is_empty() || loss.lost.is_empty() && loss.damage.is_empty());
        life::read_all(found, &mut disk.written, life::chance(bytes));
        true
    })
}

/// Opens, checks and uses such a volume. Returns whether it could be opened.
pub fn volume(bytes: &[u8]) -> bool {
    let mut disk = edited(bytes);
    let found = recover(&mut disk, MEDIUM_BLOCKS, nothing);
    let opens = found.is_ok();
    let options = Options {
        data: true,
        findings_max: 8,
    };
    let report = check(&mut disk, MEDIUM_BLOCKS, options, nothing);
    assert_eq!(report.superblock.is_some(), opens);
    assert!(
        !bytes.is_empty() || (opens && report.findings.is_empty()),
        "{:?}",
        report.findings
    );
    if let Ok(found) = found {
        life::live(
            Recovered::Log(Box::new(found)),
            &mut disk.written,
            life::chance(bytes),
            120,
        );
        let again = recover(&mut disk, MEDIUM_BLOCKS, nothing);
        assert!(!bytes.is_empty() || again.is_ok(), "after a shutdown");
    }
    opens
}

fn some_properties() -> Vec<u8> {
    let mut some = Properties::default();
    for (name, value) in [
        ("buffer", Value::number(64 << 20)),
        ("compress", Value::text("zstd")),
        ("fold", Value::switch(true)),
        ("journals", Value::ranges(&[(1 << 30, 1 << 27)])),
    ] {
        assert_eq!(some.set(name, Some(value)), Ok(()));
    }
    let mut area = vec![0; format_properties::AREA.len()];
    let used = some.encode(&mut area);
    area.truncate(used);
    area
}

/// Returns a sound block of each structure, as a seed for the tests.
pub fn seeds() -> Vec<(&'static str, fn(&[u8]), Vec<u8>)> {
    let disk = sound();
    let start = |magic: &[u8]| {
        let mut found: Vec<_> = disk
            .written
            .iter()
            .filter(|(_, block)| block.starts_with(magic))
            .collect();
        found.sort_unstable_by_key(|(at, _)| **at);
        found
    };
    let mut seeds: Vec<(&'static str, fn(&[u8]), Vec<u8>)> = Vec::new();
    seeds.push(("superblock", superblock, vec![0; BLOCK_BYTES]));
    seeds.push(("properties", properties, some_properties()));
    for (_, header) in start(b"VELLUMCH") {
        seeds.push(("chunk", chunk, header.clone()));
    }
    let slots = vec![LeafSlot::Slot1(5); LEAVES as usize];
    let header = format_root::RootHeader {
        uuid: UUID,
        generation: Generation(2),
        seq: Seq(1),
        life: Life(1),
        durable: Seq(1),
        cursors: [format_root::Cursor {
            segment: Segment(1),
            offset: 9,
        }; 2],
        swept: 0,
        scrubbed: 0,
    };
    let mut bytes = vec![0; format_root::blocks(LEAVES) as usize * BLOCK_BYTES];
    format_root::encode(&header, &slots, nothing, &mut bytes);
    seeds.push(("root", root, bytes));
    let entries = [0, 1, 700, 1 << 31, (1 << 31) + 8, u32::MAX >> 1];
    seeds.push((
        "leaf",
        leaf,
        entries
            .iter()
            .flat_map(|entry: &u32| entry.to_le_bytes())
            .collect(),
    ));
    let tags: Vec<_> = (0..63)
        .map(|number| Tag {
            owner: match number % 3 {
                0 => Owner::None,
                1 => Owner::Lba(Lba(number)),
                _ => Owner::Vba(Vba(number as u32)),
            },
            sum: 5,
        })
        .collect();
    let mut bytes = vec![0; format_summary::blocks(SEGMENT_BLOCKS) as usize * BLOCK_BYTES];
    format_summary::encode(&UUID, Segment(7), Seq(9), &tags, nothing, &mut bytes);
    seeds.push(("summary", summary, bytes));
    let part = Part {
        slot: 0,
        encoding: 1,
        offset: format_pack::first_offset(1) as u16,
        len: 100,
        ..Part::default()
    };
    let mut bytes = vec![0; 1 + BLOCK_BYTES];
    format_pack::encode([Record::Part { lba: Lba(7), part }].iter(), &mut bytes[1..]);
    seeds.push(("page of parts", pack, bytes));
    seeds
}
