//! Decides whether the wall clock is trusted when old snapshots are to be deleted.
//!
//! A clock that leaps ahead makes all snapshots old at once. It may be right: a machine whose clock has no battery starts in
//! 1970. So the new time is trusted after a while, and until then nothing is deleted for its age. If the clock is set right
//! before that, nothing is lost.
//!
//! No clock shows how long a volume was not served. So the first time shown is compared with the date of the newest snapshot. So
//! are times shown soon after a boot, when the clock may still be set: a machine may start with any time, or with the time of its
//! last shutdown.

use crate::limits::{CLOCK_DOUBT, CLOCK_GAP, CLOCK_LEAP, CLOCK_SET};
use std::time::Duration;

/// What both clocks have shown: seconds since 1970, and how long the machine has been on, asleep or not.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// When the newest snapshot of an earlier life was taken.
    dated: Option<Duration>,
    /// Both clocks when the wall clock was last trusted.
    believed: Option<(Duration, Duration)>,
    /// Since when it is not trusted.
    since: Option<Duration>,
    /// Everything that no rule keeps is to be deleted once the clock is trusted.
    owes: bool,
}

impl Doubt {
    /// Begins at an opening; `newest` is when the newest snapshot was taken, in seconds since 1970.
    pub fn begin(newest: Option<u64>) -> Self {
        Self {
            dated: newest.map(Duration::from_secs),
            ..Self::default()
        }
    }

    /// Takes what both clocks show now. Returns true if the wall clock is in doubt.
    pub fn look(&mut self, wall: Duration, running: Duration) -> bool {
        let leaps = self.latest(running).is_some_and(|latest| wall > latest);
        if leaps {
            let since = *self.since.get_or_insert(running);
            if running.saturating_sub(since) < CLOCK_DOUBT {
                return true;
            }
        }
        (self.believed, self.since) = (Some((wall, running)), None);
        false
    }

    /// The latest time that a correct wall clock can show, as far as that is known.
    fn latest(&self, running: Duration) -> Option<Duration> {
        let by_looks = |(showed, then): (Duration, Duration)| {
            let lasted = running.saturating_sub(then);
            showed.saturating_add(lasted).saturating_add(CLOCK_LEAP)
        };
        let by_looks = self.believed.map(by_looks);
        let by_date = self.dated.map(|dated| dated.saturating_add(CLOCK_GAP));
        let is_behind = match (self.believed, self.dated) {
            (Some((showed, _)), Some(dated)) => showed < dated,
            _ => false,
        };
        match self.believed.is_none() || is_behind || running < CLOCK_SET {
            true => by_date.max(by_looks),
            false => by_looks,
        }
    }

    /// True if everything that no rule keeps is to be deleted now; `asked`: the user has just changed what is to stay. While the
    /// clock is in doubt, that is put off.
    pub fn thins_all(&mut self, asked: bool) -> bool {
        self.owes |= asked;
        self.since.is_none() && std::mem::take(&mut self.owes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;
    const NOW: u64 = 20_000 * 24 * HOUR;

    fn look(doubt: &mut Doubt, wall: u64, running: u64) -> bool {
        doubt.look(Duration::from_secs(wall), Duration::from_secs(running))
    }

    #[test]
    fn a_clock_that_leaps_ahead_is_believed_after_a_day() {
        let mut doubt = Doubt::default();
        assert!(!look(&mut doubt, NOW, 0));
        // A long time between two looks is no leap.
        assert!(!look(&mut doubt, NOW + 900 * HOUR, 900 * HOUR));
        for hour in 901..925 {
            assert!(
                look(&mut doubt, 2 * NOW + hour * HOUR, hour * HOUR),
                "{hour}"
            );
        }
        assert!(!look(&mut doubt, 2 * NOW + 925 * HOUR, 925 * HOUR));
        assert!(!look(&mut doubt, 2 * NOW + 926 * HOUR, 926 * HOUR));
    }

    #[test]
    fn the_first_time_shown_is_compared_with_the_newest_snapshot() {
        let day = 24 * HOUR;
        let on = 99 * day;
        // A machine that was on all the time, and one that was off for a month.
        for (gap, is_doubted) in [(0, false), (20 * day, false), (60 * day, true)] {
            let mut doubt = Doubt::begin(Some(NOW));
            assert_eq!(look(&mut doubt, NOW + gap, on), is_doubted, "{gap}");
            assert!(!look(&mut doubt, NOW + gap + day, on + day), "{gap}");
        }
        // The clock is set right within a day.
        let mut doubt = Doubt::begin(Some(NOW));
        assert!(look(&mut doubt, 2 * NOW, 0));
        assert!(!look(&mut doubt, NOW + HOUR, HOUR));
        assert!(look(&mut doubt, 2 * NOW, 2 * HOUR));
        // There is nothing to lose.
        assert!(!look(&mut Doubt::begin(None), 2 * NOW, 0));
    }

    #[test]
    fn a_clock_that_is_set_after_a_boot_is_believed_up_to_a_month() {
        let minute = 60;
        for began in [5, NOW - 999 * HOUR, NOW, NOW + 10] {
            for (off, is_doubted) in [(HOUR / 2, false), (300 * HOUR, false), (999 * HOUR, true)] {
                let mut doubt = Doubt::begin(Some(NOW));
                assert!(!look(&mut doubt, began, minute), "{began}");
                let right = NOW + off;
                assert_eq!(
                    look(&mut doubt, right, 2 * minute),
                    is_doubted,
                    "{began} {off}"
                );
            }
        }
        // A clock that was slow all the time may be set right at any time.
        let mut doubt = Doubt::begin(Some(NOW));
        assert!(!look(&mut doubt, 5, 5));
        assert!(!look(&mut doubt, NOW + HOUR, 50 * HOUR));
        // From then on a leap is doubted as usual.
        assert!(look(&mut doubt, NOW + 9 * HOUR, 51 * HOUR));
    }

    #[test]
    fn a_deferred_deletion_happens_when_the_doubt_ends() {
        let mut doubt = Doubt::default();
        look(&mut doubt, NOW, 0);
        assert!(!doubt.thins_all(false) && doubt.thins_all(true) && !doubt.thins_all(false));
        look(&mut doubt, 2 * NOW, HOUR);
        assert!(!doubt.thins_all(true) && !doubt.thins_all(false));
        look(&mut doubt, NOW + 2 * HOUR, 2 * HOUR);
        assert!(doubt.thins_all(false) && !doubt.thins_all(false));
    }

    #[test]
    fn a_clock_that_is_set_right_is_believed_at_once() {
        let mut doubt = Doubt::default();
        for hour in 0..99 {
            let wall = NOW + hour * HOUR;
            assert!(!look(&mut doubt, wall, hour * HOUR), "{hour}");
            assert!(look(&mut doubt, 5 * wall, hour * HOUR + 60), "{hour}");
        }
        // A clock that is set back is trusted as well: nothing is too old then.
        assert!(!look(&mut doubt, 5, 100 * HOUR));
        assert!(look(&mut doubt, u64::MAX >> 1, 101 * HOUR));
    }
}
