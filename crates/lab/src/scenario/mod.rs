//! What is run: a device, a policy, a load.

mod beside;
mod build;
mod capacity;
mod device;
mod ending;
mod enough;
mod error;
mod jobs;
mod named;
mod portion;
mod prepare;
mod queues;
mod source;
mod warm;

pub use capacity::{CAPACITY_MAX, DEFAULT_BYTES, Enough, TooLarge};
pub use device::Device;
pub use error::{JOURNAL_BLOCKS_MIN, ScenarioError};

use crate::admission::Admission;
use crate::base::{Chooser, Order, Separator};
use crate::flash::Kind;
use crate::jobs::Jobs;
use crate::journal::Journal;
use crate::life::{Life, WornOut};
use crate::outcome::{OfTenant, Outcome, Snapshot};
use crate::policy::{Layer, Policy};
use crate::progress::Watch;
use crate::queues::plan::Assigned;
use crate::replay::{RepeatedContents, TraceFile};
use crate::series;
use crate::sim::{Ftl, Pace, Sim};
use crate::sizes::Sizes;
use crate::sure::Sure;
use crate::tenants::Tenants;
use crate::vellum::Hashing;
use crate::workload::{Again, Bursts, Request, Workload};
use capacity::physical;
use ending::{flush, until_worn_out};
use vellum_core::addr::BLOCK_BYTES;

/// As many requests as it takes to wear the drive out.
pub const UNTIL_WORN_OUT: u64 = u64::MAX;
/// What is done before measurement begins. None of it takes virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing: a new drive.
    None,
    /// Every block is written once, in order.
    Fill,
    /// `Fill`, then random overwrites until the amplification is stable.
    Steady,
    /// `Fill`, then the load itself until its amplification is stable.
    Load,
}

/// A part of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its first block.
    pub first: u64,
    /// How many.
    pub blocks: u64,
}

/// A load that is generated, not recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Synthetic {
    /// The pattern.
    pub workload: Workload,
    /// How many requests; 0: as many as write the volume twice. May be [`UNTIL_WORN_OUT`].
    pub requests: u64,
    /// Blocks of each request.
    pub request_blocks: u32,
    /// Percent of blocks that are zeros.
    pub zeros: u32,
    /// Percent of blocks whose content other blocks have as well.
    pub duplicates: u32,
    /// Which contents repeat.
    pub again: Again,
    /// A flush after this many writes.
    pub flush_every: u64,
    /// By how much of the volume the pattern moves, in thousandths, while as many requests are sent as write the volume once.
    pub drift: u32,
    /// Requests arrive at their own times (`Pace::Open`): a burst all at once, and then nothing for a while.
    pub bursts: Option<Bursts>,
    /// Goes through a file system that journals.
    pub journal: Option<Journal>,
    /// Blocks of metadata that each of its commits changes beside those of the file.
    pub metadata: u64,
    /// Nanoseconds that the application and the kernel take for each block that it writes (`Pace::Working`). A load's
    /// times begin with its first request, so what was worked before that is not counted.
    pub write_ns: u64,
    /// Where the requests go; none: anywhere. Not with a journal.
    pub area: Option<Area>,
    /// The longest it runs, in virtual time; none: to its last request.
    pub runtime_ns: Option<u64>,
    /// How long it runs before it is measured.
    pub ramp_ns: u64,
}

impl Synthetic {
    /// As many requests of one block as write the volume twice, with all contents different.
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
            metadata: 0,
            write_ns: 0,
            area: None,
            runtime_ns: None,
            ramp_ns: 0,
        }
    }

    /// Describes the load. The text goes with the figures.
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
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of them a run, and it is copied with its scenario"
)]
#[derive(Clone, Copy)]
pub enum Load<'a> {
    /// Generated.
    Synthetic(Synthetic),
    /// Recorded.
    Trace {
        /// The trace.
        trace: &'a TraceFile,
        /// How many times it is replayed.
        times: u32,
        /// What the repetitions write.
        repeated: RepeatedContents,
    },
    /// Several recorded loads, side by side.
    Tenants {
        /// The tenants.
        tenants: &'a Tenants,
        /// How many times each is replayed.
        times: u32,
        /// What their repetitions write.
        repeated: RepeatedContents,
    },
    /// Generated, by several jobs.
    Jobs(&'a Jobs),
    /// Given request by request by the caller.
    Requests(&'a [Request]),
}

/// Decisions by the caller that replace parts of a policy.
#[derive(Clone, Copy, Default)]
pub struct Own<'a> {
    /// Chooses the victims of a page map's collector.
    pub victims: Option<Chooser<'a>>,
    /// Says which writes are hot, where these are kept apart.
    pub separation: Option<Separator<'a>>,
    /// Says what each write may use.
    pub admission: Option<Admission<'a>>,
}

/// A run.
pub struct Scenario<'a> {
    /// What it runs on.
    pub device: Device,
    /// What it runs.
    pub load: Load<'a>,
    /// When the host sends requests.
    pub pace: Pace,
    /// What is done before.
    pub precondition: Precondition,
    /// The seed of all random choices.
    pub seed: u64,
    /// Bytes that the host writes per day, to compute years; none: the trace's own rate, or one volume.
    pub daily_bytes: Option<u64>,
    /// Compare every read with what was written.
    pub verify: bool,
    /// True if anything takes time; else writes, moves and erasures are only counted.
    pub timed: bool,
    /// The model of the sizes of contents for which a trace gives none; `compress` uses it.
    pub sizes: Option<Sizes>,
    /// The engine's hash unit, where hashing takes time.
    pub hashing: Option<Hashing>,
    /// Policies of the caller.
    pub own: Own<'a>,
    /// The submission queues that tenants have. Those that are not named take turns.
    pub queues: &'a [Assigned],
    /// Reports progress to another thread, which may stop the run.
    pub watch: Option<&'a Watch>,
}

