//! Blocks in parts of pages: a block that can be stored in fewer bytes shares a page with others (CSA-FS §4.2, and compression).
//!
//! The first page of a chunk is its header. The room that its records leave is filled first, so the few small blocks of a small fsync
//! often cost no further block. A page of parts has a number, as a shared page has, and the map names the number and the part. So a page
//! moves as one, and its owners' entries stay the same. A second owner of a part is another map entry that names the same part. Each page
//! counts the entries that name it, and is given up with the last of them.
//!
//! The core decides where a part goes, and writes the directory; the runtime stores the bytes.

use super::twin::Shared as Sharing;
use super::verdict::Twin;
use super::{Engine, Pending, Store};
use crate::addr::{Buf, EffectId, Lba, Pba, Vba};
use crate::entry::{MAX_PARTS, PartId};
use crate::format::chunk::{self, ChunkHeader, Part, RECORD_ROOM, Record};
use crate::format::names::NAMES_ROOM;
use crate::format::pack::{self, OVERHEAD, ROOM};
use crate::format::summary::{Owner, Tag};
use crate::limits;
use crate::log::{ChunkId, Head, PartSlot, Parts, locate};
use crate::seam::{Block, Bucket, Packed, Payload};
use crate::state::Origin;

/// What happened to a block that can be stored in fewer bytes.
pub(super) enum Packing {
    Done,
    /// Not now.
    Wait,
    /// No page takes it: it is stored whole.
    No,
}

impl Engine {
    /// Puts a block into a page of the host's open chunk.
    pub(super) fn place_part(&mut self, lba: Lba, payload: &Payload, packed: Packed) -> Packing {
        let page_record = Record::Pack {
            vba: Vba(0),
            sum: 0,
        }
        .encoded_len();
        if packed.base.is_some_and(|base| !self.is_fit_for_base(base)) {
            return Packing::No;
        }
        let record_of = |part| match packed.base {
            None => Record::Part { lba, part },
            Some(base) => Record::Delta { lba, part, base },
        };
        let overhead = record_of(Part::default()).encoded_len();
        let Some(chunk) = self.chunk_with_room(Head::Hot, page_record + overhead, true) else {
            return Packing::Wait;
        };
        let Some(page) = self.page_with_room(chunk, packed, overhead) else {
            return Packing::No;
        };
        let open = self.log.get_mut(chunk);
        let record = open.records.len() as u16;
        let Parts {
            vba, block, count, ..
        } = open.pages[page];
        let told = record_of(Part {
            sum: payload.digest.sum,
            block,
            slot: count,
            encoding: packed.encoding,
            offset: 0,
            len: packed.len.get(),
        });
        open.push(told);
        open.parts.push(PartSlot {
            block,
            slot: count,
            buf: payload.buf,
            record,
        });
        let page = &mut open.pages[page];
        page.count += 1;
        page.bytes += packed.len.get();
        if block == 0 {
            open.room -= usize::from(packed.len.get());
        }
        let part = PartId {
            page: vba,
            slot: count,
        };
        if packed.base.is_none() {
            self.tell_stored(payload.buf, part);
        }
        let origin = Origin {
            block: Pba(0),
            page: Some(vba),
        };
        self.apply(origin, &told);
        Packing::Done
    }

    /// The bucket that a part goes into: the requested one, unless too many other buckets have a page in the chunk.
    fn bucket_of(&self, chunk: ChunkId, packed: Packed) -> Option<Bucket> {
        let pages = &self.log.get(chunk).pages;
        let has_page = pages.iter().any(|page| page.bucket == packed.bucket);
        let others = pages.iter().filter(|page| page.bucket.is_some()).count();
        packed
            .bucket
            .filter(|_| has_page || others < limits::PAGES_OF_BUCKETS)
    }

