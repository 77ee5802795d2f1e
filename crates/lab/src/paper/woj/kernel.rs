//! What the paper does not state, varied: how long its kernel takes for a write, which here takes no time.

use super::rows::{FigureRow, HASHES, by_fast_hash, find, rows_of};
use super::setting::{BY_HASH, SPEEDS, SYSTEMS, speed_claim};
use crate::paper::claim::Stated;
use crate::paper::experiment::{Assumption, Experiment};
use crate::paper::failure::PaperError;
use crate::paper::size::Size;

/// The time of the processor for a write, to which an experiment gives its own values.
pub const fn assumption(others: &'static [f64]) -> Assumption {
    Assumption {
        varies: "processor time of a 4 KiB write before the drive has it",
        unit: " us",
        usual: 0.0,
        others,
        plausible: (1.0, 5.0),
        because: "the lab has no kernel, and the paper does not say what its own takes: a copy into the \
            page cache, ext3's journal, the device mapper and the \
                  driver, on a Xeon of 2.5 GHz; with more than 5 us the hashes could not lie as far apart \
                  as the paper has them",
    }
}

/// Nanoseconds of this many microseconds.
pub fn nanos(us: f64) -> u64 {
    (us * 1000.0) as u64
}

const FAST: &str = "fast-ssd";
/// The window at which the systems differ most.
const WINDOW: u64 = 1000;

/// Fast and slow hashes.
pub fn hashes(size: Size, threads: usize) -> Result<Experiment, PaperError> {
    let assumption = assumption(&[1.0, 2.0, 4.0]);
    let systems = HASHES.into_iter();
    let systems = systems.filter(|(name, _)| ["WOJ_xxh64", "WOJ_sha1"].contains(name));
    let each: Vec<_> = systems.map(|system| (FAST, WINDOW, system)).collect();
    Experiment::vary(&assumption, &[(BY_HASH.into(), " times")], |us| {
        let rows = rows_of("sequential", each.clone(), (size, nanos(us)), threads)?;
        let best = by_fast_hash(&rows);
        Ok(vec![Stated::figure(2.24, best).over(1.0)])
    })
}

/// Random and sequential writes.
pub fn speeds(size: Size, threads: usize) -> Result<Experiment, PaperError> {
    let assumption = assumption(&[4.0, 8.0, 16.0]);
    let columns = SPEEDS.map(|(load, _)| (speed_claim(load), " MB/s"));
    let speed = |rows: &[FigureRow]| find(rows, FAST, WINDOW, SYSTEMS[1].0).speed();
    Experiment::vary(&assumption, &columns, |us| {
        let of = |load| {
            let each = [(FAST, WINDOW, SYSTEMS[1])];
            rows_of(load, each, (size, nanos(us)), threads)
        };
        let speeds = [speed(&of("uniform")?), speed(&of("sequential")?)];
        let stated = SPEEDS.into_iter().zip(speeds);
        Ok(stated
            .map(|((_, theirs), ours)| Stated::figure(theirs, ours))
            .collect())
    })
}
