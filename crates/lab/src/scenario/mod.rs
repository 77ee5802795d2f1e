//! What is run: a device, a policy, a load.

mod build;
mod prepare;
mod source;
mod warm;

pub use build::{CAPACITY_MAX, DEFAULT_BYTES, TooLarge};

use crate::admission::Admission;
use crate::base::{Chooser, Order, Separator, TooSmall};
use crate::flash::{self, Kind, NoSpare, Preset};
use crate::journal::Journal;
use crate::life::{Life, WornOut};
use crate::outcome::{Outcome, Snapshot};
use crate::policy::{Layer, Policy};
use crate::progress::Watch;
use crate::replay::{RepeatedContents, ReplayError, TraceFile};
use crate::series;
use crate::sim::{Ftl, Pace, RunError, Sim};
use crate::sizes::Sizes;
use crate::sure::Sure;
use crate::vellum::{Hashing, LayoutError};
use crate::workload::{Again, Bursts, Request, Workload};
use build::physical;
use prepare::flush;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::recovery::RecoveryError;

/// As many requests as wear a drive out.
pub const UNTIL_WORN_OUT: u64 = u64::MAX;
/// How often the erasures that all blocks endure together are written by them, at most: a load that writes little, or whose
/// blocks are not written, ends as well.
const WEAR_OUT_TIMES: u64 = 4;

/// A journal's blocks, at least: jbd2's own limit.
pub const JOURNAL_BLOCKS_MIN: u64 = 1024;

/// What is done before a run begins to count. None of it takes virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing: a new drive.
    None,
    /// Every block is written once, in order.
    Fill,
    /// And then overwritten at random until the amplification stays the same.
    Steady,
    /// Or by the load itself, until its amplification stands still.
    Load,
}

/// A device at a size.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Which.
    pub preset: Preset,
    /// Bytes of flash, rounded up to whole rounds of erase blocks; none: a size that takes seconds.
    pub capacity: Option<u64>,
    /// Over-provisioning in thousandths; none: the device's.
    pub over_provisioning: Option<u32>,
    /// Erasures that a block endures; none: the device's.
    pub erase_limit: Option<u32>,
    /// What a flush takes in a drive with a page map, beside the writes that it waits for, in nanoseconds. A block device has its own.
    pub flush_ns: u64,
    /// Whether reads overtake programs and erasures that have not begun.
    pub read_priority: bool,
    /// What its flash does beyond that.
    pub options: flash::Options,
}

/// A load that nobody recorded.
#[derive(Clone, Copy, Debug)]
pub struct Synthetic {
    /// What.
    pub workload: Workload,
    /// How many requests; 0: as many as write the volume twice; [`UNTIL_WORN_OUT`].
    pub requests: u64,
    /// Blocks of each.
    pub request_blocks: u32,
    /// Percent of zeros.
    pub zeros: u32,
    /// Percent of blocks whose content others have as well.
    pub duplicates: u32,
    /// Which contents come again.
    pub again: Again,
    /// A flush after so many writes.
    pub flush_every: u64,
    /// By how much of the volume the pattern moves on, in thousandths, while as many requests come as write it once.
    pub drift: u32,
    /// At times of their own (`Pace::Open`): all of a burst at once, and then nothing for a while.
    pub bursts: Option<Bursts>,
    /// Through a file system that journals.
    pub journal: Option<Journal>,
}

impl Synthetic {
    /// As many requests of one block as write the volume twice, each block different from all others.
    #[must_use]
    pub fn new(workload: Workload) -> Self {
        Self {
            workload,
            requests: 0,
            request_blocks: 1,
            zeros: 0,
            duplicates: 0,
            again: Again::Popular,
            flush_every: 0,
            drift: 0,
            bursts: None,
            journal: None,
        }
    }

    /// What it is: figures go with it.
    #[must_use]
    pub fn told(&self) -> String {
        let mut told = self.workload.told();
        if self.drift > 0 {
            told += &format!(", drift {}%", f64::from(self.drift) / 10.0);
        }
        if let Some(Bursts { requests, every_ns }) = self.bursts {
            told += &format!(", {requests} requests every {} us", every_ns / 1000);
        }
        told
    }
}

