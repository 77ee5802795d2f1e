//! Chunks in memory: open (still taking blocks), or sealed and being written.

use super::head::Head;
use crate::addr::{BLOCK_BYTES, Buf, Generation, Lba, Life, Nanos, Pba, Segment, Seq};
use crate::format::Crc;
use crate::format::chunk::{self, ChunkHeader, Part, RECORD_ROOM, Record};
use crate::format::names::{NAMES_LEAST, NAMES_ROOM, Names};
use crate::format::pack;
use crate::format::superblock::Superblock;
use crate::limits;
use crate::seam::{ChunkBlock, Packed, Payload};
use alloc::vec::Vec;

/// Names a chunk in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkId(pub usize);

/// Puts a buffer's block into a page of parts, in this encoding, in exactly as many bytes as the slice has.
pub type PutPart<'a> = &'a mut dyn FnMut(Buf, u8, &mut [u8]);

/// A block of a chunk that is not on the medium yet.
#[derive(Clone, Copy, Debug)]
struct Slot {
    block: ChunkBlock,
    record: u16,
}

/// A part that is not on the medium yet, as a whole block.
#[derive(Clone, Copy, Debug)]
struct PartSlot {
    /// The block of the chunk that is its page; 0: the header.
    block: u16,
    slot: u8,
    buf: Buf,
    record: u16,
}

/// What is known of a chunk when it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub head: Head,
    pub segment: Segment,
    pub at: Pba,
    /// Counts this head's chunks; see [`Marks`](super::Marks).
    pub ordinal: u64,
    pub max_data: usize,
    pub now: Nanos,
}

pub(crate) struct Chunk {
    opening: Opening,
    records: Vec<Record>,
    /// The bytes of the header that nothing takes yet.
    room: usize,
    before: Before,
    slots: Vec<Slot>,
    parts: Vec<PartSlot>,
    /// The bytes of the parts in its header.
    header_parts: usize,
    /// True if a FLUSH has to wait for the chunk. If all its records only repeat pledges, it need not.
    delays_flush: bool,
    /// True if it has pledges, or records that lead to pages of other chunks. Replay must not see them if a map checkpoint begins while
    /// the chunk is open.
    links: bool,
    seal: Option<Seal>,
}

/// The names that a chunk repeats: what the previous chunk changed (0021).
#[derive(Default)]
struct Before {
    /// Bytes reserved for the names while it is open, and the bytes they take once it is sealed; 0: the volume has none.
    bytes: usize,
    /// The names, once it is sealed.
    names: Names,
}

