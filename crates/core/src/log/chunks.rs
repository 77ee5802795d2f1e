//! Chunks in memory: open (still taking blocks), or sealed and being written.

use super::head::Head;
use crate::addr::{Buf, Life, Nanos, Pba, Segment, Seq};
use crate::format::chunk::{Part, RECORD_ROOM, Record};
use crate::format::names::{NAMES_LEAST, NAMES_ROOM, Names};
use crate::limits;
use crate::seam::{Block, Packed, Payload};
use alloc::vec::Vec;

/// Names a chunk in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkId(pub usize);

/// A block of a chunk that is not on the medium yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub block: Block,
    pub record: u16,
}

/// A part that is not on the medium yet, as a whole block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartSlot {
    pub block: u16,
    pub slot: u8,
    pub buf: Buf,
    pub record: u16,
}

pub(crate) struct Chunk {
    pub head: Head,
    pub segment: Segment,
    pub at: Pba,
    /// Counts this head's chunks; see [`Marks`](super::Marks).
    pub ordinal: u64,
    pub records: Vec<Record>,
    pub room: usize,
    pub before: Before,
    pub slots: Vec<Slot>,
    pub parts: Vec<PartSlot>,
    /// The bytes of the parts in its header.
    header_parts: usize,
    pub max_data: usize,
    /// True if a FLUSH has to wait for the chunk. If all its records only repeat pledges, it need not.
    pub tells: bool,
    /// True if it has pledges, or records that lead to pages of other chunks. Replay must not see them if a map checkpoint begins while
    /// the chunk is open.
    pub links: bool,
    pub sealed: Option<Seal>,
    pub opened_at: Nanos,
}

/// The names that a chunk repeats: what the previous chunk changed (0021).
#[derive(Default)]
pub(crate) struct Before {
    /// Bytes reserved for the names while it is open, and the bytes they take once it is sealed; 0: the volume has none.
    bytes: usize,
    /// The names, once it is sealed.
    names: Names,
}

impl Before {
    /// The bytes that the names take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Encodes the names.
    pub fn encode<'a>(&self, out: &'a mut [u8; NAMES_ROOM]) -> &'a [u8] {
        if self.bytes > 0 {
            self.names.encode(out);
        }
        &out[..self.bytes]
    }
}

/// The values that a chunk gets when it is sealed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seal {
    pub seq: Seq,
    pub prev_life: Life,
    pub durable: Seq,
    pub next: Option<Segment>,
}

impl Chunk {
    /// True if a record of `len` bytes, and with `data` a data block, still fits.
    pub fn has_room(&self, len: usize, data: bool) -> bool {
        self.room >= len && (!data || self.slots.len() < self.max_data)
    }

    pub fn push(&mut self, record: Record) {
        self.tells = true;
        self.room -= record.encoded_len();
        self.links |= matches!(record, Record::Share { .. } | Record::Pledge { .. });
        self.records.push(record);
    }

    /// The bytes its records take so far.
    pub fn record_bytes(&self) -> usize {
        RECORD_ROOM - self.before.bytes - self.room - self.header_parts
    }

    /// Adds a data block, and returns where it will be.
    pub fn push_data(&mut self, record: Record, block: Block) -> Pba {
        self.slots.push(Slot {
            block,
            record: self.records.len() as u16,
        });
        self.push(record);
        self.at.plus(self.slots.len() as u64)
    }

    /// Adds a part to one of its pages; the record says which.
    pub fn push_part(&mut self, record: Record, buf: Buf) {
        let Some((
            _,
            Part {
                block, slot, len, ..
            },
        )) = record.part()
        else {
            unreachable!("{record:?} is not a part's")
        };
        self.parts.push(PartSlot {
            block,
            slot,
            buf,
            record: self.records.len() as u16,
        });
        self.push(record);
        if block == 0 {
            self.room -= usize::from(len);
            self.header_parts += usize::from(len);
        }
    }

    /// Replaces part `slot` of a page by its overwrite, if that fits in its place. Returns the old buffer.
    pub fn replace_part(
        &mut self,
        page: u16,
        slot: u8,
        payload: &Payload,
        packed: Packed,
    ) -> Option<Buf> {
        let mut parts = self.parts.iter_mut();
        let held = parts.find(|part| part.block == page && part.slot == slot)?;
        let part = part_of(&mut self.records, held);
        if packed.len.get() > part.len {
            return None;
        }
        // The space this frees is not reused: the page will be written soon.
        (part.sum, part.encoding, part.len) =
            (payload.digest.sum, packed.encoding, packed.len.get());
        Some(core::mem::replace(&mut held.buf, payload.buf))
    }

    /// All buffers that it holds.
    pub fn bufs(&self) -> impl Iterator<Item = Buf> + '_ {
        let whole = self.slots.iter().filter_map(|slot| match slot.block {
            Block::Whole(buf) => Some(buf),
            Block::Page => None,
        });
        whole.chain(self.parts.iter().map(|part| part.buf))
    }

    /// The parts of one page, in order.
    pub fn parts_of(&self, block: u16) -> impl Iterator<Item = &PartSlot> + '_ {
        self.parts.iter().filter(move |part| part.block == block)
    }

    /// Returns the index in [`Chunk::parts`] of part `slot` of the page at `pba`.
    pub fn part_at(&self, pba: Pba, slot: u8) -> Option<usize> {
        let block = pba.0.checked_sub(self.at.0)?;
        if block > self.slots.len() as u64 {
            return None;
        }
        let is_it = |part: &PartSlot| u64::from(part.block) == block && part.slot == slot;
        self.parts.iter().position(is_it)
    }

    /// The slot whose block is at `pba`.
    pub fn slot_at(&self, pba: Pba) -> Option<usize> {
        let index = pba.0.checked_sub(self.at.0 + 1)? as usize;
        (index < self.slots.len()).then_some(index)
    }

    /// Returns the buffer of what is at `pba`.
    fn held(&self, pba: Pba, slot: Option<u8>) -> Option<Held> {
        if let Some(slot) = slot
            && let Some(part) = self.part_at(pba, slot)
        {
            return Some(Held::Block(self.parts[part].buf));
        }
        match (self.slots[self.slot_at(pba)?].block, slot) {
            (Block::Whole(buf), None) => Some(Held::Block(buf)),
            (Block::Whole(buf), Some(_)) => Some(Held::Page(buf)),
            (Block::Page, _) => None,
        }
    }

    /// Blocks on the medium, header and all.
    pub fn blocks(&self) -> u32 {
        self.slots.len() as u32 + 1
    }
}

