//! Carrying out what the core asks, and telling it how that went.
//!
//! Everything here runs under the volume's lock and ends in a [`Batch`]: operations to submit, answers to
//! give and frames to free once it is released.

use crate::bases::Bases;
use crate::block::{Op, Request};
use crate::compare::Comparisons;
use crate::frames::{FramePool, Frames};
use crate::gate::Gate;
use crate::memory::{Buffer, Buffers};
use crate::pack::{Decoded, PartsRead, Told};
use crate::refusals::block_error;
use crate::requests::{Answers, Pending, Requests};
use crate::stats::{ClientStats, Counters};
use std::sync::Arc;
use vellum_codec::Decoder;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Lba, Nanos, Pba, RequestId};
use vellum_core::format::BlockSum;
use vellum_core::layout::Core;
use vellum_core::room::{Gauge, Level, Room};
use vellum_core::seam::{Effect, Input, Outcome, Page, Payload, Refusal, Reply, Service};
use vellum_medium::{Io, Kind};

/// What an operation on the medium is for; travels in its token beside the effect's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cause {
    Chunk,
    Meta,
    Sync,
    Erase,
    Client,
    Gather,
    ReadMeta,
    Compare,
    Parts,
    Base,
}

impl Cause {
    const ALL: [Self; 10] = [
        Self::Chunk,
        Self::Meta,
        Self::Sync,
        Self::Erase,
        Self::Client,
        Self::Gather,
        Self::ReadMeta,
        Self::Compare,
        Self::Parts,
        Self::Base,
    ];

    fn token(self, id: EffectId) -> u64 {
        (self as u64) << 32 | u64::from(id.0)
    }

    pub fn of(token: u64) -> (Self, EffectId) {
        (Self::ALL[(token >> 32) as usize], EffectId(token as u32))
    }

    /// Whether the core wants the checksums of what was read.
    pub fn wants_sums(self) -> bool {
        matches!(self, Self::Client | Self::Gather)
    }
}

/// What is left to do when the lock is released.
#[derive(Default)]
#[expect(
    clippy::vec_box,
    reason = "operations change hands by pointer, as the medium wants them"
)]
pub(crate) struct Batch {
    pub ios: Vec<Box<Io>>,
    pub answers: Answers,
    pub released: Vec<u32>,
    /// Blocks whose fingerprints the core waits for; it holds them until then.
    pub prints: Vec<(EffectId, Buf)>,
    /// Refusals that tell of damage.
    pub troubles: Vec<Refusal>,
    /// Trouble in what clients send.
    pub warnings: Vec<(&'static str, String)>,
    /// A level that the volume has filled up to.
    pub filled: Option<(Level, Room)>,
}

/// Whether the volume takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Running,
    /// Takes no more; makes everything durable.
    Stopping,
    /// All is durable and checkpointed, or the volume is poisoned.
    Stopped,
    /// As in a crash: what comes back from the medium is only put away.
    Abandoned,
}

/// All that is under the volume's lock.
#[expect(
    clippy::vec_box,
    reason = "operations change hands by pointer, as the medium wants them"
)]
pub(crate) struct Inner {
    pub engine: Core,
    pub requests: Requests,
    pub gate: Gate,
    pub counters: Counters,
    pub life: Life,
    /// Whether the medium had no room for the last write that it was asked for.
    pub full: bool,
    /// When the reaper will look at the clock next, unless something completes before.
    pub deadline: Option<Nanos>,
    /// Set while the core works: found set, whoever held the lock before has panicked.
    pub busy: bool,
    /// Operations that the medium has not given back.
    pub in_flight: usize,
    read_only: bool,
    /// What writes are answered as long as it lasts, as the frames know it.
    refuses_writes: Option<Refusal>,
    pub frames: Arc<FramePool>,
    pub buffers: Buffers,
    /// The metadata of each effect in flight, by number.
    pub metadata: Vec<Option<Buffer>>,
    pub comparisons: Comparisons,
    /// What was done at once, and has not been told to the core yet.
    pub told: Vec<(EffectId, Told)>,
    /// Reads of parts in flight, by their effect's number.
    pub parts: Vec<Option<PartsRead>>,
    pub bases: Bases,
    makes_deltas: bool,
    pub decoder: Decoder,
    pub sum: BlockSum,
    pub gauge: Gauge,
    /// Of each frame for writes: whether its block is worth keeping when it is written.
    keeps: Vec<bool>,
    now: Nanos,
    spare: Vec<Box<Io>>,
}

