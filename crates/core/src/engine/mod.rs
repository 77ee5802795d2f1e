//! The engine: the state machine that every request passes through.
//!
//! Split by request path (`write`, `read`, `unmap`, `flush`), by policy (`dedup` and `merge`, on `twin`; `pack`, `delta` and
//! `fold`; `pledge`) and by noun (`log`, `collect`, `checkpoint`, `restamp`, `owners`); `pump` moves them on. What is a type of its
//! own is tried without an engine: the volume's [`State`], the `Log`'s end, the `Segments`, their `Sums` and who waits for
//! them (`parked`), the `Queue`, the `Proposers`, the superblock with its mirrors (`Mirrored`), the `Course`.
//!
//! What must hold between any two calls of [`Engine::handle`]:
//!
//! 1. A map entry names a block of a chunk in memory, or a block on the medium of a segment that is not free.
//! 2. `valid` of a segment is the number of its blocks that the map or the shared table names.
//! 3. Chunks are sealed in one order (`Seq`), and the effect of each on the map is replayed in that order
//!    after a crash; a collector's move applies only where the map still names what it moved.
//! 4. A segment is erased only when nothing in it is live, the chunks that took its last blocks away are
//!    durable, the durable map checkpoint is newer than all its chunks, and nobody reads it.
//! 5. A buffer is released exactly once, after its chunk is on the medium or its block is replaced.

mod checkpoint;
mod collect;
mod copy;
mod dedup;
mod delta;
mod fetch;
mod fetches;
mod flush;
mod fold;
mod leaf_blocks;
mod log;
mod mend;
mod merge;
mod open_summaries;
mod options;
mod owners;
mod pack;
mod parked;
mod pledge;
mod proposers;
mod pump;
mod queue;
mod read;
mod restamp;
mod segments;
mod stripes;
mod sums;
mod twin;
mod unmap;
mod verdict;
mod waiting;
mod write;

use crate::addr::{Buf, EffectId, Nanos, Pba, RequestId, Segment, Seq};
use crate::format::{Crc, superblock::Superblock};
use crate::front::{Course, Outbox};
use crate::log::{ChunkId, Head, Log};
use crate::mirrors::Mirrored;
use crate::recovery::Recovered;
use crate::reserve::Reserve;
use crate::room::Room;
use crate::seam::{Effect, Hint, Input, Outcome, Refusal, Reply, Service, Setting};
use crate::state::State;
use crate::stats::Stats;
use alloc::vec::Vec;
use checkpoint::Checkpoint;
use collect::Collector;
pub use delta::Earlier;
use merge::Merge;
pub use options::{Buffers, Options, Victim};
pub use pack::Store;
use proposers::Proposers;
use pump::Then;
use queue::Queue;
use segments::{SegmentState, Segments};
use sums::Sums;
use waiting::Waiting;

/// What an effect in flight was for.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Chunk(ChunkId),
    Summary(Segment),
    Leaf(crate::addr::Leaf),
    /// A copy of the root, and where.
    Root(Pba),
    /// The superblock, in one of its places.
    Mirror(Pba),
    Sync {
        through: Seq,
    },
    Erase(Segment),
    EraseStale(Segment, u32),
    Read {
        request: RequestId,
        at: Pba,
        blocks: u32,
    },
    ReadParts {
        request: RequestId,
        at: Pba,
        /// Whether the page is read for it; else it is in memory.
        reads: bool,
        /// The page that is read for what it is a delta against.
        base: Option<Pba>,
    },
    Sums(Segment, u32),
    Restamp(Segment),
    MergeRead(Merge),
    MergeCompare(Merge),
    Compare {
        request: RequestId,
        index: u32,
        /// The page that is read for it.
        reads: Option<Pba>,
        /// As of [`Pending::ReadParts`].
        base: Option<Pba>,
    },
    Fingerprint {
        request: RequestId,
        index: u32,
    },
    Tags(u32),
    /// A leaf that a read needs.
    Fetch(crate::addr::Leaf),
    Gather {
        at: Pba,
        blocks: u32,
        to: Buf,
    },
}

/// See the module.
pub struct Engine {
    superblock: Mirrored,
    options: Options,
    course: Course,