    /// Finds the first page of the chunk that takes a part of this size; begins one if there is none. A page with one part costs
    /// no more than a whole block.
    fn page_with_room(&mut self, id: ChunkId, packed: Packed, overhead: usize) -> Option<usize> {
        let len = usize::from(packed.len.get());
        let bucket = self.bucket_of(id, packed);
        let chunk = self.log.get(id);
        let here = Record::PackHere { vba: Vba(0) }.encoded_len();
        let reserve = self.log.expected(id);
        let in_header = |new: usize| chunk.room >= reserve.saturating_add(new + overhead + len);
        let takes = |page: &Parts| {
            let free = match page.block {
                0 => in_header(0),
                _ => {
                    let used = usize::from(page.count) * OVERHEAD + usize::from(page.bytes);
                    ROOM - used >= OVERHEAD + len
                }
            };
            page.bucket == bucket && !page.shut && usize::from(page.count) < MAX_PARTS && free
        };
        if let Some(page) = chunk.pages.iter().position(takes) {
            return Some(page);
        }
        let has_header = chunk.pages.iter().any(|page| page.block == 0);
        let begin_header = !has_header && bucket.is_none() && in_header(here);
        if !begin_header && OVERHEAD + len > ROOM {
            return None;
        }
        let at = chunk.at;
        let block = match begin_header {
            true => 0,
            false => chunk.slots.len() as u16 + 1,
        };
        let vba = self.state.number_for_parts()?;
        let chunk = self.log.get_mut(id);
        let record = match begin_header {
            true => Record::PackHere { vba },
            false => Record::Pack { vba, sum: 0 },
        };
        match begin_header {
            true => chunk.push(record),
            false => {
                chunk.push_data(record, Block::Page);
            }
        }
        chunk.pages.push(Parts {
            vba,
            block,
            bucket,
            count: 0,
            bytes: 0,
            shut: false,
            linked: false,
        });
        let page = chunk.pages.len() - 1;
        let pba = at.plus(u64::from(block));
        // Its checksum is set when its bytes are known.
        let owner = Owner::Vba(vba);
        let (segment, offset) = locate(&self.superblock, pba);
        self.sums.tag(segment, offset, Tag { owner, sum: 0 });
        self.apply(Origin::of_block(pba), &record);
        Some(page)
    }

    pub(super) fn is_in_open_chunk(&self, vba: Vba) -> bool {
        let open = self.log.open(Head::Hot);
        open.is_some_and(|chunk| chunk.pages.iter().any(|page| page.vba == vba))
    }

    /// Returns the page of this number in the host's open chunk, if it is there.
    fn open_page(&mut self, vba: Vba) -> Option<&mut Parts> {
        let mut pages = self.log.open_mut(Head::Hot)?.pages.iter_mut();
        pages.find(|page| page.vba == vba)
    }

    /// Replaces a part that is still in the unsealed chunk by its overwrite, if the part has no other owner and the new bytes fit in its
    /// place. The order of writes is kept as in `absorb`.
    pub(super) fn absorb_part(&mut self, vba: Vba, slot: u8, payload: &Payload) -> bool {
        let Some(packed) = payload.digest.packed else {
            return false;
        };
        let Some(&mut Parts { linked, block, .. }) = self.open_page(vba) else {
            return false;
        };
        let part_id = PartId { page: vba, slot };
        if packed.base != self.state.shared().deltas().base_of(part_id) {
            return false;
        }
        let Some(chunk) = self.log.open_mut(Head::Hot) else {
            return false;
        };
        let pba = chunk.at.plus(u64::from(block));
        let Some(index) = chunk.part_at(pba, slot) else {
            return false;
        };
        let PartSlot { record, .. } = chunk.parts[index];
        let Some(part) = chunk.records[usize::from(record)].part_mut() else {
            unreachable!("a part has a part's record")
        };
        if linked || packed.len.get() > part.len {
            return false;
        }
        // The space this frees is not reused: the page will be written soon.
        (part.sum, part.encoding, part.len) =
            (payload.digest.sum, packed.encoding, packed.len.get());
        let old = core::mem::replace(&mut chunk.parts[index].buf, payload.buf);
        self.release(old);
        self.stats.absorbed_blocks += 1;
        if packed.base.is_none() {
            self.tell_stored(payload.buf, part_id);
        }
        true
    }

    /// Maps a block to the part that holds its content.
    pub(super) fn share_part(&mut self, lba: Lba, twin: Twin, vba: Vba, slot: u8) -> Sharing {
        // The number leads to the page wherever it moves, so this record may precede or follow a move.
        let record = Record::SharePart { lba, vba, slot };
        let Some(chunk) = self.chunk_with_room(Head::Hot, record.encoded_len(), false) else {
            return Sharing::Wait;
        };
        let pledged = self.is_pledged(lba, twin.of);
        if let Some(page) = self.open_page(vba) {
            page.linked = true;
        }
        self.log_link(chunk, record, pledged);
        self.proposers.shared_by(twin.by, &mut self.stats);
        Sharing::Done
    }

    /// Makes a page take no more parts: nothing owns it any longer, so its number may be reused.
    pub(super) fn shut(&mut self, vba: Vba) {
        if let Some(page) = self.open_page(vba) {
            page.shut = true;
        }
    }

    /// Returns what data block `index` of a chunk being written is made from.
    #[must_use]
    pub fn chunk_block(&self, id: EffectId, index: usize) -> Block {
        self.log.get(self.chunk_of(id)).slots[index].block
    }

