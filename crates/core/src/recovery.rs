//! Recovery: from the newest map checkpoint, chunk after chunk in their one order, to the first hole.
//!
//! It pulls what it reads through [`Source`] and changes nothing on the medium, so it can be cut short
//! anywhere and begun again. What it trusts: nothing without its checksum; of chunks that no later header
//! knows to be durable, not the data either (promise 3: a chunk is there as a whole or not at all).

use crate::addr::{BLOCK_BYTES, Generation, Lba, Leaf, Life, Pba, Segment, Seq, Vba};
use crate::format::chunk::{self, ChunkHeader, Record};
use crate::format::root::{self, Cursor, LeafSlot, RootHeader};
use crate::format::summary::{Owner, Tag};
use crate::format::{Crc, FormatError, leaf, superblock::Superblock};
use crate::map::{Entry, LEAF_ENTRIES, Map, UnknownEntry};
use crate::refs::Shared;
use alloc::{vec, vec::Vec};

/// Where recovery reads from.
pub trait Source {
    /// Fills `bytes` (whole blocks) from `at` on.
    ///
    /// # Errors
    /// When the medium cannot read them.
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable>;
}

/// Some blocks cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the medium cannot read {blocks} block(s) at physical block {at}")]
pub struct Unreadable {
    /// The first of them.
    pub at: Pba,
    /// How many.
    pub blocks: u64,
}

/// Why a volume cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// Neither mirror is a superblock.
    #[error(
        "not a vellum volume, or both superblocks are lost: {first} (block 0); {last} (last block)"
    )]
    NoSuperblock {
        /// What is wrong with the first.
        first: FormatError,
        /// What is wrong with the other.
        last: FormatError,
    },
    /// Neither root is whole.
    #[error("both map checkpoints are damaged: {first}; {second}")]
    NoRoot {
        /// What is wrong with the first place.
        first: FormatError,
        /// What is wrong with the second.
        second: FormatError,
    },
    /// The newest root is damaged, and what was written after it proves that it was complete once.
    #[error("map checkpoint {lost} is damaged: it was durable once, and what came after needs it")]
    RootLost {
        /// Its number.
        lost: Generation,
    },
    /// A leaf is damaged.
    #[error("leaf {leaf} of the map, at physical block {at}, fails its checksum")]
    Leaf {
        /// Which.
        leaf: Leaf,
        /// Where.
        at: Pba,
    },
    /// A leaf holds an entry of a later version.
    #[error("leaf {leaf} of the map: {error}; use a newer vellum")]
    Entry {
        /// Which.
        leaf: Leaf,
        /// The entry.
        error: UnknownEntry,
    },
    /// The log has a hole before chunks that were durable.
    #[error(
        "chunk {seq} of the log is damaged or missing, but chunk {later} at physical block {at} proves that it was durable"
    )]
    Hole {
        /// The missing chunk.
        seq: Seq,
        /// A later one.
        later: Seq,
        /// Where that is.
        at: Pba,
    },
    /// A record or an entry that names something outside the volume.
    #[error("{what} at physical block {at} names a block outside the volume")]
    Outside {
        /// The structure.
        what: &'static str,
        /// Where it is.
        at: Pba,
    },
    /// The medium.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// A segment after recovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct SegmentState {
    /// Live blocks.
    pub valid: u32,
    /// Newest chunk in it, as far as replay has seen.
    pub last_seq: Seq,
}

/// What replay did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed {
    /// Chunks applied.
    pub chunks: u64,
    /// Data blocks whose checksums were held against their header.
    pub verified: u64,
    /// Leaves of the map loaded.
    pub leaves: u64,
    /// Whether a superblock mirror was damaged (the next opening for writing repairs it).
    pub mirror_lost: bool,
}

/// A volume as it was found.
pub struct Recovered {
    /// What it is.
    pub superblock: Superblock,
    /// The map.
    pub map: Map,
    /// The shared pages, counted.
    pub shared: Shared,
    /// Where the hot and the cold head go on.
    pub heads: [Cursor; 2],
    /// The newest chunk.
    pub last_seq: Seq,
    /// Its life.
    pub last_life: Life,
    /// The map checkpoint that replay began at.
    pub root_generation: Generation,
    /// The newest chunk that it includes.
    pub root_seq: Seq,
    /// Where its leaves are.
    pub slots: Vec<LeafSlot>,
    /// Every segment.
    pub segments: Vec<SegmentState>,
    /// Owners and checksums of the blocks of segments that have chunks newer than the map checkpoint, or
    /// are open: their summaries may not be there.
    pub tags: Vec<(Segment, Vec<Tag>)>,
    /// Pages whose one owner is not the one that their tag names.
    pub strays: Vec<(Pba, Lba)>,
    /// What replay did.
    pub replayed: Replayed,
}

