//! What is run: a device, a policy, a load.

use crate::base::{Drive, Io, PageMap, TooSmall};
use crate::blockdev::BlockDevice;
use crate::flash::{Flash, Kind, Nand, Preset, Shape};
use crate::journal::{Host, Journal};
use crate::outcome::{Life, Outcome, Snapshot};
use crate::policy::{Layer, Policy};
use crate::replay::{ReplayError, TraceFile};
use crate::rng::Rng;
use crate::sim::{Ftl, Pace, RunError, Sim};
use crate::timeline::Timeline;
use crate::trace::Op;
use crate::vellum::{BUFS_MIN, Backing, Layout, LayoutError, OnFlash, Settings, Vellum};
use crate::workload::{self, Generator, Request, Workload};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::recovery::RecoveryError;
use vellum_core::seam::Dedup;

/// Flash that is simulated when nobody says how much: so that a run takes seconds.
pub const DEFAULT_BYTES: u64 = 4 << 30;
/// Erase blocks a die, at least, when nobody says how much.
const ROUNDS_MIN: u64 = 64;
/// What is kept from the host where the device does not say.
const BLOCK_DEVICE_OVER: u32 = 70;

/// Memory of the index when equal blocks are stored once.
const DEDUP_INDEX_BYTES: usize = 64 << 20;

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
    /// Whether reads overtake programs and erasures that have not begun.
    pub read_priority: bool,
}

/// Where requests come from.
pub enum Load<'a> {
    /// Made up.
    Synthetic {
        /// What.
        workload: Workload,
        /// How many requests; 0: as many as write the volume twice.
        requests: u64,
        /// Blocks of each.
        request_blocks: u32,
        /// Percent of zeros.
        zeros: u32,
        /// A flush after so many writes.
        flush_every: u64,
        /// Through a file system that journals.
        journal: Option<Journal>,
    },
    /// Recorded.
    Trace {
        /// Which.
        trace: &'a TraceFile,
        /// How often it is replayed.
        times: u32,
    },
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
    /// Bytes that the host writes a day, to count years by; none: the trace's own.
    pub daily_bytes: Option<u64>,
    /// Hold every read against what was written.
    pub verify: bool,
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Too small for the baseline.
    #[error(transparent)]
    TooSmall(#[from] TooSmall),
    /// Too small for the engine, or of a shape that it cannot use.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The engine did not open a new volume.
    #[error("the engine does not open a new volume: {0}")]
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
    /// A policy that this device cannot have.
    #[error(
        "{policy}: the inside of this device is not known, so nothing but `base` (the device itself) and `vellum` runs on it"
    )]
    NoFlash {
        /// Which.
        policy: String,
    },
}

