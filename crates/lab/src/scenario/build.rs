//! A scenario's device with a policy on it, as new.

use super::{Load, Scenario, ScenarioError};
use crate::base::{Drive, Io, Order, PageMap};
use crate::blockdev::BlockDevice;
use crate::flash::{Flash, Kind, Nand, Shape};
use crate::policy::{Base, Engine, Layer, Policy};
use crate::raw::{Raw, Saving};
use crate::sim::{Ftl, Sim};
use crate::timeline::Timeline;
use crate::vellum::{BUFS_MIN, Backing, Hashing, Layout, OnFlash, Settings, Vellum};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::areas;
use vellum_core::seam::Dedup;

/// Flash that is simulated when nobody says how much: so that a run takes seconds.
pub const DEFAULT_BYTES: u64 = 4 << 30;
/// The most that is simulated: so far reach the engine's entries of 4 bytes.
pub const CAPACITY_MAX: u64 = 8 << 40;
/// Bytes of memory that the simulation takes for a block of flash: with a page map, and with the engine and an index of contents.
const MEMORY_BYTES: (u64, u64) = (8, 22);

/// More flash than is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a device of {bytes} bytes: at most {} are simulated, which takes from {} to {} of memory",
    crate::report::bytes(CAPACITY_MAX),
    crate::report::bytes(CAPACITY_MAX / BLOCK_BYTES as u64 * MEMORY_BYTES.0),
    crate::report::bytes(CAPACITY_MAX / BLOCK_BYTES as u64 * MEMORY_BYTES.1)
)]
pub struct TooLarge {
    /// Asked for.
    pub bytes: u64,
}

/// Erase blocks a die, at least, when nobody says how much.
const ROUNDS_MIN: u64 = 64;
/// What is kept from the host where the device does not say.
const BLOCK_DEVICE_OVER: u32 = 70;

/// What tables in place are given of a drive's space beyond their volume, in thousandths: a 32nd that they keep free, and the tables
/// themselves.
const IN_PLACE_OVER: std::ops::RangeInclusive<u32> = 42..=50;

/// A drive that has not served yet.
pub(super) struct Built {
    pub sim: Sim,
    pub logical: u64,
    pub physical: u64,
    pub notes: Vec<String>,
}

