//! The device as a host of the core: an effect becomes an operation on the medium, or is done at once in the frames.

use super::{Batch, Cause, Inner, Phase};
use crate::part_reads::{Decoded, PartsRead};
use crate::refusals::{block_error, map_is_damaged, restored};
use std::sync::Arc;
use vellum_codec::Block;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Pba, RequestId, Vba};
use vellum_core::driver::{Extent, Host, Parts, Serves, To};
use vellum_core::entry::PartId;
use vellum_core::layout::Core;
use vellum_core::seam::{Against, Effect, Outcome, Refusal, Reply};
use vellum_medium::Kind;

impl Host<Batch> for Inner {
    type Done = ();

    fn write_chunk(&mut self, batch: &mut Batch, id: EffectId, to: Extent, durable: bool) {
        let io = self.chunk(id, to, durable);
        self.write(batch, io, to, durable);
    }

    /// Writes data blocks of tables in place, all from their frames.
    fn write_data(&mut self, batch: &mut Batch, id: EffectId, to: Extent) {
        let mut io = self.io(Cause::Chunk, id, Kind::Write { durable: false }, to.at);
        for buf in self.core.chunk_bufs(id) {
            // SAFETY: the core holds these frames, unchanged, until this write has come back.
            unsafe { io.push(self.frames.ptr(buf), BLOCK_BYTES) };
        }
        self.write(batch, io, to, false);
    }

    fn write_meta(&mut self, batch: &mut Batch, id: EffectId, to: Extent, durable: bool) {
        let mut buffer = self.metadata.take(to.blocks as usize);
        self.core.encode(id, buffer.bytes_mut());
        let mut io = self.io(Cause::Meta, id, Kind::Write { durable }, to.at);
        self.keep(id, buffer, &mut io);
        self.write(batch, io, to, durable);
    }

    fn sync(&mut self, batch: &mut Batch, id: EffectId) {
        self.counters.syncs += 1;
        let io = self.io(Cause::Sync, id, Kind::Sync, Pba(0));
        batch.ios.push(io);
    }

    fn erase(&mut self, batch: &mut Batch, id: EffectId, what: Extent) {
        self.counters.discards += 1;
        self.frames.forget(what.at, what.blocks);
        let blocks = u64::from(what.blocks);
        let io = self.io(Cause::Erase, id, Kind::Discard { blocks }, what.at);
        batch.ios.push(io);
    }

    fn read(&mut self, batch: &mut Batch, id: EffectId, from: Extent, to: To) {
        let mut io = match to {
            To::Request(request, _) => {
                self.count_read(request, u64::from(from.blocks));
                self.io(Cause::Client, id, Kind::Read, from.at)
            }
            To::Collector(_) => {
                self.counters.read_blocks_collector += u64::from(from.blocks);
                self.io(Cause::Gather, id, Kind::Read, from.at)
            }
        };
        for index in 0..from.blocks {
            let frame = match to {
                To::Request(request, first) => {
                    let frames = &self.requests.get(request).request.frames;
                    frames.ptr((first + index) as usize)
                }
                To::Collector(first) => self.frames.ptr(Buf(first.0 + index)),
            };
            // SAFETY: the request holds its frames until it is answered, which the core does only after this read has come
            // back. The collector's frames are used by the core alone, which waits for this read.
            unsafe { io.push(frame, BLOCK_BYTES) };
        }
        batch.ios.push(io);
    }

    fn read_parts(&mut self, batch: &mut Batch, id: EffectId, parts: Parts, to: To) {
        let to = match to {
            To::Request(request, first) => Decoded::Request(request, first),
            To::Collector(buf) => Decoded::Collector(buf),
        };
        let read = PartsRead::new(parts.slot, parts.count, to);
        self.start_parts(id, parts.page, parts.base, read, batch);
    }

    fn read_meta(&mut self, batch: &mut Batch, id: EffectId, from: Extent) {
        self.counters.read_blocks_metadata += u64::from(from.blocks);
        let mut io = self.io(Cause::ReadMeta, id, Kind::Read, from.at);
        let buffer = self.metadata.take(from.blocks as usize);
        self.keep(id, buffer, &mut io);
        batch.ios.push(io);
    }

