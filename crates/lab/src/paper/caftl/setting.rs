//! The paper's setting: its duplicates, its processor, its memory, and its load, also in bursts.

use crate::flash::Kind;
use crate::paper::scenarios::{scenario, workload};
use crate::scenario::{Scenario, Synthetic};
use crate::sim::Pace;
use crate::vellum::Hashing;
use crate::workload::{Again, Bursts};

/// Percent of the written blocks that are duplicates: the paper's traces have 5.8 to 28.1.
pub const DUPLICATES: [u32; 3] = [6, 17, 28];
/// Blocks of a request, and of a sampling unit.
pub const BLOCKS: u32 = 8;
/// The cycles the paper states for 4 KiB; and below, the slowest and the fastest of its processors.
pub const SHA1_CYCLES: u64 = 47_548;
pub const CRC32_CYCLES: u64 = 4120;
pub const SLOWEST_MHZ: u64 = 304;
pub const MHZ: u64 = 934;

/// The nanoseconds that these cycles take.
pub const fn nanos(cycles: u64, mhz: u64) -> u64 {
    cycles * 1000 / mhz
}

/// The share of the contents that the store has memory for, in percent.
pub const MEMORY: u64 = 10;

/// Memory for this share of these contents in percent, at 12 bytes an entry.
pub fn memory_kib(contents: u64, percent: u64) -> u64 {
    (contents * percent / 100 * 12 / 1024).max(16)
}

/// How the load comes.
#[derive(Clone, Copy)]
pub struct Bursting {
    /// Blocks of a burst.
    pub blocks: u64,
    /// Milliseconds from one burst to the next.
    pub every_ms: f64,
}

/// How it comes but for an experiment.
pub const USUAL: Bursting = Bursting {
    blocks: 800,
    every_ms: 100.0,
};

/// The load, with this share of duplicates in percent.
pub fn load(duplicates: u32, requests: u64) -> Synthetic {
    Synthetic {
        requests,
        request_blocks: BLOCKS,
        duplicates,
        again: Again::Soon,
        ..Synthetic::new(workload("hot-cold"))
    }
}

/// The load in bursts, a fifth of them reads, with a buffer.
pub fn bursts(
    capacity: u64,
    (mut load, how): (Synthetic, Bursting),
    buffer_megabytes: u64,
    hashing: Hashing,
) -> Scenario<'static> {
    load.workload.reads = 20;
    load.bursts = Some(Bursts {
        requests: how.blocks / u64::from(load.request_blocks),
        every_ns: (how.every_ms * 1e6) as u64,
    });
    let mut scenario = scenario("caftl", capacity, load);
    scenario.pace = Pace::Open;
    if let Kind::Nand(nand) = &mut scenario.device.preset.kind {
        nand.buffer_bytes = buffer_megabytes << 20;
    }
    scenario.hashing = Some(hashing);
    scenario
}
