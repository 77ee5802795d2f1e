//! Whether the clock on the wall is believed when old snapshots are to be deleted.
//!
//! A clock that leaps ahead makes all of them old at once. It may be right: a machine whose clock needs no battery starts in 1970. So it is
//! believed after a while, and until then nothing is deleted for its age; whoever sets it right before then has lost nothing.

use crate::limits::{CLOCK_DOUBT, CLOCK_LEAP};
use std::time::Duration;

/// What both clocks showed: seconds since 1970, and how long the machine has been on, asleep or not.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// When the first was last believed.
    believed: Option<(Duration, Duration)>,
    /// Since when it is not.
    since: Option<Duration>,
}

impl Doubt {
    /// Whether it is in doubt, by what both show now.
    pub fn look(&mut self, wall: Duration, running: Duration) -> bool {
        let leaps = self.believed.is_some_and(|(showed, then)| {
            wall > showed + running.saturating_sub(then) + CLOCK_LEAP
        });
        if leaps {
            let since = *self.since.get_or_insert(running);
            if running.saturating_sub(since) < CLOCK_DOUBT {
                return true;
            }
        }
        (self.believed, self.since) = (Some((wall, running)), None);
        false
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
    fn one_that_is_set_right_is_believed_at_once() {
        let mut doubt = Doubt::default();
        for hour in 0..99 {
            let wall = NOW + hour * HOUR;
            assert!(!look(&mut doubt, wall, hour * HOUR), "{hour}");
            assert!(look(&mut doubt, 5 * wall, hour * HOUR + 60), "{hour}");
        }
        // Set back it is believed, too: nothing is too old then.
        assert!(!look(&mut doubt, 5, 100 * HOUR));
        assert!(look(&mut doubt, u64::MAX >> 1, 101 * HOUR));
    }
}
