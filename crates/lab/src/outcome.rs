//! What a run showed.

use crate::base::{COUNT_BYTES, ENTRY_BYTES, Lookups};
use crate::flash::{Busy, Counts, Reads};
use crate::latency::{Latencies, Within};
use crate::life::Life;
use crate::series::{Moment, Step};
use crate::sim::written::BY_DRIVE;
pub use crate::sim::written::Cause;
use crate::sim::{Ftl, Seen, Sim};
use crate::sure::Sure;
use serde::Serialize;
use vellum_core::addr::BLOCK_BYTES;

/// What of the engine's counters is of a moment, and not since the start.
const GAUGES: [&str; 21] = [
    "leaves_in_memory",
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

/// RAM for a delta: in a table, and by its part.
const DELTA_BYTES: u64 = 28;
/// A journal block's link and its share of the buckets (`vellum_core::pool`).
const JOURNAL_POOL_BYTES: u64 = 6;
/// A shared page's address, its owners, and its place by that address, at most (decision 0005).
const SHARED_PAGE_BYTES: u64 = 17;
/// The hash of its content, where an index of contents is to be told who is left.
const CONTENT_HASH_BYTES: u64 = 8;

/// Bytes of RAM, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// What for.
    pub name: &'static str,
    /// How many.
    pub bytes: u64,
}

/// How long one kind of request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// How many there were.
    pub count: u64,
    /// Nanoseconds, of virtual time, as all that follow.
    pub mean_ns: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 99 in a hundred.
    pub p99_ns: u64,
    /// 999 in a thousand.
    pub p999_ns: u64,
    /// 9999 in ten thousand.
    pub p9999_ns: u64,
    /// The longest.
    pub most_ns: u64,
}

impl From<&Latencies> for Percentiles {
    fn from(from: &Latencies) -> Self {
        Self {
            count: from.count(),
            mean_ns: from.mean(),
            p50_ns: from.percentile(50_000),
            p99_ns: from.percentile(99_000),
            p999_ns: from.percentile(99_900),
            p9999_ns: from.percentile(99_990),
            most_ns: from.most(),
        }
    }
}

/// The write amplifications of two layers, one above the other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stacked {
    /// What the engine asked of the drive, over what the host asked of the engine.
    pub engine: f64,
    /// What the drive wrote, over what was asked of it.
    pub drive: f64,
}

/// A run's results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The policy.
    pub policy: String,
    /// What was asked of it, and of what of that nobody recorded anything: that is synthetic.
    pub load: String,
    /// Blocks that the host sees.
    pub logical_blocks: u64,
    /// Blocks of flash (or of the device).
    pub physical_blocks: u64,
    /// Blocks that hold what the host can read, at the end; none where that is not known.
    pub live_blocks: Option<u64>,
    /// How the flash was laid out, and how it was prepared.
    pub notes: Vec<String>,
    /// Blocks that the host wrote and read.
    pub host_written: u64,
    /// Read.
    pub host_read: u64,
    /// Requests answered.
    pub requests: u64,
    /// Of the requests: writes that were to be durable when answered (FUA).
    pub durable_writes: u64,
    /// Blocks written to the medium by cause.
    pub medium: Vec<Cause>,
    /// All of them, over the host's.
    pub write_amplification: Option<f64>,
    /// How sure that is, and whether it stands still.
    #[serde(flatten)]
    pub sure: Sure,
    /// The two that it is the product of, where the engine is above a drive with a translation layer of its own.
    pub stacked: Option<Stacked>,
    /// Blocks programmed: what was in program units that became full.
    pub programmed: u64,
    /// Erasures and life; none where the inside is not simulated.
    pub life: Option<Life>,
    /// Virtual seconds.
    pub seconds: f64,
    /// Reads.
    pub reads: Percentiles,
    /// Writes and discards.
    pub writes: Percentiles,
    /// Flushes.
    pub flushes: Percentiles,
    /// RAM for tables, by what for, and for writes on their way: what a controller would need, not the simulation.
    pub memory: Vec<Part>,
    /// Writes whose map updates waited at the same time, at most, and journal blocks in the map before what was written before
    /// them; where a drive orders its map, or counts what comes of not doing so.
    pub order: Option<(u64, u64)>,
    /// Blocks that read as something else than was written there, because a hash was believed; where one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mistaken: Option<u64>,
    /// Lookups in a map that is on flash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lookups: Option<Lookups>,
    /// Nanoseconds that were hashed for, where that takes time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_ns: Option<u64>,
    /// What dies were busy with, where more than plain queues are simulated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
    /// How reads went, where bits can be wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_errors: Option<Reads>,
    /// It was ended before its load was.
    pub partial: bool,
    /// The engine's own counters, where it ran.
    pub engine: Vec<(&'static str, u64)>,
    /// How it went.
    pub steps: Vec<Step>,
    /// The distribution of write latencies.
    pub write_cdf: Vec<Within>,
    /// Of reads.
    pub read_cdf: Vec<Within>,
}

