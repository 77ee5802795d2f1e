//! The write path allocates nothing in steady state.

#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "sim/rng.rs"]
#[allow(dead_code, reason = "shared with the simulation")]
mod rng;
#[path = "../benches/support/mod.rs"]
#[allow(dead_code, reason = "shared with the benchmark")]
mod support;

use rng::Rng;
use support::{Counting, Idle, allocations};
use vellum_core::seam::DedupPolicy;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// There is only one test, because another's allocations would be counted too.
#[test]
fn steady_state_allocates_nothing() {
    let mut idle = Idle::new(1 << 16, 280);
    let mut rng = Rng::new(1);
    let blocks = idle.logical_blocks;
    (0..blocks).for_each(|lba| idle.write(lba));
    for deduplicates in [false, true] {
        if deduplicates {
            idle.deduplicate(DedupPolicy {
                index_bytes: 1 << 20,
                ..DedupPolicy::default()
            });
        }
        // By now the collector has been everywhere.
        (0..3 * blocks).for_each(|_| idle.write(rng.below(blocks)));
        let before = (allocations(), idle.engine.stats().collections);
        (0..blocks).for_each(|_| idle.write(rng.below(blocks)));
        assert_eq!(allocations(), before.0, "deduplicates: {deduplicates}");
        assert!(idle.engine.stats().collections > before.1);
    }
}
