//! The matrix of damage: every structure of the format, damaged in every way, in one block, of volumes that were stopped or
//! cut off at any moment of their lives: what is lost is what was in that block, and nothing is ever read that was not there.
//!
//! `VELLUM_CASES=n` is how many cases to try (10,000 with `VELLUM_LONG=1`), from seed `VELLUM_FROM` on; `VELLUM_SEED=n` replays one seed.
//! In CI each state of the sources has seeds of its own, but for new logs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "not a server: a failure is a test's"
)]

#[allow(dead_code, reason = "each test uses its share")]
mod sim;

use sim::damage::{Copies, Matrix, Tally};
use sim::medium::Broken;
use sim::seeds;
use sim::world::World;
use vellum_core::format::areas::Layout;

/// Lives of a volume, and cases after each.
const LIVES: u64 = 12;
const CASES: usize = 12;

/// When the volumes were made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    New,
    /// Before what leads to data was there twice.
    Before,
}

/// What each was is said beside it.
const FOUND: [(Layout, Age, u64); 24] = [
    // A number's leaf was lost, and an LBA was believed that had had another number.
    (Layout::Log, Age::Before, 304),
    // Guesses took the places that were counted for what is certain.
    (Layout::Log, Age::Before, 200_263),
    // What proved that a lost chunk was durable was in a segment that the other head had gone on to.
    (Layout::Log, Age::Before, 100_082),
    // Two bases of deltas, of which one had been written over, were at one place.
    (Layout::Log, Age::Before, 300_217),
    // A part's number had been given to another page, by a chunk that is erased by now.
    (Layout::Log, Age::Before, 1_000_168),
    // Not all that was durable was looked at for guesses.
    (Layout::Log, Age::Before, 1_000_200),
    // Guesses led to what had been written over: by a later use of the segment, and by a chunk that was no part of the log.
    (Layout::Log, Age::Before, 1_000_513),
    (Layout::Log, Age::Before, 1_001_650),
    // A header of before, of a life whose log had ended before it, was taken for what its block should be.
    (Layout::Log, Age::Before, 1_002_735),
    // An LBA that the chunk said something of twice was lost for what it said first.
    (Layout::Log, Age::New, 2_000_028),
    // Not wrong: whether a lost chunk that names a block of the journal ended its pledge is not known, so its home is lost, too.
    (Layout::Log, Age::New, 6_000_073),
    // Not wrong either: a block of the journal was pledged to after the lost chunk had said that it is shared with another one.
    (Layout::Log, Age::New, 1_766_740_837),
    // A power cut had torn a summary that was written anew, and a header of that segment was lost.
    (Layout::Log, Age::New, 780_989_875),
    (Layout::Log, Age::New, 41),
    // A lost chunk had moved a block, and one behind the end of the log was written over where that had been: its header proved it.
    (Layout::Log, Age::New, 440_234_276),
    // The same, of a log that was taken to end before the lost chunk: the one that crashed had said nowhere that it was durable.
    (Layout::Log, Age::New, 3_627_244_805),
    // Not wrong: of an older life there was a chunk of a higher number in a lost one's place, and chunks behind it were taken for older.
    (Layout::Log, Age::New, 1_863_176_232),
    // In the place of the log's last chunk was one of an older life, with the same number, and was taken for it.
    (Layout::Log, Age::New, 2_251_703_215),
    // A superblock of before was believed, of a volume that had grown since and whose other superblock a power cut had torn.
    (Layout::Log, Age::New, 830_001_995),
    // A root was alone when the next commit wrote over what the one before it needs, and that one was gone back to.
    (Layout::Shadow, Age::Before, 4_088_890_504),
    // A root that was alone was marked as durable, and lost.
    (Layout::Shadow, Age::New, 3_735_928_959),
    // One of two copies of a block of the map was newer, and what the other one led to was written over before they were alike.
    (Layout::Ordered, Age::New, 1_305_566_837),
    // Not wrong: more counts were too low than a list of damage holds, and the matrix went by that list.
    (Layout::Ordered, Age::Before, 3_337_556_034),
    (Layout::Ordered, Age::Before, 1_720_238_879),
];

