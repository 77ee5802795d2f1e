//! Traces whose times were not measured: anything derived from them is worthless.

use crate::replay::{SECOND, Summary};
use vellum_core::addr::BLOCK_BYTES;

/// How it shows that the times of a trace were not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeUp {
    /// All requests have the same time.
    Same,
    /// Most are dated before their predecessor.
    Falling,
}

/// Units of time in nanoseconds: of traces, and of Windows.
const UNITS: [u64; 5] = [1, 100, 1000, 1_000_000, SECOND];
/// So many requests do not come one unit after each other by chance.
const NUMBERS_MIN: u64 = 32;

impl Summary {
    /// All its requests.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.reads + self.writes + self.discards + self.flushes
    }

    /// Why its times cannot have been measured, if so; nothing can be concluded from such times.
    #[must_use]
    pub fn made_up_times(&self) -> Option<MadeUp> {
        let requests = self.requests();
        if requests > 1 && self.seen.backwards > requests / 2 {
            return Some(MadeUp::Falling);
        }
        (requests > 1 && self.first_at == self.last_at).then_some(MadeUp::Same)
    }

    /// True if each request is dated one unit of time after its predecessor. These may be row numbers. They may be times as well, of a load
    /// of so many requests a second.
    #[must_use]
    pub fn may_be_numbered(&self) -> bool {
        let is_even = self.requests() >= NUMBERS_MIN && self.other_gaps == 0;
        is_even && UNITS.contains(&self.first_gap)
    }

    /// True if its times are whole seconds, in which several requests come: how they are spread over a second is not known.
    #[must_use]
    pub fn is_of_bursts(&self) -> bool {
        let requests = self.requests();
        let seconds = self.last_at.saturating_sub(self.first_at) / SECOND + 1;
        self.off_seconds == 0 && requests > seconds && self.made_up_times().is_none()
    }

    /// Bytes written a day at its own rate; none if that is not known.
    #[must_use]
    pub fn daily_bytes(&self) -> Option<u64> {
        let span = self.last_at.saturating_sub(self.first_at) as f64 / 1e9;
        let bytes = self.blocks_written as f64 * BLOCK_BYTES as f64;
        let is_known = span > 0.0 && self.made_up_times().is_none();
        is_known.then(|| (bytes / span * 86_400.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_times_give_no_rate() {
        let day = 86_400_000_000_000;
        let of = |last_at, backwards| {
            let mut summary = Summary {
                writes: 10,
                blocks_written: 100,
                last_at,
                ..Summary::default()
            };
            summary.seen.backwards = backwards;
            summary.daily_bytes()
        };
        assert_eq!(of(day, 0), Some(100 * 4096));
        assert_eq!(of(day, 9), None);
        assert_eq!(of(0, 0), None);
    }

    #[test]
    fn whole_seconds_are_bursts_if_several_requests_come_in_one() {
        let of = |writes, off_seconds| {
            let summary = Summary {
                writes,
                first_at: 5_000_000_000,
                last_at: 8_000_000_000,
                off_seconds,
                ..Summary::default()
            };
            summary.is_of_bursts()
        };
        assert!(of(5, 0));
        // One a second, or a finer clock.
        assert!(!of(4, 0) && !of(5, 1));
        assert!(!Summary::default().is_of_bursts());
    }

    #[test]
    fn made_up_times_are_detected() {
        let of = |first_at, last_at, backwards| {
            let mut summary = Summary {
                writes: 10,
                first_at,
                last_at,
                ..Summary::default()
            };
            summary.seen.backwards = backwards;
            summary.made_up_times()
        };
        assert_eq!(of(0, 0, 0), Some(MadeUp::Same));
        assert_eq!(of(7, 7, 0), Some(MadeUp::Same));
        assert_eq!(of(7, 7, 9), Some(MadeUp::Falling));
        assert_eq!(of(7, 90, 6), Some(MadeUp::Falling));
        // A clock that was set back once is still a clock.
        assert_eq!(of(7, 90, 1), None);
        assert_eq!(of(0, 1, 0), None);
        let one = Summary {
            writes: 1,
            ..Summary::default()
        };
        assert_eq!(one.made_up_times(), None);
    }

    #[test]
    fn times_that_may_be_row_numbers_are_kept() {
        let even = |writes, first_gap, other_gaps| {
            let summary = Summary {
                writes,
                last_at: first_gap * (writes - 1),
                first_gap,
                other_gaps,
                blocks_written: writes,
                ..Summary::default()
            };
            assert_eq!(summary.made_up_times(), None);
            assert!(summary.daily_bytes().is_some());
            summary.may_be_numbered()
        };
        // 0, 1, 2, ... in microseconds. Few may be so by chance, and 10 ms are somebody's pace.
        assert!(even(32, 1000, 0));
        // A thousand a second, or rows of milliseconds.
        assert!(even(32, 1_000_000, 0));
        assert!(!even(31, 1000, 0));
        assert!(!even(32, 1000, 1));
        assert!(!even(32, 10_000_000, 0));
    }
}