/// Where requests come from.
#[derive(Clone, Copy)]
pub enum Load<'a> {
    /// Made up.
    Synthetic(Synthetic),
    /// Recorded.
    Trace {
        /// Which.
        trace: &'a TraceFile,
        /// How often it is replayed.
        times: u32,
        /// What it writes when it is replayed again.
        repeated: RepeatedContents,
    },
    /// Made by whoever runs it, request by request.
    Requests(&'a [Request]),
}

/// Who decides in place of what a policy says.
#[derive(Clone, Copy, Default)]
pub struct Own<'a> {
    /// Who chooses what a page map's collector takes.
    pub victims: Option<Chooser<'a>>,
    /// Who says what is hot, where that is kept apart.
    pub separation: Option<Separator<'a>>,
    /// Who says what each write may use.
    pub admission: Option<Admission<'a>>,
}

/// A run.
pub struct Scenario<'a> {
    /// On what.
    pub device: Device,
    /// What.
    pub load: Load<'a>,
    /// When.
    pub pace: Pace,
    /// After what.
    pub precondition: Precondition,
    /// Chance.
    pub seed: u64,
    /// Bytes that the host writes a day, to count years by; none: the trace's own rate, or one volume.
    pub daily_bytes: Option<u64>,
    /// Hold every read against what was written.
    pub verify: bool,
    /// Whether anything takes time; else writes, moves and erasures are only counted.
    pub timed: bool,
    /// In how many bytes contents can be stored that a trace does not tell it of: what `compress` goes by.
    pub sizes: Option<Sizes>,
    /// The engine's hash unit, where hashing takes time.
    pub hashing: Option<Hashing>,
    /// Policies of somebody's own.
    pub own: Own<'a>,
    /// Who sees how far it is, and may end it.
    pub watch: Option<&'a Watch>,
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Too small for the baseline.
    #[error(transparent)]
    TooSmall(#[from] TooSmall),
    /// Too large for memory.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// More bad blocks than spare ones.
    #[error(transparent)]
    NoSpare(#[from] NoSpare),
    /// Too small for the engine, or of a shape that it cannot use.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The engine did not open a new volume.
    #[error("the engine does not open a new volume")]
    Open(#[from] RecoveryError),
    /// It went wrong on the way.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The trace.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The trace touches more than there is.
    #[error(
        "the trace touches {needs} blocks and the volume has {has}: give it a --capacity of at least {bytes} bytes"
    )]
    Footprint {
        /// Needed.
        needs: u64,
        /// There.
        has: u64,
        /// Advised.
        bytes: u64,
    },
    /// Nothing to ask for.
    #[error(
        "requests of {request} blocks on a volume of {volume}, of which {left} are left beside a journal (that has at \
         least {JOURNAL_BLOCKS_MIN})"
    )]
    Request {
        /// Blocks asked for at a time.
        request: u32,
        /// The volume's.
        volume: u64,
        /// The application's.
        left: u64,
    },
    /// Nobody says what is compressible.
    #[error(
        "{policy}: in how many bytes a block can be stored is not known: name a model of it (--sizes), or replay a trace that tells it"
    )]
    Sizes {
        /// Which.
        policy: String,
    },
    /// Victims of one's own where nothing asks for them.
    #[error(
        "{policy}: victims of your own are of a page map on flash: take a policy that begins with base, and \
         a drive of flash"
    )]
    Chooser {
        /// Which.
        policy: String,
    },
    /// Hot and cold of one's own where nothing is kept apart.
    #[error(
        "{policy}: hot and cold of your own are of a page map on flash that keeps them apart: \
         take base:hot-cold, and a drive of flash"
    )]
    Separator {
        /// Which.
        policy: String,
    },
    /// Admission of one's own where there is nothing to admit to.
    #[error(
        "{policy}: there is nothing that writes could be admitted to: take vellum:dedup, vellum:compress, \
         or base on a drive of flash that has a write buffer (buffer-kib) and no order of its own"
    )]
    Admission {
        /// Which.
        policy: String,
    },
    /// A policy that flash cannot have.
    #[error(
        "woj and dmdedup are what the write-once paper measured above a real SSD: they run on block devices, like fast-ssd"
    )]
    Raw,
    /// Tables where nothing can be overwritten.
    #[error(
        "flash cannot be overwritten in place: layout=ordered and layout=shadow run above a drive (add on-drive) or on a block device"
    )]
    InPlace,
    /// A policy that this device cannot have.
    #[error(
        "{policy}: the inside of this device is not known, so nothing but `base` (the device itself) and `vellum` runs on it"
    )]
    NoFlash {
        /// Which.
        policy: String,
    },
}

