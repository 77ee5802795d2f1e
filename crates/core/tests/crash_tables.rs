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

/// Fixed seeds of a test; twice as many in the long set (`VELLUM_LONG=1`).
fn seeds() -> u64 {
    match number("VELLUM_LONG") {
        None => 30,
        Some(_) => 60,
    }
}

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
    run_seeds("ordered_crashes", Layout::Ordered, false, 1..1 + seeds());
}

#[test]
fn ordered_faults() {
    run_seeds(
        "ordered_faults",
        Layout::Ordered,
        true,
        1000..1000 + seeds(),
    );
}

/// Of shadowed tables all of the promise is asked, order included.
#[test]
fn shadow_crashes() {
    run_seeds("shadow_crashes", Layout::Shadow, false, 1..1 + seeds());
}

#[test]
fn shadow_faults() {
    run_seeds("shadow_faults", Layout::Shadow, true, 1000..1000 + seeds());
}

/// Crashes do leave counts too high, and commits that were cut short: else nothing of it is tested.
#[test]
fn crashes_leave_leaks() {
    let total = run_seeds("crashes_leave_leaks", Layout::Ordered, false, 200..210);
    assert!(total.leaks > 0, "{total:?}");
}

/// What is free is discarded, in the middle of all else.
#[test]
fn freed_blocks_are_discarded() {
    for layout in [Layout::Ordered, Layout::Shadow] {
        let total = run_seeds("freed_blocks_are_discarded", layout, false, 300..305);
        assert!(total.discards > total.lives, "{layout:?}: {total:?}");
    }
}

/// Order is what `ordered` does not promise; the oracle that asks for it notices soon.
#[test]
fn ordered_does_not_keep_the_order_of_writes() {
    let found = (1..60).any(|seed| {
        let mut world = World::of_tables(seed, Layout::Ordered, Broken::No, false).unwrap();
        world.ask_for_order();
        (0..LIVES_A_SEED).any(|_| world.life().is_err())
    });
    assert!(found, "60 seeds keep the order of writes");
}

/// The oracle sees what it is there to see: each broken medium is found out, and soon.
#[test]
fn canaries() {
    if number("VELLUM_SEED").is_some() {
        return;
    }
    for layout in [Layout::Ordered, Layout::Shadow] {
        for broken in [
            Broken::SyncPersistsNothing,
            Broken::SyncForgetsSome,
            Broken::CutDamages,
            Broken::ReadLies,
            Broken::CompareTrusts,
            Broken::DiscardsEarly,
            Broken::DiscardsMore,
        ] {
            let found = (1..60).find_map(|seed| run(seed, layout, broken, false).err());
            assert!(
                found.is_some(),
                "{layout:?}: the oracle does not notice {broken:?}"
            );
        }
    }
    let found =
        (1..60).find_map(|seed| run(seed, Layout::Shadow, Broken::DurableIsCached, false).err());
    assert!(found.is_some(), "a cached root is not noticed");
}