impl Before {
    /// Encodes the names.
    fn encode<'a>(&self, out: &'a mut [u8; NAMES_ROOM]) -> &'a [u8] {
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
    fn new(opening: Opening) -> Self {
        Self {
            opening,
            records: Vec::new(),
            room: 0,
            before: Before::default(),
            slots: Vec::new(),
            parts: Vec::new(),
            header_parts: 0,
            delays_flush: false,
            links: false,
            seal: None,
        }
    }

    /// Begins anew, with so many bytes of the header reserved for names.
    fn open(&mut self, opening: Opening, for_names: usize) {
        self.opening = opening;
        self.room = RECORD_ROOM - for_names;
        self.before.bytes = for_names;
        self.header_parts = 0;
        (self.delays_flush, self.links, self.seal) = (false, false, None);
        self.records.clear();
        self.slots.clear();
        self.parts.clear();
    }

    /// What was known of it when it was opened.
    #[inline]
    pub fn opening(&self) -> &Opening {
        &self.opening
    }

    /// What it got when it was sealed.
    #[inline]
    pub fn seal(&self) -> Option<&Seal> {
        self.seal.as_ref()
    }

    /// True if a FLUSH has to wait for it.
    #[inline]
    pub fn delays_flush(&self) -> bool {
        self.delays_flush
    }

    /// True if replay must not see it when a map checkpoint begins while it is open.
    #[inline]
    pub fn links(&self) -> bool {
        self.links
    }

    /// True if a record of it maps an LBA to the page at `at`.
    pub fn links_to(&self, at: Pba) -> bool {
        let leads_there =
            |record: &Record| matches!(record, Record::Share { pba, .. } if *pba == at);
        self.links && self.records.iter().any(leads_there)
    }

    /// True if a record of `len` bytes, and with `data` a data block, still fits.
    #[inline]
    pub fn has_room(&self, len: usize, data: bool) -> bool {
        self.room >= len && (!data || self.slots.len() < self.opening.max_data)
    }

    /// The bytes of its header that nothing takes yet.
    pub fn room(&self) -> usize {
        self.room
    }

    /// The bytes its records take so far.
    pub fn record_bytes(&self) -> usize {
        RECORD_ROOM - self.before.bytes - self.room - self.header_parts
    }

    /// Blocks on the medium, header and all.
    #[inline]
    pub fn blocks(&self) -> u32 {
        self.slots.len() as u32 + 1
    }

    /// Adds a record that owns no block.
    #[inline]
    pub fn push(&mut self, record: Record) {
        self.delays_flush = true;
        self.room -= record.encoded_len();
        self.links |= record.links();
        self.records.push(record);
    }

    /// Adds a link, or zeros. No FLUSH waits for what is `pledged` anyway.
    pub fn push_link(&mut self, record: Record, pledged: bool) {
        let delays_flush = self.delays_flush || !pledged;
        self.push(record);
        self.delays_flush = delays_flush;
    }

    /// Adds zeros to the last record, if that is of the zeros before them; false if it is not.
    pub fn join_zeros(&mut self, lba: Lba, more: u64, pledged: bool) -> bool {
        match self.records.last_mut() {
            Some(Record::Zero { lba: first, blocks }) if first.plus(*blocks) == lba => {
                *blocks += more;
                self.delays_flush |= !pledged;
                true
            }
            _ => false,
        }
    }

    /// Adds a data block, and returns where it will be.
    #[inline]
    pub fn push_data(&mut self, record: Record, block: ChunkBlock) -> Pba {
        self.slots.push(Slot {
            block,
            record: self.records.len() as u16,
        });
        self.push(record);
        self.opening.at.plus(self.slots.len() as u64)
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

    /// Replaces the block at `pba` by its overwrite, and returns the old buffer. `None`: it has no block there.
    #[inline]
    pub fn replace(&mut self, pba: Pba, payload: &Payload) -> Option<Buf> {
        let index = self.slot_at(pba)?;
        let slot = &mut self.slots[index];
        let new = ChunkBlock::Whole(payload.buf);
        let ChunkBlock::Whole(old) = core::mem::replace(&mut slot.block, new) else {
            unreachable!("a page of parts is no LBA's own")
        };
        match &mut self.records[usize::from(slot.record)] {
            Record::Data { sum, .. } => *sum = payload.digest.sum,
            other => unreachable!("a host's chunk has only its data in slots, not {other:?}"),
        }
        Some(old)
    }

    /// Replaces part `slot` of a page by its overwrite, if that is not longer. Returns the old buffer.
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
        let len = packed.len.get();
        if len > part.len {
            return None;
        }
        // The space this frees is not reused: the page will be written soon.
        (part.sum, part.encoding, part.len) = (payload.digest.sum, packed.encoding, len);
        Some(core::mem::replace(&mut held.buf, payload.buf))
    }

    /// True if it has a block at `pba`.
    #[inline]
    pub fn holds(&self, pba: Pba) -> bool {
        self.slot_at(pba).is_some()
    }

    /// What data block `index` is made from.
    pub fn block(&self, index: usize) -> ChunkBlock {
        self.slots[index].block
    }

    /// All buffers that it holds: whole blocks in order, then those of its parts.
    pub fn bufs(&self) -> impl Iterator<Item = Buf> + '_ {
        let whole = self.slots.iter().filter_map(|slot| match slot.block {
            ChunkBlock::Whole(buf) => Some(buf),
            ChunkBlock::Page => None,
        });
        whole.chain(self.parts.iter().map(|part| part.buf))
    }

    /// The same, each with its block's place: a physical address, and the part of the page there.
    pub fn places(&self) -> impl Iterator<Item = (Buf, Pba, Option<u8>)> + '_ {
        let at = self.opening.at;
        let slots = self.slots.iter().enumerate();
        let whole = slots.filter_map(move |(index, slot)| match slot.block {
            ChunkBlock::Whole(buf) => Some((buf, at.plus(index as u64 + 1), None)),
            ChunkBlock::Page => None,
        });
        let parts = self.parts.iter();
        whole.chain(parts.map(move |part| {
            let page = at.plus(u64::from(part.block));
            (part.buf, page, Some(part.slot))
        }))
    }

    /// The parts of one page, in order.
    fn parts_of(&self, block: u16) -> impl Iterator<Item = &PartSlot> + '_ {
        self.parts.iter().filter(move |part| part.block == block)
    }

    /// The slot whose block is at `pba`.
    #[inline]
    fn slot_at(&self, pba: Pba) -> Option<usize> {
        let index = pba.0.checked_sub(self.opening.at.0 + 1)? as usize;
        (index < self.slots.len()).then_some(index)
    }

    /// Returns the buffer of what is at `pba`.
    fn held(&self, pba: Pba, slot: Option<u8>) -> Option<Held> {
        if let Some(slot) = slot
            && let Some(block) = pba.0.checked_sub(self.opening.at.0)
            && let mut parts = self.parts.iter()
            && let Some(part) = parts.find(|p| u64::from(p.block) == block && p.slot == slot)
        {
            return Some(Held::Block(part.buf));
        }
        match (self.slots[self.slot_at(pba)?].block, slot) {
            (ChunkBlock::Whole(buf), None) => Some(Held::Block(buf)),
            (ChunkBlock::Whole(buf), Some(_)) => Some(Held::Page(buf)),
            (ChunkBlock::Page, _) => None,
        }
    }

    /// Encodes data block `index`, a page of parts, and returns where it is.
    pub fn encode_page(&mut self, index: usize, out: &mut [u8], put: PutPart<'_>) -> Pba {
        let block = index as u16 + 1;
        out.fill(0);
        let first = pack::first_offset(self.parts_of(block).count());
        self.put_parts(block, first, out, put);
        let record_of = |part: &PartSlot| &self.records[usize::from(part.record)];
        pack::encode(self.parts_of(block).map(record_of), out);
        self.opening.at.plus(u64::from(block))
    }

    /// Notes the sum of data block `index`, a page of parts.
    pub fn set_page_sum(&mut self, index: usize, new: u32) {
        let record = usize::from(self.slots[index].record);
        if let Record::Pack { sum, .. } = &mut self.records[record] {
            *sum = new;
        }
    }

    /// Encodes the header, after all pages of parts. Returns where it is if it is such a page too.
    pub fn encode_header(
        &mut self,
        superblock: &Superblock,
        (root, crc): (Generation, Crc),
        out: &mut [u8],
        put: PutPart<'_>,
    ) -> Option<Pba> {
        let records: usize = self.records.iter().map(Record::encoded_len).sum();
        let first = BLOCK_BYTES - RECORD_ROOM + records + self.before.bytes;
        // All bytes before these are set below.
        out[first..].fill(0);
        self.put_parts(0, first, out, put);
        let Some(seal) = self.seal else {
            unreachable!("an open chunk is not written")
        };
        let at = self.opening.at;
        let header = ChunkHeader {
            signature: superblock.signature(),
            seq: seal.seq,
            life: superblock.life(),
            prev_life: seal.prev_life,
            durable: seal.durable,
            at,
            head: self.opening.head as u8,
            data_blocks: self.slots.len() as u32,
            next: seal.next,
            root_generation: root,
        };
        let mut names = [0; NAMES_ROOM];
        let names = self.before.encode(&mut names);
        chunk::encode(&header, &self.records, names, crc, out);
        (self.header_parts > 0).then_some(at)
    }

    /// Gives each part of a page its place, and puts it there.
    fn put_parts(&mut self, block: u16, mut offset: usize, out: &mut [u8], put: PutPart<'_>) {
        for held in self.parts.iter().filter(|part| part.block == block) {
            let part = part_of(&mut self.records, held);
            part.offset = offset as u16;
            let end = offset + usize::from(part.len);
            put(held.buf, part.encoding, &mut out[offset..end]);
            offset = end;
        }
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
        chunk.seal = Some(seal);
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

    pub fn open(&mut self, opening: Opening) -> ChunkId {
        let for_names = self.room_for_names();
        let index = self.spare.pop().unwrap_or_else(|| {
            self.slab.push(Chunk::new(opening));
            self.slab.len() - 1
        });
        self.slab[index].open(opening, for_names);
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
        live.any(|&index| self.slab[index].holds(pba))
    }

    /// Returns the buffer of what is at `pba`, or of part `slot` there, and whether its chunk is open; `None`: no chunk in memory holds it.
    pub fn held(&self, pba: Pba, slot: Option<u8>) -> Option<(Held, bool)> {
        self.live.iter().find_map(|&index| {
            let chunk = &self.slab[index];
            Some((chunk.held(pba, slot)?, chunk.seal.is_none()))
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

#[cfg(test)]
mod tests;
