//! The driver: takes requests, feeds the engine, carries its effects out on a backing, keeps what is where.

mod blank;
mod copies;
mod deltas;
mod effects;
mod hashing;
mod parts;
mod placing;
mod serve;
mod services;
mod shadow;

pub use deltas::Deltas;
pub use hashing::Hashing;
use hashing::Unit;
pub use placing::Placing;
use services::Services;
pub use services::Tidying;
use shadow::Shadow;

use super::backing::Backing;
use super::pages::Pages;
use super::summaries::Summaries;
use crate::admission::Admitted;
use crate::base::Io;
use crate::content::{Content, Contents};
use crate::sizes::{Sizes, Tells};
use crate::trace::Op;
use crate::workload::{Committed, Homes};
use blank::Blank;
use deltas::Bases;
use std::collections::{BTreeMap, HashMap, VecDeque};
use vellum_core::addr::{BLOCK_BYTES, Buf, EffectId, Lba, Nanos, Pba, RequestId};
use vellum_core::engine::{Buffers, Engine, Options, Victim};
use vellum_core::format::{self, superblock::Superblock};
use vellum_core::layout::{Core, Recovered, recover};
use vellum_core::recovery::RecoveryError;
use vellum_core::seam::{
    Ack, Dedup, Fingerprint, Hint, Input, Outcome, Payload, Refusal, Region, Setting, WriteOnce,
};
use vellum_core::stats::Stats;
use vellum_core::tables::{Persistence, Tables};

/// The collector's buffers.
const COLLECTOR_BUFS: u32 = 256;
/// Clients' buffers, at least: one chunk can fill while another is written.
pub const BUFS_MIN: u32 = 512;

/// The engine's options.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How the collector chooses.
    pub victim: Victim,
    /// Whether blocks of zeros are a map entry alone.
    pub zero: bool,
    /// Whether freed segments are erased or discarded.
    pub discard: bool,
    /// Clients' buffers: the RAM for writes.
    pub bufs: u32,
    /// Where blocks go, and when they are durable.
    pub placing: Placing,
    /// In-line deduplication.
    pub dedup: Dedup,
    /// Whether blocks are stored in fewer bytes.
    pub compress: bool,
    /// In how many bytes each content can be stored that nobody measured.
    pub sizes: Option<Sizes>,
    /// Whether and where blocks may be stored as their difference to what they replace.
    pub deltas: Deltas,
    /// Whether the volume puts home itself what a journal has committed.
    pub replay: bool,
    /// What is stored is made better beside its clients.
    pub tidying: Tidying,
    /// The hash engine, where hashing takes time.
    pub hashing: Option<Hashing>,
    /// Keep what every block should be, and hold every read against it.
    pub verify: bool,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its number, which is not 0; free again when it is answered.
    pub id: u32,
    /// What.
    pub op: Op,
    /// The first block.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
    /// What a write writes.
    pub contents: Contents,
    /// Of a write into a journal: whose copies its blocks are.
    pub homes: Homes,
    /// In how many bytes its blocks can be stored, where that was measured.
    pub sizes: Tells,
    /// What a journal's transaction puts home that is complete with this write.
    pub committed: Committed,
    /// What a write may use.
    pub admitted: Admitted,
}

/// What an effect in flight needs when it is done.
#[derive(Clone, Copy)]
enum Flight {
    None,
    Plain,
    Read {
        at: Pba,
        blocks: u32,
        request: u32,
        first: u32,
    },
    Gather {
        at: Pba,
        blocks: u32,
        to: Buf,
    },
    GatherPart {
        at: Pba,
        slot: u8,
        to: Buf,
    },
    Meta {
        at: Pba,
        blocks: u32,
    },
    Compare {
        buf: Buf,
        at: Pba,
        /// A part of the page there.
        slot: Option<u8>,
    },
    Compared(bool),
    Print(Content),
    Parts {
        at: Pba,
        slot: u8,
        count: u8,
        request: u32,
        first: u32,
    },
    PartsShown(bool),
    /// A base is read, for what is to be done then.
    Base(deltas::Then),
    Erase {
        at: Pba,
    },
}

/// See the module.
pub struct Vellum {
    engine: Core,
    /// Every write is durable when it is answered.
    strong: bool,
    backing: Backing,
    medium: Vec<Content>,
    summaries: Summaries,
    pages: Pages,
    compress: bool,
    sizes: Option<Sizes>,
    /// In how many bytes contents can be stored that somebody measured, where they may be stored anew. Looked up only: its order is
    /// chance.
    measured: HashMap<Content, u16>,
    bases: Option<Bases>,
    /// Whether the core is told which blocks are copies of which, as a journal's descriptors say it.
    descriptors: bool,
    /// Whether it is told of transactions that are complete.
    replay: bool,
    hashing: Option<Unit>,
    services: Services,
    bufs: Vec<Content>,
    free: Vec<u32>,
    flights: Vec<Flight>,
    waiting: VecDeque<Asked>,
    answers: VecDeque<(u32, Result<(), Refusal>)>,
    payloads: Vec<Payload>,
    bytes: Vec<u8>,
    sums: Vec<u32>,
    shadow: Option<Shadow>,
}