    /// What the volume holds: records of the log change it.
    state: State,
    /// Whether new deltas are made. Those that there are stay.
    makes_deltas: bool,
    segments: Segments,
    sums: Sums,

    log: Log,
    queue: Queue,
    proposers: Proposers,
    reserve: Reserve,

    collector: Collector,
    checkpoint: Checkpoint,

    outbox: Outbox<Pending>,
    stats: Stats,
}

impl Engine {
    /// An engine that goes on where recovery ended. `recovered.superblock.life` must already be the new
    /// life, durable on the medium.
    #[must_use]
    pub fn new(recovered: Recovered, buffers: Buffers, options: Options, crc: Crc) -> Self {
        let mut sums = Sums::new(recovered.superblock_to_read(), options.cached_sums);
        let superblock = recovered.superblock;
        let mut segments = Segments::new(superblock.segment_count());
        for (index, newest) in recovered.newest.iter().enumerate() {
            let segment = Segment(index as u32);
            let info = segments.get_mut(segment);
            info.last_seq = *newest;
            info.state = if recovered.heads.iter().any(|head| head.segment == segment) {
                SegmentState::Open
            } else {
                SegmentState::Closed
            };
        }
        let mut unsummarised = Vec::new();
        for (segment, tags) in recovered.tags {
            if segments.get(segment).state == SegmentState::Closed {
                unsummarised.push(segment);
            }
            sums.restore(segment, tags);
        }
        let mut engine = Self {
            options,
            course: Course::begin(recovered.is_rest),
            state: recovered.state,
            makes_deltas: false,
            segments,
            sums,
            log: Log::recovered(
                superblock.usable_blocks(),
                recovered.heads,
                (recovered.last_seq, recovered.last_life),
                superblock.has_names().then_some(recovered.last_names),
                recovered.root.seq,
            ),
            queue: Queue::default(),
            proposers: Proposers::default(),
            reserve: Reserve::new(Room::default()),
            collector: Collector::new(&superblock, buffers),
            checkpoint: Checkpoint::new(&recovered.root, recovered.slots),
            outbox: Outbox::default(),
            stats: Stats::default(),
            superblock: Mirrored::new(superblock, crc),
        };
        let was_stopped = recovered.replayed.chunks == 0 && recovered.root.seq > Seq(0);
        unsummarised.sort_unstable();
        let in_runs = engine.options.erase_blocks_max > 0;
        let is_needed = |info: &segments::Info| info.last_seq > recovered.root.seq;
        let live = engine.state.live();
        engine
            .segments
            .found(was_stopped, in_runs, live, &unsummarised, is_needed);
        for segment in unsummarised {
            engine.write_summary(segment);
        }
        engine.checkpoint.due = recovered.replayed.wants_checkpoint();
        engine.reserve = Reserve::new(engine.room());
        engine.redeem();
        engine.pump();
        if engine.state.is_paged() {
            engine.keep_within_bounds();
        }
        engine
    }

    /// Takes one input. Afterwards take effects and replies until there are none.
    pub fn handle(&mut self, now: Nanos, input: Input<'_>) {
        self.course.on_time(now);
        let before = self.marks();
        let is_data = matches!(input, Input::Write { .. } | Input::Read { .. });
        let mut moves = true;
        match input {
            Input::Write {
                id,
                lba,
                blocks,
                ack,
            } => self.write(id, lba, blocks, ack),
            Input::Read { id, lba, blocks } => self.read(id, lba, blocks),
            Input::Flush { id } => self.flush(id),
            Input::Unmap {
                id,
                lba,
                blocks,
                zero,
                fua,
            } => self.unmap(id, lba, blocks, zero, fua),
            Input::Copy { id, copy } => self.copy(id, copy),
            Input::Hint(hint) => self.hear(hint),
            Input::Set(setting) => self.set(setting),
            Input::Service(asked) => self.serve(asked),
            Input::Properties { id, properties } => self.superblock.change(id, properties.clone()),
            Input::Done { id, outcome } => {
                moves = self.done(id, outcome) == Then::Move;
            }
            Input::Tick => self.tick(),
            Input::Shutdown => self.course.stop(),
        }
        if moves && !(is_data && self.is_as_at(before)) {
            self.pump();
        }
        if self.state.is_paged() {
            self.keep_within_bounds();
        }
        debug_assert!(
            self.course.is_poisoned() || self.queue.is_empty() || !self.is_quiet(),
            "a request waits, and nothing is on its way that could end that"
        );
    }

