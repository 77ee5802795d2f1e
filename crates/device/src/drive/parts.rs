//! Writes chunks with their pages of parts, and reads parts.

use super::{Batch, Cause, Ended, Inner};
use crate::part_reads::{Came, Decoded, EarlyOutcome, Needs, PartsRead};
use vellum_codec::Block as Bytes;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, RequestId};
use vellum_core::driver::Extent;
use vellum_core::seam::{BasePlace, ChunkBlock, Outcome, PagePlace};
use vellum_medium::{Io, Kind};

impl Inner {
    /// The write of a chunk: header and pages of parts from one buffer, all other blocks from their frames.
    pub(super) fn chunk(&mut self, id: EffectId, to: Extent, durable: bool) -> Box<Io> {
        let data = 0..to.blocks as usize - 1;
        let is_page = |index: &usize| self.core.chunk_block(id, *index) == ChunkBlock::Page;
        let pages = data.clone().filter(is_page).count();
        let mut buffer = self.metadata.take(1 + pages);
        let mut io = self.io(Cause::Chunk, id, Kind::Write { durable }, to.at);
        let frames = &self.frames;
        let mut store = |buf: Buf, _, out: &mut [u8]| {
            // SAFETY: the core holds this frame, and what is beside it, unchanged until it releases it.
            let side = unsafe { std::slice::from_raw_parts(frames.side(buf), out.len()) };
            out.copy_from_slice(side);
        };
        let (header, mut rest) = buffer.bytes_mut().split_at_mut(BLOCK_BYTES);
        // SAFETY: the buffer is put away untouched until the operation is back.
        unsafe { io.push(header.as_mut_ptr(), BLOCK_BYTES) };
        for index in data {
            match self.core.chunk_block(id, index) {
                // SAFETY: the core holds these frames, unchanged, until this write has come back.
                ChunkBlock::Whole(buf) => unsafe { io.push(frames.ptr(buf), BLOCK_BYTES) },
                ChunkBlock::Page => {
                    let (page, others) = rest.split_at_mut(BLOCK_BYTES);
                    rest = others;
                    self.core.encode_page(id, index, page, &mut store);
                    // SAFETY: as the header's.
                    unsafe { io.push(page.as_mut_ptr(), BLOCK_BYTES) };
                }
            }
        }
        self.core.encode_header(id, header, &mut store);
        self.metadata.keep(id, buffer);
        io
    }

    /// Reads parts of a page; decodes them at once if everything needed is in memory. Page and base are read together, so such a
    /// block takes no longer than a whole one.
    pub(crate) fn start_parts(
        &mut self,
        id: EffectId,
        page: PagePlace,
        base: Option<BasePlace>,
        mut read: PartsRead,
        batch: &mut Batch,
    ) {
        match base {
            None => {}
            Some(BasePlace::Block(buf)) => read.base = Needs::block(self.frame(buf)),
            Some(BasePlace::Part(PagePlace::Buffer(buf), slot)) => {
                // SAFETY: the collector's frame, which the core leaves alone while it names it here.
                let page = unsafe { std::slice::from_raw_parts(self.frames.ptr(buf), BLOCK_BYTES) };
                read.base = Needs::part(&mut self.unpacker, page, slot);
            }
            Some(BasePlace::Part(PagePlace::Medium(at), slot)) => {
                self.count_parts_read(read.to);
                let mut io = self.io(Cause::Base, id, Kind::Read, at);
                let buffer = self.metadata.take(1);
                // SAFETY: the buffer lies untouched in the read until `base_came` takes it when the operation is back.
                unsafe { io.push(buffer.ptr(), buffer.len()) };
                batch.ios.push(io);
                read.base = Needs::Part(slot, buffer);
            }
        }
        match page {
            PagePlace::Buffer(buf) if read.waits_for_base() => {
                let page = <&Bytes>::try_from(self.frame(buf)).map(|page| Box::new(*page));
                read.page = page.map_or(Came::Read { failed: true }, Came::Copied);
                self.keep_parts(id, read);
            }
            PagePlace::Buffer(buf) => {
                // SAFETY: the collector's frame, which the core leaves alone while it names it here.
                let page = unsafe { std::slice::from_raw_parts(self.frames.ptr(buf), BLOCK_BYTES) };
                let outcomes = self.outcome_of(page, &read);
                self.outcomes.push((id, outcomes));
            }
            PagePlace::Medium(at) => {
                self.count_parts_read(read.to);
                let mut io = self.io(Cause::Parts, id, Kind::Read, at);
                let buffer = self.metadata.take(1);
                self.keep(id, buffer, &mut io);
                batch.ios.push(io);
                self.keep_parts(id, read);
            }
        }
    }

