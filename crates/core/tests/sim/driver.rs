//! Runs one engine over the simulated medium: asks, carries out effects in any order, checks every answer.

use super::medium::{Cell, GARBAGE, Medium};
use super::model::{Model, OpId, Seen};
use super::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use vellum_core::addr::{Buf, Lba, Nanos, RequestId};
use vellum_core::engine::Engine;
use vellum_core::seam::{Digest, Effect, Input, Outcome, Payload, Refusal, Reply};

/// Why a run failed.
pub type Failure = String;

macro_rules! ensure {
    ($condition:expr, $($message:tt)*) => {
        if !$condition {
            return Err(format!($($message)*));
        }
    };
}
pub(crate) use ensure;

/// Client buffers; the collector's come after them.
pub const CLIENT_BUFS: u32 = 512;
/// No segment here is longer.
const SEGMENT_MAX: u64 = 128;
/// More effects than this at once is a queue without a bound.
const EFFECTS_MAX: usize = 4096;
/// A token that no buffer may carry to the medium: its owner gave it back.
const RELEASED: u32 = GARBAGE | 0x0dea_dbee;

/// What may go wrong in a life, in events per million effects, or once after so many effects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Reads that fail, per 10,000.
    pub unreadable: u64,
    /// The write of this number fails.
    pub write_fails_at: Option<u64>,
    /// The sync of this number fails.
    pub sync_fails_at: Option<u64>,
    /// Writes of these numbers find no room.
    pub full: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Emitted; nothing has happened.
    Asked,
    /// A write whose bytes were taken.
    Taken,
    /// Carried out, not answered.
    Carried,
}

struct Flight {
    effect: Effect,
    id: vellum_core::addr::EffectId,
    stage: Stage,
    /// The driver's own number: unlike the core's, never reused.
    serial: u64,
    asked: u64,
    cells: Vec<Cell>,
    bufs: Vec<Buf>,
    crcs: Vec<u32>,
    bytes: Vec<u8>,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Ok,
    Full,
    Failed,
}

impl Flight {
    fn range(&self) -> Option<(u64, u64, bool)> {
        match self.effect {
            Effect::WriteChunk { at, blocks, .. }
            | Effect::WriteMeta { at, blocks, .. }
            | Effect::Erase { at, blocks, .. } => Some((at.0, u64::from(blocks), true)),
            Effect::Read { at, blocks, .. }
            | Effect::Gather { at, blocks, .. }
            | Effect::ReadMeta { at, blocks, .. } => Some((at.0, u64::from(blocks), false)),
            _ => None,
        }
    }
}

enum Request {
    Change {
        op: OpId,
    },
    Flush {
        asked: u64,
    },
    Read {
        lba: u64,
        asked: u64,
        got: Vec<Option<u32>>,
    },
}

/// One request of a client.
#[derive(Clone, Debug)]
pub enum Ask {
    Write {
        lba: u64,
        tokens: Vec<u32>,
        fua: bool,
    },
    Read {
        lba: u64,
        blocks: u32,
    },
    Flush,
    Discard {
        lba: u64,
        blocks: u64,
        fua: bool,
    },
    WriteZeroes {
        lba: u64,
        blocks: u64,
        fua: bool,
    },
}

/// How requests ended, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub done: u64,
    pub full: u64,
    pub corrupt: u64,
    pub unreadable: u64,
    pub poisoned: u64,
    pub effects: u64,
}

pub struct Driver {
    pub engine: Engine,
    pub medium: Medium,
    pub model: Model,
    pub rng: Rng,
    pub faults: Faults,
    pub counts: Counts,
    pub now: u64,
    pub stopped: bool,
    pub poisoned: bool,
    /// What each block of the last read gave; for audits.
    pub last_read: Vec<Seen>,
    /// Every place a block was ever rotten or refused to be read in this life.
    pub suspects: BTreeSet<u64>,
    flights: Vec<Flight>,
    requests: BTreeMap<u32, Request>,
    tokens: Vec<u32>,
    held: Vec<bool>,
    free: Vec<u32>,
    writes: u64,
    syncs: u64,
    asking: Option<u32>,
    last_result: Option<Result<(), Refusal>>,
    next_request: u32,
    collector: std::ops::Range<u32>,
    trace: bool,
}

