//! The core alone: no bytes, no I/O, every effect answered at once. `cargo bench -p vellum-core`.
//!
//! - 4 KiB random writes a second of one core's time, while a volume is filled, and in steady state with the
//!   collector at work; and allocations, of which there must be none.
//! - Steady-state write amplification under uniform random overwrites, against the closed form for a
//!   greedy collector (Desnoyers): `A = FIFO(k alpha) / k`, `k = 1 + 1/(2 Np)`,
//!   `FIFO(alpha) = alpha / (alpha + W0(-alpha e^-alpha))`.

#[path = "../tests/sim/rng.rs"]
#[allow(dead_code, reason = "shared with the simulation")]
mod rng;
mod support;

use rng::Rng;
use support::{Counting, Idle, allocations, cpu_seconds};
use vellum_core::seam::DedupPolicy;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    // cargo passes --bench; a first free argument picks one part.
    let only = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let wants = |name: &str| only.as_deref().is_none_or(|o| o == name);
    match only.as_deref() {
        Some("instructions") => return counted(Idle::new(COUNTED_BLOCKS, 280)),
        Some("instructions-within-bounds") => {
            return counted(Idle::within_bounds(COUNTED_BLOCKS, 280));
        }
        _ => {}
    }
    let mut failed = false;
    if wants("throughput") {
        failed |= !throughput(4);
        // Its map is larger than most caches. The cost of misses is shown, but not judged.
        throughput(16);
    }
    if wants("throughput") {
        ample_room();
    }
    if wants("amplification") {
        for (gib, over_permille) in [(1, 70), (1, 150), (1, 280)] {
            failed |= !amplification(gib, over_permille);
        }
    }
    std::process::exit(i32::from(failed));
}

/// Writes `count` single blocks at random; returns the writes a second, and the number of allocations.
fn random_writes(idle: &mut Idle, rng: &mut Rng, count: u64) -> (f64, u64) {
    let blocks = idle.logical_blocks;
    let start = cpu_seconds();
    // Between the readings of the clock, which allocate.
    let before = allocations();
    for _ in 0..count {
        idle.write(rng.below(blocks));
    }
    let allocated = allocations() - before;
    (count as f64 / (cpu_seconds() - start), allocated)
}

fn throughput(gib: u64) -> bool {
    let mut idle = Idle::new(gib << 18, 280);
    let mut rng = Rng::new(1);
    let blocks = idle.logical_blocks;
    let start = cpu_seconds();
    (0..blocks).for_each(|lba| idle.write(lba));
    let fill = blocks as f64 / (cpu_seconds() - start);
    println!(
        "sequential fill of {} GiB       {:6.2} M/s",
        blocks >> 18,
        fill / 1e6
    );
    // Until the collector has been everywhere once.
    let (warm, _) = random_writes(&mut idle, &mut rng, blocks);
    println!("random writes, first pass        {:6.2} M/s", warm / 1e6);
    let (speed, allocated) = random_writes(&mut idle, &mut rng, 2 * blocks);
    println!(
        "random writes, steady state      {:6.2} M/s, {allocated} allocations in {}",
        speed / 1e6,
        2 * blocks
    );
    idle.deduplicate(DedupPolicy {
        index_bytes: 64 << 20,
        ..DedupPolicy::default()
    });
    random_writes(&mut idle, &mut rng, blocks);
    let (speed_indexed, allocated_indexed) = random_writes(&mut idle, &mut rng, blocks);
    println!(
        "the same, deduplicating          {:6.2} M/s, {allocated_indexed} allocations in {blocks}",
        speed_indexed / 1e6
    );
    speed >= 2e6 && allocated == 0
}

