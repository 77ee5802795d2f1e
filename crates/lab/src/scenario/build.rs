//! A scenario's device with a policy on it, new.

use super::capacity::{CAPACITY_MAX, DEFAULT_BYTES, TooLarge, logical, physical};
use super::{Load, Scenario, ScenarioError};
use crate::base::{Drive, Heat, Io, Order, PageMap};
use crate::blockdev::BlockDevice;
use crate::flash::{Flash, Kind, Nand, Shape, Zoned};
use crate::policy::{Base, Engine, Layer, Policy, Tagging};
use crate::raw::{Raw, Saving};
use crate::replay::TraceFile;
use crate::sim::{Ftl, Sim, Tags};
use crate::timeline::Timeline;
use crate::vellum::{
    BUFS_MIN, Backing, Handles, Hashing, Layout, OnFlash, OnZones, Settings, Vellum,
};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::areas;
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::DedupPolicy;

/// The fewest erase blocks per die by default.
const ROUNDS_MIN: u64 = 64;
/// Over-provisioning where the device does not say.
const BLOCK_DEVICE_OVER: u32 = 70;

/// Space on a drive that tables in place get in addition to their volume, in thousandths: a 32nd that they keep free, and the tables.
const IN_PLACE_OVER: std::ops::RangeInclusive<u32> = 42..=50;