    /// Leaves of the map go that there is no room for. If one could not be had, what came of this input may be wrong: nothing of it
    /// gets to the medium, and nothing more does.
    fn keep_within_bounds(&mut self) {
        self.state.trim();
        if self.state.lost_leaf().is_some() && !self.course.is_poisoned() {
            self.outbox.withdraw_writes();
            self.poison();
            self.pump();
        }
    }

    fn hear(&mut self, hint: Hint<'_>) {
        match hint {
            Hint::Journals { regions } => {
                let blocks = self.state.map().blocks();
                self.proposers.once_mut().watch(regions, blocks);
                self.end_pledges();
            }
            Hint::Journaled { pairs } => self.proposers.once_mut().learn_homes(pairs),
            Hint::Committed { pairs } => self.committed(pairs),
            Hint::Critical { ranges } => self.proposers.dedup_mut().set_critical(ranges),
            Hint::Contents { at, tags } => self.learn_contents(at, tags),
            Hint::Parts { at, parts } => self.learn_parts(at, parts),
        }
    }

    fn set(&mut self, setting: Setting) {
        match setting {
            Setting::Deltas { on } => self.set_deltas(on),
            Setting::Dedup { policy } => self.set_dedup(policy),
            // A chunk is what is committed.
            Setting::Commits { .. } => {}
        }
    }

    fn serve(&mut self, asked: Service<'_>) {
        match asked {
            Service::Merge { id, lba, of } => self.merge(id, lba, of),
            Service::Swept { to, keep } => self.sweep_is_at(to, keep),
            Service::ReadToFold { id, lba, blocks } => self.read_to_fold(id, lba, blocks),
            Service::Fold { lba, blocks } => self.fold(lba, blocks),
            Service::Mend(what) => self.mend(what),
        }
    }