    fn compare(&mut self, batch: &mut Batch, id: EffectId, buf: Buf, with: Against) {
        self.start_compare(id, buf, with, batch);
    }

    fn fingerprint(&mut self, batch: &mut Batch, id: EffectId, buf: Buf) {
        batch.prints.push((id, buf));
    }

    fn copy_out(&mut self, _: &mut Batch, from: Buf, request: RequestId, index: u32) {
        let frames = &self.requests.get(request).request.frames;
        // Under the lock, because the core may release `from` at the next input.
        // SAFETY: both are frames of the pool, apart, and nobody else writes either: `from` is the core's until released, the
        // other is the request's.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.frames.ptr(from),
                frames.ptr(index as usize),
                BLOCK_BYTES,
            );
        }
    }

    fn zero_out(&mut self, _: &mut Batch, request: RequestId, first: u32, blocks: u32) {
        let frames = &self.requests.get(request).request.frames;
        for index in first..first + blocks {
            // SAFETY: a frame of the request's, which nobody else reaches while it is in flight.
            unsafe { std::ptr::write_bytes(frames.ptr(index as usize), 0, BLOCK_BYTES) };
        }
    }

    fn stored(&mut self, _: &mut Batch, buf: Buf, part: PartId) {
        // One copy and one allocation for a block that others will be small deltas of.
        // SAFETY: as in `frame`; bytes lie anywhere.
        let block = || Arc::new(unsafe { *self.frames.ptr(buf).cast::<Block>() });
        self.bases.stored(part, buf, block);
    }

    fn given_up(&mut self, _: &mut Batch, page: Vba) {
        self.bases.given_up(page);
    }

    fn release(&mut self, batch: &mut Batch, buf: Buf) {
        batch.released.push(buf.0);
    }

    fn stopped(&mut self, _: &mut Batch) {
        self.phase = Phase::Stopped;
    }
}

impl Serves<Batch> for Inner {
    fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    /// A read-only volume is not written: such an effect never ends, and holds nothing up.
    fn allows(&self, effect: &Effect) -> bool {
        !(self.read_only && effect.changes_medium())
    }

    fn next_ended(&mut self) -> Option<(EffectId, Outcome<'static>)> {
        let (id, outcomes) = self.outcomes.pop()?;
        Some((id, outcomes.outcome()))
    }

    fn started_all(&mut self, batch: &mut Batch) {
        self.read_back(batch);
        let rebuilt = self.core.take_rebuilt();
        if rebuilt > 0 {
            batch.warnings.push(("damage", restored(rebuilt)));
        }
        let room = self.core.room();
        if let Some(level) = self.gauge.note(room) {
            batch.filled = Some((level, room, matches!(self.core, Core::Log(_))));
        }
    }

    fn reply(&mut self, batch: &mut Batch, Reply { id, result }: Reply) {
        let pending = self.requests.remove(id);
        if let Err(Refusal::Corrupt(at) | Refusal::Unreadable(at)) = result {
            self.forget_damaged(at, &pending.request);
        }
        let result = result.map_err(|refusal| {
            self.counters.refused += 1;
            match (refusal, self.core.damaged_table()) {
                (Refusal::OutOfRange | Refusal::Unlinkable, _) => {}
                (Refusal::Poisoned, Some(at)) => {
                    batch.warnings.push(("damage", map_is_damaged(at)));
                }
                _ => batch.troubles.push(refusal),
            }
            block_error(refusal)
        });
        let result = self.gate.ended(self.now, &pending, result);
        batch.answers.push(pending, result);
    }
}

impl Inner {
    /// Hands the medium a write whose operation has all of its memory.
    fn write(&mut self, batch: &mut Batch, io: Box<vellum_medium::Io>, to: Extent, durable: bool) {
        let bytes = to.blocks as usize * BLOCK_BYTES;
        assert_eq!(io.len(), bytes, "a write is as long as the core says");
        self.frames.forget(to.at, to.blocks);
        self.count_write(to.blocks, durable);
        batch.ios.push(io);
    }
}
