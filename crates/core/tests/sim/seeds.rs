//! The seeds that a test of lives runs. The environment chooses them: one to replay (`VELLUM_SEED`), or as many as fit a number
//! of lives (`VELLUM_LIVES`) or seconds (`VELLUM_SECONDS`), from `VELLUM_FROM` on or else from the clock; otherwise a fixed set.
//! `VELLUM_DIGESTS=1` prints a digest for each seed, so that two machines can compare what they ran.

use super::summary::Summary;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Lives on one volume before a new one is made.
pub const LIVES_A_SEED: u64 = 40;

pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Fixed seeds from this one on; twice as many in the long set (`VELLUM_LONG=1`).
pub fn fixed(first: u64) -> Range<u64> {
    let count = match number("VELLUM_LONG") {
        None => 30,
        Some(_) => 60,
    };
    first..first + count
}

/// Runs the seeds that the environment requests, or the fixed ones, and prints a summary.
pub fn run(test: &str, fixed: Range<u64>, one: impl Fn(u64) -> Summary) -> Summary {
    let began = Instant::now();
    let digests = number("VELLUM_DIGESTS").is_some();
    let mut total = Summary::default();
    each(fixed, |seed| {
        let summary = one(seed);
        if digests {
            println!("{test}: seed {seed} digest {:016x}", summary.digest);
        }
        total.add(&summary);
    });
    let rate = total.lives as f64 / began.elapsed().as_secs_f64();
    println!("{test}: {rate:.0} lives a second, {total:?}");
    total
}

fn each(fixed: Range<u64>, one: impl FnMut(u64)) {
    if let Some(seed) = number("VELLUM_SEED") {
        return (seed..=seed).for_each(one);
    }
    let (lives, seconds) = (number("VELLUM_LIVES"), number("VELLUM_SECONDS"));
    if lives.is_none() && seconds.is_none() {
        return fixed.for_each(one);
    }
    let first = number("VELLUM_FROM").unwrap_or_else(|| {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH);
        clock.unwrap().as_micros() as u64
    });
    println!("seeds from {first} on");
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let count = lives.map_or(u64::MAX, |lives| lives.div_ceil(LIVES_A_SEED));
    (first..first.saturating_add(count))
        .take_while(|_| until.is_none_or(|until| Instant::now() < until))
        .for_each(one);
}