    /// The next thing to carry out; ask again until `None`, after every `handle` and after `new`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.outbox.next_effect()
    }

    /// The next answer; ask again until `None`, after every `handle`.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        self.outbox.next_reply()
    }

    /// When to call with [`Input::Tick`] if nothing else happens before; ask after every `handle`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        // While a chunk cannot be sealed its time is not waited for: it would have come already.
        if self.outbox.holds_writes() || !self.log.may_write() {
            return self.outbox.held_due();
        }
        self.log.seal_due()
    }

    /// The volume's geometry and identity.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Counters and gauges.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (leaves_in_memory, _, leaves_read) = self.state.residency().unwrap_or_default();
        Stats {
            leaves_in_memory: leaves_in_memory as u64,
            leaves_read,
            live_blocks: self.state.live().total(),
            capacity_blocks: self.capacity(),
            free_segments: self.segments.free() as u64,
            segments: u64::from(self.segments.count()),
            quarantined_segments: self.segments.quarantined().len() as u64,
            shared_pages: self.state.shared().len() as u64,
            shared_owners: self.state.shared().owned(),
            packed_pages: self.state.shared().packed() as u64,
            packed_owners: self.state.shared().parts_owned(),
            deltas: self.state.shared().deltas().len() as u64,
            base_pages: self.state.shared().bases().0,
            orphan_pages: self.state.shared().bases().1,
            pool_blocks: self.proposers.once().pool().blocks() as u64,
            pool_entries: self.proposers.once().pool().len() as u64,
            pledges: self.pledged() as u64,
            stray_pages: self.state.strays().len() as u64,
            index_entries: self.proposers.dedup().index().len() as u64,
            index_comparisons: self.proposers.dedup().index().comparisons(),
            index_capacity: self.proposers.dedup().index().capacity() as u64,
            waiting_requests: self.queue.requests() as u64,
            poisoned: u64::from(self.course.is_poisoned()),
            ..self.stats
        }
    }

    fn done(&mut self, id: EffectId, outcome: Outcome<'_>) -> Then {
        let Some(&pending) = self.outbox.get(id) else {
            unreachable!("effect {id} was answered twice, or never asked");
        };
        if matches!(outcome, Outcome::Full) && self.hold_until_room(id, pending) {
            return Then::Move;
        }
        self.outbox.answered(id);
        let failed = matches!(outcome, Outcome::Failed | Outcome::Full);
        match pending {
            Pending::Chunk(chunk) => self.chunk_written(chunk, failed),
            Pending::Summary(segment) => self.summary_written(segment, failed),
            Pending::Leaf(leaf) => self.leaf_written(leaf, failed),
            Pending::Root(_) => self.root_written(failed),
            Pending::Mirror(_) => self.mirror_written(failed),
            Pending::Sync { through } => self.synced(through, failed),
            // A discard that failed costs nothing but wear: the segment is free all the same.
            Pending::Erase(segment) => self.segments.erased(segment),
            Pending::EraseStale(first, count) => self.segments.erased_stale(first, count),
            Pending::Read {
                request,
                at,
                blocks,
            } => self.data_read(request, at, blocks, outcome),
            Pending::ReadParts {
                request,
                at,
                reads,
                base,
            } => {
                self.end_base(base);
                self.parts_read(request, at, reads, base, outcome)
            }
            Pending::Sums(segment, offset) => self.sums_read(segment, offset, outcome),
            Pending::MergeRead(merge) => self.merge_read(merge, outcome),
            Pending::MergeCompare(merge) => self.merge_compared(merge, outcome),
            Pending::Restamp(segment) => self.restamp_read(segment, outcome),
            Pending::Compare {
                request,
                index,
                reads,
                base,
            } => {
                self.end_base(base);
                self.compared(request, index, reads, outcome)
            }
            Pending::Fingerprint { request, index } => self.fingerprinted(request, index, outcome),
            Pending::Tags(offset) => self.tags_read(offset, outcome),
            Pending::Fetch(leaf) => self.leaf_read(leaf, outcome),
            Pending::Gather { at, blocks, to } => {
                self.gathered(at, blocks, to, outcome);
                if !self.collector.has_gathered() {
                    return Then::Wait;
                }
            }
        }
        Then::Move
    }

    /// A buffer has served: back to the collector, or to the runtime.
    fn release(&mut self, buf: Buf) {
        give_back(&mut self.collector, &mut self.outbox, buf);
    }

    /// A write or a sync of the medium has failed: what is durable is unknown from here on, so nothing
    /// more is accepted (a sync tried again could succeed without the lost pages).
    fn poison(&mut self) {
        self.course.poison();
    }

    fn fail_all(&mut self) {
        for id in self.superblock.refuse() {
            self.outbox.reply(id, Err(Refusal::Poisoned));
        }
        self.refuse_waiters(Refusal::Poisoned);
        while let Some(id) = self.queue.fetches.give_up() {
            self.outbox.reply(id, Err(Refusal::Poisoned));
        }
        while let Some(waiting) = self.queue.pop() {
            self.refuse(waiting, Refusal::Poisoned);
        }
    }

    fn refuse(&mut self, waiting: Waiting, refusal: Refusal) {
        if matches!(waiting, Waiting::Write { .. }) {
            self.proposers.once_mut().note_refused();
        }
        if waiting.is_asking() {
            return self.queue.doom(waiting, refusal);
        }
        match waiting {
            Waiting::Write {
                id, blocks, placed, ..
            } => {
                for payload in &blocks[placed..] {
                    self.release(payload.buf);
                }
                self.outbox.reply(id, Err(refusal));
            }
            Waiting::Read { id, lba, blocks } => self.start_read(id, lba, blocks),
            Waiting::Flush { id } | Waiting::Unmap { id, .. } | Waiting::Copy { id, .. } => {
                self.outbox.reply(id, Err(refusal));
            }
            Waiting::Committed { .. } => {}
        }
    }

    fn tick(&mut self) {
        if self
            .log
            .seal_due()
            .is_some_and(|due| self.course.now() >= due)
        {
            self.seal(Head::Host, false);
        }
        self.write_again();
    }
}

/// Gives a buffer back to whom it belongs; whether that is the runtime, for a client.
fn give_back(collector: &mut Collector, outbox: &mut Outbox<Pending>, buf: Buf) -> bool {
    let is_clients = !collector.take_back(buf);
    if is_clients {
        outbox.release(buf);
    }
    is_clients
}
