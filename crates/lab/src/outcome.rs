//! The results of a run.

mod percentiles;
mod queued;

use crate::base::{COUNT_BYTES, ENTRY_BYTES, Folded, Lookups, Refreshed};
use crate::flash::{Busy, Counts, Reads, Taken};
use crate::latency::Within;
use crate::life::Life;
use crate::series::{Moment, SeriesStep};
use crate::sim::written::BY_DRIVE;
pub use crate::sim::written::Cause;
use crate::sim::{Ftl, Sim};
use crate::sure::Sure;
pub use percentiles::Percentiles;
pub use queued::Queued;
use serde::Serialize;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::stats::Stats;

/// Engine counters that hold a current value instead of a sum since the start.
const GAUGES: [&str; 22] = [
    "leaves_in_memory",
    "uncounted_leaves",
    "packed_pages",
    "packed_owners",
    "deltas",
    "base_pages",
    "orphan_pages",
    "index_entries",
    "index_capacity",
    "pool_blocks",
    "pool_entries",
    "pledges",
    "stray_pages",
    "live_blocks",
    "capacity_blocks",
    "free_segments",
    "segments",
    "quarantined_segments",
    "shared_pages",
    "shared_owners",
    "waiting_requests",
    "poisoned",
];

const GIB: f64 = (1u64 << 30) as f64;
/// RAM for a delta: in a table, and by its part.
const DELTA_BYTES: u64 = 28;
/// A journal block's link and its share of the buckets (`vellum_core::pool`).
const JOURNAL_POOL_BYTES: u64 = 6;
/// A shared page's address, its owners, and its entry in the table by address, at most (decision 0005).
const SHARED_PAGE_BYTES: u64 = 17;
/// A page of parts' address and its owners (decision 0058); and the count of the deltas that need it, where there are
/// any.
const PARTS_PAGE_BYTES: u64 = 7;
const BASE_COUNT_BYTES: u64 = 4;
/// The hash of a page's content, where an index of contents needs the owners that remain.
const CONTENT_HASH_BYTES: u64 = 8;

/// Bytes of RAM, and their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The use.
    pub name: &'static str,
    /// How many bytes.
    pub bytes: u64,
}

/// What one tenant of a drive saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OfTenant {
    /// Its name.
    pub name: String,
    /// The first block of its part.
    pub first_block: u64,
    /// Blocks of its part.
    pub blocks: u64,
    /// Requests answered.
    pub requests: u64,
    /// Blocks written.
    pub host_written: u64,
    /// Blocks read.
    pub host_read: u64,
    /// Reads.
    pub reads: Percentiles,
    /// Writes and discards.
    pub writes: Percentiles,
    /// Flushes.
    pub flushes: Percentiles,
    /// Its submission queue, if the drive has any and the run takes time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queued>,
}

impl OfTenant {
    /// What each of them saw.
    fn all(sim: &Sim) -> Vec<Self> {
        let each = sim.tenants.iter().enumerate();
        each.map(|(at, host)| Self {
            requests: host.served,
            host_written: host.blocks_written,
            host_read: host.blocks_read,
            reads: (&host.reads).into(),
            writes: (&host.writes).into(),
            flushes: (&host.flushes).into(),
            queue: Queued::of(sim, at as u8, host),
            ..Self::default()
        })
        .collect()
    }

    /// Clears the latencies of a run that took no time.
    pub(crate) fn untimed(&mut self) {
        (self.reads, self.writes, self.flushes) = Default::default();
        self.queue = None;
    }
}