/// A new drive.
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

    /// Bytes of flash: as requested, or what the load needs, but at least a sensible minimum.
    pub(super) fn bytes(&self, over: u32) -> u64 {
        let least = match &self.device.preset.kind {
            Kind::Nand(nand) => {
                let round = Shape::of(nand, 1).blocks() * BLOCK_BYTES as u64;
                DEFAULT_BYTES.max(round * ROUNDS_MIN)
            }
            Kind::Block(_) => DEFAULT_BYTES,
        };
        let needed = physical(self.load.blocks(), over) * BLOCK_BYTES as u64;
        self.device.capacity.unwrap_or(least.max(needed))
    }

    /// Checks that the load and the drive have what a policy needs.
    fn check(&self, policy: &Policy) -> Result<(), ScenarioError> {
        self.check_handles(policy)?;
        let is_zoned = matches!(&self.device.preset.kind, Kind::Nand(nand) if nand.zoned.is_some());
        let on_zones = matches!(policy.layer, Layer::Vellum(engine)
            if !engine.on_drive && engine.placing.layout == areas::Layout::Log);
        if is_zoned && !on_zones {
            let policy = policy.to_string();
            return Err(ScenarioError::Zoned { policy });
        }
        let Layer::Vellum(engine) = policy.layer else {
            return Ok(());
        };
        let policy = policy.to_string();
        if engine.compress && !self.knows_sizes() {
            return Err(ScenarioError::Sizes { policy });
        }
        match engine.freed && !self.load.frees_blocks() {
            true => Err(ScenarioError::Freed { policy }),
            false => Ok(()),
        }
    }

    /// Checks that there are placement handles, and something to give them to, if a policy names some.
    fn check_handles(&self, policy: &Policy) -> Result<(), ScenarioError> {
        let tagging = match policy.layer {
            Layer::Base(base) => base.handles,
            _ => None,
        };
        let names = matches!(policy.layer, Layer::Vellum(engine) if engine.handles);
        if tagging.is_none() && !names {
            return Ok(());
        }
        let policy = policy.to_string();
        match &self.device.preset.kind {
            Kind::Nand(nand) if nand.placement.is_some() => {}
            _ => return Err(ScenarioError::Handles { policy }),
        }
        let has_tenants = matches!(self.load, Load::Tenants { .. } | Load::Jobs(_));
        match tagging == Some(Tagging::Tenants) && !has_tenants {
            true => Err(ScenarioError::NoTenants { policy }),
            false => Ok(()),
        }
    }

    pub(super) fn build(&self, policy: &Policy) -> Result<Built, ScenarioError> {
        let over = self.over(policy);
        self.check(policy)?;
        let bytes = self.bytes(over);
        if bytes > CAPACITY_MAX {
            return Err(TooLarge { bytes }.into());
        }
        let preset = self.device.preset;
        match (&preset.kind, policy.layer) {
            (Kind::Nand(nand), layer) => {
                let mut built = self.on_flash(nand, layer, over)?;
                built.notes.extend(cache_told(nand, layer).map(Into::into));
                built.notes.extend(self.refresh_told(nand, layer));
                Ok(built)
            }
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
                        let layout =
                            Layout::on_blocks(layer.layout(), physical, logical, over, None)?;
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

    /// The map with the caller's policies, if there are any.
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
            // Without lookups nothing is hashed.
            hashing: self.hashing.map(|how| Hashing {
                check_ns: match dedup == DedupPolicy::default() {
                    true => 0,
                    false => how.check_ns,
                },
                ..how
            }),
            compress: engine.compress,
            sizes: self.sizes,
            deltas: engine.deltas,
            replay: engine.replay,
            freed: engine.freed,
            tidying: engine.tidying,
            handles: None,
            verify: self.verify,
        }
    }

    /// The flash available under a policy.
    fn as_used(&self, nand: &Nand, layer: Layer) -> Nand {
        let has_map = !matches!(layer, Layer::Vellum(engine) if !engine.on_drive);
        Nand {
            multi_plane: nand.multi_plane && !self.device.options.single_plane,
            // A page map keeps its data out of the last page; the engine has its own summaries.
            pages_per_block: nand.pages_per_block - u32::from(has_map && nand.page_map.summary),
            ..*nand
        }
    }

    /// The page map of a drive, as its policy says.
    fn page_map(
        &self,
        nand: &Nand,
        shape: &Shape,
        logical: u64,
        base: Base,
    ) -> Result<PageMap, ScenarioError> {
        let whole = (0, shape.erase_blocks);
        let mut map = PageMap::new(shape, shape.dies, whole, logical, base.victim)?;
        if base.separated {
            map = map.separated(base.victim)?;
        }
        if let (Some(placement), Some(_)) = (nand.placement, base.handles) {
            map = map.placed(base.victim, placement)?;
        }
        let map = map.typed(nand.page_types.count()).mapped(nand.page_map)?;
        let map = self.owned(map.drawing(self.seed));
        let map = map.levelled(base.levelling);
        if nand.slc.is_some() && (base.order != Order::Off || base.map_cache.is_some()) {
            return Err(ScenarioError::Cache);
        }
        if nand.refresh.is_on() && (base.order != Order::Off || base.map_cache.is_some()) {
            return Err(ScenarioError::Refresh);
        }
        Ok(match base.map_cache {
            Some(entries) => map.paged(entries as usize)?,
            None => map.cached(nand.slc.as_ref(), shape),
        })
    }

    /// The drive below an engine.
    fn drive_below(
        &self,
        nand: &Nand,
        shape: &Shape,
        (shown, cache): (u64, u64),
        engine: &Engine,
    ) -> Result<Drive, ScenarioError> {
        let (whole, greedy) = ((0, shape.erase_blocks), crate::base::Victim::Greedy);
        let mut map = PageMap::new(shape, shape.dies, whole, shown, greedy)?;
        if let Some(placement) = nand.placement.filter(|_| engine.handles) {
            map = map.placed(greedy, placement)?;
        }
        let map = map.typed(nand.page_types.count()).mapped(nand.page_map)?;
        let map = map
            .cached(nand.slc.as_ref(), shape)
            .levelled(engine.levelling);
        let drive = Drive::new(map, shape.unit_blocks, cache).refreshing(nand.refresh);
        Ok(drive.ordered(Order::Off, self.device.flush_ns))
    }

    /// A drive with a page map, and nothing above it.
    fn drive(
        &self,
        nand: &Nand,
        shape: &Shape,
        (logical, cache, ram): (u64, u64, u64),
        base: Base,
    ) -> Result<Drive, ScenarioError> {
        let map = self.page_map(nand, shape, logical, base)?;
        let cache = if base.order == Order::Off { cache } else { ram };
        let drive = Drive::new(map, shape.unit_blocks, cache).refreshing(nand.refresh);
        let drive = drive.folding(nand.slc.and_then(|slc| slc.idle_ns));
        Ok(drive.ordered(base.order, self.device.flush_ns))
    }

    /// Notes about what is not refreshed.
    fn refresh_told(&self, nand: &Nand, layer: Layer) -> Vec<String> {
        let mut told = Vec::new();
        if matches!(layer, Layer::Vellum(engine) if !engine.on_drive) && nand.refresh.is_on() {
            told.push(
                "nothing is refreshed: the engine on flash does not look at reads and ages of erase blocks. \
                 Those that are due are counted"
                    .into(),
            );
        }
        if nand.refresh.age_ns.is_some() && !self.timed {
            told.push(
                "untimed: data come of age ([retention]) only by the times at which requests come"
                    .into(),
            );
        }
        told
    }

    /// The engine above a drive with a page map. The volume takes everything the drive shows, as on a real one. The device's
    /// over-provisioning is shared: a third goes to the drive, besides what it keeps free, if the engine has a log to collect;
    /// else all but what tables need.
    fn above_drive(
        &self,
        nand: &Nand,
        shape: &Shape,
        engine: &Engine,
        (logical, over): (u64, u32),
        (cache, ram): (u64, u64),
        notes: &mut Vec<String>,
    ) -> Result<Ftl, ScenarioError> {
        let (physical, layout) = (shape.blocks(), engine.placing.layout);
        let shown = match layout {
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
        let drive = self.drive_below(nand, shape, (shown, cache), engine)?;
        // A host that names handles learns how long a reclaim unit is, and frees it as a whole, unless that is too long for it.
        let long = shape.dies * shape.block_blocks();
        let long = (engine.handles && Layout::is_segment(long, shown)).then_some(long);
        let layout = Layout::on_blocks(layout, shown, logical, over, long)?;
        notes.push(format!(
            "the drive keeps {:.1}%, the engine the rest",
            inner * 100.0
        ));
        if let Some(long) = long {
            let long = u64::from(long) * BLOCK_BYTES as u64;
            notes.push(format!(
                "a segment is a reclaim unit of the drive, {}",
                crate::report::bytes(long)
            ));
        }
        let handles = nand
            .placement
            .filter(|_| engine.handles)
            .map(|placement| Handles {
                count: placement.handles,
                unit_blocks: shape.dies * shape.block_blocks(),
            });
        let settings = Settings {
            handles,
            ..self.settings(engine, ram as u32)
        };
        let backing = Backing::Drive(Box::new(drive));
        let volume = Vellum::new(&layout.superblock, backing, settings)?;
        Ok(Ftl::Vellum(Box::new(volume)))
    }

    /// The engine straight on flash, or on zones of it.
    fn straight(
        &self,
        io: &mut Io<'_>,
        nand: &Nand,
        engine: &Engine,
        (logical, over, ram): (u64, u32, u64),
        notes: &mut Vec<String>,
    ) -> Result<Ftl, ScenarioError> {
        let shape = *io.flash.shape();
        let (superblock, backing) = match &nand.zoned {
            Some(zoned) => {
                let (superblock, before) = OnZones::plan(&shape, zoned, logical, over)?;
                let log = OnZones::new((&superblock, before), io, zoned, ram)?;
                notes.push(zones_told(&superblock, zoned, before));
                (superblock, Backing::Zones(Box::new(log)))
            }
            None => {
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
                let log = OnFlash::new(layout, io, ram)?;
                (superblock, Backing::Flash(Box::new(log)))
            }
        };
        let settings = self.settings(engine, ram as u32);
        let volume = Vellum::new(&superblock, backing, settings)?;
        Ok(Ftl::Vellum(Box::new(volume)))
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
        let mut notes = Vec::new();
        let ftl = match layer {
            Layer::Base(base) => {
                let drive = self.drive(nand, &shape, (logical, cache, ram), base)?;
                Ftl::Page(Box::new(drive))
            }
            Layer::Raw(_) => return Err(ScenarioError::Raw),
            Layer::Vellum(engine) if engine.on_drive => {
                let room = (logical, over);
                self.above_drive(nand, &shape, &engine, room, (cache, ram), &mut notes)?
            }
            Layer::Vellum(engine) if engine.placing.layout != areas::Layout::Log => {
                return Err(ScenarioError::InPlace);
            }
            Layer::Vellum(engine) => {
                let mut time = Timeline::default();
                let io = &mut Io {
                    flash: &mut flash,
                    time: &mut time,
                };
                self.straight(io, nand, &engine, (logical, over, ram), &mut notes)?
            }
        };
        let mut sim = Sim::new(self.device.preset, flash, ftl);
        sim.tags = tags(nand, layer, logical).map(Box::new);
        Ok(Built {
            sim,
            logical,
            physical,
            notes,
        })
    }

    /// True if the sizes that blocks can be stored in are known.
    #[must_use]
    pub fn knows_sizes(&self) -> bool {
        let knows = |trace: &TraceFile| {
            let known = trace.summary().known;
            known.is_some_and(|known| known.packed.0 > 0)
        };
        let told = match &self.load {
            Load::Trace { trace, .. } => knows(trace),
            Load::Tenants { tenants, .. } => tenants.traces().any(knows),
            Load::Synthetic(_) | Load::Jobs(_) => false,
            Load::Requests(requests) => requests.iter().any(|request| request.sizes.is_some()),
        };
        told || self.sizes.is_some()
    }
}

