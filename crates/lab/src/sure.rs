//! How reliable a run's figures are.

use crate::series::{self, SeriesStep};
use serde::Serialize;

/// The most that the halves of a settled run differ, as a fraction.
const DRIFT_MAX: f64 = 0.01;
/// Volumes that the host must write for a run to count as settled by itself.
const VOLUMES_MIN: u64 = 4;

/// How certain the write amplification is, and whether it is stable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sure {
    /// True if it had settled: by the rule of the warm-up, or during the measurement itself. None if nothing was
    /// written, or nothing is known of the inside of the device.
    pub settled: Option<bool>,
    /// By how many percent it is higher in the second half of the measurement than in the first.
    pub drift_percent: Option<f64>,
    /// The lower bound of the write amplification: it is within the bounds 19 times in 20.
    pub write_amplification_low: Option<f64>,
    /// Its upper bound.
    pub write_amplification_high: Option<f64>,
}

impl Sure {
    /// The certainty of a run with this amplification, on a volume of this many blocks. `warm` says whether the
    /// warm-up by the load ended by its rule, if there was one.
    #[must_use]
    pub fn of(
        amplification: Option<f64>,
        steps: &[SeriesStep],
        volume: u64,
        warm: Option<bool>,
    ) -> Self {
        let drift = series::drift(steps);
        let written = steps.last().map_or(0, |last| last.host_written);
        let still = || {
            written >= VOLUMES_MIN * volume * 63 / 64
                && drift.is_some_and(|drift| drift.abs() <= DRIFT_MAX)
        };
        let off = series::may_be_off(steps, |step| step.medium_written);
        let within = |side: f64| Some(amplification? * (1.0 + side * off?));
        Self {
            settled: amplification.map(|_| warm.unwrap_or_else(still)),
            drift_percent: drift.map(|drift| drift * 100.0),
            write_amplification_low: within(-1.0),
            write_amplification_high: within(1.0),
        }
    }

    /// A warning to the reader, if the run had not settled or drifts.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let drift = self.drift_percent.unwrap_or(0.0);
        let drifts = drift.abs() > 100.0 * DRIFT_MAX;
        let told = format!(
            "its write amplification drifted by {drift:+.1}% from the first half to the second"
        );
        match self.settled? {
            true if !drifts => None,
            true => Some(format!("{told}: parts of the load differ")),
            false if drifts => Some(format!("NOT SETTLED: {told}")),
            false => {
                Some("NOT SETTLED: too little was written to tell whether it stands still".into())
            }
        }
    }

    /// Whether it had settled, in a word.
    #[must_use]
    pub fn told(&self) -> String {
        let word = match self.settled {
            Some(true) => "yes",
            Some(false) => "NO",
            None => return "-".into(),
        };
        match self.drift_percent {
            Some(drift) => format!("{word}, {drift:+.1}%"),
            None => word.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run over two volumes of 1000 blocks, one step per 20 blocks.
    fn steps(volumes: u64, medium: impl Fn(u64) -> u64) -> Vec<SeriesStep> {
        let step = |n: u64| SeriesStep {
            host_written: n * 20,
            medium_written: medium(n * 20),
            erases: 0,
            seconds: 0.0,
            write_mean_ns: None,
            read_mean_ns: None,
            by_cause: Vec::new(),
            engine: Vec::new(),
        };
        (1..=volumes * 50).map(step).collect()
    }

    #[test]
    fn a_run_that_is_stable_long_enough_has_settled() {
        let still = Sure::of(Some(2.0), &steps(5, |host| 2 * host), 1000, None);
        assert_eq!((still.settled, still.warning()), (Some(true), None));
        assert_eq!(still.write_amplification_low, Some(2.0));
        assert_eq!(still.told(), "yes, +0.0%");
        let short = Sure::of(Some(2.0), &steps(2, |host| 2 * host), 1000, None);
        assert!(short.warning().unwrap().contains("too little"));
        let drifting = Sure::of(Some(2.0), &steps(5, |host| host * host / 1000), 1000, None);
        assert_eq!(drifting.settled, Some(false));
        assert!(
            drifting
                .warning()
                .unwrap()
                .contains("NOT SETTLED: its write")
        );
        assert!(drifting.told().starts_with("NO, +"));
    }

    #[test]
    fn a_warm_up_decides_whether_the_run_had_settled() {
        let warm = |settled| Sure::of(Some(2.0), &steps(2, |host| 2 * host), 1000, Some(settled));
        assert_eq!(warm(true).settled, Some(true));
        assert_eq!(warm(false).settled, Some(false));
        let phases = Sure::of(
            Some(2.0),
            &steps(2, |host| host * host / 1000),
            1000,
            Some(true),
        );
        assert!(
            phases
                .warning()
                .unwrap()
                .contains("parts of the load differ")
        );
        assert_eq!(Sure::of(None, &[], 1000, None).told(), "-");
    }
}