    pub fn count_read(&mut self, request: RequestId, blocks: u64) {
        let own = self.requests.get(request).own;
        let counters = &mut self.counters;
        let count = match own {
            true => &mut counters.read_blocks_fold,
            false => &mut counters.read_blocks_clients,
        };
        *count += blocks;
    }

    fn count_parts_read(&mut self, to: Decoded) {
        match to {
            Decoded::Request(request, _) => self.count_read(request, 1),
            Decoded::Collector(_) => self.counters.read_blocks_collector += 1,
            Decoded::Compared(_) => self.counters.read_blocks_compare += 1,
        }
    }

    fn keep_parts(&mut self, id: EffectId, read: PartsRead) {
        let index = id.0 as usize;
        if self.parts.len() <= index {
            self.parts.resize_with(index + 1, || None);
        }
        self.parts[index] = Some(read);
    }

    /// Notes that a page of parts has arrived, or cannot be read. Returns true if its parts still wait for their base.
    pub(crate) fn waits_for_base(&mut self, id: EffectId, failed: bool) -> bool {
        let Some(read) = &mut self.parts[id.0 as usize] else {
            unreachable!("effect {id} reads parts")
        };
        let waits = read.waits_for_base();
        if waits {
            read.page = Came::Read { failed };
        }
        waits
    }

    /// Notes that a base has arrived, or cannot be read. If the page was read first, returns how that ended, because the core is
    /// told now.
    pub(crate) fn base_came(&mut self, id: EffectId, failed: bool) -> Option<Ended<'static>> {
        let Some(mut read) = self.parts[id.0 as usize].take() else {
            unreachable!("effect {id} reads a base for parts")
        };
        let Needs::Part(slot, buffer) = std::mem::replace(&mut read.base, Needs::Lost) else {
            unreachable!("effect {id} waits for a base")
        };
        if !failed {
            read.base = Needs::part(&mut self.unpacker, buffer.bytes(), slot);
        }
        self.metadata.give_back(buffer);
        let ended = match &read.page {
            Came::NotYet => None,
            Came::Copied(page) => {
                let outcomes = self.outcome_of(&page[..], &read);
                self.outcomes.push((id, outcomes));
                return None;
            }
            Came::Read { failed: true } => Some(Ended::Failed),
            Came::Read { failed: false } => Some(Ended::Metadata),
        };
        self.parts[id.0 as usize] = Some(read);
        ended
    }

    /// The outcome to report for a page that was read for its parts.
    pub(crate) fn parts_read(&mut self, id: EffectId, page: &[u8]) -> Outcome<'static> {
        let Some(read) = self.parts[id.0 as usize].take() else {
            unreachable!("effect {id} reads parts")
        };
        Outcome::Parts {
            sum: self.unpacker.sum.of(page),
            whole: self.unpack_to(page, &read),
            base: read.has_base(),
        }
    }

    /// The same for a page in memory.
    fn outcome_of(&mut self, page: &[u8], read: &PartsRead) -> EarlyOutcome {
        let whole = self.unpack_to(page, read);
        match read.to {
            Decoded::Compared(_) => EarlyOutcome::Same(whole),
            Decoded::Request(..) | Decoded::Collector(_) => EarlyOutcome::Parts {
                whole,
                base: read.has_base(),
            },
        }
    }

    fn unpack_to(&mut self, page: &[u8], read: &PartsRead) -> bool {
        let base = match &read.base {
            Needs::Block(block) => Some(&**block),
            Needs::Nothing => None,
            Needs::Part(..) | Needs::Lost => return false,
        };
        (0..read.count).all(|index| {
            let slot = read.slot + index;
            let to = match read.to {
                Decoded::Request(request, first) => {
                    let frames = &self.requests.get(request).request.frames;
                    frames.ptr((first + u32::from(index)) as usize)
                }
                Decoded::Collector(buf) => self.frames.ptr(buf),
                Decoded::Compared(buf) => return self.part_is(page, slot, base, buf),
            };
            // SAFETY: a frame of the request's, or of the collector's, which nobody else reaches while it is in flight.
            let out = unsafe { &mut *to.cast::<Bytes>() };
            self.unpacker.unpack(page, slot, base, out)
        })
    }
}
