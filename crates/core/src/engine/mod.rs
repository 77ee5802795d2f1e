//! The engine: the state machine that every request passes through.
//!
//! The modules are split by request path (`write`, `read`, `unmap`, `flush`), by policy (`dedup` and `merge`, which use `twin`; `pack`,
//! `delta` and `fold`; `pledge`) and by thing (`log`, `collect`, `checkpoint`, `restamp`, `owners`, `vacate`). `pump` drives them, and the
//! front reaches them through `back`. A method calls only methods of its own file and of files below it (`xtask/src/shape.rs`), from the top:
//! paths and `merge`; `twin` and `fold`; `pack`; `pledge`; `flush`; `checkpoint` and `collect`; `log`; `owners`; `delta` and `summaries`; and what
//! each of them asks: `volume`, `sums`, `fetch`.
//!
//! These parts are types of their own, tested without an engine:
//! - [`State`]: the map, the shared pages and the counts.
//! - `Log`, `Segments`, `Collector`, `Sums`, `Restamp` and `Checkpoint`: the machines of the log.
//! - `Proposers` and `Placing`: the policies for blocks that may be shared, and for those that are not.
//! - `Residency` and `parked`: requests that wait for leaves, or for checksums.
//! - `Front`: what clients and the host see.
//! - `Mirrored`: the superblock, with its mirrors.
//!
//! What must hold between any two calls of [`Engine::handle`]:
//!
//! 1. A map entry names a block of a chunk in memory, or a block on the medium of a segment that is not free.
//! 2. `valid` of a segment is the number of its blocks that the map or the shared table names; during a census, of those found so far.
//! 3. Chunks are sealed in one order (`Seq`), and the effect of each on the map is replayed in that order
//!    after a crash; a collector's move applies only where the map still names what it moved.
//! 4. A segment is erased only when nothing in it is live, the chunks that took its last blocks away are
//!    durable, the durable map checkpoint is newer than all its chunks, and no read of it is in flight.
//! 5. A buffer is released exactly once, after its chunk is on the medium or its block is replaced.

mod back;
mod census;
mod checkpoint;
mod collect;
mod copy;
mod dedup;
mod delta;
mod fetch;
mod flush;
mod fold;
mod log;
mod mend;
mod merge;
mod options;
mod owners;
mod pack;
mod parity;
mod parked;
mod pledge;
mod pump;
mod read;
mod residency;
mod restamp;
mod stripes;
mod summaries;
mod sums;
mod twin;
mod unmap;
mod vacate;
mod verdict;
mod volume;
mod write;
mod writes;

use crate::addr::{Buf, EffectId, Nanos, Pba, RequestId, Segment, Seq};
use crate::format::{Crc, superblock::Superblock};
use crate::front::{Front, admit, refuse};
pub use crate::log::PutPart;
use crate::log::checkpoint::RootPiece;
use crate::log::{
    Checkpoint, ChunkId, Collector, Head, Log, Restamp, SegmentInfo, SegmentState, Segments, Sums,
};
use crate::mirrors::Mirrored;
use crate::policy::{Placing, Proposers, delta::Delta, pack::Pack, zero::Zero};
use crate::recovery::Recovered;
use crate::reserve::Reserve;
use crate::room::Room;
use crate::seam::{Effect, Hint, Input, Outcome, Reply, Service, Setting};
use crate::state::State;
use crate::stats::Stats;
use alloc::vec::Vec;
use merge::Merge;
pub use options::{Buffers, Options, VictimPolicy};
use parked::Parked;
use residency::Residency;
use verdict::Twin;

/// Whether the pump runs after an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pump {
    /// Something may make progress.
    Always,
    /// Most inputs of this kind allow no progress: [`Engine::is_as_at`] decides.
    IfChanged,
    /// Another answer must come first.
    Never,
}

/// What an effect in flight is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pending {
    Chunk(ChunkId),
    Summary(Segment),
    Leaf(crate::addr::Leaf),
    Root(RootPiece),
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
        /// True if the page is read from the medium; if not, it is in memory.
        reads: bool,
        /// The page read for the base of a delta.
        base: Option<Pba>,
    },
    /// A summary, or the chunk header at a block of the segment.
    Sums(Segment, Option<u32>),
    Restamp(Segment),
    MergeRead(Merge),
    MergeCompare(Merge),
    Compare {
        request: RequestId,
        index: u32,
        /// The page read for the comparison.
        reads: Option<Pba>,
        /// As in [`Pending::ReadParts`].
        base: Option<Pba>,
    },
    Fingerprint {
        request: RequestId,
        index: u32,
    },
    Tags,
    /// A leaf that a read needs.
    Fetch(crate::addr::Leaf),
    /// A leaf that a census counts.
    Census(crate::addr::Leaf),
    /// A leaf, or a parity, whose contents on the medium a map checkpoint needs.
    Kept(crate::addr::Leaf),
    Gather {
        at: Pba,
        blocks: u32,
        to: Buf,
    },
}

impl Pending {
    /// True for a write that may be retried if it finds the medium full; a sync or an erase is not.
    fn may_be_held(self) -> bool {
        matches!(
            self,
            Self::Chunk(_) | Self::Summary(_) | Self::Leaf(_) | Self::Root(_) | Self::Mirror(_)
        )
    }
}