    /// Returns the buffers of a chunk being written: whole blocks in order, then those of its parts.
    pub fn chunk_bufs(&self, id: EffectId) -> impl Iterator<Item = Buf> + '_ {
        self.log.get(self.chunk_of(id)).bufs()
    }

    /// True if a chunk being written is of the collector's head: it holds what was moved.
    #[must_use]
    pub fn chunk_is_cold(&self, id: EffectId) -> bool {
        self.log.get(self.chunk_of(id)).head == Head::Cold
    }

    /// Returns those buffers with the block's place on the medium: a physical address, and the part of the page there.
    pub fn chunk_places(&self, id: EffectId) -> impl Iterator<Item = (Buf, Pba, Option<u8>)> + '_ {
        let chunk = self.log.get(self.chunk_of(id));
        let whole = chunk
            .slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| match slot.block {
                Block::Whole(buf) => Some((buf, chunk.at.plus(index as u64 + 1), None)),
                Block::Page => None,
            });
        let parts = chunk.parts.iter();
        whole.chain(parts.map(|part| {
            let page = chunk.at.plus(u64::from(part.block));
            (part.buf, page, Some(part.slot))
        }))
    }

    fn chunk_of(&self, id: EffectId) -> ChunkId {
        match self.front.outbox.get(id).copied() {
            Some(Pending::Chunk(chunk)) => chunk,
            other => unreachable!("effect {id} ({other:?}) is not a chunk's write"),
        }
    }

    /// Encodes data block `index`, a page of parts, calling `store` for each part.
    pub fn encode_page(&mut self, id: EffectId, index: usize, out: &mut [u8], store: Store<'_>) {
        let chunk = self.chunk_of(id);
        let block = index as u16 + 1;
        let count = self.log.get(chunk).parts_of(block).count();
        out.fill(0);
        self.store_parts(chunk, block, pack::first_offset(count), out, store);
        let held = self.log.get(chunk);
        let directory = held
            .parts_of(block)
            .map(|part| &held.records[usize::from(part.record)]);
        pack::encode(directory, out);
        let sum = self.superblock.sum(self.superblock.crc()).of(out);
        let held = self.log.get_mut(chunk);
        let record = usize::from(held.slots[index].record);
        if let Record::Pack { sum: told, .. } = &mut held.records[record] {
            *told = sum;
        }
        let pba = held.at.plus(u64::from(block));
        self.sums.retag(pba, sum);
    }

    /// Encodes the header of a chunk being written, after all its pages of parts.
    pub fn encode_header(&mut self, id: EffectId, out: &mut [u8], store: Store<'_>) {
        let id = self.chunk_of(id);
        out.fill(0);
        let chunk = self.log.get(id);
        let records: usize = chunk.records.iter().map(Record::encoded_len).sum();
        let used = records + chunk.before.bytes();
        let first = crate::addr::BLOCK_BYTES - RECORD_ROOM + used;
        self.store_parts(id, 0, first, out, store);
        let chunk = self.log.get(id);
        let Some(seal) = chunk.sealed else {
            unreachable!("an open chunk is not written")
        };
        let header = ChunkHeader {
            signature: self.superblock.signature(),
            seq: seal.seq,
            life: self.superblock.life(),
            prev_life: seal.prev_life,
            durable: seal.durable,
            at: chunk.at,
            head: chunk.head as u8,
            data_blocks: chunk.slots.len() as u32,
            next: seal.next,
            root_generation: self.checkpoint.generation(),
        };
        let mut names = [0; NAMES_ROOM];
        let names = chunk.before.encode(&mut names);
        chunk::encode(&header, &chunk.records, names, self.superblock.crc(), out);
        let at = chunk.at;
        if chunk.pages.iter().any(|page| page.block == 0) {
            let sum = self.superblock.sum(self.superblock.crc()).of(out);
            self.sums.retag(at, sum);
        }
    }

    /// Gives each part of a page its place, and stores it there.
    fn store_parts(
        &mut self,
        id: ChunkId,
        block: u16,
        mut offset: usize,
        out: &mut [u8],
        store: Store<'_>,
    ) {
        let chunk = self.log.get_mut(id);
        for held in chunk.parts.iter().filter(|part| part.block == block) {
            let Some(part) = chunk.records[usize::from(held.record)].part_mut() else {
                unreachable!("a part has a part's record")
            };
            part.offset = offset as u16;
            let end = offset + usize::from(part.len);
            store(held.buf, part.encoding, &mut out[offset..end]);
            offset = end;
        }
    }
}