/// What is told of a read of parts, or of a comparison with one. No medium damages anything here.
fn read_parts(sum: u32, whole: bool) -> Outcome<'static> {
    Outcome::Parts {
        sum,
        whole,
        base: true,
    }
}

impl Vellum {
    /// A new volume on a backing, opened for the first time.
    ///
    /// # Errors
    /// When the engine does not open what the format just wrote.
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
        let buffers = Buffers {
            first: Buf(bufs),
            count: COLLECTOR_BUFS,
        };
        let options = Options {
            victim: settings.victim,
            discard: settings.discard,
            zero: settings.zero,
            ..Options::default()
        };
        let shadow = settings
            .verify
            .then(|| Shadow::new(superblock.logical_blocks()));
        let placing = settings.placing;
        let mut engine: Core = match recovered {
            Recovered::Log(found) => Engine::new(*found, buffers, options, crc32c::crc32c).into(),
            Recovered::Tables(found) => {
                Tables::new(*found, placing.options(&options), crc32c::crc32c).into()
            }
        };
        let policy = settings.dedup;
        if policy != Dedup::default() {
            engine.handle(Nanos(0), Input::Set(Setting::Dedup { policy }));
        }
        let makes_deltas = settings.deltas != Deltas::Off;
        if makes_deltas {
            engine.handle(Nanos(0), Input::Set(Setting::Deltas { on: true }));
        }
        Ok(Self {
            engine,
            strong: placing.persistence == Persistence::Strong,
            backing,
            medium: vec![Content::ZERO; superblock.medium_blocks() as usize],
            summaries: Summaries::new(superblock),
            pages: Pages::default(),
            compress: settings.compress,
            sizes: settings.sizes,
            measured: HashMap::new(),
            bases: makes_deltas.then(|| Bases::new(settings.deltas)),
            descriptors: false,
            replay: settings.replay,
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
        self.engine.stats()
    }

    /// The volume.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        self.engine.superblock()
    }

    /// Looks at the entries of blocks that are to be asked for soon.
    pub fn look_ahead(&self, lbas: impl Iterator<Item = u64>) {
        if let Some(log) = self.engine.as_log() {
            log.look_ahead(lbas.map(Lba));
        }
    }

    /// The same of contents.
    pub fn look_ahead_contents(&self, contents: impl Iterator<Item = Content>) {
        if let Some(log) = self.engine.as_log() {
            log.look_ahead_contents(contents.map(Content::sum));
        }
    }

    /// RAM for writes and for what is moved, in blocks.
    #[must_use]
    pub fn ram_blocks(&self) -> u64 {
        self.bufs.len() as u64
    }

    /// What it lies on.
    #[must_use]
    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    /// Blocks that were read and were not what had been written, where that is looked at.
    #[must_use]
    pub fn wrong_reads(&self) -> u64 {
        self.shadow.as_ref().map_or(0, |shadow| shadow.wrong)
    }

    /// When it wants to be called by [`tick`](Self::tick), in nanoseconds.
    #[must_use]
    pub fn timeout(&self) -> Option<u64> {
        let engine = self.engine.poll_timeout().map(|at| at.0);
        [engine, self.services.due()].into_iter().flatten().min()
    }

    /// The next answer.
    pub fn answer(&mut self) -> Option<(u32, Result<(), Refusal>)> {
        let answer = self.answers.pop_front()?;
        self.services.client_left();
        Some(answer)
    }

    /// Time has passed.
    pub fn tick(&mut self, io: &mut Io<'_>) {
        self.feed(io, Input::Tick);
        if self.services.due().is_some_and(|due| due <= io.time.now()) {
            self.serve(io);
        }
    }

    /// Tells where journals are.
    pub fn watch(&mut self, io: &mut Io<'_>, regions: &[Region]) {
        self.descriptors = regions
            .iter()
            .any(|region| region.rule == WriteOnce::Descriptor);
        self.feed(io, Input::Hint(Hint::Journals { regions }));
    }

    /// Asks for something.
    pub fn ask(&mut self, io: &mut Io<'_>, asked: Asked) {
        self.services.client_came();
        self.waiting.push_back(asked);
        self.admit(io);
        if !self.is_tidying() {
            self.serve(io);
        }
    }

