//! Crashes and faults of tables in place, simulated as `crash.rs` does it for the log: the same world, clients,
//! medium and oracle, and the promise as it is stated for each layout.
//!
//! `VELLUM_SEED=n` replays one seed; `VELLUM_LIVES=n` or `VELLUM_SECONDS=n` runs more of them, from `VELLUM_FROM=n` on or fresh.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::medium::Broken;
use sim::seeds::{self, LIVES_A_SEED};
use sim::summary::Summary;
use sim::world::World;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use vellum_core::format::areas::Layout;

/// Runs a seed; returns why it failed, panics included.
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

fn run_or_panic(seed: u64, test: &str, layout: Layout, faults: bool) -> Summary {
    match run(seed, layout, Broken::No, faults) {
        Ok(summary) => summary,
        Err(why) => panic!(
            "seed {seed}: {why}\n\nreplay: VELLUM_SEED={seed} cargo test -p vellum-core --test crash_tables \
             -- {test}\n"
        ),
    }
}

fn run_seeds(test: &str, layout: Layout, faults: bool, fixed: Range<u64>) {
    seeds::run(test, fixed, |seed| run_or_panic(seed, test, layout, faults));
}

/// The results of these seeds, whatever the environment requests.
fn total(test: &str, layout: Layout, seeds: Range<u64>) -> Summary {
    let mut total = Summary::default();
    for seed in seeds {
        total.add(&run_or_panic(seed, test, layout, false));
    }
    total
}

#[test]
fn ordered_crashes() {
    run_seeds("ordered_crashes", Layout::Ordered, false, seeds::fixed(1));
}

#[test]
fn ordered_faults() {
    run_seeds("ordered_faults", Layout::Ordered, true, seeds::fixed(1000));
}

/// Shadowed tables must keep the whole promise, order included.
#[test]
fn shadow_crashes() {
    run_seeds("shadow_crashes", Layout::Shadow, false, seeds::fixed(1));
}

#[test]
fn shadow_faults() {
    run_seeds("shadow_faults", Layout::Shadow, true, seeds::fixed(1000));
}

/// Crashes do leave counts that are too high, and interrupted commits; otherwise none of that is tested.
#[test]
fn crashes_leave_leaks() {
    let total = total("crashes_leave_leaks", Layout::Ordered, 200..210);
    assert!(total.leaks > 0, "{total:?}");
}

/// Free blocks are discarded, in the middle of everything else.
#[test]
fn freed_blocks_are_discarded() {
    for layout in [Layout::Ordered, Layout::Shadow] {
        let total = total("freed_blocks_are_discarded", layout, 300..305);
        assert!(total.discards > total.lives, "{layout:?}: {total:?}");
    }
}

/// Bad sectors in the tables that a volume can do without, fingerprints and counts, in the middle of everything else.
#[test]
fn spare_blocks_are_lost() {
    for layout in [Layout::Ordered, Layout::Shadow] {
        let mut total = Summary::default();
        for seed in 1200..1220 {
            total.add(&run_or_panic(seed, "spare_blocks_are_lost", layout, true));
        }
        assert!(total.lost_fingerprints > 20, "{layout:?}: {total:?}");
        assert!(total.rebuilt_counts > 20, "{layout:?}: {total:?}");
    }
}

/// `ordered` does not promise order; the oracle that demands it soon notices.
#[test]
fn ordered_does_not_keep_the_order_of_writes() {
    let found = (1..60).any(|seed| {
        let mut world = World::of_tables(seed, Layout::Ordered, Broken::No, false).unwrap();
        world.ask_for_order();
        (0..LIVES_A_SEED).any(|_| world.life().is_err())
    });
    assert!(found, "60 seeds keep the order of writes");
}

/// A comparison alone makes no twin, because the read may be misdirected. If the checksums differ, a comparison that wrongly finds all
/// blocks equal does no harm.
#[test]
fn blocks_with_different_checksums_are_no_twins_whatever_is_read() {
    let differ = |seed: &u64| {
        let world = World::of_tables(*seed, Layout::Ordered, Broken::No, false).unwrap();
        world.describe().contains("Xxh3")
    };
    let seeds: Vec<u64> = (1..60).filter(differ).take(6).collect();
    assert_eq!(seeds.len(), 6);
    for seed in seeds {
        for layout in [Layout::Ordered, Layout::Shadow] {
            let result = run(seed, layout, Broken::CompareTrusts, false);
            assert!(result.is_ok(), "{layout:?}, seed {seed}: {result:?}");
        }
    }
}

/// The oracle works: it soon notices each broken medium.
#[test]
fn canaries() {
    if seeds::number("VELLUM_SEED").is_some() {
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
    // The test's own sums have to notice it.
    let of_sums = |why: &String| why.contains("lead to it") || why.contains("not counted at all");
    let mut whys =
        (1..60).filter_map(|seed| run(seed, Layout::Ordered, Broken::CountsTooLow, false).err());
    let low = whys.find(of_sums);
    println!("a count that is too low: {low:?}");
    assert!(low.is_some(), "a count that is too low is not noticed");
}