impl Scenario<'_> {
    pub(super) fn over(&self, policy: &Policy) -> u32 {
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
            Load::Synthetic(_) | Load::Requests(_) => 0,
        };
        self.device.capacity.unwrap_or(least.max(needed))
    }

    pub(super) fn build(&self, policy: &Policy) -> Result<Built, ScenarioError> {
        let over = self.over(policy);
        if matches!(policy.layer, Layer::Vellum(engine) if engine.compress) && !self.knows_sizes() {
            let policy = policy.to_string();
            return Err(ScenarioError::Sizes { policy });
        }
        let bytes = self.bytes(over);
        if bytes > CAPACITY_MAX {
            return Err(TooLarge { bytes }.into());
        }
        let preset = self.device.preset;
        match (&preset.kind, policy.layer) {
            (Kind::Nand(nand), layer) => self.on_flash(nand, layer, over),
            (Kind::Block(figures), layer) => {
                let physical = self.bytes(over).div_ceil(BLOCK_BYTES as u64);
                let logical = logical(physical, over);
                let device = BlockDevice::new(*figures);
                let mut notes = Vec::new();
                let ftl = match layer {
                    Layer::Base(base) if base == Base::default() => {
                        notes.push("the device itself; what it does inside is not known".into());
                        Ftl::Raw(Box::new(Raw::new(device, Saving::Nothing)))
                    }
                    Layer::Raw(saving) => {
                        notes.push(
                            "as the write-once paper measured it: tables in RAM, hashes believed"
                                .into(),
                        );
                        Ftl::Raw(Box::new(Raw::new(device, saving)))
                    }
                    Layer::Vellum(engine) if !engine.on_drive => {
                        let layout = Layout::on_blocks(layer.layout(), physical, logical, over)?;
                        let settings = self.settings(&engine, BUFS_MIN.max(16_384));
                        let backing = Backing::Block(Box::new(device));
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
                let flash = Flash::new(&no_nand(), nothing, false);
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

    /// The map with the policies that are somebody's own, if any are.
    fn owned(&self, mut map: PageMap) -> PageMap {
        if let Some(chooser) = self.own.victims {
            map = map.choosing(chooser);
        }
        match self.own.separation {
            Some(separator) => map.separating(separator),
            None => map,
        }
    }

    fn settings(&self, engine: &Engine, bufs: u32) -> Settings {
        let dedup = engine.core_dedup();
        Settings {
            victim: engine.victim,
            zero: engine.zero,
            discard: true,
            bufs,
            placing: engine.placing,
            dedup,
            // Who looks nothing up hashes nothing.
            hashing: self.hashing.map(|how| Hashing {
                check_ns: match dedup == Dedup::default() {
                    true => 0,
                    false => how.check_ns,
                },
                ..how
            }),
            compress: engine.compress,
            sizes: self.sizes,
            deltas: engine.deltas,
            replay: engine.replay,
            tidying: engine.tidying,
            verify: self.verify,
        }
    }

    /// The flash that a policy has.
    fn as_used(&self, nand: &Nand, layer: Layer) -> Nand {
        let has_map = !matches!(layer, Layer::Vellum(engine) if !engine.on_drive);
        Nand {
            multi_plane: nand.multi_plane && !self.device.options.single_plane,
            // A page map keeps its data out of the last page; the engine has summaries of its own.
            pages_per_block: nand.pages_per_block - u32::from(has_map && nand.page_map.summary),
            ..*nand
        }
    }

    fn on_flash(&self, nand: &Nand, layer: Layer, over: u32) -> Result<Built, ScenarioError> {
        let options = &self.device.options;
        let nand = &self.as_used(nand, layer);
        let shape = Shape::of(nand, self.bytes(over));
        let physical = shape.blocks();
        let logical = logical(physical, over);
        let rated = self.device.erase_limit.unwrap_or(nand.erase_limit);
        let flash = Flash::new(nand, shape, self.device.read_priority);
        let mut flash = flash.with(options, rated, self.seed)?;
        let ram = (nand.buffer_bytes / BLOCK_BYTES as u64).max(u64::from(BUFS_MIN));
        let cache = if nand.buffer_bytes > 0 { ram } else { 0 };
        let whole = (0, shape.erase_blocks);
        let greedy = crate::base::Victim::Greedy;
        let mut notes = Vec::new();
        let ftl = match layer {
            Layer::Base(base) => {
                let Base {
                    victim,
                    separated,
                    order,
                    levelling,
                    map_cache,
                } = base;
                let mut map = PageMap::new(&shape, shape.dies, whole, logical, victim)?;
                if separated {
                    map = map.separated(victim)?;
                }
                let map = self.owned(map.mapped(nand.page_map)?.drawing(self.seed));
                let mut map = map.levelled(levelling);
                if let Some(entries) = map_cache {
                    map = map.paged(entries as usize)?;
                }
                let cache = if order == Order::Off { cache } else { ram };
                let drive = Drive::new(map, shape.unit_blocks, cache);
                Ftl::Page(Box::new(drive.ordered(order, self.device.flush_ns)))
            }
            Layer::Raw(_) => return Err(ScenarioError::Raw),
            Layer::Vellum(engine) if engine.on_drive => {
                // The volume takes all that the drive shows, as on a real one; the device's over-provisioning is
                // shared: a third for the drive where the engine has a log to collect, beside what it keeps free; else all
                // but what tables need.
                let shown = match layer.layout() {
                    areas::Layout::Log => {
                        let kept_free = nand.page_map.kept_free;
                        let used = physical * u64::from(1000 - kept_free) / 1000;
                        self::logical(used, (over.saturating_sub(kept_free) / 3).max(20))
                    }
                    _ => {
                        let own = (over / 3).clamp(*IN_PLACE_OVER.start(), *IN_PLACE_OVER.end());
                        self::physical(logical, own)
                    }
                };
                let inner = physical as f64 / shown as f64 - 1.0;
                let map = PageMap::new(&shape, shape.dies, whole, shown, greedy)?;
                let map = map.mapped(nand.page_map)?;
                let drive = Drive::new(map.levelled(engine.levelling), shape.unit_blocks, cache);
                let drive = drive.ordered(Order::Off, self.device.flush_ns);
                let layout = Layout::on_blocks(layer.layout(), shown, logical, over)?;
                notes.push(format!(
                    "the drive keeps {:.1}%, the engine the rest",
                    inner * 100.0
                ));
                let settings = self.settings(&engine, ram as u32);
                let backing = Backing::Drive(Box::new(drive));
                Ftl::Vellum(Box::new(Vellum::new(
                    &layout.superblock,
                    backing,
                    settings,
                )?))
            }
            Layer::Vellum(engine) if engine.placing.layout != areas::Layout::Log => {
                return Err(ScenarioError::InPlace);
            }
            Layer::Vellum(engine) => {
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
                let settings = self.settings(&engine, ram as u32);
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
}

/// What the host sees of so many blocks: over-provisioning is a share of that (T / U - 1).
pub(super) fn logical(physical: u64, over_permille: u32) -> u64 {
    physical * 1000 / u64::from(1000 + over_permille)
}

pub(super) fn physical(logical: u64, over_permille: u32) -> u64 {
    (logical * u64::from(1000 + over_permille)).div_ceil(1000)
}

/// In place of flash, where there is none.
fn no_nand() -> Nand {
    Nand {
        channels: 1,
        planes: 1,
        pages_per_block: 1,
        page_bytes: BLOCK_BYTES as u32,
        bus_bytes_per_s: 1,
        ..Nand::default()
    }
}