impl Scenario<'_> {
    /// Runs one policy.
    ///
    /// # Errors
    /// When it cannot be run, or is not served to its end.
    pub fn run(&self, policy: &Policy) -> Result<Outcome, ScenarioError> {
        let mut built = self.build(policy)?;
        let sim = &mut built.sim;
        let notes = &mut built.notes;
        sim.time.set_instant(true);
        self.prepare(sim, built.logical, notes)?;
        flush(sim)?;
        sim.time.set_instant(false);
        let before = Snapshot::begin(sim);
        let mut daily = self.daily_bytes;
        match &self.load {
            Load::Synthetic { .. } => {
                let requests = self.synthetic(built.logical)?;
                match self.journal() {
                    None => sim.run(&mut { requests }, self.pace)?,
                    Some(journal) => {
                        if let Layer::Vellum { write_once, .. } = policy.layer {
                            sim.watch(&[journal.region(built.logical, write_once)]);
                        }
                        let mut host = Host::new(requests, journal, built.logical, self.seed);
                        sim.run(&mut host, self.pace)?;
                    }
                }
            }
            Load::Trace { trace, times } => {
                if trace.blocks() > built.logical {
                    let over = self.over(policy);
                    return Err(ScenarioError::Footprint {
                        needs: trace.blocks(),
                        has: built.logical,
                        bytes: physical(trace.blocks(), over) * BLOCK_BYTES as u64,
                    });
                }
                let mut replay = trace.replay(self.seed, *times)?;
                let ran = sim.run(&mut replay, self.pace);
                if let Some(error) = replay.error() {
                    return Err(error.into());
                }
                ran?;
                let summary = trace.summary();
                let span = (summary.last_at - summary.first_at) as f64 / 1e9;
                let bytes = summary.blocks_written as f64 * BLOCK_BYTES as f64;
                if span > 0.0 {
                    daily = daily.or(Some((bytes / span * 86_400.0) as u64));
                }
            }
        }
        // What is still in RAM belongs to the run; its wait does not.
        let seen = std::mem::take(&mut sim.seen);
        flush(sim)?;
        sim.seen = seen;
        let mut outcome = before.until_now(sim);
        outcome.policy = policy.to_string();
        outcome.logical_blocks = built.logical;
        outcome.physical_blocks = built.physical;
        if let Kind::Nand(nand) = &self.device.preset.kind {
            let limit = self.device.erase_limit.unwrap_or(nand.erase_limit);
            let life = Life::of(sim.flash.wear(), limit, outcome.host_written, daily);
            outcome.life = Some(life);
        }
        outcome.notes = built.notes;
        Ok(outcome)
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

    fn journal(&self) -> Option<Journal> {
        match self.load {
            Load::Synthetic { journal, .. } => journal,
            Load::Trace { .. } => None,
        }
    }

    fn over(&self, policy: &Policy) -> u32 {
        let of_device = match &self.device.preset.kind {
            Kind::Nand(nand) => nand.over_provisioning,
            Kind::Block(_) => BLOCK_DEVICE_OVER,
        };
        policy
            .over_provisioning
            .or(self.device.over_provisioning)
            .unwrap_or(of_device)
    }

    /// Bytes of flash: as asked, or what the load needs and at least what makes sense.
    fn bytes(&self, over: u32) -> u64 {
        let least = match &self.device.preset.kind {
            Kind::Nand(nand) => {
                let round = Shape::of(nand, 1).blocks() * BLOCK_BYTES as u64;
                DEFAULT_BYTES.max(round * ROUNDS_MIN)
            }
            Kind::Block(_) => DEFAULT_BYTES,
        };
        let needed = match &self.load {
            Load::Trace { trace, .. } => physical(trace.blocks(), over) * BLOCK_BYTES as u64,
            Load::Synthetic { .. } => 0,
        };
        self.device.capacity.unwrap_or(least.max(needed))
    }

    fn synthetic(&self, logical: u64) -> Result<std::iter::Take<Generator>, ScenarioError> {
        let Load::Synthetic {
            workload,
            requests,
            request_blocks,
            zeros,
            flush_every,
            journal,
        } = self.load
        else {
            unreachable!("asked for a synthetic load alone")
        };
        let volume = logical;
        let logical = match journal {
            Some(journal) if journal.blocks >= JOURNAL_BLOCKS_MIN => {
                logical.saturating_sub(journal.data_at(logical))
            }
            Some(_) => 0,
            None => logical,
        };
        if request_blocks == 0 || u64::from(request_blocks) > logical {
            return Err(ScenarioError::Request {
                request: request_blocks,
                volume,
                left: logical,
            });
        }
        let shape = workload::Shape {
            blocks: logical,
            request_blocks,
            zeros,
            flush_every,
            seed: self.seed,
        };
        let count = match requests {
            0 => 2 * logical / u64::from(request_blocks),
            count => count,
        };
        Ok(Generator::new(workload, shape).take(usize::try_from(count).unwrap_or(usize::MAX)))
    }

    fn build(&self, policy: &Policy) -> Result<Built, ScenarioError> {
        let over = self.over(policy);
        let preset = self.device.preset;
        match (&preset.kind, policy.layer) {
            (Kind::Nand(nand), layer) => self.on_flash(nand, layer, over),
            (Kind::Block(figures), layer) => {
                let physical = self.bytes(over).div_ceil(BLOCK_BYTES as u64);
                let logical = logical(physical, over);
                let device = BlockDevice::new(*figures);
                let mut notes = Vec::new();
                let ftl = match layer {
                    Layer::Base {
                        victim: crate::base::Victim::Greedy,
                    } => {
                        notes.push("the device itself; what it does inside is not known".into());
                        Ftl::Raw(device)
                    }
                    Layer::Vellum {
                        on_drive: false, ..
                    } => {
                        let layout = Layout::on_blocks(physical, logical, over)?;
                        let settings = self.settings(layer, BUFS_MIN.max(16_384));
                        let backing = Backing::Block(device);
                        Ftl::Vellum(Box::new(Vellum::new(
                            &layout.superblock,
                            backing,
                            settings,
                        )?))
                    }
                    _ => {
                        let policy = policy.to_string();
                        return Err(ScenarioError::NoFlash { policy });
                    }
                };
                let nothing = Shape {
                    channels: 1,
                    dies: 0,
                    erase_blocks: 0,
                    units: 1,
                    unit_blocks: 1,
                };
                let flash = Flash::new(&NO_NAND, nothing, false);
                let sim = Sim::new(preset, flash, ftl);
                Ok(Built {
                    sim,
                    logical,
                    physical,
                    notes,
                })
            }
        }
    }

    fn settings(&self, layer: Layer, bufs: u32) -> Settings {
        let Layer::Vellum {
            victim,
            zero,
            dedup,
            ..
        } = layer
        else {
            unreachable!("only the engine has these settings")
        };
        Settings {
            victim,
            zero,
            discard: true,
            bufs,
            dedup: match dedup {
                true => Dedup {
                    index_bytes: DEDUP_INDEX_BYTES,
                    sample_blocks: 0,
                },
                false => Dedup::default(),
            },
            verify: self.verify,
        }
    }

    fn on_flash(&self, nand: &Nand, layer: Layer, over: u32) -> Result<Built, ScenarioError> {
        let shape = Shape::of(nand, self.bytes(over));
        let physical = shape.blocks();
        let logical = logical(physical, over);
        let mut flash = Flash::new(nand, shape, self.device.read_priority);
        let ram = (nand.buffer_bytes / BLOCK_BYTES as u64).max(u64::from(BUFS_MIN));
        let whole = (0, shape.erase_blocks);
        let greedy = crate::base::Victim::Greedy;
        let mut notes = Vec::new();
        let ftl = match layer {
            Layer::Base { victim } => {
                let map = PageMap::new(&shape, shape.dies, whole, logical, victim)?;
                Ftl::Page(Box::new(Drive::new(map, shape.unit_blocks, ram)))
            }
            Layer::Vellum { on_drive: true, .. } => {
                // The volume takes all that the drive shows, as on a real one; the device's over-provisioning is
                // shared, a third for the drive.
                let inner = (over / 3).max(20);
                let shown = self::logical(physical, inner);
                let map = PageMap::new(&shape, shape.dies, whole, shown, greedy)?;
                let drive = Drive::new(map, shape.unit_blocks, ram);
                let layout = Layout::on_blocks(shown, logical, over)?;
                notes.push(format!(
                    "the drive keeps {}%, the engine the rest",
                    f64::from(inner) / 10.0
                ));
                let settings = self.settings(layer, ram as u32);
                let backing = Backing::Drive(Box::new(drive));
                Ftl::Vellum(Box::new(Vellum::new(
                    &layout.superblock,
                    backing,
                    settings,
                )?))
            }
            Layer::Vellum { .. } => {
                let layout = Layout::on_flash(&shape, logical, over)?;
                let long = u64::from(layout.superblock.segment_blocks()) * BLOCK_BYTES as u64;
                notes.push(format!(
                    "{} segments of {}, each over {} dies; {} erase blocks hold the map area",
                    layout.superblock.segment_count(),
                    crate::report::bytes(long),
                    layout.width,
                    layout.area_blocks * layout.width
                ));
                let superblock = layout.superblock.clone();
                let mut time = Timeline::default();
                let io = Io {
                    flash: &mut flash,
                    time: &mut time,
                };
                let log = OnFlash::new(layout, &io, ram)?;
                let settings = self.settings(layer, ram as u32);
                let backing = Backing::Flash(Box::new(log));
                Ftl::Vellum(Box::new(Vellum::new(&superblock, backing, settings)?))
            }
        };
        Ok(Built {
            sim: Sim::new(self.device.preset, flash, ftl),
            logical,
            physical,
            notes,
        })
    }

    /// Brings the drive to where the run begins, and says how that was decided.
    fn prepare(
        &self,
        sim: &mut Sim,
        logical: u64,
        notes: &mut Vec<String>,
    ) -> Result<(), ScenarioError> {
        if self.precondition == Precondition::None {
            notes.push("a new drive".into());
            return Ok(());
        }
        let whole = Pace::Closed { depth: 1 };
        let seed = self.seed ^ 0x0f11;
        let write = |lba: u64, blocks: u32, version: u64| Request {
            at: 0,
            op: Op::Write { fua: false },
            lba,
            blocks,
            contents: (lba..lba + u64::from(blocks))
                .map(|lba| crate::content::Content::synthetic(seed, lba, version))
                .collect(),
        };
        let mut fill = (0..logical)
            .step_by(64)
            .map(|lba| write(lba, (logical - lba).min(64) as u32, 0));
        sim.run(&mut fill, whole)?;
        if self.precondition == Precondition::Fill {
            notes.push("filled once, in order, before the run".into());
            return Ok(());
        }
        // Windows of half a volume, until two in a row amplify alike; at most 16 volumes' worth.
        let mut rng = Rng::new(seed);
        let mut last = f64::INFINITY;
        let mut alike = 0;
        for window in 1..=32u64 {
            let before = Snapshot::begin(sim);
            let mut requests =
                (0..logical / 2).map(|n| write(rng.below(logical), 1, window * logical + n));
            sim.run(&mut requests, whole)?;
            let now = before
                .until_now(sim)
                .write_amplification
                .unwrap_or_default();
            alike = if (now / last - 1.0).abs() < 0.01 {
                alike + 1
            } else {
                0
            };
            if alike == 2 || window == 32 {
                notes.push(format!(
                    "filled, then overwritten at random {:.1} times, until the amplification of half a volume changed by \
                     less than 1% twice: {now:.3}",
                    window as f64 / 2.0
                ));
                break;
            }
            last = now;
        }
        Ok(())
    }
}

