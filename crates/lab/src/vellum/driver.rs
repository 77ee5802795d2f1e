//! The driver: takes requests, feeds the core, carries out its effects on a backing, and keeps the contents of the
//! medium.

mod bases;
mod blank;
mod deltas;
mod dropping;
mod effects;
mod flight;
mod freed;
mod gate;
mod hash_unit;
mod hashing;
mod heads;
mod held;
mod parts;
mod placing;
mod serve;
mod services;
mod shadow;
mod submitted;
mod watch;

pub use hashing::Hashing;
use hashing::Unit;
pub use heads::Handles;
use heads::Heads;
use held::Gate;
pub use placing::Placing;
use services::Services;
pub use services::Tidying;
use shadow::Shadow;
pub use submitted::Submitted;

use super::backing::Backing;
use super::pages::Pages;
use super::summaries::Summaries;
use crate::base::{Drive, Io};
use crate::content::Content;
use crate::sizes::Sizes;
use crate::trace::Op;
use crate::watching::Watching;
use blank::Blank;
use deltas::Bases;
use dropping::Dropping;
use flight::Flight;
use std::collections::{BTreeMap, HashMap, VecDeque};
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Lba, Nanos, RequestId};
use vellum_core::driver::{self, Extent, To};
use vellum_core::engine::{Buffers, Engine, Options, VictimPolicy};
use vellum_core::format::{self, superblock::Superblock};
use vellum_core::layout::{Core, Recovered, recover};
use vellum_core::recovery::RecoveryError;
use vellum_core::seam::{
    Ack, DedupPolicy, Fingerprint, Hint, Input, Outcome, Payload, Refusal, Setting, Unmap,
};
use vellum_core::stats::Stats;
use vellum_core::tables::{Persistence, Tables};
use vellum_policies::words::Deltas;

/// The collector's buffers.
const COLLECTOR_BUFS: u32 = 256;
/// The fewest client buffers: one chunk can fill while another is written.
pub const BUFS_MIN: u32 = 512;

/// The engine's options.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How the collector chooses its victims.
    pub victim: VictimPolicy,
    /// True if a block of zeros is only a map entry.
    pub zero: bool,
    /// True if freed segments are erased or discarded.
    pub discard: bool,
    /// Client buffers: the RAM for writes.
    pub bufs: u32,
    /// Where blocks go, and when they are durable.
    pub placing: Placing,
    /// In-line deduplication.
    pub dedup: DedupPolicy,
    /// True if blocks are compressed.
    pub compress: bool,
    /// The model of the sizes of contents that were not measured.
    pub sizes: Option<Sizes>,
    /// Whether and where a block may be stored as a difference from the block it replaces.
    pub deltas: Deltas,
    /// True if the volume replays what a journal has committed.
    pub replay: bool,
    /// True if blocks that a file system has freed are dropped.
    pub freed: bool,
    /// The services that run beside the clients.
    pub tidying: Tidying,
    /// The drive's placement handles, if the log names one with each write.
    pub handles: Option<Handles>,
    /// The hash unit, where hashing takes time.
    pub hashing: Option<Hashing>,
    /// Keep the expected content of every block, and compare every read with it.
    pub verify: bool,
}

/// The core on a simulated medium; see the module.
pub struct Vellum {
    core: Core,
    /// Every write is durable when it is answered.
    strong: bool,
    backing: Backing,
    /// The placement handles that it names, if it does.
    heads: Option<Heads>,
    medium: Vec<Content>,
    summaries: Summaries,
    pages: Pages,
    compress: bool,
    sizes: Option<Sizes>,
    /// The measured sizes of contents, kept while they may be stored anew. Never iterated: the order would be random.
    measured: HashMap<Content, u16>,
    bases: Option<Bases>,
    /// True if the core is notified of complete transactions.
    replay: bool,
    /// True if contents are shared.
    shares: bool,
    /// Follows what a simulated file system writes.
    watching: Option<Box<Watching>>,
    dropping: Option<Dropping>,
    /// Requests that wait before the core.
    gate: Gate,
    hashing: Option<Unit>,
    services: Services,
    bufs: Vec<Content>,
    free: Vec<u32>,
    flights: Vec<Flight>,
    waiting: VecDeque<Submitted>,
    answers: VecDeque<(u32, Result<(), Refusal>)>,
    payloads: Vec<Payload>,
    bytes: Vec<u8>,
    sums: Vec<u32>,
    shadow: Option<Shadow>,
}