fn cases(
    seed: u64,
    (layout, age): (Layout, Age),
    copies: Copies,
    matrix: &mut Matrix,
) -> Result<(), String> {
    let mut world = match layout {
        Layout::Log => World::new(seed, Broken::No, false)?,
        layout => World::of_tables(seed, layout, Broken::No, false)?,
    };
    if world.is_of_before() != (age == Age::Before) {
        return Ok(());
    }
    for life in 0..LIVES {
        let older = world.medium().clone();
        world.life()?;
        world
            .hit(&older, CASES, copies, matrix)
            .map_err(|why| format!("life {life}: {why}"))?;
    }
    Ok(())
}

fn run(test: &str, layout: Layout, age: Age) -> Matrix {
    let wanted = seeds::number("VELLUM_CASES").unwrap_or(match seeds::number("VELLUM_LONG") {
        None => 400,
        Some(_) => 10_000,
    });
    let mut matrix = Matrix::new();
    let (first, only) = match seeds::number("VELLUM_SEED") {
        Some(seed) => (seed, true),
        None => (seeds::number("VELLUM_FROM").unwrap_or(1), false),
    };
    println!("seeds from {first} on: {test}, {layout:?}");
    for seed in first.. {
        if let Err(why) = cases(seed, (layout, age), Copies::Good, &mut matrix) {
            panic!(
                "seed {seed}: {why}\n\nreplay: VELLUM_SEED={seed} cargo test -p vellum-core --test damage -- {test} --nocapture\n"
            );
        }
        let tried: u64 = matrix.values().map(|tally| tally.cases).sum();
        if only || tried >= wanted {
            break;
        }
    }
    println!("{test}:");
    for ((structure, damage), tally) in &matrix {
        let Tally {
            cases,
            harmless,
            exact,
            more,
            copied,
            cut,
            refused,
        } = tally;
        println!(
            "{structure:?} {damage:?}: {cases} cases, {harmless} cost nothing, {exact} what was hit, {more} more, {copied} told by copies, {cut} cut the log, \
             {refused} not to be written"
        );
    }
    matrix
}

#[test]
fn log() {
    run("log", Layout::Log, Age::New);
}

#[test]
fn ordered() {
    sound(run("ordered", Layout::Ordered, Age::New));
}

#[test]
fn shadow() {
    sound(run("shadow", Layout::Shadow, Age::New));
}

/// Every case: what was hit is all that is lost, and the volume opens to be written.
fn sound(matrix: Matrix) {
    for (case, tally) in matrix {
        let is_sound = tally.more == 0 && tally.refused == 0;
        assert!(is_sound, "{case:?}: {tally:?}");
    }
}

#[test]
fn log_of_before() {
    run("log_of_before", Layout::Log, Age::Before);
}

#[test]
fn of_before() {
    for layout in [Layout::Ordered, Layout::Shadow] {
        run("of_before", layout, Age::Before);
    }
}

/// Seeds that failed once.
#[test]
fn found() {
    for (layout, age, seed) in FOUND {
        if let Err(why) = cases(seed, (layout, age), Copies::Good, &mut Matrix::new()) {
            panic!("seed {seed}: {why}");
        }
    }
}

/// A copy that is not kept up costs what it is there for, and the matrix sees that.
#[test]
fn canary() {
    let stale = |seed| {
        cases(
            seed,
            (Layout::Log, Age::New),
            Copies::Stale,
            &mut Matrix::new(),
        )
    };
    let found = (1..20).find_map(|seed| stale(seed).err());
    println!("stale copies: {found:?}");
    assert!(found.is_some(), "the matrix does not notice stale copies");
}
