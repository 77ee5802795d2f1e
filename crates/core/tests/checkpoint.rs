//! Map checkpoints come to their end whatever the clients do: else recovery has no bound.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::bench::{Bench, crash_everywhere, engine_on, volume};
use sim::driver::Ask;
use sim::open::{self, Volume};
use sim::rng::Rng;
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

/// How far a sweep for duplicates was, after the power has failed.
fn swept_after_a_crash(bench: Bench) -> u32 {
    let (mut medium, ..) = bench.0.crash(true).unwrap();
    open::check(&medium).unwrap();
    engine_on(&mut medium, &mut Rng::new(7), 8).swept()
}

fn written() -> Bench {
    let mut bench = Bench::new(3, volume(), Dedup::default());
    for lba in 0..10 {
        bench.write(lba, 100 + lba as u32);
    }
    bench
}

#[test]
fn how_far_a_sweep_was_is_kept_soon_where_that_is_asked_for() {
    for keep in [true, false] {
        let mut bench = written();
        bench.0.swept(77, keep).unwrap();
        bench.0.settle().unwrap();
        assert_eq!(bench.stats().map_checkpoints, u64::from(keep));
        assert_eq!(swept_after_a_crash(bench), if keep { 77 } else { 0 });
    }
}

/// Also where nothing was written since the last map checkpoint.
#[test]
fn how_far_a_sweep_was_is_kept_at_a_clean_stop() {
    let mut bench = written();
    bench.0.swept(77, true).unwrap();
    bench.0.settle().unwrap();
    bench.0.swept(99, false).unwrap();
    bench.0.settle_shutdown().unwrap();
    assert_eq!(swept_after_a_crash(bench), 99);
}

/// Nothing depends on it, and a map checkpoint that was not due otherwise loses nothing.
#[test]
fn a_crash_at_any_effect_of_keeping_how_far_a_sweep_was() {
    crash_everywhere(
        &[Dedup::default()],
        |bench| (0..10).for_each(|lba| bench.ask_write(lba, 100 + lba as u32)),
        |bench| {
            bench.0.swept(77, true).unwrap();
            bench.ask_write(3, 200);
        },
    );
}