/// The outcome of a read of parts, or of a comparison with one. No medium here damages anything.
fn read_parts(sum: u32, whole: bool) -> Outcome<'static> {
    Outcome::Parts {
        sum,
        whole,
        base: true,
    }
}

/// The first of two moments. It is asked for at each event, so it is no chain of iterators.
fn first_of(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        _ => one.or(other),
    }
}

impl Vellum {
    /// Creates a volume on a backing and opens it for the first time.
    ///
    /// # Errors
    /// When the engine does not open the volume that was just formatted.
    pub fn new(
        superblock: &Superblock,
        backing: Backing,
        settings: Settings,
    ) -> Result<Self, RecoveryError> {
        let mut blank = Blank(BTreeMap::new());
        format::blank(superblock, crc32c::crc32c, &mut |at, bytes| {
            let blocks = bytes.chunks_exact(BLOCK_BYTES).enumerate();
            blank
                .0
                .extend(blocks.map(|(i, block)| (at.0 + i as u64, block.into())));
        });
        let mut recovered = recover(&mut blank, superblock.medium_blocks(), crc32c::crc32c)?;
        recovered.begin_life()?;
        let bufs = settings.bufs.max(BUFS_MIN);
        let (first, count) = (Buf(bufs), COLLECTOR_BUFS);
        let buffers = Buffers { first, count };
        let options = Options {
            victim: settings.victim,
            discard: settings.discard,
            zero: settings.zero,
            ..Options::default()
        };
        let shadow = settings
            .verify
            .then(|| Shadow::new(superblock.logical_blocks()));
        let (placing, policy) = (settings.placing, settings.dedup);
        let mut core: Core = match recovered {
            Recovered::Log(found) => Engine::new(*found, buffers, options, crc32c::crc32c).into(),
            Recovered::Tables(found) => {
                Tables::new(*found, placing.options(&options), crc32c::crc32c).into()
            }
        };
        if policy != DedupPolicy::default() {
            core.handle(Nanos(0), Input::Set(Setting::Dedup { policy }));
        }
        let makes_deltas = settings.deltas.are_made();
        if makes_deltas {
            core.handle(Nanos(0), Input::Set(Setting::Deltas { on: true }));
        }
        Ok(Self {
            core,
            strong: placing.persistence == Persistence::Strong,
            backing,
            heads: Heads::of(superblock, settings.handles),
            medium: vec![Content::ZERO; superblock.medium_blocks() as usize],
            summaries: Summaries::new(superblock),
            pages: Pages::default(),
            compress: settings.compress,
            sizes: settings.sizes,
            measured: HashMap::new(),
            bases: makes_deltas.then(|| Bases::new(settings.deltas)),
            replay: settings.replay,
            shares: policy != DedupPolicy::default(),
            watching: None,
            dropping: settings.freed.then(Dropping::default),
            gate: Gate::default(),
            hashing: settings.hashing.map(Unit::new),
            services: Services::new(settings.tidying),
            bufs: vec![Content::ZERO; (bufs + COLLECTOR_BUFS) as usize],
            free: (0..bufs).rev().collect(),
            flights: Vec::new(),
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
            payloads: Vec::new(),
            bytes: Vec::new(),
            sums: Vec::new(),
            shadow,
        })
    }

