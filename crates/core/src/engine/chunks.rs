//! Chunks in memory: open (still taking blocks), or sealed and on their way to the medium.

use super::twin::Verdict;
use crate::addr::{Buf, Lba, Life, Pba, Segment, Seq, Vba};
use crate::format::chunk::{RECORD_ROOM, Record};
use crate::format::names::{NAMES_LEAST, NAMES_ROOM, Names};
use crate::log::Head;
use crate::seam::{Ack, Block, Bucket};
use alloc::vec::Vec;

/// Names a chunk in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkId(pub usize);

/// A block of a chunk that is not on the medium yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub block: Block,
    pub record: u16,
}

/// A page of parts in a chunk that is not on the medium yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub vba: Vba,
    /// Which block of the chunk it is; 0: the header.
    pub block: u16,
    /// Whose parts it takes.
    pub bucket: Option<Bucket>,
    /// How many parts it has, and bytes of them.
    pub count: u8,
    pub bytes: u16,
    /// Whether it takes no more: nobody owns it any longer, so its number is not its own.
    pub shut: bool,
    /// Whether parts of it have got a second owner: none is replaced any more.
    pub linked: bool,
}

/// A part that is not on the medium yet, as a whole block.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartSlot {
    pub block: u16,
    pub slot: u8,
    pub buf: Buf,
    pub record: u16,
}

pub(super) struct Chunk {
    pub head: Head,
    pub segment: Segment,
    pub at: Pba,
    /// Counts this head's chunks; see `segments::Marks`.
    pub ordinal: u64,
    pub records: Vec<Record>,
    pub room: usize,
    pub before: Before,
    pub slots: Vec<Slot>,
    pub pages: Vec<Parts>,
    pub parts: Vec<PartSlot>,
    pub max_data: usize,
    /// Whether a FLUSH has to wait for it: not if all that it says is pledged.
    pub tells: bool,
    /// Whether it has records that lead to pages of other chunks, or pledges: replay must not see them if a map
    /// checkpoint begins before it is sealed.
    pub links: bool,
    pub sealed: Option<Seal>,
    pub opened_at: crate::addr::Nanos,
}

/// What a chunk names of the one before it (0021).
#[derive(Default)]
pub(super) struct Before {
    /// Bytes that are kept for the names while it is open, and that they take once it is sealed; 0: the volume has none.
    bytes: usize,
    /// They, once it is sealed.
    names: Names,
}

impl Before {
    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes them.
    pub fn encode<'a>(&self, out: &'a mut [u8; NAMES_ROOM]) -> &'a [u8] {
        if self.bytes > 0 {
            self.names.encode(out);
        }
        &out[..self.bytes]
    }
}

/// What sealing decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seal {
    pub seq: Seq,
    pub prev_life: Life,
    pub durable: Seq,
    pub next: Option<Segment>,
}

impl Chunk {
    /// Whether a record of `len` bytes, and a data block with it, still fit.
    pub fn has_room(&self, len: usize, data: bool) -> bool {
        self.room >= len && (!data || self.slots.len() < self.max_data)
    }

    pub fn push(&mut self, record: Record) {
        self.tells = true;
        self.room -= record.encoded_len();
        self.links |= matches!(record, Record::Share { .. } | Record::Pledge { .. });
        self.records.push(record);
    }

    /// What its records take so far.
    pub fn record_bytes(&self) -> usize {
        let header = self.pages.iter().find(|page| page.block == 0);
        let parts = header.map_or(0, |page| usize::from(page.bytes));
        RECORD_ROOM - self.before.bytes - self.room - parts
    }

    /// Adds a data block, returns where it will be.
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

    /// The part `slot` of the page at `pba`, by its place in [`Chunk::parts`].
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

    /// Blocks on the medium, header and all.
    pub fn blocks(&self) -> u32 {
        self.slots.len() as u32 + 1
    }
}

/// The chunks in memory, in a slab whose allocations serve again.
#[derive(Default)]
pub(super) struct Chunks {
    slab: Vec<Chunk>,
    live: Vec<usize>,
    spare: Vec<usize>,
    /// What the chunk that was sealed last says something of; of volumes whose headers name it.
    last: Option<Names>,
}

impl Chunks {
    /// Of a volume whose newest chunk said something of these, if its headers tell.
    pub fn new(last: Option<Names>) -> Self {
        Self {
            last,
            ..Self::default()
        }
    }

    /// Seals a chunk: it names the one that was sealed before it. While it was open another may have been, so there may be less
    /// room than its names take.
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

