//! Runs one core over the simulated medium: issues requests, carries out effects in any order, checks every answer.

mod buffers;
pub mod copies;
pub mod critical;
mod effects;
mod folds;
pub mod freed;
mod hints;
mod host;
mod outputs;
pub mod parts;
pub mod scrubs;
pub mod services;

use super::medium::{Cell, GARBAGE, Medium};
use super::model::{Model, OpId, Seen};
use super::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use vellum_core::addr::{Buf, Lba, Nanos, RequestId};
use vellum_core::entry::PartId;
use vellum_core::index::Holder;
use vellum_core::layout::Core;
use vellum_core::seam::{Against, BasePlace, Effect, Input, PagePlace, Refusal, Service, Unmap};

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
/// No segment in these tests is longer.
const SEGMENT_MAX: u64 = 128;
/// More effects than this at once mean an unbounded queue.
const EFFECTS_MAX: usize = 4096;
/// A token that no buffer may carry to the medium: its owner has released it.
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
    /// Writes with numbers in this range find no room.
    pub full: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Emitted; nothing has happened.
    Asked,
    /// A write whose bytes were taken.
    Taken,
    /// Carried out, but not answered.
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
    same: bool,
    print: [u8; 4],
    /// Parts of a page in a buffer, as they were when the effect was emitted.
    parts: Vec<Option<u32>>,
    /// A page in a buffer, as it was when a delta in it was requested.
    page: Option<Cell>,
    /// The base of a delta: its contents at that time, if it was in memory, and whether it was available.
    base: Option<u32>,
    has_base: bool,
    sums: Vec<u32>,
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
    /// Every range of blocks that it reads or writes.
    fn ranges(&self) -> impl Iterator<Item = (u64, u64, bool)> {
        let base = match self.effect {
            Effect::ReadParts { base, .. }
            | Effect::Compare {
                with: Against::Part(_, _, base),
                ..
            } => base,
            _ => None,
        };
        let base = match base {
            Some(BasePlace::Part(PagePlace::Medium(at), _)) => Some((at.0, 1, false)),
            _ => None,
        };
        self.range().into_iter().chain(base)
    }

    fn range(&self) -> Option<(u64, u64, bool)> {
        match self.effect {
            Effect::WriteChunk { at, blocks, .. }
            | Effect::WriteData { at, blocks, .. }
            | Effect::WriteMeta { at, blocks, .. }
            | Effect::Erase { at, blocks, .. } => Some((at.0, u64::from(blocks), true)),
            Effect::Read { at, blocks, .. }
            | Effect::Gather { at, blocks, .. }
            | Effect::ReadMeta { at, blocks, .. } => Some((at.0, u64::from(blocks), false)),
            Effect::Compare {
                with: Against::Medium(at) | Against::Part(PagePlace::Medium(at), ..),
                ..
            }
            | Effect::ReadParts {
                page: PagePlace::Medium(at),
                ..
            }
            | Effect::GatherPart { at, .. } => Some((at.0, 1, false)),
            _ => None,
        }
    }
}

