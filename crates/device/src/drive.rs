//! Carries out the core's effects, and reports to the core how they ended.
//!
//! Everything here runs under the volume's lock and ends in a [`Batch`]: operations to submit, answers to give and frames to free
//! once the lock is released.

mod compare;
pub(crate) mod entered;
mod host;
mod operations;
mod parts;

use crate::block::{Op, Request};
use crate::compare::Comparisons;
use crate::frames::{FramePool, Frames};
use crate::gate::Gate;
use crate::memory::{Buffer, Metadata};
use crate::pack::Unpacker;
use crate::part_reads::{EarlyOutcome, PartsRead};
use crate::refusals::block_error;
use crate::requests::{Answers, Pending, Requests};
use crate::stats::{ClientStats, Counters};
use operations::Operations;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Lba, Nanos, Pba};
use vellum_core::driver;
use vellum_core::entry::Earlier;
use vellum_core::format::BlockSum;
use vellum_core::layout::Core;
use vellum_core::room::{Gauge, Level, Room};
use vellum_core::seam::{Input, Outcome, Payload, Refusal, Service, Unmap};
use vellum_medium::{Io, Kind};
use vellum_watch::Bases;

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

    /// True if the core wants the checksums of what was read.
    pub fn wants_sums(self) -> bool {
        matches!(self, Self::Client | Self::Gather)
    }
}

/// Counts a request that a client has sent.
fn count(clients: &mut ClientStats, pending: &Pending) {
    let op = pending.request.op;
    let counted = match op {
        Op::Read => &mut clients.read,
        Op::Write { .. } => &mut clients.write,
        Op::Flush => &mut clients.flush,
        Op::Discard { .. } => &mut clients.discard,
        Op::WriteZeroes { .. } => &mut clients.write_zeroes,
    };
    counted.requests += u64::from(!pending.is_rest);
    if op != Op::Flush {
        counted.bytes += pending.request.blocks * BLOCK_BYTES as u64;
    }
    clients.fua += u64::from(op.is_fua() && !pending.is_rest);
}

/// What is left to do once the lock is released.
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
    /// Refusals that report damage.
    pub troubles: Vec<Refusal>,
    /// Trouble in what clients send.
    pub warnings: Vec<(&'static str, String)>,
    /// A level that the volume has filled up to, and whether it can grow.
    pub filled: Option<(Level, Room, bool)>,
}

/// Whether the volume takes requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    /// Takes no more; makes everything durable.
    Stopping,
    /// All is durable and checkpointed, or the volume is poisoned.
    Stopped,
    /// As after a crash: what comes back from the medium is only put away.
    Abandoned,
}

/// Everything under the volume's lock.
pub(crate) struct Inner {
    pub core: Core,
    pub requests: Requests,
    pub gate: Gate,
    pub counters: Counters,
    pub phase: Phase,
    /// Whether the medium had no room for the last write that it was given.
    pub full: bool,
    /// When the reaper will look at the clock next, unless something completes before.
    pub deadline: Option<Nanos>,
    /// Set while the core works. If it is set when the lock is taken, the previous holder has panicked.
    busy: bool,
    read_only: bool,
    /// The refusal that the frames now give to writes, if any.
    refuses_writes: Option<Refusal>,
    pub frames: Arc<FramePool>,
    pub metadata: Metadata,
    pub comparisons: Comparisons,
    /// Results that are known at once, and have not been reported to the core yet.
    pub outcomes: Vec<(EffectId, EarlyOutcome)>,
    /// Reads of parts in flight, by their effect's number.
    pub parts: Vec<Option<PartsRead>>,
    pub bases: Bases<Arc<vellum_codec::Block>>,
    pub unpacker: Unpacker,
    pub gauge: Gauge,
    now: Nanos,
    pub operations: Operations,
}

impl Inner {
    pub fn new(core: Core, frames: Arc<FramePool>, sum: BlockSum, read_only: bool) -> Self {
        Self {
            core,
            requests: Requests::default(),
            gate: Gate::default(),
            counters: Counters::default(),
            phase: Phase::Running,
            full: false,
            deadline: None,
            busy: false,
            read_only,
            refuses_writes: None,
            frames,
            metadata: Metadata::default(),
            comparisons: Comparisons::default(),
            outcomes: Vec::new(),
            parts: Vec::new(),
            bases: Bases::default(),
            unpacker: Unpacker::new(sum),
            gauge: Gauge::default(),
            now: Nanos(0),
            operations: Operations::default(),
        }
    }

    /// Feeds the core one input, and carries out all that it requests. Does nothing once the volume has stopped: nobody takes
    /// its completions any more, and the next opening would get them.
    pub fn feed(&mut self, now: Nanos, input: Input<'_>, batch: &mut Batch) {
        if matches!(self.phase, Phase::Stopped | Phase::Abandoned) {
            return;
        }
        self.now = now;
        driver::feed(self, batch, now, input);
    }

