//! Blocks in parts of pages: a block that can be stored in fewer bytes shares a page with others (CSA-FS §4.2, and compression).
//!
//! A page of parts has a number, as a shared page has, and the map names the number and the part. So a page
//! moves as one, and its owners' entries stay the same. A second owner of a part is another map entry that names the same part. Each page
//! counts the entries that name it, and is given up with the last of them.
//!
//! [`Pack`](crate::policy::pack::Pack) decides where a part goes, its chunk encodes the directory, and the runtime stores the bytes.

use super::twin::Sharing;
use super::verdict::Twin;
use super::{Engine, Pending, PutPart};
use crate::addr::{Buf, EffectId, Lba, Pba, Vba};
use crate::entry::PartId;
use crate::format::chunk::{Part, Record};
use crate::format::summary::{Owner, Tag};
use crate::log::{ChunkId, Head, locate};
use crate::policy::pack::{self, Choice, NewPage, Place};
use crate::seam::{ChunkBlock, Packed, Payload};
use crate::state::Origin;

/// Bytes of the record of a page that is a data block. That of a page in the header is shorter.
const LONGEST_PAGE_RECORD: usize = Record::Pack {
    vba: Vba(0),
    sum: 0,
}
.encoded_len();

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
        if packed.base.is_some_and(|base| !self.is_fit_for_base(base)) {
            return Packing::No;
        }
        let record_of = |part| match packed.base {
            None => Record::Part { lba, part },
            Some(base) => Record::Delta { lba, part, base },
        };
        let record = record_of(Part::default()).encoded_len();
        let Some(chunk) = self.chunk_with_room(Head::Hot, LONGEST_PAGE_RECORD + record, true)
        else {
            return Packing::Wait;
        };
        let len = packed.len.get();
        let Some(page) = self.page_for(chunk, record, packed) else {
            return Packing::No;
        };
        let Place { vba, block, slot } = self.placing.pack.put(page, len);
        let told = record_of(Part {
            sum: payload.digest.sum,
            block,
            slot,
            encoding: packed.encoding,
            offset: 0,
            len,
        });
        self.log.get_mut(chunk).push_part(told, payload.buf);
        if packed.base.is_none() {
            self.tell_stored(payload.buf, PartId { page: vba, slot });
        }
        let origin = Origin {
            block: Pba(0),
            page: Some(vba),
        };
        self.apply(origin, &told);
        Packing::Done
    }

    /// Returns the page of the open chunk for a part whose record has so many bytes; begins a page if the policy wants a new one. `None`:
    /// no page takes the part.
    fn page_for(&mut self, id: ChunkId, record: usize, packed: Packed) -> Option<usize> {
        let part = pack::Part {
            len: packed.len.get(),
            record,
            bucket: packed.bucket,
        };
        let chunk = pack::Chunk {
            spare: self.log.spare(id),
            record: Record::PackHere { vba: Vba(0) }.encoded_len(),
            next: self.log.get(id).blocks() as u16,
        };
        match self.placing.pack.choose(part, chunk) {
            Choice::Page(page) => Some(page),
            Choice::New(new) => self.begin_page(id, new),
            Choice::Whole => None,
        }
    }

    /// Begins a page of parts, if there is a number for it.
    fn begin_page(&mut self, id: ChunkId, new: NewPage) -> Option<usize> {
        let vba = self.state.number_for_parts()?;
        let chunk = self.log.get_mut(id);
        let (record, pba) = match new.block {
            0 => {
                let record = Record::PackHere { vba };
                chunk.push(record);
                (record, chunk.opening().at)
            }
            _ => {
                let record = Record::Pack { vba, sum: 0 };
                (record, chunk.push_data(record, ChunkBlock::Page))
            }
        };
        let page = self.placing.pack.begin(vba, new);
        // Its checksum is set when its bytes are known.
        let owner = Owner::Vba(vba);
        let (segment, offset) = locate(&self.superblock, pba);
        self.sums.tag(segment, offset, Tag { owner, sum: 0 });
        self.apply(Origin::of_block(pba), &record);
        Some(page)
    }

    /// Replaces a part that is still in the unsealed chunk by its overwrite, if the part has no other owner and the new bytes fit in its
    /// place. The order of writes is kept as in `absorb`.
    pub(super) fn absorb_part(&mut self, vba: Vba, slot: u8, payload: &Payload) -> bool {
        let Some(packed) = payload.digest.packed else {
            return false;
        };
        let part = PartId { page: vba, slot };
        let Some(page) = self.placing.pack.replaceable(vba) else {
            return false;
        };
        if packed.base != self.state.shared().deltas().base_of(part) {
            return false;
        }
        let open = self.log.open_mut(Head::Hot);
        let old = open.and_then(|chunk| chunk.replace_part(page, slot, payload, packed));
        let Some(old) = old else {
            return false;
        };
        self.release(old);
        self.stats.absorbed_blocks += 1;
        if packed.base.is_none() {
            self.tell_stored(payload.buf, part);
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
        self.placing.pack.on_linked(vba);
        self.log_link(chunk, record, pledged);
        self.proposers.shared_by(twin.by, &mut self.stats);
        Sharing::Done
    }

    /// Returns what data block `index` of a chunk being written is made from.
    #[must_use]
    pub fn chunk_block(&self, id: EffectId, index: usize) -> ChunkBlock {
        self.log.get(self.chunk_of(id)).block(index)
    }

    /// Returns the buffers of a chunk being written: whole blocks in order, then those of its parts.
    pub fn chunk_bufs(&self, id: EffectId) -> impl Iterator<Item = Buf> + '_ {
        self.log.get(self.chunk_of(id)).bufs()
    }

    /// True if a chunk being written is of the collector's head: it holds what was moved.
    #[must_use]
    pub fn chunk_is_cold(&self, id: EffectId) -> bool {
        self.log.get(self.chunk_of(id)).opening().head == Head::Cold
    }

    /// Returns those buffers with the block's place on the medium: a physical address, and the part of the page there.
    pub fn chunk_places(&self, id: EffectId) -> impl Iterator<Item = (Buf, Pba, Option<u8>)> + '_ {
        self.log.get(self.chunk_of(id)).places()
    }

    fn chunk_of(&self, id: EffectId) -> ChunkId {
        match self.front.outbox.get(id).copied() {
            Some(Pending::Chunk(chunk)) => chunk,
            other => unreachable!("effect {id} ({other:?}) is not a chunk's write"),
        }
    }

    /// Encodes data block `index`, a page of parts, calling `put` for each part.
    pub fn encode_page(&mut self, id: EffectId, index: usize, out: &mut [u8], put: PutPart<'_>) {
        let id = self.chunk_of(id);
        let chunk = self.log.get_mut(id);
        let pba = chunk.encode_page(index, out, put);
        let sum = self.superblock.sum(self.superblock.crc()).of(out);
        chunk.set_page_sum(index, sum);
        self.sums.retag(pba, sum);
    }

    /// Encodes the header of a chunk being written, after all its pages of parts.
    pub fn encode_header(&mut self, id: EffectId, out: &mut [u8], put: PutPart<'_>) {
        let id = self.chunk_of(id);
        let crc = self.superblock.crc();
        let root = self.checkpoint.generation();
        let chunk = self.log.get_mut(id);
        if let Some(pba) = chunk.encode_header(&self.superblock, (root, crc), out, put) {
            self.sums.retag(pba, self.superblock.sum(crc).of(out));
        }
    }
}