/// Finds the newest whole superblock; `true` with it when the other mirror is damaged or older.
///
/// # Errors
/// When neither mirror is one.
pub fn find_superblock(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
) -> Result<(Superblock, bool), RecoveryError> {
    let mut block = [0; BLOCK_BYTES];
    let mut read = |at: Pba| -> Result<Superblock, FormatError> {
        let empty = FormatError::Truncated {
            what: "superblock",
            have: 0,
            need: BLOCK_BYTES,
        };
        source.read(at, &mut block).map_err(|_| empty)?;
        Superblock::decode(&block, medium_blocks, crc)
    };
    let first = read(Pba(0));
    // The medium may have grown since: then the first says where the last is.
    let last_at = first
        .as_ref()
        .map_or(medium_blocks.saturating_sub(1), |sb| sb.medium_blocks() - 1);
    let last = read(Pba(last_at));
    match (first, last) {
        (Ok(first), Ok(last)) if first == last => Ok((first, false)),
        (Ok(first), Ok(last)) if first.uuid() == last.uuid() && last.life() > first.life() => {
            Ok((last, true))
        }
        (Ok(first), _) => Ok((first, true)),
        (Err(_), Ok(last)) => Ok((last, true)),
        (Err(first), Err(last)) => Err(RecoveryError::NoSuperblock { first, last }),
    }
}

/// Brings a volume to where its log ends.
///
/// # Errors
/// When something durable is damaged; nothing is lost silently.
pub fn recover(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
) -> Result<Recovered, RecoveryError> {
    let (superblock, mirror_lost) = find_superblock(source, medium_blocks, crc)?;
    let (header, slots, newer_lost) = find_root(source, &superblock, crc)?;
    let mut replay = Replay::new(source, superblock, crc, header, slots)?;
    replay.replayed.mirror_lost = mirror_lost;
    replay.load_leaves()?;
    replay.walk_open_segments()?;
    while replay.step()? {}
    replay.look_past_the_hole(newer_lost)?;
    replay.finish()
}

/// The newest whole root, and whether the other place holds one that is damaged (and may be newer).
fn find_root(
    source: &mut dyn Source,
    superblock: &Superblock,
    crc: Crc,
) -> Result<(RootHeader, Vec<LeafSlot>, bool), RecoveryError> {
    let mut bytes = vec![0; superblock.root_blocks() as usize * BLOCK_BYTES];
    let mut read = |place: u64| {
        let lost = FormatError::Truncated {
            what: "root",
            have: 0,
            need: BLOCK_BYTES,
        };
        if source
            .read(superblock.root_place(Generation(place)), &mut bytes)
            .is_err()
        {
            return (Err(lost), true);
        }
        let written = bytes.iter().any(|&byte| byte != 0);
        let decoded = root::decode(&bytes, &superblock.uuid(), superblock.leaves(), crc);
        (
            decoded.and_then(|root| check_cursors(superblock, root)),
            written,
        )
    };
    let (first, first_written) = read(0);
    let (second, second_written) = read(1);
    match (first, second) {
        (Ok(first), Ok(second)) if first.0.generation > second.0.generation => {
            Ok((first.0, first.1, false))
        }
        (Ok(_), Ok(second)) => Ok((second.0, second.1, false)),
        (Ok(first), Err(_)) => Ok((first.0, first.1, second_written)),
        (Err(_), Ok(second)) => Ok((second.0, second.1, first_written)),
        (Err(first), Err(second)) => Err(RecoveryError::NoRoot { first, second }),
    }
}

fn check_cursors(
    superblock: &Superblock,
    root: (RootHeader, Vec<LeafSlot>),
) -> Result<(RootHeader, Vec<LeafSlot>), FormatError> {
    let [hot, cold] = root.0.cursors;
    for cursor in [hot, cold] {
        if cursor.segment.0 >= superblock.segment_count()
            || cursor.offset + 2 > superblock.usable_blocks()
        {
            return Err(FormatError::Value {
                what: "root",
                field: "cursor",
                value: cursor.segment.0.into(),
            });
        }
    }
    if hot.segment == cold.segment {
        return Err(FormatError::Value {
            what: "root",
            field: "cursor",
            value: hot.segment.0.into(),
        });
    }
    Ok(root)
}