    /// An effect was carried out.
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
            Flight::Read {
                at,
                blocks,
                request,
                first,
            } => {
                for i in 0..blocks {
                    self.show(
                        request,
                        first + i,
                        self.medium[(at.0 + u64::from(i)) as usize],
                    );
                }
                self.finish_read(io, id, at, blocks);
            }
            Flight::Gather { at, blocks, to } => {
                for i in 0..blocks as usize {
                    self.bufs[to.0 as usize + i] = self.medium[at.0 as usize + i];
                }
                self.finish_read(io, id, at, blocks);
            }
            Flight::GatherPart { at, slot, to } => self.part_gathered(io, id, (at, slot), to),
            Flight::Meta { at, blocks } => {
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
                request,
                first,
            } => {
                let page = self.medium[at.0 as usize];
                let whole = self.show_parts(page, (slot, count), request, first);
                self.finish(io, id, read_parts(page.sum(), whole));
            }
            Flight::Base(then) => self.base_read(io, id, then),
            Flight::PartsShown(whole) => self.finish(io, id, read_parts(0, whole)),
        }
    }

    /// A unit of the drive under it is on flash.
    pub fn programmed(&mut self, io: &mut Io<'_>, unit: u64) {
        self.backing.programmed(io, unit);
    }

    fn finish_read(&mut self, io: &mut Io<'_>, id: EffectId, at: Pba, blocks: u32) {
        let mut sums = std::mem::take(&mut self.sums);
        sums.clear();
        let range = at.0 as usize..at.0 as usize + blocks as usize;
        sums.extend(self.medium[range].iter().map(|content| content.sum()));
        self.finish(io, id, Outcome::Sums(&sums));
        self.sums = sums;
    }

    fn finish(&mut self, io: &mut Io<'_>, id: EffectId, outcome: Outcome<'_>) {
        self.feed(io, Input::Done { id, outcome });
        self.admit(io);
    }

    /// Hands over what waits for buffers, in order.
    fn admit(&mut self, io: &mut Io<'_>) {
        while let Some(first) = self.waiting.front() {
            let reserved = self.hashing.as_ref().map_or(0, |unit| unit.reserved);
            let needed = first.contents.len() + reserved;
            if matches!(first.op, Op::Write { .. }) && self.free.len() < needed {
                return;
            }
            if let Some(asked) = self.waiting.pop_front() {
                self.take_in(io, asked);
            }
        }
    }

    fn hand_over(&mut self, io: &mut Io<'_>, asked: &Asked) {
        let (id, lba) = (RequestId(asked.id), Lba(asked.lba));
        let (blocks, count) = (u64::from(asked.blocks), asked.blocks);
        self.remember(asked);
        match asked.op {
            Op::Write { fua } => {
                let fua = fua || self.strong;
                let mut payloads = std::mem::take(&mut self.payloads);
                payloads.clear();
                self.tell_homes(io, asked);
                for (index, &content) in asked.contents.iter().enumerate() {
                    let Some(buf) = self.free.pop() else {
                        unreachable!("admitted with buffers for all blocks")
                    };
                    self.bufs[buf as usize] = content;
                    let mut digest = content.digest();
                    let buf = Buf(buf);
                    digest.packed = self.pack(asked, index, buf);
                    digest.copied = !asked.admitted.dedup;
                    payloads.push(Payload { buf, digest });
                }
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
                if let Some(pairs) = asked.committed.as_deref().filter(|_| self.replay) {
                    self.feed(io, Input::Hint(Hint::Committed { pairs }));
                }
            }
            Op::Read => {
                let blocks = count;
                self.feed(io, Input::Read { id, lba, blocks });
            }
            Op::Discard => {
                let fua = false;
                self.feed(
                    io,
                    Input::Unmap {
                        id,
                        lba,
                        blocks,
                        fua,
                        zero: false,
                    },
                );
            }
            Op::Flush => self.feed(io, Input::Flush { id }),
        }
    }

    fn feed(&mut self, io: &mut Io<'_>, input: Input<'_>) {
        self.engine.handle(Nanos(io.time.now()), input);
        while let Some(effect) = self.engine.poll_effect() {
            self.carry_out(io, effect);
        }
        while let Some(reply) = self.engine.poll_reply() {
            if self.services.take_answer(reply.id.0, reply.result.is_ok()) {
                continue;
            }
            self.check(reply.id.0, reply.result.is_ok());
            // What was answered already has nobody to tell, unless it is an error.
            if !hashing::is_answered(reply.id.0) || reply.result.is_err() {
                self.answers.push_back((reply.id.0, reply.result));
            }
        }
        if self.services.has_answer() {
            self.serve(io);
        }
    }
}