    /// Bytes to keep in a chunk that is opened for the names of the one before.
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
        now: crate::addr::Nanos,
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

    /// The chunk in memory, and the slot in it, that holds the block at `pba`. A handful of chunks are
    /// in memory at once (limits::CHUNKS_IN_FLIGHT), so a walk beats an index.
    pub fn find(&self, pba: Pba) -> Option<(ChunkId, usize)> {
        self.live
            .iter()
            .find_map(|&index| Some((ChunkId(index), self.slab[index].slot_at(pba)?)))
    }

    /// The chunk in memory that holds what is at `pba`, and in which buffer; `slot`: that part of it.
    pub fn held(&self, pba: Pba, slot: Option<u8>) -> Option<(ChunkId, Held)> {
        self.live.iter().find_map(|&index| {
            let chunk = &self.slab[index];
            if let Some(slot) = slot
                && let Some(part) = chunk.part_at(pba, slot)
            {
                return Some((ChunkId(index), Held::Block(chunk.parts[part].buf)));
            }
            match (chunk.slots[chunk.slot_at(pba)?].block, slot) {
                (Block::Whole(buf), None) => Some((ChunkId(index), Held::Block(buf))),
                (Block::Whole(buf), Some(_)) => Some((ChunkId(index), Held::Page(buf))),
                (Block::Page, _) => None,
            }
        })
    }
}

/// Where the content of a block that is in memory is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held {
    /// In a buffer of its own.
    Block(Buf),
    /// In a page of parts that the collector moves.
    Page(Buf),
}

/// An append point.
pub(super) struct Position {
    pub segment: Segment,
    /// The block of the segment at which the next chunk to be sealed starts.
    pub offset: u32,
    pub open: Option<ChunkId>,
    /// The segment to go on in, taken before the last chunk of this one is opened.
    pub next: Option<Segment>,
    /// Chunks opened so far by this head, and the newest of them that is durable.
    pub opened: u64,
    pub durable: u64,
}

/// What waits for room, or for a comparison, in the order in which it came.
pub(super) enum Waiting {
    Write {
        id: crate::addr::RequestId,
        lba: Lba,
        blocks: Vec<crate::seam::Payload>,
        placed: usize,
        /// Of each block, what is known of its journal copy; empty when none has been asked about.
        verdicts: Vec<Verdict>,
        ack: Ack,
    },
    /// Behind a write whose client has its answer.
    Flush { id: crate::addr::RequestId },
    Read {
        id: crate::addr::RequestId,
        lba: Lba,
        blocks: u32,
    },
    Unmap {
        id: crate::addr::RequestId,
        lba: Lba,
        blocks: u64,
        zero: bool,
        fua: bool,
    },
    /// A copy, from block `placed` on.
    Copy {
        id: crate::addr::RequestId,
        copy: crate::seam::Copy,
        placed: u64,
    },
    /// A transaction that is complete, behind those of its blocks that wait.
    Committed { pairs: Vec<(Lba, Lba)> },
}

impl Waiting {
    /// Whether its buffers are being compared: they cannot be given back yet.
    pub fn is_asking(&self) -> bool {
        match self {
            Self::Write { verdicts, .. } => verdicts.iter().any(|v| matches!(v, Verdict::Asked(_))),
            _ => false,
        }
    }

    /// Whether its client has its answer.
    pub fn is_answered(&self) -> bool {
        matches!(self, Self::Write { ack, .. } if *ack == Ack::Given)
    }

    /// Whether it waits on when the medium has no room: a write whose client has its answer, and reads, which see that.
    pub fn outlasts_no_room(&self) -> bool {
        self.is_answered() || matches!(self, Self::Read { .. })
    }

    /// Whether somebody waits for its answer.
    pub fn is_request(&self) -> bool {
        !matches!(self, Self::Committed { .. })
    }

    /// Whether its next block is: nothing can be done for it now.
    pub fn is_held_up(&self) -> bool {
        match self {
            Self::Write {
                verdicts, placed, ..
            } => matches!(verdicts.get(*placed), Some(Verdict::Asked(_))),
            _ => false,
        }
    }

    pub fn range(&self) -> (Lba, u64) {
        match self {
            Self::Write { lba, blocks, .. } => (*lba, blocks.len() as u64),
            Self::Flush { .. } | Self::Read { .. } | Self::Committed { .. } => (Lba(0), 0),
            Self::Unmap { lba, blocks, .. } => (*lba, *blocks),
            Self::Copy { copy, .. } => (copy.to, copy.blocks),
        }
    }
}