/// Returns what the record of a part says of it.
fn part_of<'a>(records: &'a mut [Record], part: &PartSlot) -> &'a mut Part {
    let Some(part) = records[usize::from(part.record)].part_mut() else {
        unreachable!("a part has a part's record")
    };
    part
}

/// The chunks in memory, in a slab whose allocations are reused.
#[derive(Default)]
pub(crate) struct Chunks {
    slab: Vec<Chunk>,
    live: Vec<usize>,
    spare: Vec<usize>,
    /// The names of what the last sealed chunk changed, if the volume's headers have names.
    last: Option<Names>,
}

impl Chunks {
    /// For a volume whose newest chunk changed these, if its headers have names.
    pub fn new(last: Option<Names>) -> Self {
        Self {
            last,
            ..Self::default()
        }
    }

    /// Seals a chunk: it gets the names of the chunk sealed before it. If another chunk was sealed while it was open, the names may need
    /// more room than was reserved.
    pub fn seal(&mut self, id: ChunkId, seal: Seal) {
        let chunk = &mut self.slab[id.0];
        chunk.sealed = Some(seal);
        if let Some(last) = &mut self.last {
            core::mem::swap(&mut chunk.before.names, last);
            last.take(chunk.records.iter().filter_map(Record::names));
            let room = NAMES_ROOM.min(chunk.before.bytes + chunk.room);
            chunk.before.bytes = chunk.before.names.fit(room);
        }
    }

    /// The bytes to reserve in a newly opened chunk for the names of the previous one.
    fn room_for_names(&self) -> usize {
        let last = self.last.as_ref();
        last.map_or(0, |last| last.encoded_len().clamp(NAMES_LEAST, NAMES_ROOM))
    }

    pub fn open(
        &mut self,
        head: Head,
        segment: Segment,
        at: Pba,
        ordinal: u64,
        max_data: usize,
        now: Nanos,
    ) -> ChunkId {
        let for_names = self.room_for_names();
        let index = self.spare.pop().unwrap_or_else(|| {
            self.slab.push(Chunk {
                head,
                segment,
                at,
                ordinal,
                records: Vec::new(),
                room: 0,
                before: Before::default(),
                slots: Vec::new(),
                parts: Vec::new(),
                header_parts: 0,
                max_data,
                tells: false,
                links: false,
                sealed: None,
                opened_at: now,
            });
            self.slab.len() - 1
        });
        let chunk = &mut self.slab[index];
        (chunk.head, chunk.segment, chunk.at, chunk.ordinal) = (head, segment, at, ordinal);
        (chunk.room, chunk.max_data, chunk.sealed, chunk.opened_at) =
            (RECORD_ROOM - for_names, max_data, None, now);
        chunk.before.bytes = for_names;
        (chunk.tells, chunk.links) = (false, false);
        chunk.records.clear();
        chunk.slots.clear();
        chunk.parts.clear();
        chunk.header_parts = 0;
        self.live.push(index);
        ChunkId(index)
    }

    pub fn close(&mut self, id: ChunkId) {
        self.live.retain(|&index| index != id.0);
        self.spare.push(id.0);
    }

    pub fn get(&self, id: ChunkId) -> &Chunk {
        &self.slab[id.0]
    }

    pub fn get_mut(&mut self, id: ChunkId) -> &mut Chunk {
        &mut self.slab[id.0]
    }

    /// True if a chunk in memory holds the block at `pba`. A handful of chunks are in memory at once
    /// (limits::CHUNKS_IN_FLIGHT), so a walk beats an index.
    pub fn holds(&self, pba: Pba) -> bool {
        let mut live = self.live.iter();
        live.any(|&index| self.slab[index].slot_at(pba).is_some())
    }

    /// Returns the buffer of what is at `pba`, if a chunk in memory holds it, and whether that chunk is open; `slot`: of that
    /// part.
    pub fn held(&self, pba: Pba, slot: Option<u8>) -> Option<(Held, bool)> {
        self.live.iter().find_map(|&index| {
            let chunk = &self.slab[index];
            Some((chunk.held(pba, slot)?, chunk.sealed.is_none()))
        })
    }
}

/// Where the content of a block in memory is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held {
    /// In a buffer by itself.
    Block(Buf),
    /// In a page of parts that the collector moves.
    Page(Buf),
}

/// The longest record of one block (a delta).
const LONGEST_RECORD: usize = 24;

const _: () = assert!(
    (RECORD_ROOM - NAMES_ROOM) / 12 >= limits::CHUNK_DATA_BLOCKS,
    "a full chunk of new data fits its header"
);
const _: () = assert!(RECORD_ROOM - NAMES_ROOM >= LONGEST_RECORD * limits::GATHER_BLOCKS as usize);