impl ScenarioError {
    /// Whether the drive has too little room beside the volume for the policy.
    #[must_use]
    pub fn is_for_want_of_room(&self) -> bool {
        matches!(
            self,
            Self::TooSmall(_)
                | Self::Layout(
                    LayoutError::Full { .. } | LayoutError::Tables { .. } | LayoutError::Area(_)
                )
        )
    }
}

impl Scenario<'_> {
    /// Whether anything says in how many bytes blocks can be stored.
    #[must_use]
    pub fn knows_sizes(&self) -> bool {
        let told = match &self.load {
            Load::Trace { trace, .. } => trace
                .summary()
                .known
                .is_some_and(|known| known.packed.0 > 0),
            Load::Synthetic(_) => false,
            Load::Requests(requests) => requests.iter().any(|request| request.sizes.is_some()),
        };
        told || self.sizes.is_some()
    }

    /// What figures are figures of. It goes with them into every form that they are given in, so that nobody takes what was made
    /// up for what was measured.
    fn load_told(&self) -> String {
        let mut told = match &self.load {
            Load::Synthetic(load) => load.told(),
            Load::Trace { trace, .. } => format!("trace ({})", trace.format().name()),
            Load::Requests(_) => "requests given one by one".into(),
        };
        if let Some(model) = self.sizes {
            told += &format!("; sizes: {} (synthetic)", model.name);
        }
        told
    }

    /// Runs one policy.
    ///
    /// # Errors
    /// When it cannot be run, or is not served to its end.
    pub fn run(&self, policy: &Policy) -> Result<Outcome, ScenarioError> {
        let mut built = self.build(policy)?;
        built.notes.extend(self.own_told(policy)?);
        built.sim.admission = self.own.admission.map(|admission| admission());
        let (sim, logical) = (&mut built.sim, built.logical);
        self.holds(policy, logical)?;
        sim.time.set_instant(true);
        self.prepare(sim, logical, &mut built.notes)?;
        let mut source = self.source(policy, sim, logical)?;
        let warm = match self.precondition {
            Precondition::Load => self.warm(policy, sim, &mut source, logical)?,
            _ => None,
        };
        flush(sim)?;
        sim.settle()?;
        sim.time.set_instant(!self.timed);
        let before = Snapshot::begin(sim);
        sim.flash.begin_life();
        source.measure(self, sim)?;
        let mut outcome = self.ended(sim, &before)?;
        outcome.policy = policy.to_string();
        outcome.load = self.load_told();
        outcome.logical_blocks = logical;
        outcome.physical_blocks = built.physical;
        outcome.sure = match sim.ftl {
            Ftl::Raw(_) => Sure::default(),
            _ => {
                let warm = warm.as_ref().map(|warm| warm.settled);
                Sure::of(outcome.write_amplification, &outcome.steps, logical, warm)
            }
        };
        built.notes.extend(warm.map(|warm| warm.told));
        let daily = self.daily_bytes.or_else(|| source.daily_bytes(logical));
        outcome.life = self.life(sim, &outcome, daily, &mut built.notes);
        outcome.notes = built.notes;
        if !self.timed {
            outcome.notes.push("untimed: only counted".into());
            (outcome.reads, outcome.writes, outcome.flushes) = Default::default();
        }
        outcome.partial = self.stopped();
        Ok(outcome)
    }

    /// What is decided by whoever runs it, for the reader; and not where nothing would ask.
    fn own_told(&self, policy: &Policy) -> Result<Vec<String>, ScenarioError> {
        let on_flash = matches!(self.device.preset.kind, Kind::Nand(_));
        let of_policy = || policy.to_string();
        let (is_base, separates) = match policy.layer {
            Layer::Base(base) => (on_flash, on_flash && base.separated),
            _ => (false, false),
        };
        let mut told = Vec::new();
        if self.own.victims.is_some() {
            if !is_base {
                return Err(ScenarioError::Chooser {
                    policy: of_policy(),
                });
            }
            told.push("victims: chosen by a policy of somebody's own".into());
        }
        if self.own.separation.is_some() {
            if !separates {
                return Err(ScenarioError::Separator {
                    policy: of_policy(),
                });
            }
            told.push("hot and cold: told apart by a policy of somebody's own".into());
        }
        if self.own.admission.is_some() {
            if !self.admits(policy) {
                return Err(ScenarioError::Admission {
                    policy: of_policy(),
                });
            }
            told.push("admission: by a policy of somebody's own".into());
        }
        Ok(told)
    }

    /// Whether there is anything that a write may be admitted to.
    fn admits(&self, policy: &Policy) -> bool {
        match (policy.layer, &self.device.preset.kind) {
            (Layer::Vellum(engine), _) => engine.compress || engine.core_dedup().index_bytes > 0,
            (Layer::Base(base), Kind::Nand(nand)) => {
                base.order == Order::Off && nand.buffer_bytes > 0
            }
            _ => false,
        }
    }

    /// Brings to the medium what is still in RAM, and says what the run came to.
    fn ended(&self, sim: &mut Sim, before: &Snapshot) -> Result<Outcome, ScenarioError> {
        // What is still in RAM belongs to the run; its wait does not.
        let seen = std::mem::take(&mut sim.seen);
        let mut ended = sim.time.now();
        if !sim.flash.is_worn_out() {
            until_worn_out(flush(sim))?;
            ended = sim.time.now();
            // What is held back as well: nothing is saved by not counting it.
            until_worn_out(sim.settle())?;
        }
        sim.seen = seen;
        let mut outcome = before.until_now(sim);
        outcome.seconds -= (sim.time.now() - ended) as f64 / 1e9;
        Ok(outcome)
    }

    /// How long the flash lasts; none where there is none.
    fn life(
        &self,
        sim: &Sim,
        outcome: &Outcome,
        daily: Option<u64>,
        notes: &mut Vec<String>,
    ) -> Option<Life> {
        let Kind::Nand(nand) = &self.device.preset.kind else {
            return None;
        };
        let limit = self.device.erase_limit.unwrap_or(nand.erase_limit);
        let off = series::may_be_off(&outcome.steps, |step| step.erases);
        let life = Life::of(sim.flash.wear(), limit, outcome.host_written, off, daily);
        notes.extend(life.too_few());
        let worn = sim.flash.worn().map(|worn| WornOut {
            worn,
            written_bytes: outcome.host_written * BLOCK_BYTES as u64,
        });
        notes.extend(worn.as_ref().map(|w| w.told(&life)));
        Some(Life { worn, ..life })
    }

    /// Whether the volume holds what a trace touches.
    fn holds(&self, policy: &Policy, has: u64) -> Result<(), ScenarioError> {
        let Load::Trace { trace, .. } = &self.load else {
            return Ok(());
        };
        let needs = trace.blocks();
        if needs <= has {
            return Ok(());
        }
        let bytes = physical(needs, self.over(policy)) * BLOCK_BYTES as u64;
        Err(ScenarioError::Footprint { needs, has, bytes })
    }

    /// The drive as it is when a run begins, in time that does not pass, and the blocks of its volume.
    ///
    /// # Errors
    /// When it cannot be built or prepared.
    pub fn prepared(&self, policy: &Policy) -> Result<(Sim, u64), ScenarioError> {
        let mut built = self.build(policy)?;
        built.sim.time.set_instant(true);
        self.prepare(&mut built.sim, built.logical, &mut built.notes)?;
        Ok((built.sim, built.logical))
    }

    /// Requests that all erasures that the blocks endure are not enough for, and more.
    fn wearing_out(&self, request_blocks: u32) -> u64 {
        let Kind::Nand(nand) = &self.device.preset.kind else {
            return 0;
        };
        let limit = self.device.erase_limit.unwrap_or(nand.erase_limit);
        let flash = self.device.capacity.unwrap_or(DEFAULT_BYTES) / BLOCK_BYTES as u64;
        let blocks = flash.saturating_mul(u64::from(limit) * WEAR_OUT_TIMES);
        blocks / u64::from(request_blocks.max(1))
    }
}

/// A drive that is worn out has ended its run, and well.
fn until_worn_out(ran: Result<(), RunError>) -> Result<(), RunError> {
    match ran {
        Err(RunError::WornOut) => Ok(()),
        other => other,
    }
}
