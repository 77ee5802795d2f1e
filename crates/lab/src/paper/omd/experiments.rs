//! What the paper does not state about its loads, varied.

use super::loads::{ALL, Load, Made, made};
use super::says::{FROM_IDEAL, INSTALL, PLAIN, SPACE, SYSTEMS, Says, Seen, Shown, TIME, WHOLE};
use super::says::{claims, run_of, space};
use crate::paper::cell::{Cell, run};
use crate::paper::claim::Stated;
use crate::paper::experiment::{Assumption, Experiment};
use crate::paper::failure::PaperError;
use crate::paper::size::Size;

const SLOWER: Assumption = Assumption {
    varies: "the application's time between two requests, in times ours",
    unit: "",
    usual: 1.0,
    others: &[4.0, 16.0, 64.0],
    plausible: (0.5, 100.0),
    because: "the paper does not say how long its applications take; ours ask for all within 0.8 to 9 \
        seconds, and packages, a browser's benchmark, Hadoop and YCSB take a minute to a \
              quarter of an hour",
};

const FLUSHES: Assumption = Assumption {
    varies: "requests between two flushes, in times ours",
    unit: "",
    usual: 1.0,
    others: &[2.0, 4.0, 8.0, 16.0],
    plausible: (0.5, 16.0),
    because: "the paper does not say how often its applications flush; ours do each 0.01 to 0.4 seconds, \
        and 16 times as rarely is each 0.2 to 6 seconds",
};

const NEWEST: Assumption = Assumption {
    varies: "of how many of the newest contents one comes again",
    unit: "",
    usual: ALL,
    others: &[16.0, 64.0, 4096.0],
    plausible: (64.0, ALL),
    because: "the paper does not say how soon a content comes again; of fewer than 64, a quarter of a \
        megabyte, no file could come again as a whole",
};

/// All that are tried under one kind of persistence.
pub fn all(stated: &Says, size: Size, threads: usize) -> Result<Vec<Experiment>, PaperError> {
    let tried = |assumption: &Assumption, columns: &[&str], how: &dyn Fn(f64) -> Made| {
        let columns = columns.iter().map(|&claim| (claim.to_owned(), "%"));
        let columns: Vec<_> = columns.collect();
        Experiment::vary(assumption, &columns, |value| {
            let found = trial(&made(size, how(value)), stated, threads)?;
            let figures = columns.iter().map(|(name, _)| {
                let claim = found.iter().find(|(what, _)| what == name);
                claim.map_or(Stated::Words { holds: false }, |(_, stated)| *stated)
            });
            Ok(figures.collect())
        })
    };
    let usual = Made::USUAL;
    let slower = tried(&SLOWER, &[TIME, INSTALL], &|slower| Made {
        slower,
        ..usual
    })?;
    if stated.strong {
        return Ok(vec![slower]);
    }
    let written = [&stated.fewer(), FROM_IDEAL];
    let flushes = tried(&FLUSHES, &written, &|fewer_flushes| Made {
        fewer_flushes,
        ..usual
    })?;
    let newest = tried(&NEWEST, &[SPACE], &|newest| Made { newest, ..usual })?;
    Ok(vec![flushes, slower, newest])
}

/// What is compared with the paper's statements when these loads run.
fn trial(
    loads: &[Load],
    stated: &Says,
    threads: usize,
) -> Result<Vec<(String, Stated)>, PaperError> {
    let mut cells = Vec::new();
    for load in loads {
        for system in [PLAIN, WHOLE] {
            let (name, policy) = SYSTEMS[system];
            let plain = system == PLAIN;
            let scenario = run_of(load, stated.strong && plain);
            let what = format!("{}, {name}", load.name);
            cells.push(Cell::new(
                (),
                what,
                scenario,
                &stated.policy(policy, plain),
            )?);
        }
    }
    let outcomes = run(cells, threads)?;
    let pairs = outcomes.chunks_exact(2).zip(loads);
    let seen = pairs.map(|(pair, load)| Seen {
        name: &load.name,
        ideal: load.ideal(),
        whole: Shown::of(&pair[1].1, &pair[0].1),
        shadow: Shown::default(),
        dmdedup: 0.0,
        space: space(load, &pair[1].1),
    });
    let claims = claims(stated, &seen.collect::<Vec<_>>());
    let claims = claims.into_iter().map(|claim| (claim.what, claim.stated));
    Ok(claims.collect())
}