    /// The engine's counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// The volume's superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        self.core.superblock()
    }

    /// Touches the map entries of blocks that will soon be requested, so that their cache misses overlap.
    pub fn look_ahead(&self, lbas: impl Iterator<Item = u64>) {
        if let Some(log) = self.core.as_log() {
            log.look_ahead(lbas.map(Lba));
        }
    }

    /// The same for contents in the index.
    pub fn look_ahead_contents(&self, contents: impl Iterator<Item = Content>) {
        let sums = contents.map(Content::sum);
        self.core.look_ahead_contents(sums);
    }

    /// RAM for writes and for blocks being moved, in blocks.
    #[must_use]
    pub fn ram_blocks(&self) -> u64 {
        self.bufs.len() as u64
    }

    /// The medium.
    #[must_use]
    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    /// The drive that it lies on, if there is one, to let that act by itself.
    pub fn drive_below(&mut self) -> Option<&mut Drive> {
        match &mut self.backing {
            Backing::Drive(drive) => Some(drive),
            Backing::Flash(_) | Backing::Zones(_) | Backing::Block(_) => None,
        }
    }

    /// Blocks whose read did not return what was written, if reads are verified.
    #[must_use]
    pub fn wrong_reads(&self) -> u64 {
        self.shadow.as_ref().map_or(0, |shadow| shadow.wrong)
    }

    /// True if its volume is tables in place.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.core.as_log().is_none()
    }

    /// When it wants [`tick`](Self::tick) to be called, in nanoseconds.
    #[must_use]
    pub fn timeout(&self) -> Option<u64> {
        let core = self.core.poll_timeout().map(|at| at.0);
        let gate = self.gate.commits.deadline().map(|at| at.0);
        first_of(core, first_of(self.services.due(), gate))
    }

    /// The next answer.
    pub fn answer(&mut self) -> Option<(u32, Result<(), Refusal>)> {
        let answer = self.answers.pop_front()?;
        self.services.client_left();
        Some(answer)
    }

    /// Runs what is due now.
    pub fn tick(&mut self, io: &mut Io<'_>) {
        self.feed(io, Input::Tick);
        self.let_go(io);
        if self.services.due().is_some_and(|due| due <= io.time.now()) {
            self.serve(io);
        }
    }

    /// Sends a request to the core.
    pub fn ask(&mut self, io: &mut Io<'_>, submitted: Submitted) {
        self.services.client_came();
        self.waiting.push_back(submitted);
        self.admit(io);
        if !self.is_tidying() {
            self.serve(io);
        }
    }

    /// Notes that an effect has completed.
    pub fn done(&mut self, io: &mut Io<'_>, id: u32) {
        let flight = std::mem::replace(&mut self.flights[id as usize], Flight::None);
        let id = EffectId(id);
        match flight {
            Flight::None => unreachable!("effect {id} is done and was not asked for"),
            Flight::Plain => self.finish(io, id, Outcome::Ok),
            Flight::Erase { at } => {
                self.summaries.erased(at);
                self.forget_pages(at);
                self.finish(io, id, Outcome::Ok);
            }
            Flight::Read { from, to } => {
                for i in 0..from.blocks {
                    let content = self.medium[(from.at.0 + u64::from(i)) as usize];
                    self.give(to, i, content);
                }
                self.finish_read(io, id, from);
            }
            Flight::Meta(Extent { at, blocks }) => {
                let len = blocks as usize * BLOCK_BYTES;
                let bytes = self.summaries.read(at, len, &self.medium);
                self.finish(io, id, Outcome::Bytes(&bytes));
            }
            Flight::Compare { buf, at, slot } => {
                let other = self.medium[at.0 as usize];
                let same = self.is_same(buf, other, slot);
                let outcome = match slot {
                    None => Outcome::Same(same),
                    Some(_) => read_parts(other.sum(), same),
                };
                self.finish(io, id, outcome);
            }
            Flight::Compared(same) => self.finish(io, id, Outcome::Same(same)),
            Flight::Print(content) => {
                let mut print = [0xf1; 16];
                print[..8].copy_from_slice(&content.0.to_le_bytes());
                self.finish(io, id, Outcome::Fingerprint(Fingerprint(print)));
            }
            Flight::Parts {
                at,
                slot,
                count,
                to,
            } => {
                let page = self.medium[at.0 as usize];
                let whole = self.give_parts(page, (slot, count), to);
                self.finish(io, id, read_parts(page.sum(), whole));
            }
            Flight::Base(then) => self.base_read(io, id, then),
            Flight::PartsShown(whole) => self.finish(io, id, read_parts(0, whole)),
        }
    }

    /// Notes that a program unit of the drive below is on flash.
    pub fn programmed(&mut self, io: &mut Io<'_>, unit: u64) {
        self.backing.programmed(io, unit);
    }

    /// Takes a block that was read.
    fn give(&mut self, to: To, index: u32, content: Content) {
        match to {
            To::Request(request, first) => self.show(request.0, first + index, content),
            To::Collector(buf) => self.bufs[(buf.0 + index) as usize] = content,
        }
    }

    /// Takes a block of a read request.
    fn show(&mut self, request: u32, index: u32, content: Content) {
        if self.services.take_block(request, index, content) {
            return;
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.show(request, index, content);
        }
    }

    fn finish_read(&mut self, io: &mut Io<'_>, id: EffectId, from: Extent) {
        let mut sums = std::mem::take(&mut self.sums);
        sums.clear();
        let first = from.at.0 as usize;
        let range = first..first + from.blocks as usize;
        sums.extend(self.medium[range].iter().map(|content| content.sum()));
        self.finish(io, id, Outcome::Sums(&sums));
        self.sums = sums;
    }

    fn finish(&mut self, io: &mut Io<'_>, id: EffectId, outcome: Outcome<'_>) {
        self.feed(io, Input::Done { id, outcome });
        self.admit(io);
    }

    /// Buffers reserved for requests that wait elsewhere.
    fn reserved(&self) -> usize {
        let hashing = self.hashing.as_ref().map_or(0, |unit| unit.reserved);
        hashing + self.gate.commits.blocks()
    }

    /// Hands over the requests that wait for buffers, in order.
    fn admit(&mut self, io: &mut Io<'_>) {
        while let Some(first) = self.waiting.front() {
            let needed = first.contents.len() + self.reserved();
            if matches!(first.op, Op::Write { .. }) && self.free.len() < needed {
                return;
            }
            if let Some(submitted) = self.waiting.pop_front() {
                self.take_in(io, submitted);
            }
        }
    }

    /// Passes a request to the gate, and on to the core if it may pass.
    fn hand_over(&mut self, io: &mut Io<'_>, submitted: &Submitted) {
        self.see(submitted);
        if self.may_pass(io, submitted) {
            self.place(io, submitted);
        }
    }

    fn place(&mut self, io: &mut Io<'_>, submitted: &Submitted) {
        self.passed(submitted);
        let (id, lba) = (RequestId(submitted.id), Lba(submitted.lba));
        let (blocks, count) = (u64::from(submitted.blocks), submitted.blocks);
        if let Some(shadow) = &mut self.shadow {
            shadow.remember(submitted);
        }
        match submitted.op {
            Op::Write { fua } => {
                let fua = fua || self.strong;
                let mut payloads = std::mem::take(&mut self.payloads);
                payloads.clear();
                self.read_along(io, submitted);
                for (index, &content) in submitted.contents.iter().enumerate() {
                    let Some(buf) = self.free.pop() else {
                        unreachable!("admitted with buffers for all blocks")
                    };
                    self.bufs[buf as usize] = content;
                    let mut digest = content.digest();
                    let buf = Buf(buf);
                    digest.packed = self.pack(submitted, index, buf);
                    digest.copied = !submitted.admitted.dedup;
                    payloads.push(Payload { buf, digest });
                }
                self.classify(submitted, &mut payloads);
                let blocks = &payloads;
                self.feed(
                    io,
                    Input::Write {
                        id,
                        lba,
                        blocks,
                        ack: Ack::of(fua),
                    },
                );
                self.payloads = payloads;
                if let Some(pairs) = submitted.committed.as_deref().filter(|_| self.replay) {
                    self.feed(io, Input::Hint(Hint::Committed { pairs }));
                }
                self.handed_over(io);
            }
            Op::Read => {
                let blocks = count;
                self.feed(io, Input::Read { id, lba, blocks });
            }
            Op::Discard { zero, fua } => {
                let unmap = Unmap {
                    lba,
                    blocks,
                    zero,
                    fua,
                };
                self.feed(io, Input::Unmap { id, unmap });
            }
            Op::Flush => self.feed(io, Input::Flush { id }),
        }
    }

    fn feed(&mut self, io: &mut Io<'_>, input: Input<'_>) {
        let now = Nanos(io.time.now());
        driver::feed(self, io, now, input);
        if self.services.has_answer() {
            self.serve(io);
        }
        self.drop_freed(io);
        self.let_go(io);
    }
}
