//! The course of a run in steps: plots over time use it, and so does the certainty of the run's figures.
//!
//! A step ends when the host has written a given amount. Steps grow with the run, so that there are from 64 to 128 of
//! them, however long it is.

use serde::Serialize;

/// The most steps that are kept; then every second one is removed.
const STEPS_MAX: usize = 128;
/// Blocks that the host writes in each of the first steps.
const FIRST_BLOCKS: u64 = 16;

/// Counters at the end of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Blocks that the host had written.
    pub host_written: u64,
    /// Blocks that the medium had received.
    pub medium_written: u64,
    /// Erasures.
    pub erases: u64,
    /// Virtual nanoseconds.
    pub at: u64,
    /// Writes that had been answered.
    pub writes: u64,
    /// The sum of their latencies, in nanoseconds.
    pub write_ns: u64,
    /// Reads that had been answered.
    pub reads: u64,
    /// The sum of their latencies, in nanoseconds.
    pub read_ns: u64,
    /// Blocks that the medium had received, by cause.
    pub by_cause: Vec<u64>,
    /// The engine's counters.
    pub engine: Vec<u64>,
}

/// The moments of a run in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    every: u64,
    moments: Vec<Moment>,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            every: FIRST_BLOCKS,
            moments: Vec::new(),
        }
    }
}

impl Series {
    /// The host's written blocks at which the next step ends.
    #[must_use]
    pub fn due(&self) -> u64 {
        self.moments.last().map_or(0, |last| last.host_written) + self.every
    }

    /// Ends a step.
    pub fn add(&mut self, moment: Moment) {
        self.moments.push(moment);
        if self.moments.len() == STEPS_MAX {
            let mut place = 0;
            self.moments.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.every *= 2;
        }
    }

    /// The steps, counted from a moment when the host had written nothing.
    #[must_use]
    pub fn since(&self, start: &Moment) -> Vec<SeriesStep> {
        let mut before = start;
        let steps = self.moments.iter().map(|now| {
            let (writes, reads) = (now.writes - before.writes, now.reads - before.reads);
            let causes = now.by_cause.iter().zip(&start.by_cause);
            let step = SeriesStep {
                host_written: now.host_written,
                medium_written: now.medium_written - start.medium_written,
                erases: now.erases - start.erases,
                seconds: (now.at - start.at) as f64 / 1e9,
                write_mean_ns: (now.write_ns - before.write_ns).checked_div(writes),
                read_mean_ns: (now.read_ns - before.read_ns).checked_div(reads),
                by_cause: causes.map(|(now, start)| now - start).collect(),
                engine: now.engine.clone(),
            };
            before = now;
            step
        });
        steps.collect()
    }
}

/// A step of a run: all counts are from the run's start to the step's end.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeriesStep {
    /// Blocks that the host wrote.
    pub host_written: u64,
    /// Blocks that the medium received.
    pub medium_written: u64,
    /// Erasures.
    pub erases: u64,
    /// Virtual seconds.
    pub seconds: f64,
    /// The mean latency of the writes answered within the step; none if there were none.
    pub write_mean_ns: Option<u64>,
    /// The same for reads.
    #[serde(skip)]
    pub read_mean_ns: Option<u64>,
    /// Blocks that the medium received, by cause, in the order of the run's causes.
    #[serde(skip)]
    pub by_cause: Vec<u64>,
    /// The engine's counters at that time, in the run's order.
    #[serde(skip)]
    pub engine: Vec<u64>,
}

/// Parts of a run that are compared with each other.
const BATCHES: usize = 16;
/// Student's t for that many, less one: 19 times in 20 the mean is within this many standard errors.
const STUDENT: f64 = 2.131;