struct Replay<'a> {
    source: &'a mut dyn Source,
    superblock: Superblock,
    crc: Crc,
    root: RootHeader,
    slots: Vec<LeafSlot>,
    map: Map,
    shared: Shared,
    heads: [Cursor; 2],
    last_seq: Seq,
    last_life: Life,
    /// The newest chunk that anything read so far knows to be durable.
    durable: Seq,
    segments: Vec<SegmentState>,
    tags: Vec<(Segment, Vec<Tag>)>,
    replayed: Replayed,
    /// Headers read ahead of their turn: each head's next, already looked at.
    peeked: [Option<(ChunkHeader, Vec<Record>)>; 2],
}

impl<'a> Replay<'a> {
    fn new(
        source: &'a mut dyn Source,
        superblock: Superblock,
        crc: Crc,
        root: RootHeader,
        slots: Vec<LeafSlot>,
    ) -> Result<Self, RecoveryError> {
        Ok(Self {
            map: Map::new(superblock.logical_blocks()),
            shared: Shared::new(superblock.shared_leaves()),
            heads: root.cursors,
            last_seq: root.seq,
            last_life: root.life,
            durable: root.durable,
            segments: vec![SegmentState::default(); superblock.segment_count() as usize],
            tags: Vec::new(),
            replayed: Replayed::default(),
            peeked: [None, None],
            source,
            superblock,
            crc,
            root,
            slots,
        })
    }

    fn load_leaves(&mut self) -> Result<(), RecoveryError> {
        let mut block = [0; BLOCK_BYTES];
        for index in 0..self.slots.len() as u32 {
            let leaf = Leaf(index);
            let (slot, expected) = match self.slots[index as usize] {
                LeafSlot::Absent => continue,
                LeafSlot::Slot0(crc) => (0, crc),
                LeafSlot::Slot1(crc) => (1, crc),
            };
            let at = self.superblock.leaf_slot(leaf, slot);
            self.source.read(at, &mut block)?;
            if leaf::checksum(leaf, &block, self.crc) != expected {
                return Err(RecoveryError::Leaf { leaf, at });
            }
            self.replayed.leaves += 1;
            match index.checked_sub(self.superblock.map_leaves()) {
                None => {
                    self.map
                        .load_leaf(leaf, &block)
                        .map_err(|error| RecoveryError::Entry { leaf, error })?;
                }
                Some(shared) => self.load_shared(shared, at, &block)?,
            }
        }
        Ok(())
    }

    fn load_shared(
        &mut self,
        leaf: u32,
        at: Pba,
        block: &[u8; BLOCK_BYTES],
    ) -> Result<(), RecoveryError> {
        for (index, raw) in block.chunks_exact(4).enumerate() {
            let pba = Pba(u64::from(u32::from_le_bytes([
                raw[0], raw[1], raw[2], raw[3],
            ])));
            if pba.0 == 0 {
                continue;
            }
            let vba = Vba(leaf * LEAF_ENTRIES as u32 + index as u32);
            if self.superblock.segment_of(pba).is_none() || !self.shared.restore(vba, pba) {
                return Err(RecoveryError::Outside {
                    what: "a leaf of shared pages",
                    at,
                });
            }
        }
        Ok(())
    }

    /// The tags of what lies before the cursors in their segments: their summaries are not written yet.
    fn walk_open_segments(&mut self) -> Result<(), RecoveryError> {
        let mut block = [0; BLOCK_BYTES];
        for cursor in self.heads {
            let mut tags = self.fresh_tags();
            let mut offset = 0;
            while offset < cursor.offset {
                let at = self
                    .superblock
                    .segment_start(cursor.segment)
                    .plus(u64::from(offset));
                self.source.read(at, &mut block)?;
                // A damaged header here costs the checksums of its blocks, which then cannot be read; the
                // chain goes on at the next header.
                let uuid = self.superblock.uuid();
                match chunk::tags(&block, &uuid, at, self.crc, offset, &mut tags) {
                    Some(next) => offset = next,
                    None => offset += 1,
                }
            }
            self.tags.push((cursor.segment, tags));
        }
        Ok(())
    }