impl Inner {
    pub fn new(engine: Core, frames: Arc<FramePool>, sum: BlockSum, read_only: bool) -> Self {
        let keeps = vec![false; frames.writable() as usize];
        Self {
            engine,
            requests: Requests::default(),
            gate: Gate::default(),
            counters: Counters::default(),
            life: Life::Running,
            full: false,
            deadline: None,
            busy: false,
            in_flight: 0,
            read_only,
            refuses_writes: None,
            frames,
            buffers: Buffers::default(),
            metadata: Vec::new(),
            comparisons: Comparisons::default(),
            told: Vec::new(),
            parts: Vec::new(),
            bases: Bases::new(),
            makes_deltas: false,
            decoder: Decoder::new(),
            sum,
            gauge: Gauge::default(),
            keeps,
            now: Nanos(0),
            spare: Vec::new(),
        }
    }

    /// Whether that is a change.
    pub fn set_deltas(&mut self, on: bool) -> bool {
        if self.makes_deltas != on {
            // While they are off the core does not tell what is given up.
            self.bases.clear();
        }
        std::mem::replace(&mut self.makes_deltas, on) != on
    }

    /// Feeds the core one input and takes all that it asks. Nothing once the volume's life is over: nobody takes back any more what the
    /// medium has done, and who opens it next would be given it.
    pub fn feed(&mut self, now: Nanos, input: Input<'_>, batch: &mut Batch) {
        if matches!(self.life, Life::Stopped | Life::Abandoned) {
            return;
        }
        self.now = now;
        self.engine.handle(now, input);
        self.drain(batch);
    }

