//! Measures how long clients wait for their flushes, which are mostly fsyncs. Waits are counted in steps of a quarter, in memory
//! of a fixed size.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Steps between one power of two and the next.
const STEPS: usize = 4;
/// More than an hour in microseconds.
const BUCKETS: usize = 33 * STEPS;

/// The first and the last power of two that [`WaitStats::histogram`] has: 16 us, 17 s.
const POWERS: std::ops::RangeInclusive<usize> = 4..=24;
const STEPS_TOLD: usize = *POWERS.end() - *POWERS.start() + 1;

/// A step of a histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitStep {
    /// Where it ends.
    pub below_micros: u64,
    /// How many waited less than that, but not less than the end of the step before.
    pub count: u64,
}

/// How long something took, in microseconds. The median and the 99th percentile are exact to a quarter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitStats {
    /// On average.
    pub mean_micros: u64,
    /// The median.
    pub half_micros: u64,
    /// The 99th percentile.
    pub most_micros: u64,
    /// The longest.
    pub longest_micros: u64,
    /// How many there were.
    #[serde(default)]
    pub count: u64,
    /// All of them together.
    #[serde(default)]
    pub all_micros: u64,
    /// How many took how long. Those that took longer than the last step's end are in no step.
    #[serde(default)]
    pub histogram: [WaitStep; STEPS_TOLD],
}

/// Counts of waits.
pub(crate) struct Waits {
    buckets: [AtomicU64; BUCKETS],
    micros: AtomicU64,
    micros_max: AtomicU64,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            micros: AtomicU64::new(0),
            micros_max: AtomicU64::new(0),
        }
    }
}

impl Waits {
    /// Notes a wait.
    pub fn note(&self, waited: Duration) {
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(micros)].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.micros_max.fetch_max(micros, Ordering::Relaxed);
    }

    /// The statistics of all waits.
    pub fn stats(&self) -> WaitStats {
        let counts = self.buckets.each_ref().map(|n| n.load(Ordering::Relaxed));
        let all: u64 = counts.iter().sum();
        let longest = self.micros_max.load(Ordering::Relaxed);
        let within = |percent: u64| {
            let wanted = (all * percent).div_ceil(100).max(1);
            let mut seen = 0;
            let found = counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            found.map_or(0, |bucket| longest_of(bucket).min(longest))
        };
        let all_micros = self.micros.load(Ordering::Relaxed);
        WaitStats {
            mean_micros: all_micros.checked_div(all).unwrap_or(0),
            half_micros: within(50),
            most_micros: within(99),
            longest_micros: longest,
            count: all,
            all_micros,
            histogram: histogram(&counts),
        }
    }
}

/// A power of two begins a bucket, so each wait is in one step only.
fn histogram(counts: &[u64; BUCKETS]) -> [WaitStep; STEPS_TOLD] {
    let mut begin = 0;
    std::array::from_fn(|step| {
        let below_micros = 1 << (POWERS.start() + step);
        let end = bucket_of(below_micros);
        let count = counts[begin..end].iter().sum();
        begin = end;
        WaitStep {
            below_micros,
            count,
        }
    })
}

/// Below [`STEPS`] each number has its own bucket.
fn bucket_of(micros: u64) -> usize {
    let power = micros.max(1).ilog2() as usize;
    let step = match power {
        0 | 1 => return micros as usize,
        _ => (micros >> (power - 2)) as usize - STEPS,
    };
    ((power - 1) * STEPS + step).min(BUCKETS - 1)
}

/// The longest wait that a bucket counts.
fn longest_of(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (power, step) = (bucket / STEPS + 1, bucket % STEPS);
    (((STEPS + step + 1) as u64) << (power - 2)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_in_a_bucket_that_is_no_wider_than_a_quarter() {
        let mut before = 0;
        for micros in (0..5000).chain([1 << 20, 3_600_000_000, (1 << 33) - 1]) {
            let bucket = bucket_of(micros);
            assert!(bucket >= before, "{micros}");
            before = bucket;
            let longest = longest_of(bucket);
            assert!(
                longest >= micros && longest <= micros + micros / 4,
                "{micros}: {longest}"
            );
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_median_and_the_99th_percentile_are_reported() {
        let waits = Waits::default();
        let none = waits.stats();
        assert_eq!((none.count, none.mean_micros, none.half_micros), (0, 0, 0));
        for micros in 1..=1000 {
            waits.note(Duration::from_micros(micros));
        }
        let told = waits.stats();
        assert_eq!((told.mean_micros, told.longest_micros), (500, 1000));
        assert!((500..=640).contains(&told.half_micros), "{told:?}");
        assert!((990..=1000).contains(&told.most_micros), "{told:?}");
    }

    #[test]
    fn each_wait_is_in_one_step_of_the_histogram() {
        let waits = Waits::default();
        for micros in [0, 15, 16, 1023, 1024, (1 << 24) - 1, 1 << 24, u64::MAX] {
            waits.note(Duration::from_micros(micros));
        }
        let told = waits.stats();
        let counted = told.histogram.iter().filter(|step| step.count > 0);
        let counted: Vec<_> = counted
            .map(|step| (step.below_micros, step.count))
            .collect();
        let last = 1 << 24;
        assert_eq!(counted, [(16, 2), (32, 1), (1024, 1), (2048, 1), (last, 1)]);
        assert_eq!(told.count, 8);
    }
}