    /// When to look at the clock.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        let times = self.core.poll_timeout().into_iter();
        times.chain(self.gate.commits.deadline()).min()
    }

    /// Hands a request to the core; `payloads` are the digests of its blocks, if it writes.
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
        if !pending.own {
            count(&mut self.counters.clients, &pending);
        }
        if (blocks == 0 && op != Op::Flush) || (op == Op::Flush && self.read_only) {
            return batch.answers.push(pending, Ok(()));
        }
        if matches!(op, Op::Write { .. }) {
            // The core owns the frames from here on, until it releases them.
            let keep = self
                .comparisons
                .are_to_come(pending.watched.expected, payloads.len());
            for id in std::mem::take(&mut pending.request.frames).into_bufs() {
                self.comparisons.set_worth(Buf(id), keep);
            }
        }
        let ack = self.gate.handed_over(&pending, op.is_fua());
        let id = self.requests.insert(pending);
        let input = match op {
            // A request has one frame per block, and there are fewer frames than a u32 holds.
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
            Op::Discard { fua } | Op::WriteZeroes { fua } => {
                let zero = matches!(op, Op::WriteZeroes { .. });
                let unmap = Unmap {
                    lba,
                    blocks,
                    zero,
                    fua,
                };
                Input::Unmap { id, unmap }
            }
        };
        self.feed(now, input, batch);
        // A request that waits only for durability has taken effect.
        if self.core.nothing_waits()
            && let Some(Pending {
                request, watched, ..
            }) = self.requests.find(id)
        {
            watched.is_in_effect = true;
            self.gate.answered(now, request, Ok(()));
        }
    }

    /// Hands the core blocks that were read to be stored anew.
    pub fn fold(
        &mut self,
        now: Nanos,
        lba: Lba,
        frames: Frames,
        blocks: &[Payload],
        batch: &mut Batch,
    ) {
        if self.phase != Phase::Running {
            return;
        }
        for id in frames.into_bufs() {
            self.comparisons.set_worth(Buf(id), false);
            self.bases.want(Buf(id), 0);
        }
        self.feed(now, Input::Service(Service::Fold { lba, blocks }), batch);
    }

    /// Takes all effects and answers of the core.
    pub fn drain(&mut self, batch: &mut Batch) {
        let now = self.now;
        driver::drain(self, batch, now);
    }

    /// Forgets copies in memory of blocks that cannot be read. Otherwise a later write could be found equal to such a copy, or
    /// become a delta against it, and so depend on the damaged block.
    fn forget_damaged(&mut self, at: Pba, read: &Request) {
        // A request reports only its first damaged block, and its blocks may be anywhere.
        match read.blocks {
            1 => self.frames.forget(at, 1),
            _ => self.frames.forget(Pba(0), u32::MAX),
        }
        for lba in (read.lba.0..read.lba.0 + read.blocks).map(Lba) {
            if let Earlier::Base(part) = self.core.earlier(lba) {
                self.bases.given_up(part.page);
            }
        }
    }

    /// True if nothing on the medium is being changed. On a read-only volume nothing ever is, though the core may wait for changes
    /// that it has begun.
    pub fn is_resting(&self) -> bool {
        self.read_only || self.core.is_resting()
    }

    /// The bytes of a frame that the core holds.
    pub fn frame(&self, buf: Buf) -> &[u8] {
        // SAFETY: a frame that the core holds is written by nobody until the core releases it, and that is
        // carried out under the same lock, after the borrow has ended.
        unsafe { std::slice::from_raw_parts(self.frames.ptr(buf), BLOCK_BYTES) }
    }

    pub fn count_write(&mut self, blocks: u32, durable: bool) {
        self.counters.writes += 1;
        self.counters.durable_writes += u64::from(durable);
        self.counters.written_blocks += u64::from(blocks);
    }

    pub fn io(&mut self, cause: Cause, id: EffectId, kind: Kind, at: Pba) -> Box<Io> {
        self.operations.begin(cause.token(id), kind, at)
    }

    /// Keeps an operation's metadata until the operation is back.
    pub fn keep(&mut self, id: EffectId, buffer: Buffer, io: &mut Io) {
        // SAFETY: the buffer is kept untouched, until `completed` takes it when the operation is back.
        unsafe { io.push(buffer.ptr(), buffer.len()) };
        self.metadata.keep(id, buffer);
    }

    /// Tells the core how an operation ended; for a data read, `ended` has the sums of its blocks.
    pub fn completed(&mut self, now: Nanos, io: Box<Io>, ended: Ended<'_>, batch: &mut Batch) {
        let (cause, id) = Cause::of(io.token);
        self.now = now;
        if cause == Cause::Chunk && matches!(ended, Ended::Written) {
            self.remember(id);
        }
        self.operations.end(io);
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
        let buffer = self.metadata.take_back(id);
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
        driver::feed(self, batch, now, Input::Done { id, outcome });
        let refuses = self.core.refuses_writes();
        if self.refuses_writes != refuses {
            self.refuses_writes = refuses;
            self.frames.refuse_writes(refuses.map(block_error));
        }
        if let Some(buffer) = buffer {
            self.metadata.give_back(buffer);
        }
    }

    /// Notes that a chunk is written: the contents of its frames are on the medium, until the frames are reused.
    fn remember(&mut self, id: EffectId) {
        let worth = |(buf, _, _): &(Buf, _, _)| self.comparisons.is_worth(*buf);
        self.frames
            .remember(self.core.chunk_places(id).filter(worth));
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