impl Outcome {
    /// Blocks written to the medium.
    #[must_use]
    pub fn medium_blocks(&self) -> u64 {
        self.medium.iter().map(|cause| cause.blocks).sum()
    }

    /// A counter of the engine's; 0 where it did not run.
    #[must_use]
    pub fn counted(&self, name: &str) -> u64 {
        let found = self.engine.iter().find(|(n, _)| *n == name);
        found.map_or(0, |counter| counter.1)
    }
}

/// The counters of a moment, to be taken off those of another.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    medium: Vec<Cause>,
    engine: Vec<(&'static str, u64)>,
    lookups: Option<Lookups>,
    hash_ns: Option<u64>,
    at: u64,
    start: Moment,
}

impl Snapshot {
    /// Of now. Wear and what the host saw begin anew.
    pub fn begin(sim: &mut Sim) -> Self {
        sim.flash.reset();
        sim.seen = Seen::default();
        Self::of(sim)
    }

    fn of(sim: &Sim) -> Self {
        let lookups = match &sim.ftl {
            Ftl::Page(drive) => drive.map().lookups().map(|(now, ..)| now),
            _ => None,
        };
        let engine = match &sim.ftl {
            Ftl::Vellum(vellum) => vellum.stats().named().collect(),
            _ => Vec::new(),
        };
        Self {
            medium: sim.ftl.written(),
            engine,
            lookups,
            hash_ns: match &sim.ftl {
                Ftl::Page(_) => None,
                Ftl::Raw(raw) => raw.hash_ns(),
                Ftl::Vellum(vellum) => vellum.hash_ns(),
            },
            at: sim.time.now(),
            start: sim.moment(),
        }
    }

    /// What happened since.
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
    /// The run's course. Of counters of the engine's it is told what has come since the start, of gauges how they stood.
    fn steps(&self, sim: &Sim) -> Vec<Step> {
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

/// RAM of what serves, from the widths of the entries of its tables.
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
            let shared_page_bytes = match stats.index_capacity {
                0 => SHARED_PAGE_BYTES,
                _ => SHARED_PAGE_BYTES + CONTENT_HASH_BYTES,
            };
            vec![
                part("map", 4 * vellum.superblock().logical_blocks()),
                part("checksums", 4 * sums * segment),
                part("journal pool", JOURNAL_POOL_BYTES * stats.pool_blocks),
                part("content index", 8 * stats.index_capacity),
                part(
                    "shared pages",
                    shared_page_bytes * (stats.shared_pages + stats.packed_pages),
                ),
                part("deltas", DELTA_BYTES * stats.deltas),
                part("write buffer", vellum.ram_blocks() * BLOCK_BYTES as u64),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::GAUGES;

    /// What the core says of each of its counters, and which it calls gauges: `Gauge: ...`, or `..., now.`
    const SAID: &str = include_str!("../../core/src/stats.rs");

    #[test]
    fn gauges_are_those_that_the_core_calls_so() {
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