/// The write amplifications of two layers, one above the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stacked {
    /// Blocks the engine wrote to the drive, over blocks the host wrote to the engine.
    pub engine: f64,
    /// Blocks the drive wrote, over blocks written to it.
    pub drive: f64,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The policy.
    pub policy: String,
    /// The load. It says what was generated and not recorded: that is synthetic.
    pub load: String,
    /// Blocks that the host sees.
    pub logical_blocks: u64,
    /// Blocks of flash (or of the device).
    pub physical_blocks: u64,
    /// Blocks that hold what the host can read, at the end; none if not known.
    pub live_blocks: Option<u64>,
    /// How the flash was laid out, and how it was prepared.
    pub notes: Vec<String>,
    /// Blocks written by the host.
    pub host_written: u64,
    /// Blocks read by the host.
    pub host_read: u64,
    /// Requests answered.
    pub requests: u64,
    /// Writes that had to be durable when answered (FUA).
    pub durable_writes: u64,
    /// Blocks written to the medium, by cause.
    pub medium: Vec<Cause>,
    /// All of them, over the host's.
    pub write_amplification: Option<f64>,
    /// How certain that is, and whether it is stable.
    #[serde(flatten)]
    pub sure: Sure,
    /// The two factors of the write amplification, where the engine is above a drive with its own translation layer.
    pub stacked: Option<Stacked>,
    /// Blocks of the program units that became full.
    pub programmed: u64,
    /// Erasures and life; none if the inside is not simulated.
    pub life: Option<Life>,
    /// Virtual seconds.
    pub seconds: f64,
    /// Reads.
    pub reads: Percentiles,
    /// Writes and discards.
    pub writes: Percentiles,
    /// Flushes.
    pub flushes: Percentiles,
    /// What each tenant saw, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tenants: Vec<OfTenant>,
    /// RAM for tables, by use, and for writes in flight: what a controller would need, not the simulation.
    pub memory: Vec<Part>,
    /// The most writes whose map updates waited at once, and the journal blocks that entered the map before earlier writes did. Only for a
    /// drive that orders its map updates, or that counts what goes wrong without order.
    pub order: Option<(u64, u64)>,
    /// Blocks that read as something else than was written, because a hash was trusted; none if no hash is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mistaken: Option<u64>,
    /// Lookups in a map on flash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookups: Option<Lookups>,
    /// What went through a cache of single-bit cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slc: Option<Folded>,
    /// What was refreshed, if the drive's file limits the reads or the age of its blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refreshed: Option<Refreshed>,
    /// The energy that the flash used, if the drive's file says what its operations use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Taken>,
    /// Nanoseconds spent on hashing, if that takes time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_ns: Option<u64>,
    /// What the dies were busy with, if more than plain queues is simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
    /// How reads went, if bits can be wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_errors: Option<Reads>,
    /// It was stopped before the end of its load.
    pub partial: bool,
    /// The engine's counters, if it ran.
    pub engine: Vec<(&'static str, u64)>,
    /// The course of the run.
    pub steps: Vec<SeriesStep>,
    /// The distribution of write latencies.
    pub write_cdf: Vec<Within>,
    /// The distribution of read latencies.
    pub read_cdf: Vec<Within>,
}

impl Outcome {
    /// Clears the latencies of a run that took no time.
    pub(crate) fn untimed(&mut self) {
        self.notes.push("untimed: only counted".into());
        (self.reads, self.writes, self.flushes) = Default::default();
        (self.write_cdf, self.read_cdf) = Default::default();
        for step in &mut self.steps {
            (step.write_mean_ns, step.read_mean_ns) = (None, None);
        }
        self.tenants.iter_mut().for_each(OfTenant::untimed);
    }

    /// Blocks written to the medium.
    #[must_use]
    pub fn medium_blocks(&self) -> u64 {
        self.medium.iter().map(|cause| cause.blocks).sum()
    }

    /// Blocks written to the cells of several bits, over the host's; none without a cache of single-bit cells.
    #[must_use]
    pub fn behind_cache(&self) -> Option<f64> {
        let behind = self.medium_blocks() - self.slc?.written;
        (self.host_written > 0).then(|| behind as f64 / self.host_written as f64)
    }

    /// Joules of the flash per GiB that the host read and wrote, if known.
    #[must_use]
    pub fn joules_per_gib(&self) -> Option<f64> {
        let gib = (self.host_read + self.host_written) as f64 * BLOCK_BYTES as f64 / GIB;
        let taken = self.energy.filter(|_| gib > 0.0)?;
        Some(taken.all() / gib)
    }

    /// A counter of the engine; 0 if it did not run.
    #[must_use]
    pub fn counted(&self, name: &str) -> u64 {
        let found = self.engine.iter().find(|(n, _)| *n == name);
        found.map_or(0, |counter| counter.1)
    }
}

/// The counters at one moment, to subtract from those of a later one.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    medium: Vec<Cause>,
    engine: Vec<(&'static str, u64)>,
    lookups: Option<Lookups>,
    slc: Option<Folded>,
    refreshed: Option<Refreshed>,
    hash_ns: Option<u64>,
    at: u64,
    start: Moment,
}