impl<'a> Scenario<'a> {
    /// A load on a new device: timed and verified, one request after the other.
    #[must_use]
    pub fn new(device: Device, load: Load<'a>) -> Self {
        Self {
            device,
            load,
            pace: Pace::Closed { depth: 1 },
            precondition: Precondition::None,
            seed: 1,
            daily_bytes: None,
            verify: true,
            timed: true,
            sizes: None,
            hashing: None,
            own: Own::default(),
            queues: &[],
            watch: None,
        }
    }
}

impl Scenario<'_> {
    /// Describes the load. The text goes with the figures wherever they are shown, so that nobody takes generated data
    /// for measured data.
    fn load_told(&self) -> String {
        let mut told = match &self.load {
            Load::Synthetic(load) => load.told(),
            Load::Trace { trace, .. } => format!("trace ({})", trace.format().name()),
            Load::Tenants { tenants, .. } => tenants.told(),
            Load::Jobs(jobs) => jobs.told(),
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
    /// When it cannot run, or fails before its end.
    pub fn run(&self, policy: &Policy) -> Result<Outcome, ScenarioError> {
        let mut built = self.build(policy)?;
        built.notes.extend(self.own_told(policy)?);
        built.sim.admission = self.own.admission.map(|admission| admission());
        self.put_queues(&mut built)?;
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
        source.ramp_up(self, sim)?;
        let before = Snapshot::begin(sim);
        sim.begin_life();
        source.measure(self, sim)?;
        let mut outcome = self.ended(sim, &before)?;
        outcome.policy = policy.to_string();
        outcome.load = self.load_told();
        self.name_tenants(&mut outcome.tenants, logical);
        outcome.logical_blocks = logical;
        outcome.physical_blocks = built.physical;
        let settled = warm.as_ref().map(|warm| warm.settled);
        outcome.sure = Sure::of(
            outcome.write_amplification,
            &outcome.steps,
            logical,
            settled,
        );
        // What is written to a device is counted, but what goes on inside is not known.
        let is_raw = matches!(sim.ftl, Ftl::Raw(_)) && policy.layer.is_bare();
        if is_raw || warm.as_ref().is_some_and(|warm| warm.is_unread) {
            outcome.sure.settled = None;
        }
        built.notes.extend(warm.map(|warm| warm.told));
        let daily = self.daily_bytes.or_else(|| source.daily_bytes(logical));
        outcome.life = self.life(sim, &outcome, daily, &mut built.notes);
        outcome.notes = built.notes;
        if !self.timed {
            outcome.untimed();
        }
        outcome.partial = self.stopped();
        Ok(outcome)
    }

    /// Fills in the tenants' names.
    fn name_tenants(&self, seen: &mut [OfTenant], logical: u64) {
        match &self.load {
            Load::Jobs(jobs) => named::jobs(jobs, seen, logical),
            Load::Tenants { tenants, .. } => named::tenants(tenants, seen),
            _ => {}
        }
    }

    /// Describes the caller's decisions to the reader. An error where nothing would use them.
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

    /// True if there is anything that a write may be admitted to.
    fn admits(&self, policy: &Policy) -> bool {
        match (policy.layer, &self.device.preset.kind) {
            (Layer::Vellum(engine), _) => engine.compress || engine.core_dedup().index_bytes > 0,
            (Layer::Base(base), Kind::Nand(nand)) => {
                base.order == Order::Off && nand.buffer_bytes > 0
            }
            _ => false,
        }
    }

    /// Flushes what is still in RAM and returns the results of the run.
    fn ended(&self, sim: &mut Sim, before: &Snapshot) -> Result<Outcome, ScenarioError> {
        // What is still in RAM belongs to the run; the wait for it does not.
        let seen = std::mem::take(&mut sim.seen);
        let mut ended = sim.time.now();
        if !sim.flash.is_worn_out() {
            until_worn_out(flush(sim))?;
            ended = sim.time.now();
            // Also write what is held back: not counting it would look like a saving.
            until_worn_out(sim.settle())?;
        }
        sim.seen = seen;
        let mut outcome = before.until_now(sim);
        outcome.seconds -= (sim.time.now() - ended) as f64 / 1e9;
        Ok(outcome)
    }

    /// How long the flash lasts; none without flash.
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

    /// Checks that the volume holds what a trace touches.
    fn holds(&self, policy: &Policy, has: u64) -> Result<(), ScenarioError> {
        let needs = self.load.blocks();
        if needs <= has || matches!(self.load, Load::Jobs(_)) {
            return Ok(());
        }
        let bytes = physical(needs, self.over(policy)) * BLOCK_BYTES as u64;
        Err(ScenarioError::Footprint { needs, has, bytes })
    }

    /// The drive as it is when a run begins, with virtual time stopped, and the blocks of its volume.
    ///
    /// # Errors
    /// When it cannot be built or prepared.
    pub fn prepared(&self, policy: &Policy) -> Result<(Sim, u64), ScenarioError> {
        let mut built = self.build(policy)?;
        built.sim.time.set_instant(true);
        self.prepare(&mut built.sim, built.logical, &mut built.notes)?;
        Ok((built.sim, built.logical))
    }
}
