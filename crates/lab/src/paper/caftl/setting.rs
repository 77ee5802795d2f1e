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
/// The cycles the paper states for 4 KiB; and below, the slowest of its processors.
pub const SHA1_CYCLES: u64 = 47_548;
pub const CRC32_CYCLES: u64 = 4120;
pub const MHZ: u64 = 304;

/// The nanoseconds that these cycles take.
pub const fn nanos(cycles: u64, mhz: u64) -> u64 {
    cycles * 1000 / mhz
}

/// Memory for a tenth of these contents, at 12 bytes an entry.
pub fn memory_kib(contents: u64) -> u64 {
    (contents / 10 * 12 / 1024).max(16)
}

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

/// The load in bursts of 800 blocks, a fifth of them reads, ten times a second, with a buffer.
pub fn bursts(
    capacity: u64,
    mut load: Synthetic,
    buffer_megabytes: u64,
    hashing: Hashing,
) -> Scenario<'static> {
    load.workload.reads = 20;
    load.bursts = Some(Bursts {
        requests: 800 / u64::from(load.request_blocks),
        every_ns: 100_000_000,
    });
    let mut scenario = scenario("caftl", capacity, load);
    scenario.pace = Pace::Open;
    if let Kind::Nand(nand) = &mut scenario.device.preset.kind {
        nand.buffer_bytes = buffer_megabytes << 20;
    }
    scenario.hashing = Some(hashing);
    scenario
}
