//! Crashes and faults, simulated: thousands of lives from a seed, each against the promise.
//!
//! `VELLUM_SEED=n` replays one seed; `VELLUM_LIVES=n` or `VELLUM_SECONDS=n` runs more of them, from `VELLUM_FROM=n` on or fresh.
//! `VELLUM_TRACE=1` prints everything that crosses the seam.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::medium::Broken;
use sim::model::{Model, Seen};
use sim::seeds::{self, LIVES_A_SEED};
use sim::summary::Summary;
use sim::world::World;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use vellum_core::format::chunk::Record;

/// Runs a seed; returns why it failed, panics included.
fn run(seed: u64, broken: Broken, faults: bool) -> Result<Summary, String> {
    lives(World::new(seed, broken, faults)?.served())
}

fn lives(mut world: World) -> Result<Summary, String> {
    for life in 0..LIVES_A_SEED {
        match catch_unwind(AssertUnwindSafe(|| world.life())) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Err(format!("life {life} of {}: {why}", world.describe())),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                let text = text.unwrap_or_else(|| "(no message)".to_owned());
                return Err(format!(
                    "life {life} of {}: panic: {text}",
                    world.describe()
                ));
            }
        }
    }
    Ok(world.summary)
}

fn run_or_panic(seed: u64, test: &str, faults: bool) -> Summary {
    match run(seed, Broken::No, faults) {
        Ok(summary) => summary,
        Err(why) => panic!(
            "seed {seed}: {why}\n\nreplay: VELLUM_SEED={seed} cargo test -p vellum-core --test crash -- \
             {test} --nocapture\n"
        ),
    }
}

fn run_seeds(test: &str, faults: bool, fixed: Range<u64>) {
    let total = seeds::run(test, fixed, |seed| run_or_panic(seed, test, faults));
    let is_one = seeds::number("VELLUM_SEED").is_some();
    assert!(is_one || total.folded > 0, "{test}: nothing was folded");
    assert!(
        is_one || total.answered_before > 0,
        "{test}: no write was answered before"
    );
    assert!(
        is_one || total.services_ended * total.rows_folded * total.pairs_swept > 0,
        "{test}: no service was at work"
    );
    assert!(
        is_one || total.scrubs_ended * total.freed_dropped > 0,
        "{test}: no scrub has ended, or nothing was freed"
    );
    assert!(
        is_one || total.shrunk * total.shrinks_refused > 0,
        "{test}: no volume has shrunk, or none was refused to"
    );
    assert!(
        is_one || total.shortened * total.heads_moved * total.shortenings_cut > 0,
        "{test}: no medium has become shorter, no head was moved, or the power never failed meanwhile"
    );
    assert!(
        is_one || !faults || total.scrub_damaged * total.mirrors_mended > 0,
        "{test}: no scrub has found anything"
    );
}

#[test]
fn crashes() {
    run_seeds("crashes", false, seeds::fixed(1));
}

#[test]
fn faults() {
    run_seeds("faults", true, seeds::fixed(1000));
}

/// Seeds that found something.
#[test]
fn found() {
    for seed in [
        // The check called a volume damaged that had shared pages before it grew, and none since.
        1_795_651_411_962_619,
        // A misdirected read returned the bytes that were to be written, and the page was shared.
        3_607_781_835,
    ] {
        // These seeds are from before services ran in these lives.
        let came_to = World::new(seed, Broken::No, true).and_then(lives);
        assert!(came_to.is_ok(), "seed {seed}: {:?}", came_to.err());
    }
    // A stop had no end: a checkpoint met a leaf that could not be read, and the next one met another.
    run_or_panic(120_000_045, "faults", true);
    // The same before a stop: a request never had its turn.
    run_or_panic(133_000_073, "faults", true);
    // The check called a volume damaged whose summary named an owner that a crash took: the chunk that said so did not fit.
    run_or_panic(138_570_095, "faults", true);
}

/// The oracle itself: it notices the loss of a write that was answered late and then flushed, or that was answered with FUA.
#[test]
fn the_oracle_notices_a_lost_durable_write() {
    for fua in [false, true] {
        let mut model = Model::new(1);
        let op = model.begin(0, [7], fua);
        model.end(op, true, false);
        if !fua {
            assert!(model.judge(&[Seen::Token(0)]).is_ok());
            model.flushed(model.clock());
        }
        assert!(model.judge(&[Seen::Token(0)]).is_err(), "FUA: {fua}");
        assert!(model.judge(&[Seen::Token(7)]).is_ok());
    }
}

#[test]
fn canaries() {
    if seeds::number("VELLUM_SEED").is_some() {
        return;
    }
    // Each with the first seed that notices it. Later seeds are tried too, in case that one becomes a different life one day.
    for (broken, first) in [
        (Broken::SyncPersistsNothing, 1),
        (Broken::SyncForgetsSome, 1),
        (Broken::DurableIsCached, 1),
        (Broken::CutDamages, 2),
        (Broken::ReadLies, 1),
        (Broken::CompareTrusts, 1),
        (Broken::FingerprintsCollide, 12),
        (Broken::SumsAreLinear, 9),
        (Broken::CopiesAreStale, 1),
        (Broken::GrowsTooSoon, 1),
        (Broken::ShrinksBlindly, 3),
        (Broken::ShortensBlindly, 1),
        (Broken::CacheStays, 1_000_022),
        (Broken::FreedIsBlind, 1),
        (Broken::CriticalIsForgotten, 9),
        (Broken::ScrubTrusts, 1_000_006),
        (Broken::ScrubSuspects, 1),
        (Broken::MendsByPlace, 1_000_125),
    ] {
        // Only a failed sync leaves something in a cache, and only bad blocks can be found and mended.
        let needs_faults = [
            Broken::CacheStays,
            Broken::ScrubTrusts,
            Broken::MendsByPlace,
        ];
        let faults = needs_faults.contains(&broken);
        let found = (first..first + 60).find(|&seed| run(seed, broken, faults).is_err());
        println!("{broken:?}: found by seed {found:?}");
        assert!(found.is_some(), "the oracle does not notice {broken:?}");
    }
}

/// The oracle notices a recovery that gets any kind of record wrong, or takes a torn block for whole: not because that recovery fails, but
/// because some block then reads as what it must not.
#[test]
fn canaries_of_recovery() {
    if seeds::number("VELLUM_SEED").is_some() {
        return;
    }
    let kinds = Record::KINDS.iter();
    let all = kinds.map(|(kind, name, ..)| (Broken::Mistakes(*kind), *name));
    for (broken, name) in all.chain([(Broken::TornIsWhole, "torn")]) {
        let of_model = |why: &String| why.contains(": LBA ") && !why.contains(": panic: ");
        let mut failed = (1..60).filter_map(|seed| Some((seed, run(seed, broken, false).err()?)));
        let found = failed.find(|(_, why)| of_model(why));
        println!("{broken:?}, {name}: {found:?}");
        assert!(
            found.is_some(),
            "the oracle does not notice {broken:?}, {name}"
        );
    }
}

/// A full volume that stays dead is noticed as such (point 7), and no other way.
#[test]
fn canaries_of_a_full_volume() {
    if seeds::number("VELLUM_SEED").is_some() {
        return;
    }
    for broken in [Broken::FullIsDead, Broken::RoomIsLost] {
        let mut whys = (1..60).filter_map(|seed| run(seed, broken, false).err());
        let found = whys.find(|why| why.contains("does not work, full or just no more"));
        println!("{broken:?}: {found:?}");
        assert!(found.is_some(), "the oracle does not notice {broken:?}");
    }
}