impl Snapshot {
    /// Takes the counters. Wear and what the host saw begin anew.
    pub fn begin(sim: &mut Sim) -> Self {
        sim.flash.reset();
        sim.begin_seen();
        Self::of(sim)
    }

    fn of(sim: &Sim) -> Self {
        let lookups = match &sim.ftl {
            Ftl::Page(drive) => drive.map().lookups().map(|(now, ..)| now),
            _ => None,
        };
        let engine = match &sim.ftl {
            Ftl::Vellum(vellum) => vellum
                .stats()
                .named()
                .chain(vellum.freed())
                .chain(vellum.commit_order())
                .collect(),
            _ => Vec::new(),
        };
        Self {
            medium: sim.ftl.written(),
            engine,
            lookups,
            slc: sim.ftl.folded(),
            refreshed: sim.refreshed(),
            hash_ns: match &sim.ftl {
                Ftl::Page(_) => None,
                Ftl::Raw(raw) => raw.hash_ns(),
                Ftl::Vellum(vellum) => vellum.hash_ns(),
            },
            at: sim.time.now(),
            start: sim.moment(),
        }
    }

    /// The results since then.
    #[must_use]
    pub fn until_now(&self, sim: &Sim) -> Outcome {
        let now = Self::of(sim);
        let host_written = sim.seen.blocks_written;
        let zip = now.medium.iter().zip(&self.medium);
        let medium: Vec<Cause> = zip
            .map(|(now, before)| Cause {
                name: now.name,
                blocks: now.blocks - before.blocks,
            })
            .collect();
        let all: u64 = medium.iter().map(|cause| cause.blocks).sum();
        let engine = now.engine.iter().zip(&self.engine);
        let Counts { programs, .. } = sim.flash.counts();
        Outcome {
            policy: String::new(),
            load: String::new(),
            logical_blocks: 0,
            physical_blocks: 0,
            live_blocks: match &sim.ftl {
                Ftl::Page(drive) => Some(drive.map().live()),
                Ftl::Raw(_) => None,
                Ftl::Vellum(vellum) => Some(vellum.stats().live_blocks),
            },
            notes: Vec::new(),
            host_written,
            host_read: sim.seen.blocks_read,
            requests: sim.seen.served,
            durable_writes: sim.seen.durable_writes,
            write_amplification: (host_written > 0).then(|| all as f64 / host_written as f64),
            stacked: stacked(&medium, host_written),
            medium,
            programmed: programs * u64::from(sim.flash.shape().unit_blocks),
            life: None,
            seconds: (now.at - self.at) as f64 / 1e9,
            reads: (&sim.seen.reads).into(),
            writes: (&sim.seen.writes).into(),
            flushes: (&sim.seen.flushes).into(),
            engine: engine
                .map(
                    |(&(name, now), &(_, before))| match GAUGES.contains(&name) {
                        true => (name, now),
                        false => (name, now - before),
                    },
                )
                .collect(),
            tenants: OfTenant::all(sim),
            memory: memory(sim),
            order: match &sim.ftl {
                Ftl::Page(drive) => drive.stage().map(|s| (s.held_most() as u64, s.early())),
                _ => None,
            },
            mistaken: match &sim.ftl {
                Ftl::Raw(raw) => Some(raw.mistaken()),
                _ => None,
            },
            lookups: now.lookups.map(|now| now.since(self.lookups)),
            slc: now.slc.map(|now| now.since(self.slc)),
            refreshed: now.refreshed.map(|now| now.since(self.refreshed)),
            energy: sim.flash.energy(),
            hash_ns: now.hash_ns.map(|now| now - self.hash_ns.unwrap_or(0)),
            busy: sim.flash.busy(),
            read_errors: sim.flash.errors(),
            partial: false,
            sure: Sure::default(),
            steps: self.steps(sim),
            write_cdf: sim.seen.writes.cumulative(),
            read_cdf: sim.seen.reads.cumulative(),
        }
    }
}