/// The write path alone: over-provisioning is so large that victims are empty.
fn ample_room() {
    let mut idle = Idle::new(4 << 18, 4000);
    let mut rng = Rng::new(2);
    let _ = random_writes(&mut idle, &mut rng, 6 << 20);
    let (speed, allocated) = random_writes(&mut idle, &mut rng, 4 << 20);
    println!(
        "random writes, ample room        {:6.2} M/s, {allocated} allocations in {}",
        speed / 1e6,
        4 << 20
    );
}

/// For `benches/instructions.sh`, which counts what runs between these two.
fn counted(mut idle: Idle) {
    let mut rng = Rng::new(3);
    let blocks = idle.logical_blocks;
    (0..blocks).for_each(|lba| idle.write(lba));
    let _ = random_writes(&mut idle, &mut rng, blocks);
    counted_writes(&mut idle, &mut rng);
    counted_reads(&mut idle, &mut rng);
}

/// Blocks of the volume for the counts.
const COUNTED_BLOCKS: u64 = 1 << 16;

/// The number of requests counted, of each kind.
const COUNTED: u64 = 100_000;

#[inline(never)]
fn counted_writes(idle: &mut Idle, rng: &mut Rng) {
    (0..COUNTED).for_each(|_| idle.write(rng.below(idle.logical_blocks)));
}

#[inline(never)]
fn counted_reads(idle: &mut Idle, rng: &mut Rng) {
    (0..COUNTED).for_each(|_| idle.read(rng.below(idle.logical_blocks)));
}

/// Lambert's W0 on [-1/e, 0), by Newton's method, starting on the branch that we need.
fn lambert(x: f64) -> f64 {
    let mut w = if x < -0.3 {
        -1.0 + (2.0 * (1.0 + std::f64::consts::E * x)).max(0.0).sqrt()
    } else {
        x
    };
    for _ in 0..100 {
        let e = w.exp();
        let step = (w * e - x) / (e * (w + 1.0) + 1e-300);
        w -= step;
        if step.abs() < 1e-14 {
            break;
        }
    }
    w
}

fn fifo(alpha: f64) -> f64 {
    alpha / (alpha + lambert(-alpha * (-alpha).exp()))
}

fn greedy(alpha: f64, pages: f64) -> f64 {
    let k = 1.0 + 1.0 / (2.0 * pages);
    fifo(k * alpha) / k
}

fn amplification(gib: u64, over_permille: u64) -> bool {
    let mut idle = Idle::new(gib << 18, over_permille);
    let mut rng = Rng::new(7);
    let blocks = idle.logical_blocks;
    (0..blocks).for_each(|lba| idle.write(lba));
    // Writes six times the volume's blocks to forget how it was filled, then three times to measure.
    let _ = random_writes(&mut idle, &mut rng, 6 * blocks);
    let before = idle.engine.stats();
    let mut free = 0.0;
    for _ in 0..30 {
        let _ = random_writes(&mut idle, &mut rng, blocks / 10);
        free += idle.engine.stats().free_segments as f64 / 30.0;
    }
    let after = idle.engine.stats();
    let host = after.medium_data - before.medium_data;
    let moved = after.medium_moved - before.medium_moved;
    let headers = after.medium_headers - before.medium_headers;
    let other =
        after.medium_summaries - before.medium_summaries + after.medium_map - before.medium_map;
    let measured = (host + moved) as f64 / host as f64;
    // Pages that hold data when a segment is full, in the segments that are not free: the reserve is not part of T.
    let log = (host + moved + headers) as f64;
    let pages = idle.usable_blocks as f64 * (host + moved) as f64 / log;
    let alpha = (after.segments as f64 - free) * pages / blocks as f64;
    let expected = greedy(alpha, pages);
    let error = measured / expected - 1.0;
    let all = (host + moved + headers + other) as f64 / host as f64;
    println!(
        "over-provisioning {:4.1}%: alpha {alpha:.4}, amplification {measured:.3}, greedy {expected:.3} \
         ({:+.1}%), with headers and map {all:.3}",
        over_permille as f64 / 10.0,
        error * 100.0
    );
    error.abs() <= 0.05
}
