//! The matrix of damage: every structure of the format, damaged in every way, in one block, in volumes that were stopped or cut off at
//! any moment of their lives. Only the contents of that block are lost, and no read ever returns contents that were never at its address.
//!
//! `VELLUM_CASES=n` sets the number of cases (10,000 with `VELLUM_LONG=1`), from seed `VELLUM_FROM` on; `VELLUM_SEED=n` replays
//! one seed. In CI each state of the sources has its own seeds, except for new logs.

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

/// The version of the programs that made the volumes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    New,
    /// Before metadata had copies.
    Before,
}

/// Seeds that once failed. The comment above each says what was wrong.
const FOUND: [(Layout, Age, u64); 28] = [
    // The leaf of a number was lost, and an LBA that had had another number was believed.
    (Layout::Log, Age::Before, 304),
    // Guesses took the places that were counted for what is certain.
    (Layout::Log, Age::Before, 200_263),
    // The proof that a lost chunk was durable was in a segment that the other head had continued in.
    (Layout::Log, Age::Before, 100_082),
    // Two bases of deltas were at the same place; one of them had been overwritten.
    (Layout::Log, Age::Before, 300_217),
    // A part's number had been given to another page, by a chunk that was erased since.
    (Layout::Log, Age::Before, 1_000_168),
    // Not everything durable was examined for guesses.
    (Layout::Log, Age::Before, 1_000_200),
    // Guesses led to blocks that had been overwritten: by a later use of the segment, and by a chunk that was not part of the
    // log.
    (Layout::Log, Age::Before, 1_000_513),
    (Layout::Log, Age::Before, 1_001_650),
    // An old header, of a life whose log had ended before it, was taken for the right contents of its block.
    (Layout::Log, Age::Before, 1_002_735),
    // An old header was the first of an open segment, and was believed, although its chunk would have reached past the cursor.
    (Layout::Log, Age::Before, 3_802_553_144),
    // An LBA that the chunk said something about twice was counted as lost because of the first.
    (Layout::Log, Age::New, 2_000_028),
    // Not wrong: it is not known whether a lost chunk that names a block of the journal ended its pledge, so its home is lost
    // too.
    (Layout::Log, Age::New, 6_000_073),
    // Not wrong either: a block of the journal was pledged after the lost chunk had said that it is shared with another one.
    (Layout::Log, Age::New, 1_766_740_837),
    // A power cut had torn a rewritten summary, and a header of that segment was lost.
    (Layout::Log, Age::New, 780_989_875),
    (Layout::Log, Age::New, 41),
    // A lost chunk had moved a block, and a chunk past the end of the log had overwritten its old place: that chunk's header
    // proved it.
    (Layout::Log, Age::New, 440_234_276),
    // The same, in a log that was taken to end before the lost chunk: nothing had recorded before the crash that it was durable.
    (Layout::Log, Age::New, 3_627_244_805),
    // Not wrong: an older life's chunk with a higher number was in the place of a lost one, and the chunks after it were taken
    // for older.
    (Layout::Log, Age::New, 1_863_176_232),
    // In the place of the log's last chunk was one of an older life with the same number, which was taken for it.
    (Layout::Log, Age::New, 2_251_703_215),
    // The chunk after a lost one was torn, and what its header says of the lost one was not used: everything was lost.
    (Layout::Log, Age::New, 4006),
    // A chunk that was there shared a block with one that the power cut had taken, and the block's earlier owner was taken for the later.
    (Layout::Log, Age::Before, 3075),
    (Layout::Log, Age::Before, 1061),
    // An old superblock was believed: the volume had grown since, and a power cut had torn its other superblock.
    (Layout::Log, Age::New, 830_001_995),
    // A root had no second copy when the next commit overwrote what the previous root needs, and recovery went back to that one.
    (Layout::Shadow, Age::Before, 4_088_890_504),
    // A root without a second copy was marked as durable, and lost.
    (Layout::Shadow, Age::New, 3_735_928_959),
    // One of two copies of a block of the map was newer, and what the other one led to was overwritten before they were alike.
    (Layout::Ordered, Age::New, 1_305_566_837),
    // Not wrong: more counts were too low than a list of damage holds, and the matrix relied on that list.
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
    }
    .with_damage();
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
                "seed {seed}: {why}\n\nreplay: VELLUM_SEED={seed} cargo test -p vellum-core --test damage -- \
                 {test} --nocapture\n"
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
            "{structure:?} {damage:?}: {cases} cases, {harmless} cost nothing, {exact} what was hit, {more} \
             more, {copied} told by copies, {cut} cut the log, {refused} not to be written"
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

/// Checks every case: nothing but the damaged block is lost, and the volume opens for writing.
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

/// Seeds that once failed.
#[test]
fn found() {
    for (layout, age, seed) in FOUND {
        if let Err(why) = cases(seed, (layout, age), Copies::Good, &mut Matrix::new()) {
            panic!("seed {seed}: {why}");
        }
    }
}

/// A copy that is not kept up to date saves nothing, and a log that ends before the damaged chunk has lost too much. The matrix notices
/// both.
#[test]
fn canary() {
    let seeds = |copies, of_what: &str| {
        let log = (Layout::Log, Age::New);
        let why = |seed| cases(seed, log, copies, &mut Matrix::new()).err();
        let found = (1..20).filter_map(why).find(|why| why.contains(of_what));
        println!("{copies:?}: {found:?}");
        assert!(found.is_some(), "the matrix does not notice {copies:?}");
    };
    seeds(Copies::Stale, "");
    seeds(Copies::Short, "it ends at");
}