    /// When the clock is to be looked at.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let times = self.engine.poll_timeout().into_iter();
        times.chain(self.gate.deadline()).min()
    }

    /// Hands a request to the core; `payloads`: what its blocks digest to, if it writes.
    pub fn admit(
        &mut self,
        now: Nanos,
        mut pending: Pending,
        payloads: &[Payload],
        batch: &mut Batch,
    ) {
        let Request {
            op, lba, blocks, ..
        } = pending.request;
        let mut own = ClientStats::default();
        let clients = match pending.own {
            true => &mut own,
            false => &mut self.counters.clients,
        };
        let (counted, fua) = match op {
            Op::Read => (&mut clients.read, false),
            Op::Write { fua } => (&mut clients.write, fua),
            Op::Flush => (&mut clients.flush, false),
            Op::Discard { fua } => (&mut clients.discard, fua),
            Op::WriteZeroes { fua } => (&mut clients.write_zeroes, fua),
        };
        counted.requests += u64::from(!pending.is_rest);
        counted.bytes += if op == Op::Flush {
            0
        } else {
            blocks * BLOCK_BYTES as u64
        };
        clients.fua += u64::from(fua && !pending.is_rest);
        if (blocks == 0 && op != Op::Flush) || (op == Op::Flush && self.read_only) {
            return batch.answers.push(pending, Ok(()));
        }
        if matches!(op, Op::Write { .. }) {
            // The core owns the frames from here on, until it releases them.
            let keep = self
                .comparisons
                .are_to_come(pending.watched.expected, payloads.len());
            for id in std::mem::take(&mut pending.request.frames).into_bufs() {
                self.keeps[id as usize] = keep;
            }
        }
        let ack = self.gate.handed_over(&pending, fua);
        let id = self.requests.insert(pending);
        let input = match op {
            // A request has a frame a block, and there are fewer of those than a u32 holds.
            Op::Read => Input::Read {
                id,
                lba,
                blocks: blocks as u32,
            },
            Op::Write { .. } => Input::Write {
                id,
                lba,
                blocks: payloads,
                ack,
            },
            Op::Flush => Input::Flush { id },
            Op::Discard { fua } | Op::WriteZeroes { fua } => Input::Unmap {
                id,
                lba,
                blocks,
                zero: matches!(op, Op::WriteZeroes { .. }),
                fua,
            },
        };
        self.feed(now, input, batch);
        // What waits for durability alone has taken effect.
        if let Some(Pending { request, .. }) = self.requests.find(id)
            && self.engine.nothing_waits()
        {
            self.gate.answered(now, request, true);
        }
    }

    /// Hands blocks to the core that were read to be stored anew.
    pub fn fold(
        &mut self,
        now: Nanos,
        lba: Lba,
        frames: Frames,
        blocks: &[Payload],
        batch: &mut Batch,
    ) {
        if self.life != Life::Running {
            return;
        }
        for id in frames.into_bufs() {
            self.keeps[id as usize] = false;
            self.bases.unwanted(Buf(id));
        }
        self.feed(now, Input::Service(Service::Fold { lba, blocks }), batch);
    }

    /// Takes all that the core asks and answers.
    pub fn drain(&mut self, batch: &mut Batch) {
        loop {
            while let Some(effect) = self.engine.poll_effect() {
                self.carry_out(effect, batch);
            }
            let Some((id, told)) = self.told.pop() else {
                break;
            };
            let outcome = told.outcome();
            self.engine.handle(self.now, Input::Done { id, outcome });
        }
        self.read_back(batch);
        let room = self.engine.room();
        if let Some(level) = self.gauge.note(room) {
            batch.filled = Some((level, room));
        }
        while let Some(Reply { id, result }) = self.engine.poll_reply() {
            let pending = self.requests.remove(id);
            let result = result.map_err(|refusal| {
                self.counters.refused += 1;
                if !matches!(refusal, Refusal::OutOfRange | Refusal::Unlinkable) {
                    batch.troubles.push(refusal);
                }
                block_error(refusal)
            });
            let result = self.gate.ended(self.now, &pending, result);
            batch.answers.push(pending, result);
        }
    }

    fn carry_out(&mut self, effect: Effect, batch: &mut Batch) {
        match effect {
            // Of a volume that is only read nothing is written: these wait for ever, and hold nothing up.
            Effect::WriteChunk { .. }
            | Effect::WriteData { .. }
            | Effect::WriteMeta { .. }
            | Effect::Sync { .. }
            | Effect::Erase { .. }
                if self.read_only => {}
            Effect::WriteChunk {
                id,
                at,
                blocks,
                durable,
            } => self.write_chunk(id, at, blocks, durable, batch),
            Effect::WriteData { id, at, blocks } => self.write_data(id, at, blocks, batch),
            Effect::WriteMeta {
                id,
                at,
                blocks,
                durable,
            } => self.write_meta(id, at, blocks, durable, batch),
            Effect::Sync { id } => {
                self.counters.syncs += 1;
                let io = self.io(Cause::Sync, id, Kind::Sync, Pba(0));
                batch.ios.push(io);
            }
            Effect::Erase { id, at, blocks } => {
                self.counters.discards += 1;
                self.frames.forget(at, blocks);
                let io = self.io(
                    Cause::Erase,
                    id,
                    Kind::Discard {
                        blocks: u64::from(blocks),
                    },
                    at,
                );
                batch.ios.push(io);
            }
            Effect::Read {
                id,
                at,
                blocks,
                request,
                first,
            } => {
                self.count_read(request, u64::from(blocks));
                let mut io = self.io(Cause::Client, id, Kind::Read, at);
                let frames = &self.requests.get(request).request.frames;
                for index in first..first + blocks {
                    // SAFETY: the request holds its frames until it is answered, which the core does only
                    // after this read has come back.
                    unsafe { io.push(frames.ptr(index as usize), BLOCK_BYTES) };
                }
                batch.ios.push(io);
            }
            Effect::ReadParts {
                id,
                page,
                slot,
                count,
                base,
                request,
                first,
            } => {
                let to = Decoded::Request(request, first);
                self.read_parts(id, page, base, PartsRead::new(slot, count, to), batch);
            }
            Effect::GatherPart { id, at, slot, to } => {
                let read = PartsRead::new(slot, 1, Decoded::Collector(to));
                self.read_parts(id, Page::Medium(at), None, read, batch);
            }
            Effect::Gather { id, at, blocks, to } => {
                self.counters.read_blocks_collector += u64::from(blocks);
                let mut io = self.io(Cause::Gather, id, Kind::Read, at);
                for index in 0..blocks {
                    // SAFETY: the collector's frames are used by the core alone, which waits for this read.
                    unsafe { io.push(self.frames.ptr(Buf(to.0 + index)), BLOCK_BYTES) };
                }
                batch.ios.push(io);
            }
            Effect::ReadMeta { id, at, blocks } => {
                self.counters.read_blocks_metadata += u64::from(blocks);
                let mut io = self.io(Cause::ReadMeta, id, Kind::Read, at);
                let buffer = self.buffers.take(blocks as usize);
                self.keep(id, buffer, &mut io);
                batch.ios.push(io);
            }
            Effect::Compare { id, buf, with } => self.compare(id, buf, with, batch),
            Effect::Fingerprint { id, buf } => batch.prints.push((id, buf)),
            Effect::CopyOut {
                from,
                request,
                index,
            } => {
                let frames = &self.requests.get(request).request.frames;
                // Under the lock, because the core may release `from` at the next input.
                // SAFETY: both are frames of the pool, apart, and nobody else writes either: `from` is the
                // core's until released, the other is the request's.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        self.frames.ptr(from),
                        frames.ptr(index as usize),
                        BLOCK_BYTES,
                    );
                }
            }
            Effect::ZeroOut {
                request,
                first,
                blocks,
            } => self.zero_out(request, first, blocks),
            Effect::Stored { buf, part } => {
                // SAFETY: as in `frame`; apart from it, so that the bases can be changed meanwhile.
                let block =
                    unsafe { std::slice::from_raw_parts(self.frames.ptr(buf), BLOCK_BYTES) };
                self.bases.stored(part, buf, block);
            }
            Effect::GivenUp { page } => self.bases.given_up(page),
            Effect::Release { buf } => batch.released.push(buf.0),
            Effect::Stopped => self.life = Life::Stopped,
        }
    }

    /// The bytes of a frame that the core holds.
    pub fn frame(&self, buf: Buf) -> &[u8] {
        // SAFETY: a frame that the core holds is written by nobody until the core releases it, and that is
        // carried out under the same lock, after the borrow has ended.
        unsafe { std::slice::from_raw_parts(self.frames.ptr(buf), BLOCK_BYTES) }
    }

    fn zero_out(&self, request: RequestId, first: u32, blocks: u32) {
        let frames = &self.requests.get(request).request.frames;
        for index in first..first + blocks {
            // SAFETY: a frame of the request's, which nobody else reaches while it is in flight.
            unsafe { std::ptr::write_bytes(frames.ptr(index as usize), 0, BLOCK_BYTES) };
        }
    }

    /// Data blocks of tables in place: all from their frames.
    fn write_data(&mut self, id: EffectId, at: Pba, blocks: u32, batch: &mut Batch) {
        let mut io = self.io(Cause::Chunk, id, Kind::Write { durable: false }, at);
        for buf in self.engine.chunk_bufs(id) {
            // SAFETY: the core holds these frames, unchanged, until this write has come back.
            unsafe { io.push(self.frames.ptr(buf), BLOCK_BYTES) };
        }
        assert_eq!(
            io.len(),
            blocks as usize * BLOCK_BYTES,
            "write {id} is as long as the core says"
        );
        self.frames.forget(at, blocks);
        self.count_write(blocks, false);
        batch.ios.push(io);
    }

    fn write_meta(&mut self, id: EffectId, at: Pba, blocks: u32, durable: bool, batch: &mut Batch) {
        let mut buffer = self.buffers.take(blocks as usize);
        self.engine.encode(id, buffer.bytes_mut());
        let mut io = self.io(Cause::Meta, id, Kind::Write { durable }, at);
        self.keep(id, buffer, &mut io);
        self.frames.forget(at, blocks);
        self.count_write(blocks, durable);
        batch.ios.push(io);
    }

    pub fn count_write(&mut self, blocks: u32, durable: bool) {
        self.counters.writes += 1;
        self.counters.durable_writes += u64::from(durable);
        self.counters.written_blocks += u64::from(blocks);
    }

    pub fn io(&mut self, cause: Cause, id: EffectId, kind: Kind, at: Pba) -> Box<Io> {
        self.in_flight += 1;
        match self.spare.pop() {
            Some(mut io) => {
                io.reset(cause.token(id), kind, at);
                io
            }
            None => Io::new(cause.token(id), kind, at),
        }
    }

    /// Keeps an operation's metadata until it is back.
    pub fn keep(&mut self, id: EffectId, buffer: Buffer, io: &mut Io) {
        // SAFETY: the buffer is put away untouched, until `completed` takes it when the operation is back.
        unsafe { io.push(buffer.ptr(), buffer.len()) };
        self.put_away(id, buffer);
    }

    /// As [`Inner::keep`], of a buffer whose pieces are in the operation already.
    pub fn put_away(&mut self, id: EffectId, buffer: Buffer) {
        let index = id.0 as usize;
        if self.metadata.len() <= index {
            self.metadata.resize_with(index + 1, || None);
        }
        debug_assert!(
            self.metadata[index].is_none(),
            "effect {id} is carried out twice"
        );
        self.metadata[index] = Some(buffer);
    }

    /// Tells the core how an operation ended; `sums` of the blocks that a data read brought.
    pub fn completed(&mut self, now: Nanos, io: Box<Io>, ended: Ended<'_>, batch: &mut Batch) {
        let (cause, id) = Cause::of(io.token);
        self.now = now;
        if cause == Cause::Chunk && matches!(ended, Ended::Written) {
            self.remember(id);
        }
        self.reclaim(io);
        if cause == Cause::Compare {
            let came = matches!(ended, Ended::Metadata);
            return self.compared(now, id, came, batch);
        }
        let failed = !matches!(ended, Ended::Metadata);
        let ended = match cause {
            Cause::Base => match self.base_came(id, failed) {
                Some(ended) => ended,
                None => return self.drain(batch),
            },
            Cause::Parts if self.waits_for_base(id, failed) => return,
            _ => ended,
        };
        let buffer = self.metadata.get_mut(id.0 as usize).and_then(Option::take);
        let outcome = match (ended, &buffer) {
            (Ended::Full, _) => Outcome::Full,
            (Ended::Failed, _) => Outcome::Failed,
            (Ended::Data(sums), _) => Outcome::Sums(sums),
            (Ended::Metadata, Some(buffer)) if matches!(cause, Cause::Parts | Cause::Base) => {
                self.parts_read(id, buffer.bytes())
            }
            (Ended::Metadata, Some(buffer)) => Outcome::Bytes(buffer.bytes()),
            (Ended::Metadata | Ended::Written, _) => Outcome::Ok,
        };
        self.engine.handle(now, Input::Done { id, outcome });
        let refuses = self.engine.refuses_writes();
        if self.refuses_writes != refuses {
            self.refuses_writes = refuses;
            self.frames.refuse_writes(refuses.map(block_error));
        }
        if let Some(buffer) = buffer {
            self.buffers.give_back(buffer);
        }
        self.drain(batch);
    }

    /// A chunk is written: what is in its frames is on the medium, until these are used again.
    fn remember(&mut self, id: EffectId) {
        let keeps = &self.keeps;
        let worth = |(buf, _, _): &(Buf, _, _)| keeps.get(buf.0 as usize).is_some_and(|&keep| keep);
        self.frames
            .remember(self.engine.chunk_places(id).filter(worth));
    }

    /// An operation is back.
    pub fn reclaim(&mut self, io: Box<Io>) {
        self.in_flight -= 1;
        self.spare.push(io);
    }
}

/// How an operation on the medium ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ended<'a> {
    Full,
    Failed,
    Data(&'a [u32]),
    Metadata,
    Written,
}