enum Request {
    Merge,
    /// A request of a service.
    Served,
    Properties(u64),
    Change {
        op: OpId,
    },
    /// A write that was answered before it was handed over.
    Answered {
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
    /// A read of a scrub.
    Look {
        lba: u64,
        asked: u64,
        got: Vec<Option<u32>>,
    },
    /// A read whose blocks are to be stored again.
    Fold {
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
    Merge {
        lba: u64,
        of: Holder,
    },
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
    pub early: u64,
    pub effects: u64,
}

pub struct Driver {
    pub core: Core,
    pub medium: Medium,
    pub model: Model,
    pub rng: Rng,
    pub faults: Faults,
    pub counts: Counts,
    pub now: u64,
    pub stopped: bool,
    pub poisoned: bool,
    /// The number of weak hashes: few, so that they collide.
    pub hashes: u32,
    /// The percentage of writes that are answered before they are handed over.
    pub early: u64,
    may_answer: bool,
    /// The percentage of blocks written that can be stored in fewer bytes.
    pub packing: u64,
    /// The percentage of these that are stored as deltas, if there is a base.
    pub deltas: u64,
    /// The number of buckets that these are spread over; 0: they are in none.
    pub buckets: u64,
    /// The base that all deltas use, whether or not it may be one, and its contents.
    pub forced_base: Option<(PartId, u32)>,
    /// The contents of parts, as the core has reported.
    known: BTreeMap<(u32, u8), u32>,
    /// The base of the delta that each buffer's block is stored as.
    against: Vec<Option<u32>>,
    /// Effects that are held back for now.
    pub holds: fn(&Effect) -> bool,
    /// Where each LBA's block was when the life began, for a medium that discards too early.
    pub stored: BTreeMap<u64, u64>,
    /// The result of each block of the last read; for audits.
    pub last_read: Vec<Seen>,
    /// Every place where a block was rotten, or could not be read, in this life.
    pub suspects: BTreeSet<u64>,
    /// Blocks that were read to be stored again, with the first one's LBA.
    to_fold: Option<(u64, Vec<u32>)>,
    /// The result of a service's request: true if it succeeded.
    served: Option<bool>,
    /// The result of a scrub's last read.
    looked: Option<(u32, Result<(), Refusal>)>,
    freed: freed::Freed,
    critical: critical::Critical,
    flights: Vec<Flight>,
    requests: BTreeMap<u32, Request>,
    /// The contents of each buffer.
    cells: Vec<Cell>,
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
        core: impl Into<Core>,
        medium: Medium,
        model: Model,
        rng: Rng,
        collector_bufs: u32,
    ) -> Self {
        let all = CLIENT_BUFS + collector_bufs;
        Self {
            core: core.into(),
            medium,
            model,
            rng,
            faults: Faults::default(),
            counts: Counts::default(),
            now: 1,
            stopped: false,
            poisoned: false,
            hashes: u32::MAX,
            early: 0,
            may_answer: false,
            packing: 0,
            deltas: 0,
            buckets: 0,
            forced_base: None,
            known: BTreeMap::new(),
            against: vec![None; all as usize],
            holds: |_| false,
            stored: BTreeMap::new(),
            last_read: Vec::new(),
            suspects: BTreeSet::new(),
            to_fold: None,
            served: None,
            looked: None,
            freed: freed::Freed::default(),
            critical: critical::Critical::default(),
            flights: Vec::new(),
            requests: BTreeMap::new(),
            cells: vec![Cell::Data(RELEASED); all as usize],
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

    /// Starts the core: it may have effects before any other input.
    pub fn start(&mut self) -> Result<(), Failure> {
        self.feed(Input::Tick)
    }

    /// The contents of a buffer, as a block.
    fn token(&self, buf: Buf) -> u32 {
        self.cells[buf.0 as usize].token()
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

    /// Hands one input to the core and takes all its outputs.
    fn feed(&mut self, input: Input<'_>) -> Result<(), Failure> {
        if self.trace {
            let text = format!("{input:?}");
            eprintln!("{} > {}", self.now, &text[..text.floor_char_boundary(200)]);
        }
        self.core.handle(Nanos(self.now), input);
        self.drain()
    }

    fn drain(&mut self) -> Result<(), Failure> {
        loop {
            let mut quiet = true;
            while let Some(effect) = self.core.poll_effect() {
                quiet = false;
                self.take_effect(effect)?;
            }
            while let Some(reply) = self.core.poll_reply() {
                quiet = false;
                self.take_reply(reply)?;
            }
            if quiet {
                return Ok(());
            }
        }
    }

    /// A number that no request has.
    fn number(&mut self) -> u32 {
        loop {
            self.next_request = (self.next_request + 1) % 4096;
            if !self.requests.contains_key(&self.next_request) {
                return self.next_request;
            }
        }
    }

    /// Issues a request; `false` if there are not enough buffers for it now.
    pub fn ask(&mut self, ask: &Ask) -> Result<bool, Failure> {
        let id = self.number();
        let name = RequestId(id);
        let was_poisoned = self.poisoned;
        self.see(id, ask);
        match ask {
            Ask::Write { lba, tokens, fua } => {
                if self.free.len() < tokens.len() {
                    self.asking = None;
                    return Ok(false);
                }
                let blocks = self.payloads(*lba, tokens);
                self.discard_early(*lba, tokens.len() as u64);
                self.write(name, (*lba, tokens), &blocks, *fua)?;
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
            Ask::Merge { lba, of } => {
                self.swept(*lba as u32, lba % 8 == 0)?;
                self.feed(super::mend::of(self.core.superblock(), *lba))?;
                self.requests.insert(id, Request::Merge);
                self.feed(Input::Service(Service::Merge {
                    id: name,
                    lba: Lba(*lba),
                    of: *of,
                }))?;
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
                let op = self.model.begin_step(*lba, *blocks, *fua);
                self.requests.insert(id, Request::Change { op });
                let unmap = Unmap {
                    lba: Lba(*lba),
                    blocks: *blocks,
                    zero: matches!(ask, Ask::WriteZeroes { .. }),
                    fua: *fua,
                };
                self.feed(Input::Unmap { id: name, unmap })?;
            }
        }
        self.asking = None;
        if was_poisoned && !matches!(ask, Ask::Read { .. }) {
            self.has_refused(ask)?;
        }
        Ok(true)
    }

    fn has_refused(&self, ask: &Ask) -> Result<(), Failure> {
        ensure!(
            self.last_result == Some(Err(Refusal::Poisoned)),
            "poisoned, and {ask:?} got {:?}",
            self.last_result
        );
        Ok(())
    }

    pub fn shut_down(&mut self) -> Result<(), Failure> {
        self.feed(Input::Shutdown)
    }

    /// Lets time pass until the core's time-out, if it has one; `false` when it has none.
    pub fn wait(&mut self) -> Result<bool, Failure> {
        let Some(Nanos(due)) = self.core.poll_timeout() else {
            return Ok(false);
        };
        self.now = self.now.max(due);
        self.feed(Input::Tick)?;
        Ok(true)
    }

    /// The message for when nothing moves any more.
    pub fn stalled(&self) -> String {
        let open = self.requests.len();
        let due = self.core.poll_timeout();
        format!(
            "stalled: {open} requests open, no effect in flight, time-out {due:?}, {:?}",
            self.core.stats()
        )
    }

    /// Sends a tick now and then, due or not.
    pub fn tick(&mut self) -> Result<(), Failure> {
        self.now += self.rng.below(2_000_000_000);
        self.feed(Input::Tick)
    }

    /// Lets a census come to its end, unless the volume is poisoned.
    pub fn count(&mut self) -> Result<(), Failure> {
        while !self.core.is_counted() && !self.poisoned {
            let moves = self.advance()? || self.wait()?;
            ensure!(moves, "a census: {}", self.stalled());
        }
        Ok(())
    }

    /// Lets time pass until a census takes its next step.
    pub fn count_on(&mut self) -> Result<(), Failure> {
        if !self.core.is_counted() {
            self.wait()?;
        }
        Ok(())
    }

    /// Carries everything out until no request is open, no effect in flight and all is counted.
    pub fn settle(&mut self) -> Result<(), Failure> {
        let mut waits = 0;
        for _ in 0..2_000_000 {
            if self.advance()? {
                waits = 0;
                continue;
            }
            if !self.requests.is_empty() {
                waits += 1;
                ensure!(waits < 1000 && self.wait()?, "{}", self.stalled());
            } else if self.core.is_counted() || self.poisoned {
                return Ok(());
            } else {
                self.count()?;
            }
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
                // A poisoned core keeps what it could not write, so that it can be read.
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
            let (Effect::WriteChunk { at, .. }
            | Effect::WriteData { at, .. }
            | Effect::WriteMeta { at, .. }) = flight.effect
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