/// Brings what is in RAM to the medium.
fn flush(sim: &mut Sim) -> Result<(), RunError> {
    let mut flush = std::iter::once(Request {
        at: 0,
        op: Op::Flush,
        lba: 0,
        blocks: 0,
        contents: Vec::new(),
    });
    sim.run(&mut flush, Pace::Open)
}

struct Built {
    sim: Sim,
    logical: u64,
    physical: u64,
    notes: Vec<String>,
}

/// What the host sees of so many blocks: over-provisioning is a share of that (T / U - 1).
fn logical(physical: u64, over_permille: u32) -> u64 {
    physical * 1000 / u64::from(1000 + over_permille)
}

fn physical(logical: u64, over_permille: u32) -> u64 {
    (logical * u64::from(1000 + over_permille)).div_ceil(1000)
}

/// In place of flash, where there is none.
const NO_NAND: Nand = Nand {
    channels: 1,
    dies_per_channel: 0,
    planes: 1,
    multi_plane: false,
    pages_per_block: 1,
    page_bytes: BLOCK_BYTES as u32,
    read_ns: 0,
    program_ns: 0,
    erase_ns: 0,
    bus_bytes_per_s: 1,
    erase_limit: 0,
    buffer_bytes: 0,
    over_provisioning: 0,
};