/// The state machine of a volume with a log.
pub struct Engine {
    superblock: Mirrored,
    options: Options,
    front: Front<Pending, Twin>,

    /// The volume's contents: log records change it.
    state: State,
    segments: Segments,
    sums: Sums,

    log: Log,
    residency: Residency,
    parked: Parked,
    proposers: Proposers,
    placing: Placing,

    collector: Collector,
    restamp: Restamp,
    checkpoint: Checkpoint,

    stats: Stats,
}

impl Engine {
    /// Creates an engine that continues where recovery ended. `recovered.superblock.life` must already be the new life, durable
    /// on the medium.
    #[must_use]
    pub fn new(recovered: Recovered, buffers: Buffers, options: Options, crc: Crc) -> Self {
        let mut sums = Sums::new(recovered.superblock_to_read(), options.cached_sums);
        let free = recovered.free_segments();
        let superblock = recovered.superblock;
        let mut segments = Segments::new(superblock.segment_count(), options.segments_end);
        let staying = segments.staying();
        segments.recover(&recovered.newest, &recovered.heads);
        let mut unsummarised = Vec::new();
        for (segment, tags) in recovered.tags {
            if segments.get(segment).state == SegmentState::Closed {
                unsummarised.push(segment);
            }
            sums.restore(segment, tags);
        }
        let mut engine = Self {
            options,
            front: Front::of(recovered.is_rest),
            state: recovered.state,
            segments,
            sums,
            log: Log::recovered(
                superblock.usable_blocks(),
                recovered.heads,
                (recovered.last_seq, recovered.last_life),
                superblock.has_names().then_some(recovered.last_names),
                recovered.root.seq,
            ),
            residency: Residency::default(),
            parked: Parked::default(),
            proposers: Proposers::default(),
            placing: Placing {
                zero: Zero::new(options.zero),
                reserve: Reserve::new(Room::default()),
                delta: Delta::new(options.deltas),
                pack: Pack::default(),
            },
            collector: Collector::new(staying, buffers.first, buffers.count),
            restamp: Restamp::new(options.strays),
            checkpoint: Checkpoint::new(recovered.root, recovered.slots, superblock.stripes()),
            stats: Stats::default(),
            superblock: Mirrored::new(superblock, crc),
        };
        let was_stopped = recovered.replayed.chunks == 0 && recovered.root.seq > Seq(0);
        unsummarised.sort_unstable();
        let in_runs = engine.options.erase_blocks_max > 0;
        let is_needed = |info: &SegmentInfo| info.last_seq > recovered.root.seq;
        engine.begin_census();
        if !engine.state.is_in_census() {
            let live = engine.state.live().of_all();
            engine
                .segments
                .found(was_stopped, in_runs, live, &unsummarised, is_needed);
        } else {
            engine.segments.found_free(&free);
        }
        for segment in unsummarised {
            engine.write_summary(segment);
        }
        engine.checkpoint.on_opened(
            recovered.has_passed_over,
            recovered.replayed.wants_checkpoint(),
        );
        engine.placing.reserve = Reserve::new(engine.room());
        engine.redeem();
        engine.pump();
        if engine.state.is_paged() {
            engine.keep_within_bounds();
        }
        engine
    }

    /// Takes one input. Afterwards the caller takes effects and replies until there are none.
    pub fn handle(&mut self, now: Nanos, input: Input<'_>) {
        self.front.course.on_time(now);
        let before = self.marks();
        let mut pump = match input {
            Input::Write { .. } | Input::Read { .. } => Pump::IfChanged,
            _ => Pump::Always,
        };
        if self.state.is_in_census() && matches!(pump, Pump::IfChanged) {
            self.residency.census.on_asked(now);
        }
        match input {
            Input::Write {
                id,
                lba,
                blocks,
                ack,
            } => admit::write(self, id, lba, blocks, ack),
            Input::Read { id, lba, blocks } => admit::read(self, id, lba, blocks),
            Input::Flush { id } => admit::flush(self, id),
            Input::Unmap { id, unmap } => admit::unmap(self, id, unmap),
            Input::Copy { id, copy } => admit::copy(self, id, copy),
            Input::Hint(hint) => self.hear(hint),
            Input::Set(setting) => self.set(setting),
            Input::Service(asked) => self.serve(asked),
            Input::Properties { id, change } => self.superblock.change(id, change),
            Input::Done { id, outcome } => pump = self.done(id, outcome),
            Input::Tick => self.tick(),
            Input::Shutdown => self.front.course.stop(),
        }
        let pumps = match pump {
            Pump::Always => true,
            Pump::IfChanged => !self.is_as_at(before),
            Pump::Never => false,
        };
        if pumps {
            self.pump();
        }
        if self.state.is_paged() {
            self.keep_within_bounds();
        }
        debug_assert!(
            self.front.course.is_poisoned() || self.front.queue.is_empty() || !self.is_quiet(),
            "a request waits, and nothing is on its way that could end that"
        );
    }

