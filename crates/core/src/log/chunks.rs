//! Chunks in memory: open (still taking blocks), or sealed and being written.

use super::head::Head;
use crate::addr::{Buf, Life, Nanos, Pba, Segment, Seq, Vba};
use crate::format::chunk::{RECORD_ROOM, Record};
use crate::format::names::{NAMES_LEAST, NAMES_ROOM, Names};
use crate::limits;
use crate::seam::{Block, Bucket};
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

/// A page of parts in a chunk that is not on the medium yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub vba: Vba,
    /// Its block in the chunk; 0: the header.
    pub block: u16,
    /// The bucket whose parts it takes.
    pub bucket: Option<Bucket>,
    /// The number of its parts, and their bytes.
    pub count: u8,
    pub bytes: u16,
    /// True if the page takes no more parts: it has no owner any longer, so its number may be reused.
    pub shut: bool,
    /// True if some of its parts have a second owner: then no part of it is replaced any more.
    pub linked: bool,
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
    pub pages: Vec<Parts>,
    pub parts: Vec<PartSlot>,
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
        let header = self.pages.iter().find(|page| page.block == 0);
        let parts = header.map_or(0, |page| usize::from(page.bytes));
        RECORD_ROOM - self.before.bytes - self.room - parts
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
                pages: Vec::new(),
                parts: Vec::new(),
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
        chunk.pages.clear();
        chunk.parts.clear();
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
