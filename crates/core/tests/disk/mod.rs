//! A medium in memory, and volumes built on it by hand: with the encoders, not with the engine.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use crc32c::crc32c;
use std::collections::{BTreeSet, HashMap};
use vellum_core::addr::{BLOCK_BYTES, Generation, Lba, Leaf, Life, Pba, Segment, Seq};
use vellum_core::entry::Entry;
use vellum_core::format::chunk::{self, ChunkHeader, Record};
use vellum_core::format::geometry::{self, Params};
use vellum_core::format::names::{NAMES_ROOM, Names};
use vellum_core::format::root::{self, Cursor, LeafSlot, RootHeader};
use vellum_core::format::summary::{self, Owner, Tag};
use vellum_core::format::{self, BlockSum, SumKind, leaf, superblock::Superblock};
use vellum_core::recovery::{Recovered, RecoveryError, Source, Unreadable, recover};
use vellum_core::state::Map;

pub const BLOCKS: u64 = 2048;
const SECRET: [u8; 32] = [3; 32];

pub struct Disk {
    pub blocks: HashMap<u64, Vec<u8>>,
    pub unreadable: BTreeSet<u64>,
    pub size: u64,
    pub sb: Superblock,
    /// Reads so far.
    pub reads: u64,
}

impl Source for Disk {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        self.reads += 1;
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        assert!(at.0 + blocks <= self.size, "a read past the end, at {at}");
        if self.unreadable.range(at.0..at.0 + blocks).next().is_some() {
            return Err(Unreadable { at, blocks });
        }
        for (index, out) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            match self.blocks.get(&(at.0 + index as u64)) {
                Some(block) => out.copy_from_slice(block),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        Ok(())
    }
}

/// An empty volume with these chunks.
pub fn disk_with(chunks: &[Chunk]) -> Disk {
    let mut disk = Disk::new();
    for chunk in chunks {
        disk.write(chunk);
    }
    disk
}

/// The same, with headers that repeat the names of the chunk before.
pub fn disk_with_names(chunks: &[Chunk]) -> Disk {
    let mut disk = Disk::of(plan(SumKind::Xxh3));
    for chunk in chunks {
        let is_before =
            |other: &&Chunk| other.seq + 1 == chunk.seq && other.life == chunk.prev_life;
        disk.write_after(chunk, chunks.iter().find(is_before));
    }
    disk
}

fn plan(sums: SumKind) -> Superblock {
    geometry::plan(&Params {
        medium_blocks: BLOCKS,
        logical_blocks: None,
        over_provisioning: 100,
        segment_blocks: Some(64),
        uuid: *b"a volume by hand",
        secret: SECRET,
        sums,
    })
    .unwrap()
}

/// A leaf's block with these numbers at these indexes, and 0 elsewhere.
pub fn leaf_of(entries: &[(usize, u32)]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    for &(index, raw) in entries {
        block[4 * index..][..4].copy_from_slice(&raw.to_le_bytes());
    }
    block
}

/// A block's bytes, which differ by number.
pub fn data(tag: u32) -> Vec<u8> {
    tag.to_le_bytes().repeat(BLOCK_BYTES / 4)
}

/// A block's sum, as in these volumes.
pub fn sum(block: &[u8]) -> u32 {
    let seed = u64::from_le_bytes([SECRET[0]; 8]);
    BlockSum::Xxh3 { seed }.of(block)
}

/// A chunk to write; a test can make everything about it strange.
#[derive(Clone)]
pub struct Chunk {
    pub head: u8,
    pub segment: u32,
    pub offset: u32,
    pub seq: u64,
    pub life: u64,
    pub prev_life: u64,
    pub durable: u64,
    pub root: u64,
    pub next: Option<u32>,
    pub records: Vec<Record>,
    pub data: Vec<Vec<u8>>,
}

/// The `seq`th chunk, of the first life, writing `tags` to `lba` and on.
pub fn chunk(seq: u64, segment: u32, offset: u32, lba: u64, tags: &[u32]) -> Chunk {
    let data: Vec<_> = tags.iter().map(|tag| data(*tag)).collect();
    let records = data.iter().zip(lba..).map(|(block, lba)| Record::Data {
        lba: Lba(lba),
        sum: sum(block),
    });
    Chunk {
        head: u8::from(segment == 1),
        segment,
        offset,
        seq,
        life: 1,
        prev_life: u64::from(seq > 1),
        durable: 0,
        root: 1,
        next: None,
        records: records.collect(),
        data,
    }
}

impl Disk {
    /// An empty volume: heads at segments 0 and 1, checkpoint 1.
    pub fn new() -> Self {
        Self::with_sums(SumKind::Xxh3)
    }

    /// An empty volume with sums of this kind. It has no copies of metadata: each test damages the only one.
    pub fn with_sums(sums: SumKind) -> Self {
        Self::of(plan(sums).without_copies())
    }

    fn of(sb: Superblock) -> Self {
        let mut disk = Self {
            blocks: HashMap::new(),
            unreadable: BTreeSet::new(),
            size: BLOCKS,
            sb: sb.clone(),
            reads: 0,
        };
        format::blank(&sb, crc32c, &mut |at, bytes| disk.put(at, bytes));
        disk
    }

    pub fn put(&mut self, at: Pba, bytes: &[u8]) {
        for (index, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            self.blocks.insert(at.0 + index as u64, block.to_vec());
        }
    }

    /// Flips a bit.
    pub fn damage(&mut self, at: Pba) {
        let block = self
            .blocks
            .entry(at.0)
            .or_insert_with(|| vec![0; BLOCK_BYTES]);
        block[100] ^= 4;
    }