/// A note about how a volume lies in zones.
fn zones_told(superblock: &Superblock, zoned: &Zoned, before: u32) -> String {
    let long = u64::from(superblock.segment_blocks()) * BLOCK_BYTES as u64;
    let count = superblock.segment_count();
    let area = match zoned.conventional {
        0 => format!("{before} zones hold a log of what would be overwritten"),
        zones => format!("{zones} conventional zones hold what is overwritten"),
    };
    format!(
        "{count} segments, each a zone of {}; {area}",
        crate::report::bytes(long)
    )
}

/// How the host names placement handles, if the policy says so.
fn tags(nand: &Nand, layer: Layer, logical: u64) -> Option<Tags> {
    let (Layer::Base(base), Some(placement)) = (layer, nand.placement) else {
        return None;
    };
    Some(match base.handles? {
        Tagging::Tenants => Tags::Tenants {
            handles: placement.handles,
        },
        Tagging::Heat => Tags::Heat(Heat::new(logical)),
    })
}

/// A note about how a policy does not use a drive's cache.
fn cache_told(nand: &Nand, layer: Layer) -> Option<&'static str> {
    match (nand.slc, layer) {
        (Some(_), Layer::Vellum(engine)) if engine.on_drive => {
            Some("the drive folds its SLC cache when that is full, and not while it is idle")
        }
        (Some(_), Layer::Vellum(_)) => {
            Some("without the drive's SLC cache: the engine writes to the other blocks itself")
        }
        _ => None,
    }
}

/// A placeholder for flash where there is none.
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
