//! Crashes and faults of tables in place, simulated as `crash.rs` does it for the log: the same world, clients,
//! medium and oracle, and the promise as it is stated for each layout.
//!
//! `VELLUM_SEED=n` replays one seed; `VELLUM_LIVES=n` or `VELLUM_SECONDS=n` runs fresh seeds for as long.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::medium::Broken;
use sim::world::{Summary, World};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use vellum_core::format::areas::Layout;

/// Lives on one volume before a new one is made.
const LIVES_A_SEED: u64 = 40;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
    )
}

/// Runs a seed; says why it failed, panics included.
fn run(seed: u64, layout: Layout, broken: Broken, faults: bool) -> Result<Summary, String> {
    let mut world = World::of_tables(seed, layout, broken, faults)?;
    for life in 0..LIVES_A_SEED {
        let why = match catch_unwind(AssertUnwindSafe(|| world.life())) {
            Ok(Ok(())) => continue,
            Ok(Err(why)) => why,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                format!(
                    "panic: {}",
                    text.unwrap_or_else(|| "(no message)".to_owned())
                )
            }
        };
        return Err(format!("life {life} of {}: {why}", world.describe()));
    }
    Ok(world.summary)
}

fn run_seeds(test: &str, layout: Layout, faults: bool, fixed: std::ops::Range<u64>) -> Summary {
    let mut total = Summary::default();
    let mut one = |seed| match run(seed, layout, Broken::No, faults) {
        Ok(summary) => total.add(&summary),
        Err(why) => panic!(
            "seed {seed}: {why}\n\nreplay: VELLUM_SEED={seed} cargo test -p vellum-core --test crash_tables -- {test}\n"
        ),
    };
    let fresh = Instant::now();
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first = clock.unwrap().as_micros() as u64;
    if let Some(seed) = number("VELLUM_SEED") {
        one(seed);
    } else if let Some(lives) = number("VELLUM_LIVES") {
        (first..first + lives.div_ceil(LIVES_A_SEED)).for_each(&mut one);
    } else if let Some(seconds) = number("VELLUM_SECONDS") {
        println!("fresh seeds from {first} on");
        for seed in first.. {
            one(seed);
            if fresh.elapsed() > Duration::from_secs(seconds) {
                break;
            }
        }
    } else {
        fixed.for_each(&mut one);
    }
    println!("{test}: {total:?}");
    total
}

#[test]
fn ordered_crashes() {
    run_seeds("ordered_crashes", Layout::Ordered, false, 1..61);
}

#[test]
fn ordered_faults() {
    run_seeds("ordered_faults", Layout::Ordered, true, 1000..1060);
}
