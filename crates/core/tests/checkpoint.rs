//! Map checkpoints come to their end whatever the clients do: else recovery has no bound.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::bench::{Bench, volume};
use sim::driver::Ask;
use sim::open::Volume;
use vellum_core::limits::LOG_BLOCKS_BETWEEN_CHECKPOINTS;
use vellum_core::seam::{Dedup, Effect};

/// Three times what makes a map checkpoint due.
const WRITES: u64 = 3 * LOG_BLOCKS_BETWEEN_CHECKPOINTS.0 / BLOCKS;
/// More than a segment has.
const BLOCKS: u64 = 70;

/// So large that no segment has to be made free meanwhile.
fn large() -> Bench {
    let volume = Volume {
        medium_blocks: 160_000,
        ..volume()
    };
    Bench::new(1, volume, Dedup::default())
}

fn ask_write(bench: &mut Bench, step: u64) {
    let write = Ask::Write {
        lba: step % 80 * BLOCKS,
        tokens: vec![10_000 + step as u32; BLOCKS as usize],
        fua: false,
    };
    while !bench.0.ask(&write).unwrap() {
        bench.0.advance().unwrap();
    }
}

fn assert_second_checkpoint(bench: Bench) {
    // The second begins when the first has ended.
    let checkpoints = bench.stats().map_checkpoints;
    assert!(checkpoints >= 2, "{checkpoints}");
    bench.end();
}

#[test]
fn while_there_is_always_somebody_who_waits_for_a_sync() {
    let mut bench = large();
    for step in 0..WRITES {
        ask_write(&mut bench, step);
        bench.ask(&Ask::Flush);
        // A sync takes longer than all else: when it is answered, the next one is waited for already.
        bench.0.holds = |effect| matches!(effect, Effect::Sync { .. });
        bench.run();
        bench.0.holds = |_| false;
        while bench.0.open_requests() > 2 {
            bench.0.advance().unwrap();
        }
    }
    assert_second_checkpoint(bench);
}

#[test]
fn while_there_are_always_more_chunks_on_their_way_than_a_segment_has() {
    let mut bench = large();
    for step in 0..WRITES {
        ask_write(&mut bench, step);
        while bench.0.flights() > 6 {
            bench.0.advance().unwrap();
        }
    }
    assert_second_checkpoint(bench);
}