    fn fresh_tags(&self) -> Vec<Tag> {
        vec![
            Tag {
                owner: Owner::None,
                crc: 0
            };
            self.superblock.usable_blocks() as usize
        ]
    }

    fn read_header(
        &mut self,
        head: usize,
    ) -> Result<Option<(ChunkHeader, Vec<Record>)>, RecoveryError> {
        let cursor = self.heads[head];
        let at = self
            .superblock
            .segment_start(cursor.segment)
            .plus(u64::from(cursor.offset));
        let mut block = [0; BLOCK_BYTES];
        self.source.read(at, &mut block)?;
        let Ok((header, records)) = chunk::decode(&block, self.crc) else {
            return Ok(None);
        };
        let fits = cursor.offset + 1 + header.data_blocks <= self.superblock.usable_blocks();
        let ours = header.uuid == self.superblock.uuid()
            && header.at == at
            && usize::from(header.head) == head;
        Ok((ours && fits && header.seq > self.root.seq).then_some((header, records)))
    }

    /// Applies the next chunk in order; `false` when there is none.
    fn step(&mut self) -> Result<bool, RecoveryError> {
        let expected = self.last_seq.next();
        for head in 0..2 {
            if self.peeked[head].is_none() {
                self.peeked[head] = self.read_header(head)?;
                if let Some((header, _)) = &self.peeked[head] {
                    self.durable = self.durable.max(header.durable.min(Seq(header.seq.0 - 1)));
                }
            }
        }
        for head in 0..2 {
            let Some((header, _)) = &self.peeked[head] else {
                continue;
            };
            if header.seq != expected
                || header.prev_life != self.last_life
                || header.life < self.last_life
            {
                continue;
            }
            let Some((header, records)) = self.peeked[head].take() else {
                continue;
            };
            if header.seq > self.durable && !self.data_is_whole(&header, &records)? {
                self.peeked[head] = None;
                return Ok(false);
            }
            self.apply(head, &header, &records)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn data_is_whole(
        &mut self,
        header: &ChunkHeader,
        records: &[Record],
    ) -> Result<bool, RecoveryError> {
        let mut data = vec![0; header.data_blocks as usize * BLOCK_BYTES];
        if self.source.read(header.at.plus(1), &mut data).is_err() {
            return Ok(false);
        }
        self.replayed.verified += u64::from(header.data_blocks);
        let expected = records.iter().filter_map(Record::tag).map(|tag| tag.crc);
        Ok(data
            .chunks_exact(BLOCK_BYTES)
            .map(|block| (self.crc)(block))
            .eq(expected))
    }

    fn apply(
        &mut self,
        head: usize,
        header: &ChunkHeader,
        records: &[Record],
    ) -> Result<(), RecoveryError> {
        let outside = RecoveryError::Outside {
            what: "a chunk",
            at: header.at,
        };
        let cursor = self.heads[head];
        let logical = self.superblock.logical_blocks();
        let in_map =
            |lba: Lba, blocks: u64| lba.0.checked_add(blocks).is_some_and(|end| end <= logical);
        let mut offset = cursor.offset + 1;
        for record in records {
            let pba = self
                .superblock
                .segment_start(cursor.segment)
                .plus(u64::from(offset));
            if let Some(tag) = record.tag() {
                if let Some((_, tags)) = self
                    .tags
                    .iter_mut()
                    .rev()
                    .find(|(s, _)| *s == cursor.segment)
                {
                    tags[offset as usize] = tag;
                }
                offset += 1;
            }
            match *record {
                Record::Data { lba, .. } if in_map(lba, 1) => {
                    self.map.set(lba, Entry::Plain(pba));
                }
                Record::Move { lba, from, .. } if in_map(lba, 1) => {
                    // The entry may still be shared here although it had become plain when it was moved:
                    // which pages have one owner left is settled when all is replayed.
                    let leads_there = match self.map.get(lba) {
                        Entry::Plain(at) => at == from,
                        Entry::Shared(vba) => self.shared.is_placed(vba) && self.shared.pba(vba) == from,
                        Entry::Unmapped | Entry::Zero => false,
                    };
                    if leads_there {
                        self.map.set(lba, Entry::Plain(pba));
                    }
                }
                Record::Zero { lba, blocks } if in_map(lba, blocks) => {
                    for index in 0..blocks {
                        self.map.set(lba.plus(index), Entry::Zero);
                    }
                }
                Record::Discard { lba, blocks } if in_map(lba, blocks) => {
                    let mut at = lba;
                    while let Some((mapped, _)) = self.map.next_mapped(at, lba.plus(blocks)) {
                        self.map.set(mapped, Entry::Unmapped);
                        at = mapped.plus(1);
                    }
                }
                Record::Share { lba, vba, pba } if in_map(lba, 1) => {
                    if self.superblock.segment_of(pba).is_none() || !self.shared.restore(vba, pba) {
                        return Err(outside);
                    }
                    self.map.set(lba, Entry::Shared(vba));
                }
                Record::MoveShared { vba, from, .. } => {
                    if self.shared.is_placed(vba) && self.shared.pba(vba) == from {
                        self.shared.place(vba, pba);
                    }
                }
                _ => return Err(outside),
            }
        }
        self.segments[cursor.segment.0 as usize].last_seq = header.seq;
        (self.last_seq, self.last_life) = (header.seq, header.life);
        self.replayed.chunks += 1;
        match header.next {
            None if offset + 2 <= self.superblock.usable_blocks() => {
                self.heads[head].offset = offset
            }
            Some(next) if next.0 < self.superblock.segment_count() => {
                self.heads[head] = Cursor {
                    segment: next,
                    offset: 0,
                };
                let tags = self.fresh_tags();
                self.tags.push((next, tags));
            }
            _ => return Err(outside),
        }
        Ok(())
    }

    /// Nothing durable may lie behind the hole at which replay has stopped.
    fn look_past_the_hole(&mut self, newer_lost: bool) -> Result<(), RecoveryError> {
        let expected = self.last_seq.next();
        let uuid = self.superblock.uuid();
        let evidence = |this: &mut Self, at: Pba| -> Result<(), RecoveryError> {
            let mut block = [0; BLOCK_BYTES];
            if this.source.read(at, &mut block).is_err() {
                return Ok(());
            }
            let Ok((header, _)) = chunk::decode(&block, this.crc) else {
                return Ok(());
            };
            if header.uuid != uuid || header.at != at || header.seq < expected {
                return Ok(());
            }
            if header.root_generation > this.root.generation {
                return Err(RecoveryError::RootLost {
                    lost: header.root_generation,
                });
            }
            if header.durable >= expected && header.life >= this.last_life {
                return Err(RecoveryError::Hole {
                    seq: expected,
                    later: header.seq,
                    at,
                });
            }
            Ok(())
        };
        for cursor in self.heads {
            let start = self.superblock.segment_start(cursor.segment);
            for offset in cursor.offset..self.superblock.usable_blocks() {
                evidence(self, start.plus(u64::from(offset)))?;
            }
        }
        if newer_lost {
            for segment in 0..self.superblock.segment_count() {
                let start = self.superblock.segment_start(Segment(segment));
                evidence(self, start)?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Recovered, RecoveryError> {
        for (lba, entry) in self.map.iter() {
            let pba = match entry {
                Entry::Unmapped | Entry::Zero => continue,
                Entry::Plain(pba) => pba,
                Entry::Shared(vba) => {
                    let first = self.shared.owners(vba) == 0;
                    if self.shared.is_placed(vba) && !(self.shared.add(vba, lba) && first) {
                        continue;
                    }
                    if self.shared.is_placed(vba) {
                        self.shared.pba(vba)
                    } else {
                        Pba(0)
                    }
                }
            };
            let Some((segment, _)) = self.superblock.segment_of(pba) else {
                let leaf = Leaf((lba.0 / LEAF_ENTRIES as u64) as u32);
                return Err(RecoveryError::Outside {
                    what: "the map",
                    at: self.superblock.leaf_slot(leaf, 0),
                });
            };
            self.segments[segment.0 as usize].valid += 1;
        }
        let mut strays = Vec::new();
        for (lba, pba) in self.shared.settle() {
            self.map.set(lba, Entry::Plain(pba));
            strays.push((pba, lba));
        }
        Ok(Recovered {
            superblock: self.superblock,
            map: self.map,
            shared: self.shared,
            heads: self.heads,
            last_seq: self.last_seq,
            last_life: self.last_life,
            root_generation: self.root.generation,
            root_seq: self.root.seq,
            slots: self.slots,
            segments: self.segments,
            tags: self.tags,
            strays,
            replayed: self.replayed,
        })
    }
}