    pub fn at(&self, segment: u32, offset: u32) -> Pba {
        self.sb.segment_start(Segment(segment)).plus(offset.into())
    }

    pub fn write(&mut self, chunk: &Chunk) {
        self.write_after(chunk, None);
    }

    /// Writes a chunk whose header repeats the names of `before`.
    pub fn write_after(&mut self, chunk: &Chunk, before: Option<&Chunk>) {
        let at = self.at(chunk.segment, chunk.offset);
        let header = ChunkHeader {
            signature: self.sb.signature(),
            seq: Seq(chunk.seq),
            life: Life(chunk.life),
            prev_life: Life(chunk.prev_life),
            durable: Seq(chunk.durable),
            at,
            root_generation: Generation(chunk.root),
            head: chunk.head,
            data_blocks: chunk.data.len() as u32,
            next: chunk.next.map(Segment),
        };
        let mut block = vec![0; BLOCK_BYTES];
        let mut names = Names::default();
        let before = before.iter().flat_map(|before| &before.records);
        names.take(before.filter_map(Record::names));
        let mut told = [0; NAMES_ROOM];
        let length = names.fit(told.len());
        names.encode(&mut told);
        let told = &told[..length];
        chunk::encode(&header, &chunk.records, told, crc32c, &mut block);
        self.put(at, &block);
        for (index, data) in chunk.data.iter().enumerate() {
            self.put(at.plus(1 + index as u64), data);
        }
    }

    /// The summary of a segment that these chunks fill.
    pub fn write_summary(&mut self, segment: u32, chunks: &[&Chunk]) {
        let nothing = Tag {
            owner: Owner::None,
            sum: 0,
        };
        let mut tags = vec![nothing; self.sb.usable_blocks() as usize];
        let mut last = 0;
        for chunk in chunks {
            last = chunk.seq;
            for (index, tag) in chunk.records.iter().filter_map(Record::tag).enumerate() {
                tags[chunk.offset as usize + 1 + index] = tag;
            }
        }
        let blocks = self.sb.segment_blocks() - self.sb.usable_blocks();
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        let signature = self.sb.signature();
        summary::encode(
            &signature,
            Segment(segment),
            Seq(last),
            &tags,
            crc32c,
            &mut bytes,
        );
        self.put(self.at(segment, self.sb.usable_blocks()), &bytes);
    }

    /// A map checkpoint with one leaf.
    pub fn checkpoint(
        &mut self,
        generation: u64,
        seq: u64,
        heads: [(u32, u32); 2],
        map: &[(u64, Pba)],
    ) {
        self.checkpoint_durable(generation, seq, seq, heads, map);
    }

    pub fn checkpoint_durable(
        &mut self,
        generation: u64,
        seq: u64,
        durable: u64,
        heads: [(u32, u32); 2],
        map: &[(u64, Pba)],
    ) {
        let mut leaves = Map::new(self.sb.logical_blocks());
        for &(lba, pba) in map {
            leaves.set(Lba(lba), Entry::Plain(pba));
        }
        let mut block = vec![0; BLOCK_BYTES];
        leaves.encode_leaf(Leaf(0), &mut block);
        self.checkpoint_of(generation, seq, durable, heads, &[(Leaf(0), block)]);
    }

    /// A map checkpoint of these leaves, of the map or of the tables after it.
    pub fn checkpoint_of(
        &mut self,
        generation: u64,
        seq: u64,
        durable: u64,
        heads: [(u32, u32); 2],
        leaves: &[(Leaf, Vec<u8>)],
    ) {
        let slot = generation & 1;
        let mut slots = vec![LeafSlot::Absent; self.sb.leaves() as usize];
        for (leaf, block) in leaves {
            self.put(self.sb.leaf_slot(*leaf, slot as u32), block);
            let sum = leaf::checksum(*leaf, block, crc32c);
            slots[leaf.0 as usize] = LeafSlot::at(slot as u32, sum);
        }
        let header = RootHeader {
            uuid: self.sb.uuid(),
            generation: Generation(generation),
            seq: Seq(seq),
            life: Life(u64::from(seq > 0)),
            durable: Seq(durable),
            cursors: heads.map(|(segment, offset)| Cursor {
                segment: Segment(segment),
                offset,
            }),
            swept: 0,
            scrubbed: 0,
        };
        let mut bytes = vec![0; self.sb.root_blocks() as usize * BLOCK_BYTES];
        root::encode(&header, &slots, crc32c, &mut bytes);
        self.put(self.sb.root_place(Generation(generation)), &bytes);
    }

    pub fn write_mirror(&mut self, index: usize, sb: &Superblock) {
        let mut block = [0; BLOCK_BYTES];
        sb.encode(crc32c, &mut block);
        self.put(self.sb.mirrors()[index], &block);
    }

    pub fn recover(&mut self) -> Result<Recovered, RecoveryError> {
        let size = self.size;
        recover(self, size, crc32c)
    }

    pub fn recovered(&mut self) -> Recovered {
        self.recover().unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn error(&mut self) -> RecoveryError {
        match self.recover() {
            Ok(found) => panic!("recovered through {}", found.last_seq),
            Err(error) => error,
        }
    }

    /// The tag of the block that an LBA reads as, after recovery.
    pub fn tag_of(&self, found: &Recovered, lba: u64) -> Option<u32> {
        match found.state.map().get(Lba(lba)) {
            Entry::Plain(at) => {
                let block = &self.blocks[&at.0];
                Some(u32::from_le_bytes([block[0], block[1], block[2], block[3]]))
            }
            _ => None,
        }
    }
}