impl Driver {
    pub fn new(
        engine: Engine,
        medium: Medium,
        model: Model,
        rng: Rng,
        collector_bufs: u32,
    ) -> Self {
        let all = CLIENT_BUFS + collector_bufs;
        Self {
            engine,
            medium,
            model,
            rng,
            faults: Faults::default(),
            counts: Counts::default(),
            now: 1,
            stopped: false,
            poisoned: false,
            last_read: Vec::new(),
            suspects: BTreeSet::new(),
            flights: Vec::new(),
            requests: BTreeMap::new(),
            tokens: vec![RELEASED; all as usize],
            held: vec![false; all as usize],
            free: (0..CLIENT_BUFS).collect(),
            writes: 0,
            syncs: 0,
            asking: None,
            last_result: None,
            next_request: 0,
            collector: CLIENT_BUFS..all,
            trace: std::env::var_os("VELLUM_TRACE").is_some(),
        }
    }

    /// Lets the engine start: some inputs are not needed for it to have effects.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.feed(Input::Tick)
    }

    pub fn open_requests(&self) -> usize {
        self.requests.len()
    }

    pub fn flights(&self) -> usize {
        self.flights.len()
    }

    pub fn free_bufs(&self) -> usize {
        self.free.len()
    }

    /// Hands one input over and takes everything that comes out.
    fn feed(&mut self, input: Input<'_>) -> Result<(), Failure> {
        if self.trace {
            let text = format!("{input:?}");
            eprintln!("{} > {}", self.now, &text[..text.floor_char_boundary(200)]);
        }
        self.engine.handle(Nanos(self.now), input);
        self.drain()
    }

    fn drain(&mut self) -> Result<(), Failure> {
        loop {
            let mut quiet = true;
            while let Some(effect) = self.engine.poll_effect() {
                quiet = false;
                self.take_effect(effect)?;
            }
            while let Some(reply) = self.engine.poll_reply() {
                quiet = false;
                self.take_reply(reply)?;
            }
            if quiet {
                return Ok(());
            }
        }
    }

    fn take_effect(&mut self, effect: Effect) -> Result<(), Failure> {
        if self.trace {
            eprintln!("{} < {effect:?}", self.now);
        }
        self.counts.effects += 1;
        let id = match effect {
            Effect::WriteChunk { id, .. }
            | Effect::WriteMeta { id, .. }
            | Effect::Sync { id }
            | Effect::Erase { id, .. }
            | Effect::Read { id, .. }
            | Effect::Gather { id, .. }
            | Effect::ReadMeta { id, .. } => id,
            Effect::CopyOut {
                from,
                request,
                index,
            } => {
                let token = self.tokens[from.0 as usize];
                ensure!(
                    token != RELEASED,
                    "CopyOut from buffer {from}, which nobody holds"
                );
                return self.fill(request.0, index, token);
            }
            Effect::ZeroOut {
                request,
                first,
                blocks,
            } => {
                return (first..first + blocks)
                    .try_for_each(|index| self.fill(request.0, index, 0));
            }
            Effect::Release { buf } => return self.release(buf),
            Effect::Stopped => {
                ensure!(!self.stopped, "Stopped twice");
                self.stopped = true;
                if !self.poisoned {
                    self.model.flushed(self.model.clock());
                }
                return Ok(());
            }
        };
        ensure!(
            self.flights.iter().all(|f| f.id != id),
            "effect id {id} given out twice"
        );
        ensure!(
            self.flights.len() < EFFECTS_MAX,
            "{EFFECTS_MAX} effects in flight"
        );
        let bufs = match effect {
            Effect::WriteChunk { blocks, .. } => {
                let bufs: Vec<Buf> = self.engine.chunk_bufs(id).collect();
                ensure!(
                    bufs.len() + 1 == blocks as usize,
                    "chunk of {blocks} blocks with {} buffers",
                    bufs.len()
                );
                bufs
            }
            _ => Vec::new(),
        };
        self.medium.writes += 1;
        let flight = Flight {
            effect,
            id,
            stage: Stage::Asked,
            serial: self.medium.writes,
            asked: self.medium.stamp(),
            cells: Vec::new(),
            bufs,
            crcs: Vec::new(),
            bytes: Vec::new(),
            end: End::Ok,
        };
        self.check_overlap(&flight)?;
        self.flights.push(flight);
        Ok(())
    }

    /// No write may meet another access to the same blocks: their order would be chance.
    fn check_overlap(&self, new: &Flight) -> Result<(), Failure> {
        let Some((at, blocks, writes)) = new.range() else {
            return Ok(());
        };
        ensure!(
            blocks > 0 && at + blocks <= self.medium.blocks(),
            "{:?} is outside of the medium",
            new.effect
        );
        for other in &self.flights {
            let Some((from, count, wrote)) = other.range() else {
                continue;
            };
            let meet = at < from + count && from < at + blocks;
            ensure!(
                !(meet && (writes || wrote)),
                "{:?} while {:?} is in flight",
                new.effect,
                other.effect
            );
        }
        Ok(())
    }

    fn fill(&mut self, request: u32, index: u32, token: u32) -> Result<(), Failure> {
        let Some(Request::Read { got, .. }) = self.requests.get_mut(&request) else {
            return Err(format!(
                "data for request {request}, which is not a read in flight"
            ));
        };
        ensure!(
            (index as usize) < got.len(),
            "block {index} of a read of {}",
            got.len()
        );
        got[index as usize] = Some(token);
        Ok(())
    }

    fn release(&mut self, buf: Buf) -> Result<(), Failure> {
        let index = buf.0 as usize;
        ensure!(
            buf.0 < CLIENT_BUFS,
            "buffer {buf} is the collector's, and was released"
        );
        ensure!(self.held[index], "buffer {buf} released twice");
        let used = self
            .flights
            .iter()
            .any(|f| f.stage != Stage::Carried && f.bufs.contains(&buf));
        ensure!(
            !used,
            "buffer {buf} released while a chunk that holds it is being written"
        );
        self.held[index] = false;
        self.tokens[index] = RELEASED;
        self.free.push(buf.0);
        Ok(())
    }

    fn take_reply(&mut self, reply: Reply) -> Result<(), Failure> {
        if self.trace {
            eprintln!("{} < {reply:?}", self.now);
        }
        let RequestId(id) = reply.id;
        let at_once = self.asking == Some(id);
        let Some(request) = self.requests.remove(&id) else {
            return Err(format!(
                "request {id} answered twice, or never asked: {:?}",
                reply.result
            ));
        };
        if at_once {
            self.last_result = Some(reply.result);
        }
        match reply.result {
            Ok(()) => self.counts.done += 1,
            Err(Refusal::Full) => {
                self.counts.full += 1;
                ensure!(
                    !matches!(request, Request::Read { .. }),
                    "a read refused: full"
                );
                let flush = matches!(request, Request::Flush { .. });
                ensure!(
                    !flush || self.faults.full.is_some(),
                    "a flush refused: full"
                );
            }
            Err(Refusal::Corrupt(pba)) => {
                self.counts.corrupt += 1;
                ensure!(
                    matches!(request, Request::Read { .. }),
                    "corrupt block {pba} reported for a write"
                );
                // A bad header or summary makes its segment's other blocks unverifiable.
                let near = pba.0.saturating_sub(SEGMENT_MAX)..pba.0 + SEGMENT_MAX;
                ensure!(
                    self.suspects.range(near).next().is_some(),
                    "block {pba} reported corrupt, and is not"
                );
            }
            Err(Refusal::Unreadable(pba)) => {
                self.counts.unreadable += 1;
                // Nor can blocks be vouched for whose checksums cannot be read.
                let near = pba.0.saturating_sub(SEGMENT_MAX)..pba.0 + SEGMENT_MAX;
                ensure!(
                    self.suspects.range(near).next().is_some(),
                    "block {pba} reported unreadable, and is not"
                );
            }
            Err(Refusal::Poisoned) => {
                self.counts.poisoned += 1;
                ensure!(self.poisoned, "refused as poisoned, and nothing has failed");
            }
            Err(Refusal::OutOfRange) => return Err("refused as out of range".into()),
        }
        match request {
            Request::Change { op } => self.model.end(op, reply.result.is_ok(), at_once),
            Request::Flush { asked } if reply.result.is_ok() => self.model.flushed(asked),
            Request::Flush { .. } => {}
            Request::Read { lba, asked, got } => {
                self.last_read.clear();
                for (i, got) in got.into_iter().enumerate() {
                    if reply.result.is_err() {
                        self.last_read.push(Seen::Unknown);
                        continue;
                    }
                    let lba = lba + i as u64;
                    let Some(token) = got else {
                        return Err(format!("LBA {lba} read without data"));
                    };
                    self.last_read.push(Seen::Token(token));
                    self.model.check_read(lba, token, asked)?;
                }
            }
        }
        Ok(())
    }

    /// Asks for something; `false` when there are not enough buffers for it now.
    pub fn ask(&mut self, ask: &Ask) -> Result<bool, Failure> {
        let id = loop {
            self.next_request = (self.next_request + 1) % 4096;
            if !self.requests.contains_key(&self.next_request) {
                break self.next_request;
            }
        };
        let name = RequestId(id);
        let was_poisoned = self.poisoned;
        self.asking = Some(id);
        self.last_result = None;
        match ask {
            Ask::Write { lba, tokens, fua } => {
                if self.free.len() < tokens.len() {
                    self.asking = None;
                    return Ok(false);
                }
                let mut blocks = Vec::with_capacity(tokens.len());
                for &token in tokens {
                    let at = self.rng.below(self.free.len() as u64) as usize;
                    let buf = self.free.swap_remove(at);
                    self.tokens[buf as usize] = token;
                    self.held[buf as usize] = true;
                    let digest = Digest {
                        crc: super::medium::token_crc(token),
                        weak: u64::from(token),
                        zero: token == 0,
                    };
                    blocks.push(Payload {
                        buf: Buf(buf),
                        digest,
                    });
                }
                let op = self.model.begin(*lba, tokens.iter().copied(), *fua);
                self.requests.insert(id, Request::Change { op });
                self.feed(Input::Write {
                    id: name,
                    lba: Lba(*lba),
                    blocks: &blocks,
                    fua: *fua,
                })?;
            }
            Ask::Read { lba, blocks } => {
                let got = vec![None; *blocks as usize];
                self.requests.insert(
                    id,
                    Request::Read {
                        lba: *lba,
                        asked: self.model.clock(),
                        got,
                    },
                );
                self.feed(Input::Read {
                    id: name,
                    lba: Lba(*lba),
                    blocks: *blocks,
                })?;
            }
            Ask::Flush => {
                self.requests.insert(
                    id,
                    Request::Flush {
                        asked: self.model.clock(),
                    },
                );
                self.feed(Input::Flush { id: name })?;
            }
            Ask::Discard { lba, blocks, fua } | Ask::WriteZeroes { lba, blocks, fua } => {
                let op = self
                    .model
                    .begin(*lba, std::iter::repeat_n(0, *blocks as usize), *fua);
                self.requests.insert(id, Request::Change { op });
                let (lba, blocks, fua) = (Lba(*lba), *blocks, *fua);
                self.feed(if matches!(ask, Ask::Discard { .. }) {
                    Input::Discard {
                        id: name,
                        lba,
                        blocks,
                        fua,
                    }
                } else {
                    Input::WriteZeroes {
                        id: name,
                        lba,
                        blocks,
                        fua,
                    }
                })?;
            }
        }
        self.asking = None;
        let reads = matches!(ask, Ask::Read { .. });
        if was_poisoned && !reads {
            ensure!(
                self.last_result == Some(Err(Refusal::Poisoned)),
                "poisoned, and {ask:?} got {:?}",
                self.last_result
            );
        }
        Ok(true)
    }

    /// How the last request ended, if it did within its own `handle`.
    pub fn answered_at_once(&self) -> Option<Result<(), Refusal>> {
        self.last_result
    }

    pub fn shut_down(&mut self) -> Result<(), Failure> {
        self.feed(Input::Shutdown)
    }

    /// Moves one effect on, chosen by chance; `false` when there is none.
    pub fn advance(&mut self) -> Result<bool, Failure> {
        if self.flights.is_empty() {
            return Ok(false);
        }
        self.now += self.rng.below(20_000);
        // Mostly any; often the oldest, else a long queue keeps its first for ever.
        let mut index = self.rng.below(self.flights.len() as u64) as usize;
        if self.rng.percent(40) {
            index = (0..self.flights.len())
                .min_by_key(|&i| self.flights[i].serial)
                .unwrap_or(0);
        }
        if self.flights[index].stage == Stage::Asked {
            self.take_bytes(index)?;
            if self.rng.percent(30) {
                return Ok(true);
            }
        }
        if self.flights[index].stage == Stage::Taken {
            self.carry_out(index)?;
            if self.rng.percent(50) {
                return Ok(true);
            }
        }
        self.complete(index)?;
        Ok(true)
    }

    /// The bytes of a write leave for the medium.
    fn take_bytes(&mut self, index: usize) -> Result<(), Failure> {
        let flight = &mut self.flights[index];
        flight.stage = Stage::Taken;
        match flight.effect {
            Effect::WriteChunk { id, .. } => {
                let mut header = vec![0; 4096];
                self.engine.encode(id, &mut header);
                flight.cells.push(Cell::Meta(header.into()));
                let same = self.engine.chunk_bufs(id).eq(flight.bufs.iter().copied());
                ensure!(
                    same,
                    "the buffers of {:?} changed while it was in flight",
                    flight.effect
                );
                for buf in &flight.bufs {
                    let token = self.tokens[buf.0 as usize];
                    ensure!(
                        token != RELEASED,
                        "buffer {buf} is written and nobody holds it"
                    );
                    flight.cells.push(Cell::Data(token));
                }
            }
            Effect::WriteMeta { id, blocks, .. } => {
                let mut bytes = vec![0; blocks as usize * 4096];
                self.engine.encode(id, &mut bytes);
                flight
                    .cells
                    .extend(bytes.chunks_exact(4096).map(|b| Cell::Meta(b.into())));
            }
            _ => {}
        }
        Ok(())
    }

    fn carry_out(&mut self, index: usize) -> Result<(), Failure> {
        let mut flight = std::mem::replace(&mut self.flights[index], placeholder());
        flight.stage = Stage::Carried;
        let result = self.carry(&mut flight);
        self.flights[index] = flight;
        result
    }

    fn carry(&mut self, flight: &mut Flight) -> Result<(), Failure> {
        match flight.effect {
            Effect::WriteChunk { at, .. } | Effect::WriteMeta { at, .. } => {
                self.writes += 1;
                flight.end = if self.faults.write_fails_at == Some(self.writes) {
                    End::Failed
                } else if self
                    .faults
                    .full
                    .is_some_and(|(from, to)| (from..to).contains(&self.writes))
                {
                    End::Full
                } else {
                    End::Ok
                };
                for (i, cell) in flight.cells.drain(..).enumerate() {
                    if flight.end == End::Ok || self.rng.percent(50) {
                        self.medium.write(at.0 + i as u64, cell, flight.serial);
                    }
                }
            }
            Effect::Sync { .. } => {
                self.syncs += 1;
                if self.faults.sync_fails_at == Some(self.syncs) {
                    flight.end = End::Failed;
                    self.medium.sync_fails();
                } else {
                    self.medium.sync(flight.asked, &mut self.rng);
                }
            }
            Effect::Erase { at, blocks, .. } => {
                for block in at.0..at.0 + u64::from(blocks) {
                    if self.rng.percent(50) {
                        self.medium.write(block, Cell::Blank, flight.serial);
                    }
                }
            }
            Effect::Read {
                at,
                blocks,
                request,
                first,
                ..
            } => {
                if self.read_fails(at.0, blocks) {
                    flight.end = End::Failed;
                    return Ok(());
                }
                for i in 0..blocks {
                    let block = at.0 + u64::from(i);
                    let cell = self.read_cell(block, flight);
                    self.fill(request.0, first + i, cell.token())?;
                }
            }
            Effect::Gather { at, blocks, to, .. } => {
                if self.read_fails(at.0, blocks) {
                    flight.end = End::Failed;
                    return Ok(());
                }
                for i in 0..blocks {
                    let buf = Buf(to.0 + i);
                    ensure!(
                        self.collector.contains(&buf.0),
                        "the collector reads into buffer {buf}, not its own"
                    );
                    let used = self
                        .flights
                        .iter()
                        .any(|f| f.stage != Stage::Carried && f.bufs.contains(&buf));
                    ensure!(
                        !used,
                        "the collector overwrites buffer {buf}, which is being written"
                    );
                    let cell = self.read_cell(at.0 + u64::from(i), flight);
                    self.tokens[buf.0 as usize] = cell.token();
                }
            }
            Effect::ReadMeta { at, blocks, .. } => {
                if self.read_fails(at.0, blocks) {
                    flight.end = End::Failed;
                    return Ok(());
                }
                flight.bytes = vec![0; blocks as usize * 4096];
                for (i, out) in flight.bytes.chunks_exact_mut(4096).enumerate() {
                    let block = at.0 + i as u64;
                    if self.medium.is_rotten(block) {
                        self.suspects.insert(block);
                    }
                    self.medium.read(block).fill(out);
                }
            }
            Effect::CopyOut { .. }
            | Effect::ZeroOut { .. }
            | Effect::Release { .. }
            | Effect::Stopped => {}
        }
        Ok(())
    }

    fn read_fails(&mut self, at: u64, blocks: u32) -> bool {
        let fails = self.rng.below(10_000) < self.faults.unreadable;
        if fails {
            self.suspects.extend(at..at + u64::from(blocks));
        }
        fails
    }

    fn read_cell(&mut self, block: u64, flight: &mut Flight) -> Cell {
        if self.medium.is_rotten(block) {
            self.suspects.insert(block);
        }
        let cell = self.medium.read(block);
        flight.crcs.push(cell.crc());
        if self.medium.broken == super::medium::Broken::ReadLies && self.rng.percent(1) {
            return Cell::Data(0x77);
        }
        cell
    }

    fn complete(&mut self, index: usize) -> Result<(), Failure> {
        let flight = self.flights.swap_remove(index);
        let id = flight.id;
        let failed = flight.end == End::Failed;
        match flight.effect {
            Effect::WriteChunk {
                at,
                blocks,
                durable,
                ..
            }
            | Effect::WriteMeta {
                at,
                blocks,
                durable,
                ..
            } => {
                if flight.end == End::Ok {
                    self.medium
                        .complete(at.0, u64::from(blocks), flight.serial, durable);
                }
                self.poisoned |= failed;
            }
            Effect::Erase { at, blocks, .. } => {
                self.medium
                    .complete(at.0, u64::from(blocks), flight.serial, false)
            }
            Effect::Sync { .. } => self.poisoned |= failed,
            _ => {}
        }
        let outcome = match (flight.end, flight.effect) {
            (End::Failed, _) => Outcome::Failed,
            (End::Full, _) => Outcome::Full,
            (End::Ok, Effect::Read { .. } | Effect::Gather { .. }) => Outcome::Crcs(&flight.crcs),
            (End::Ok, Effect::ReadMeta { .. }) => Outcome::Bytes(&flight.bytes),
            (End::Ok, _) => Outcome::Ok,
        };
        self.feed(Input::Done { id, outcome })
    }

    /// Lets time pass until the core's time-out, if it has one; `false` when it has none.
    pub fn wait(&mut self) -> Result<bool, Failure> {
        let Some(Nanos(due)) = self.engine.poll_timeout() else {
            return Ok(false);
        };
        self.now = self.now.max(due);
        self.feed(Input::Tick)?;
        Ok(true)
    }

    /// What to say when nothing moves any more.
    pub fn stalled(&self) -> String {
        let open = self.requests.len();
        let due = self.engine.poll_timeout();
        format!(
            "stalled: {open} requests open, no effect in flight, time-out {due:?}, {:?}",
            self.engine.stats()
        )
    }

    /// A tick now and then, due or not.
    pub fn tick(&mut self) -> Result<(), Failure> {
        self.now += self.rng.below(2_000_000_000);
        self.feed(Input::Tick)
    }

    /// Carries everything out until no request is open and no effect in flight.
    pub fn settle(&mut self) -> Result<(), Failure> {
        let mut waits = 0;
        for _ in 0..2_000_000 {
            if self.advance()? {
                waits = 0;
                continue;
            }
            if self.requests.is_empty() {
                return Ok(());
            }
            waits += 1;
            ensure!(waits < 1000 && self.wait()?, "{}", self.stalled());
        }
        Err("no end: effects for ever".into())
    }

    /// Shuts down and carries everything out; afterwards no buffer may be held.
    pub fn settle_shutdown(&mut self) -> Result<(), Failure> {
        self.shut_down()?;
        let mut waits = 0;
        for _ in 0..2_000_000 {
            if self.advance()? {
                waits = 0;
                continue;
            }
            if self.stopped {
                ensure!(
                    self.requests.is_empty(),
                    "stopped with {} requests open",
                    self.requests.len()
                );
                // A poisoned engine keeps what it could not write, to be read.
                let held = self.held.iter().filter(|held| **held).count();
                ensure!(held == 0 || self.poisoned, "{held} buffers leaked");
                return Ok(());
            }
            waits += 1;
            ensure!(
                waits < 1000 && self.wait()?,
                "in shutdown: {}",
                self.stalled()
            );
        }
        Err("no end to the shutdown".into())
    }

    /// The end of a life: what is in flight happens in part.
    pub fn crash(mut self, power: bool) -> Result<(Medium, Model, Counts, u64), Failure> {
        for mut flight in std::mem::take(&mut self.flights) {
            if flight.stage == Stage::Asked && self.rng.percent(50) {
                self.flights = vec![flight];
                self.take_bytes(0)?;
                flight = self.flights.remove(0);
            }
            let (Effect::WriteChunk { at, .. } | Effect::WriteMeta { at, .. }) = flight.effect
            else {
                continue;
            };
            let percent = self.rng.pick(&[0, 50, 100]);
            for (i, cell) in flight.cells.drain(..).enumerate() {
                if self.rng.percent(percent) {
                    self.medium.write(at.0 + i as u64, cell, flight.serial);
                }
            }
        }
        if power {
            self.medium.power_fails(&mut self.rng);
        } else {
            self.medium.process_dies();
        }
        Ok((self.medium, self.model, self.counts, self.now))
    }
}

fn placeholder() -> Flight {
    Flight {
        effect: Effect::Stopped,
        id: vellum_core::addr::EffectId(u32::MAX),
        stage: Stage::Carried,
        serial: 0,
        asked: 0,
        cells: Vec::new(),
        bufs: Vec::new(),
        crcs: Vec::new(),
        bytes: Vec::new(),
        end: End::Ok,
    }
}
