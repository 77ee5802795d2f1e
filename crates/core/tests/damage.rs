//! The matrix of damage: every structure of the format, damaged in every way, in one block, of volumes that were stopped or
//! cut off at any moment of their lives: what is lost is what was in that block, and nothing is ever read that was not there.
//!
//! `VELLUM_CASES=n` is how many cases to try (10,000 with `VELLUM_LONG=1`); `VELLUM_SEED=n` replays one seed.

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

fn cases(seed: u64, layout: Layout, copies: Copies, matrix: &mut Matrix) -> Result<(), String> {
    let mut world = match layout {
        Layout::Log => World::new(seed, Broken::No, false)?,
        layout => World::of_tables(seed, layout, Broken::No, false)?,
    };
    for life in 0..LIVES {
        let older = world.medium().clone();
        world.life()?;
        world
            .hit(&older, CASES, copies, matrix)
            .map_err(|why| format!("life {life}: {why}"))?;
    }
    Ok(())
}

fn run(test: &str, layout: Layout) -> Matrix {
    let wanted = seeds::number("VELLUM_CASES").unwrap_or(match seeds::number("VELLUM_LONG") {
        None => 400,
        Some(_) => 10_000,
    });
    let mut matrix = Matrix::new();
    let (first, only) = match seeds::number("VELLUM_SEED") {
        Some(seed) => (seed, true),
        None => (1, false),
    };
    for seed in first.. {
        if let Err(why) = cases(seed, layout, Copies::Good, &mut matrix) {
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
    run("log", Layout::Log);
}

#[test]
fn ordered() {
    run("ordered", Layout::Ordered);
}

#[test]
fn shadow() {
    run("shadow", Layout::Shadow);
}

/// A copy that is not kept up costs what it is there for, and the matrix sees that.
#[test]
fn canary() {
    let stale = |seed| cases(seed, Layout::Log, Copies::Stale, &mut Matrix::new());
    let found = (1..20).find_map(|seed| stale(seed).err());
    println!("stale copies: {found:?}");
    assert!(found.is_some(), "the matrix does not notice stale copies");
}
