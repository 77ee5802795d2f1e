//! Decides when a volume takes a snapshot by itself: as soon as the wall clock is in another step than at the last look.
//!
//! A step is a span of the schedule's length, counted from 1970, so a restart moves nothing. *Another* step, not *a later* one: a
//! clock that is set back would otherwise end the history until it has caught up. Setting the clock causes one look. By a clock
//! that cannot be set, two looks are a minimum time apart.

use crate::limits::SCHEDULE_PATIENCE;
use std::time::Duration;
use vellum_core::snapshots::Span;

/// The last look, and the times of both clocks: seconds since 1970, and how long the volume has been running.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<u64>,
    not_before: Duration,
}

impl Pace {
    /// Begins with the time of the last look, if there was one.
    pub fn since(last: Option<u64>) -> Self {
        Self {
            last,
            not_before: Duration::ZERO,
        }
    }

    /// How long to wait; `None` if it is time now.
    pub fn wait(&self, every: Span, wall: Duration, running: Duration) -> Option<Duration> {
        if running < self.not_before {
            return Some(self.not_before - running);
        }
        let number = every.number(wall.as_secs());
        if self.last.map(|last| every.number(last)) != Some(number) {
            return None;
        }
        let next = Duration::from_secs((number + 1).saturating_mul(every.seconds()));
        // A longer wait would not notice that the clock was set, or that the machine slept.
        Some(next.saturating_sub(wall).min(SCHEDULE_PATIENCE))
    }

    /// Notes that a look has succeeded.
    pub fn looked(&mut self, every: Span, wall: Duration, running: Duration) {
        self.last = Some(wall.as_secs());
        self.not_before = running + SCHEDULE_PATIENCE.min(Duration::from_secs(every.seconds()) / 2);
    }

    /// Notes that a look has failed: the next one is after this time.
    pub fn again(&mut self, after: Duration, running: Duration) {
        self.not_before = running + after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The looks within so many seconds, with a wall clock that shows `wall` of the running time.
    fn looks(pace: &mut Pace, every: u64, lasts: u64, wall: impl Fn(u64) -> u64) -> Vec<u64> {
        let every = Span::of(every).unwrap();
        let (mut running, mut looks) = (0, Vec::new());
        while running < lasts {
            let now = wall(running);
            running += match pace.wait(every, seconds(now), seconds(running)) {
                Some(wait) => wait.as_secs().max(1),
                None => {
                    looks.push(now);
                    pace.looked(every, seconds(now), seconds(running));
                    1
                }
            };
        }
        looks
    }

    #[test]
    fn it_follows_the_clock() {
        let mut pace = Pace::default();
        let found = looks(&mut pace, 900, 3600, |running| 10_000 + running);
        assert_eq!(found, [10_000, 10_800, 11_700, 12_600, 13_500]);
        // A restart in the same step causes no further look.
        let mut pace = Pace::since(Some(13_500));
        assert_eq!(
            looks(&mut pace, 900, 1000, |running| 13_600 + running),
            [14_400]
        );
    }

    #[test]
    fn a_clock_that_is_set_makes_for_one_look() {
        for to in [0, 50, DAY, 99_999 * DAY] {
            let mut pace = Pace::since(Some(200 * DAY));
            let found = looks(&mut pace, 3600, 10 * 3600, |running| match running {
                0..1800 => 200 * DAY + running,
                _ => to + running,
            });
            // One when it is set, and one each hour.
            assert!((10..=11).contains(&found.len()), "{to}: {found:?}");
        }
    }

    #[test]
    fn a_clock_that_jumps_all_the_time_makes_no_storm() {
        let mut pace = Pace::default();
        let found = looks(&mut pace, 900, 3600, |running| {
            running % 2 * 300 * DAY + running
        });
        assert!(found.len() <= 61, "{}", found.len());
    }

    #[test]
    fn a_machine_that_slept_looks_when_it_wakes() {
        let pace = Pace::since(Some(100 * DAY));
        let wait = pace.wait(Span::of(DAY).unwrap(), seconds(100 * DAY + 60), seconds(60));
        assert_eq!(wait, Some(SCHEDULE_PATIENCE));
        let mut pace = pace;
        pace.again(seconds(5), seconds(60));
        let every = Span::of(DAY).unwrap();
        assert_eq!(
            pace.wait(every, seconds(101 * DAY), seconds(61)),
            Some(seconds(4))
        );
        assert_eq!(pace.wait(every, seconds(101 * DAY), seconds(65)), None);
    }
}