impl Snapshot {
    /// The course of the run: counters of the engine since the start, gauges as they were.
    fn steps(&self, sim: &Sim) -> Vec<SeriesStep> {
        let mut steps = sim.seen.series.since(&self.start);
        for step in &mut steps {
            for (value, (name, before)) in step.engine.iter_mut().zip(&self.engine) {
                if !GAUGES.contains(name) {
                    *value -= before;
                }
            }
        }
        steps
    }
}

fn stacked(medium: &[Cause], host_written: u64) -> Option<Stacked> {
    let by_drive = medium.iter().find(|cause| cause.name == BY_DRIVE)?.blocks;
    let all: u64 = medium.iter().map(|cause| cause.blocks).sum();
    let asked = all - by_drive;
    (host_written > 0 && asked > 0).then(|| Stacked {
        engine: asked as f64 / host_written as f64,
        drive: all as f64 / asked as f64,
    })
}

/// RAM of the device, from the widths of its tables' entries.
fn memory(sim: &Sim) -> Vec<Part> {
    let part = |name, bytes| Part { name, bytes };
    match &sim.ftl {
        // An entry of 4 bytes a page; a count of 2 a block is left out.
        Ftl::Page(drive) => {
            let mut map = match drive.map().lookups() {
                None => vec![part("map", 4 * drive.map().logical())],
                Some((_, entries, pages)) => vec![
                    part("map cache", ENTRY_BYTES * entries),
                    part("map directory", 4 * pages),
                ],
            };
            if drive.map().is_separated() {
                let bytes = COUNT_BYTES * drive.map().logical();
                map.push(part("write counts", bytes));
            }
            let buffer = drive.ram_blocks() * BLOCK_BYTES as u64;
            [map, vec![part("write buffer", buffer)]].concat()
        }
        Ftl::Raw(_) => Vec::new(),
        Ftl::Vellum(vellum) => {
            let stats = vellum.stats();
            if vellum.is_in_place() {
                let data = stats.capacity_blocks;
                return vec![
                    part("map", 8 * vellum.superblock().logical_blocks()),
                    part("counts and fingerprints", 8 * data),
                    part("journal pool", JOURNAL_POOL_BYTES * stats.pool_blocks),
                    part("content index", 8 * stats.index_capacity),
                    part("write buffer", vellum.ram_blocks() * BLOCK_BYTES as u64),
                ];
            }
            let segment = u64::from(vellum.superblock().segment_blocks());
            let sums = (vellum_core::limits::CACHED_SUMS as u64).min(stats.segments);
            vec![
                part("map", 4 * vellum.superblock().logical_blocks()),
                part("checksums", 4 * sums * segment),
                part("journal pool", JOURNAL_POOL_BYTES * stats.pool_blocks),
                part("content index", 8 * stats.index_capacity),
                part("shared pages", pages_bytes(&stats)),
                part("deltas", DELTA_BYTES * stats.deltas),
                part("write buffer", vellum.ram_blocks() * BLOCK_BYTES as u64),
            ]
        }
    }
}

/// RAM for pages that several blocks share, whole or in parts.
fn pages_bytes(stats: &Stats) -> u64 {
    let (whole, packed) = (stats.shared_pages, stats.packed_pages);
    let hash = if stats.index_capacity > 0 {
        CONTENT_HASH_BYTES
    } else {
        0
    };
    let base = if stats.deltas > 0 {
        BASE_COUNT_BYTES
    } else {
        0
    };
    (SHARED_PAGE_BYTES + hash) * whole + (PARTS_PAGE_BYTES + base + hash) * packed
}

#[cfg(test)]
mod tests {
    use super::GAUGES;

    /// The core's documentation of its counters. It calls gauges `Gauge: ...`, or `..., now.`
    const SAID: &str = include_str!("../../core/src/stats.rs");

    #[test]
    fn the_list_of_gauges_is_the_cores() {
        let mut said = String::new();
        let mut found = Vec::new();
        for line in SAID.lines().map(str::trim) {
            if let Some(doc) = line.strip_prefix("///") {
                said += doc;
            } else {
                let gauge = said.starts_with(" Gauge:") || said.ends_with(", now.");
                found.extend(line.strip_suffix(',').filter(|_| gauge));
                said.clear();
            }
        }
        let sorted = |mut names: Vec<&'static str>| {
            names.sort_unstable();
            names
        };
        assert_eq!(sorted(found), sorted(GAUGES.to_vec()));
    }
}
