//! Map checkpoints end, whatever the clients do: otherwise the length of recovery would have no bound.

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
use vellum_core::seam::{DedupPolicy, Effect};

/// Three times the writes that make a map checkpoint due.
const WRITES: u64 = 3 * LOG_BLOCKS_BETWEEN_CHECKPOINTS.0 / BLOCKS;
/// More than a segment holds.
const BLOCKS: u64 = 70;

/// So large that no segment has to be freed meanwhile.
fn large() -> Bench {
    let volume = Volume {
        medium_blocks: 160_000,
        ..volume()
    };
    Bench::new(1, volume, DedupPolicy::default())
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
fn a_map_checkpoint_ends_while_a_client_always_waits_for_a_sync() {
    let mut bench = large();
    for step in 0..WRITES {
        ask_write(&mut bench, step);
        bench.ask(&Ask::Flush);
        // A sync takes longer than everything else: when it is answered, a client already waits for the next one.
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
fn a_map_checkpoint_ends_while_more_chunks_are_in_flight_than_a_segment_has() {
    let mut bench = large();
    for step in 0..WRITES {
        ask_write(&mut bench, step);
        while bench.0.flights() > 6 {
            bench.0.advance().unwrap();
        }
    }
    assert_second_checkpoint(bench);
}

/// The progress of a sweep for duplicates, according to recovery after a power cut.
fn swept_after_a_crash(bench: Bench) -> u32 {
    let (mut medium, ..) = bench.0.crash(true).unwrap();
    open::check(&medium).unwrap();
    engine_on(&mut medium, &mut Rng::new(7), 8).swept()
}

fn written() -> Bench {
    let mut bench = Bench::new(3, volume(), DedupPolicy::default());
    for lba in 0..10 {
        bench.write(lba, 100 + lba as u32);
    }
    bench
}

#[test]
fn a_sweeps_progress_is_recorded_soon_on_request() {
    for keep in [true, false] {
        let mut bench = written();
        bench.0.swept(77, keep).unwrap();
        bench.0.settle().unwrap();
        assert_eq!(bench.stats().map_checkpoints, u64::from(keep));
        assert_eq!(swept_after_a_crash(bench), if keep { 77 } else { 0 });
    }
}

/// This holds even if nothing was written since the last map checkpoint.
#[test]
fn a_sweeps_progress_is_recorded_at_a_clean_stop() {
    let mut bench = written();
    bench.0.swept(77, true).unwrap();
    bench.0.settle().unwrap();
    bench.0.swept(99, false).unwrap();
    bench.0.settle_shutdown().unwrap();
    assert_eq!(swept_after_a_crash(bench), 99);
}

/// Nothing depends on the recorded progress, and the map checkpoint that is made only for it loses nothing.
#[test]
fn a_crash_at_any_effect_of_recording_a_sweeps_progress() {
    crash_everywhere(
        &[DedupPolicy::default()],
        |bench| (0..10).for_each(|lba| bench.ask_write(lba, 100 + lba as u32)),
        |bench| {
            bench.0.swept(77, true).unwrap();
            bench.ask_write(3, 200);
        },
    );
}