    /// Evicts leaves of the map that exceed the memory bound. If a leaf could not be read, the results of this input may be wrong: none
    /// of them goes to the medium, and the volume is poisoned.
    fn keep_within_bounds(&mut self) {
        self.state.trim();
        if self.state.has_damage() {
            self.hear_of_damage();
        }
    }

    #[cold]
    fn hear_of_damage(&mut self) {
        if self.state.lost_leaf().is_some() && !self.front.course.is_poisoned() {
            self.front.outbox.withdraw_writes();
            self.poison();
            self.pump();
        }
        let rebuilt = self.state.take_rebuilt();
        if rebuilt > 0 {
            self.residency.on_rebuilt(rebuilt as u64);
            self.stats.rebuilt_leaves += rebuilt as u64;
            let is_stopping = self.front.course.is_stopping();
            self.checkpoint.on_restored(is_stopping);
        }
    }

    /// Returns how many damaged leaves were restored from their stripes since the last call.
    pub fn take_rebuilt(&mut self) -> u64 {
        self.residency.take_rebuilt()
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
            // A log commits by chunks, so this setting means nothing to it.
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

    /// Returns the next effect to carry out. Call until `None`, after every `handle` and after `new`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.front.outbox.next_effect()
    }

    /// Returns the next reply. Call until `None`, after every `handle`.
    pub fn poll_reply(&mut self) -> Option<Reply> {
        self.front.outbox.next_reply()
    }

    /// Returns when to send [`Input::Tick`] if nothing else happens first. Call after every `handle`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        // While a chunk cannot be sealed, its deadline is ignored. The deadline has passed, and a tick could do nothing.
        let due = match self.front.outbox.holds_writes() || !self.log.may_write() {
            true => self.front.outbox.held_due(),
            false => self.log.seal_due(),
        };
        match self.census_due() {
            Some(census) => Some(due.map_or(census, |due| due.min(census))),
            None => due,
        }
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
            uncounted_leaves: self.state.uncounted(),
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
            waiting_requests: self.front.queue.requests() as u64,
            poisoned: u64::from(self.front.course.is_poisoned()),
            ..self.stats
        }
    }

    fn tick(&mut self) {
        if self
            .log
            .seal_due()
            .is_some_and(|due| self.front.course.now() >= due)
        {
            self.seal(Head::Hot, false);
        }
        self.write_again();
    }

    fn done(&mut self, id: EffectId, outcome: Outcome<'_>) -> Pump {
        let Some(&pending) = self.front.outbox.get(id) else {
            unreachable!("effect {id} was answered twice, or never asked");
        };
        let waits = matches!(outcome, Outcome::Full) && pending.may_be_held();
        if waits && !self.front.course.is_poisoned() {
            refuse::until_room(self, id);
            return Pump::Always;
        }
        self.front.outbox.answered(id);
        let failed = matches!(outcome, Outcome::Failed | Outcome::Full);
        match pending {
            Pending::Chunk(chunk) => self.chunk_written(chunk, failed),
            Pending::Summary(segment) => self.summary_written(segment, failed),
            Pending::Leaf(leaf) => self.leaf_written(leaf, failed),
            Pending::Root(_) => self.root_written(failed),
            Pending::Mirror(_) => self.mirror_written(failed),
            Pending::Sync { through } => self.synced(through, failed),
            // A failed discard costs only wear: the segment is free all the same.
            Pending::Erase(segment) => self.segments.erased(segment),
            Pending::EraseStale(first, count) => self.segments.erased_stale(first, count),
            Pending::Read {
                request,
                at,
                blocks,
            } => {
                self.data_read(request, at, blocks, outcome);
                return Pump::IfChanged;
            }
            Pending::ReadParts {
                request,
                at,
                reads,
                base,
            } => {
                self.end_base(base);
                self.parts_read(request, at, reads, base, outcome);
                return Pump::IfChanged;
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
            Pending::Tags => self.tags_read(outcome),
            Pending::Fetch(leaf) => self.leaf_read(leaf, outcome),
            Pending::Census(leaf) => self.census_read(leaf, outcome),
            Pending::Kept(leaf) => self.kept_read(leaf, outcome),
            Pending::Gather { at, blocks, to } => {
                self.gathered((at, blocks, to), outcome);
                if !self.collector.has_gathered() {
                    return Pump::Never;
                }
            }
        }
        Pump::Always
    }

    fn sums_read(&mut self, segment: Segment, offset: Option<u32>, outcome: Outcome<'_>) {
        let bytes = match outcome {
            Outcome::Bytes(bytes) => bytes,
            _ => &[],
        };
        let crc = self.superblock.crc();
        let waiting = self.parked.reads.of(segment);
        let waiting = waiting.map(|read| (read.at, &read.sums[..]));
        let next = self.sums.on_read(segment, offset, bytes, crc, waiting);
        if next.is_some() {
            return self.load_sums(segment, next);
        }
        for read in self.parked.reads.take(segment) {
            self.finish_part(read.request, read.at, &read.sums, read.fault);
        }
        self.judge_unsure(segment);
        self.sums.settle(segment);
        self.segments.end_reader(segment);
        self.merge_again(segment);
    }
}