/// The relative error of a count per block that the host writes: the truth is within it 19 times in 20. None if the
/// run is too short.
///
/// Uses batch means: the run is cut into sixteen parts of similar length, and their differences show how much chance
/// is in their mean, whatever the distribution of the counts. The erasures of a page map occur evenly, those of a log
/// a segment at a time.
#[must_use]
pub fn may_be_off(steps: &[SeriesStep], count: impl Fn(&SeriesStep) -> u64) -> Option<f64> {
    if steps.len() < BATCHES {
        return None;
    }
    let at = |batch: usize| match batch {
        0 => (0, 0),
        _ => {
            let step = &steps[batch * steps.len() / BATCHES - 1];
            (step.host_written, count(step))
        }
    };
    let rate = |batch: usize| {
        let (from, to) = (at(batch), at(batch + 1));
        (to.1 - from.1) as f64 / (to.0 - from.0) as f64
    };
    let rates: Vec<f64> = (0..BATCHES).map(rate).collect();
    let mean = rates.iter().sum::<f64>() / BATCHES as f64;
    let squares = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
    let error = (squares / (BATCHES * (BATCHES - 1)) as f64).sqrt();
    (mean > 0.0).then(|| STUDENT * error / mean)
}

/// How much more is written per block of the host in the second half than in the first, as a fraction.
#[must_use]
pub fn drift(steps: &[SeriesStep]) -> Option<f64> {
    let half = steps.get((steps.len() / 2).checked_sub(1)?)?;
    let last = steps.last()?;
    let first = half.medium_written as f64 / half.host_written as f64;
    let medium = (last.medium_written - half.medium_written) as f64;
    let second = medium / (last.host_written - half.host_written) as f64;
    (first > 0.0).then_some(second / first - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn series(blocks: u64, mut medium: impl FnMut(u64) -> u64) -> Vec<SeriesStep> {
        let mut series = Series::default();
        let mut written = 0;
        for block in 1..=blocks {
            written += medium(block);
            if block >= series.due() {
                series.add(Moment {
                    host_written: block,
                    medium_written: written,
                    erases: written,
                    ..Moment::default()
                });
            }
        }
        series.since(&Moment::default())
    }

    #[test]
    fn a_run_of_any_length_has_about_a_hundred_steps() {
        for blocks in [3000, 70_000, 1_000_000] {
            let steps = series(blocks, |_| 1);
            assert!((63..128).contains(&steps.len()), "{}", steps.len());
            let last = steps.last().unwrap();
            assert!(last.host_written > blocks * 62 / 64, "{last:?}");
            assert_eq!(last.host_written, last.medium_written);
        }
        assert_eq!(may_be_off(&series(100, |_| 1), |step| step.erases), None);
    }

    #[test]
    fn even_counts_are_certain_and_bursts_are_not() {
        let evenly = series(40_000, |block| u64::from(block % 100 == 0));
        let heaps = series(40_000, |block| 50 * u64::from(block % 5000 == 0));
        let [evenly, heaps] =
            [evenly, heaps].map(|steps| may_be_off(&steps, |step| step.erases).unwrap());
        assert!(evenly < 0.02, "{evenly}");
        assert!(heaps > 0.2, "{heaps}");
    }

    #[test]
    fn nineteen_times_in_twenty_the_truth_is_within() {
        let within = (0..400).filter(|&seed| {
            let mut rng = Rng::new(seed);
            // One block in twenty causes three erasures.
            let steps = series(20_000, |_| 3 * u64::from(rng.below(20) == 0));
            let off = may_be_off(&steps, |step| step.erases).unwrap();
            let last = steps.last().unwrap();
            let rate = last.erases as f64 / last.host_written as f64;
            (rate / 0.15 - 1.0).abs() <= off
        });
        let within = within.count();
        assert!((368..=392).contains(&within), "{within} of 400");
    }

    #[test]
    fn a_drift_is_the_second_half_over_the_first() {
        let steps = series(64_000, |block| if block > 32_000 { 3 } else { 2 });
        assert!((drift(&steps).unwrap() - 0.5).abs() < 0.03);
        assert_eq!(drift(&series(64_000, |_| 2)), Some(0.0));
        assert_eq!(drift(&[]), None);
        assert_eq!(drift(&series(1000, |_| 0)), None);
    }
}
