//! A volume's own history: which of its scheduled snapshots stay, and how they are named.
//!
//! There is no clock here: the caller passes the time.

use crate::format::history::{Identity, Name, SNAPSHOTS_MAX, Snapshot};
use alloc::{format, string::String, vec::Vec};
use core::str::FromStr;

/// The most rules of a list.
const RULES_MAX: usize = 8;
/// The most snapshots that a list keeps: a volume has room for these, and for some that its user takes.
const KEPT_MAX: u64 = SNAPSHOTS_MAX as u64 - 24;
/// The longest span: 100 years.
const SPAN_MAX: u64 = 36_500 * 86_400;
/// The last second of the year 9999: a name has four digits for it.
const LATEST: u64 = 253_402_300_799;

const UNITS: [(u64, &str); 5] = [
    (7 * 86_400, "w"),
    (86_400, "d"),
    (3600, "h"),
    (60, "m"),
    (1, "s"),
];

/// A time from one instant to another, in whole seconds; not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

/// Why a text is not a span, or not a list of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKeep {
    /// Not a time.
    #[error("a time is a number and one of s, m, h, d and w, like 15m")]
    Span,
    /// Not a rule.
    #[error("a rule is SPAN:STEP, like 24h:15m, and the step is no longer than the span")]
    Rule,
    /// Too many rules, or none.
    #[error("there are 1 to {RULES_MAX} rules, with commas between")]
    Rules,
    /// The rules keep too much.
    #[error("these rules keep more than {KEPT_MAX} snapshots")]
    TooMany,
}

impl Span {
    /// A span of so many seconds, if that is a valid length.
    #[must_use]
    pub fn of(seconds: u64) -> Option<Self> {
        (1..=SPAN_MAX).contains(&seconds).then_some(Self(seconds))
    }

    /// Its length in seconds.
    #[must_use]
    pub fn seconds(self) -> u64 {
        self.0
    }

    /// The number of the span of this length that contains an instant, counted from 1970.
    #[must_use]
    pub fn number(self, seconds: u64) -> u64 {
        seconds / self.0
    }
}

impl FromStr for Span {
    type Err = BadKeep;

    fn from_str(text: &str) -> Result<Self, BadKeep> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = UNITS
            .iter()
            .find(|(_, name)| *name == &text[digits.len()..]);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse::<u64>().ok().filter(|_| is_number);
        let seconds = number
            .zip(unit)
            .and_then(|(n, (unit, _))| n.checked_mul(*unit));
        seconds.and_then(Self::of).ok_or(BadKeep::Span)
    }
}

/// Keeps one snapshot of each `step` in the last `span`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    span: Span,
    step: Span,
}

impl Rule {
    /// How many steps the span reaches back from the present one.
    fn steps(self) -> u64 {
        self.span.0.div_ceil(self.step.0)
    }
}

/// Which snapshots stay: those that some rule keeps, and the newest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep(Vec<Rule>);

impl FromStr for Keep {
    type Err = BadKeep;

    fn from_str(text: &str) -> Result<Self, BadKeep> {
        let rule = |text: &str| {
            let (span, step) = text.split_once(':').ok_or(BadKeep::Rule)?;
            let (span, step): (Span, Span) = (span.parse()?, step.parse()?);
            match step <= span {
                true => Ok(Rule { span, step }),
                false => Err(BadKeep::Rule),
            }
        };
        if text.split(',').count() > RULES_MAX {
            return Err(BadKeep::Rules);
        }
        let rules: Vec<Rule> = text.split(',').map(rule).collect::<Result<_, _>>()?;
        let kept = rules.iter().map(|rule| rule.steps() + 1);
        match kept.fold(0, u64::saturating_add) > KEPT_MAX {
            true => Err(BadKeep::TooMany),
            false => Ok(Self(rules)),
        }
    }
}

/// A volume's schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// How often it takes a snapshot; `None`: never.
    pub every: Option<Span>,
    /// Which of them stay.
    pub keep: Keep,
}

/// Each quarter of an hour of a day, and each day of a week.
pub const USUAL_KEEP: &str = "24h:15m,7d:1d";

impl Default for Keep {
    fn default() -> Self {
        USUAL_KEEP.parse().unwrap_or(Self(Vec::new()))
    }
}

impl Keep {
    /// Returns the snapshots to delete, as indexes in `times`. `times` says when each was taken, in the order in which they were taken.
    ///
    /// A rule divides time into steps, counted from 1970. It keeps the first snapshot of each step, as long as the step is in its span.
    /// The first of a step stays the first, and no other becomes it; so thinning often keeps the same snapshots as thinning once. A
    /// snapshot is the first of its step if the snapshot before it belongs to another step. So after a clock was set back, the snapshots
    /// taken after that are kept beside those taken before.
    #[must_use]
    pub fn thinned(&self, now: u64, times: &[u64]) -> Vec<usize> {
        let mut left: Vec<usize> = (0..times.len()).collect();
        // Times in order need no second pass. Others may need one: if the snapshot between two of one step is deleted, the second of them
        // is no longer the first of its step.
        loop {
            let before = left.len();
            left = self.kept_of(now, times, &left);
            if left.len() == before {
                break;
            }
        }
        let mut left = left.into_iter().peekable();
        let goes = |at: &usize| left.next_if_eq(at).is_none();
        (0..times.len()).filter(goes).collect()
    }

    fn kept_of(&self, now: u64, times: &[u64], left: &[usize]) -> Vec<usize> {
        let is_kept = |place: usize| {
            let time = times[left[place]];
            let before = place.checked_sub(1).map(|place| times[left[place]]);
            let is_newest = place + 1 == left.len();
            is_newest || self.0.iter().any(|rule| rule.keeps(now, time, before))
        };
        (0..left.len())
            .filter(|place| is_kept(*place))
            .map(|place| left[place])
            .collect()
    }
}

impl Rule {
    fn keeps(self, now: u64, time: u64, before: Option<u64>) -> bool {
        let number = self.step.number(time);
        let is_first = before.is_none_or(|before| self.step.number(before) != number);
        is_first && number.saturating_add(self.steps()) >= self.step.number(now)
    }
}

/// The name of a scheduled snapshot taken at this instant, in seconds since 1970: its time in UTC.
#[must_use]
pub fn scheduled_name(taken: u64) -> Option<Name> {
    (taken <= LATEST)
        .then(|| utc(taken))
        .and_then(|name| Name::new(&name).ok())
}

impl Snapshot {
    /// True if its volume has taken it by itself: it has the name that a scheduled snapshot gets at its time.
    #[must_use]
    pub fn is_scheduled(&self) -> bool {
        let Identity { name, taken, .. } = self.identity;
        name.as_str().starts_with(PREFIX) && scheduled_name(taken) == Some(name)
    }
}

const PREFIX: &str = "auto-";

/// Computes the date in the Gregorian calendar, which repeats every 400 years. Here a year begins in March, so that a leap day is its
/// last day.
fn utc(taken: u64) -> String {
    let (days, second) = (taken / 86_400 + 719_468, taken % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{PREFIX}{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::history::{Mark, Number, Stage};
    use proptest::prelude::*;

    const DAY: u64 = 86_400;

    fn keep(text: &str) -> Keep {
        text.parse().unwrap()
    }

    /// Removes the times of snapshots that are to be deleted.
    fn thin(keep: &Keep, now: u64, times: &[u64]) -> Vec<u64> {
        let gone = keep.thinned(now, times);
        let all = times.iter().enumerate();
        let left = all.filter(|(at, _)| !gone.contains(at));
        left.map(|(_, time)| *time).collect()
    }

    #[test]
    fn times_are_read_and_written() {
        for (text, seconds) in [
            ("1s", 1),
            ("90s", 90),
            ("15m", 900),
            ("24h", DAY),
            ("1d", DAY),
            ("1w", 7 * DAY),
        ] {
            assert_eq!(text.parse::<Span>().unwrap().seconds(), seconds);
        }
        for bad in [
            "",
            "15",
            "m",
            "0m",
            "-1m",
            "+1m",
            "1.5h",
            "1 h",
            "1y",
            "99999999999999d",
            "ä",
        ] {
            assert_eq!(bad.parse::<Span>(), Err(BadKeep::Span), "{bad}");
        }
        for (bad, why) in [
            ("", BadKeep::Rule),
            ("24h", BadKeep::Rule),
            ("1h:2h", BadKeep::Rule),
            ("1h:1m,", BadKeep::Rule),
            ("1h:x", BadKeep::Span),
            ("1h:1s", BadKeep::TooMany),
            (
                "9m:1m,8m:1m,7m:1m,6m:1m,5m:1m,4m:1m,3m:1m,2m:1m,1m:1m",
                BadKeep::Rules,
            ),
        ] {
            assert_eq!(bad.parse::<Keep>(), Err(why), "{bad}");
        }
    }

    #[test]
    fn one_snapshot_stays_for_each_day_of_a_week_and_each_quarter_hour_of_a_day() {
        let keep = keep("24h:15m,7d:1d");
        let now = 30 * DAY + 7 * 3600;
        let all: Vec<u64> = (0..=now / 900).map(|n| n * 900).collect();
        let left = thin(&keep, now, &all);
        let days = (23..29).map(|day| day * DAY);
        let quarters = (0..97).rev().map(|n| now - n * 900);
        // The first of the day before is older than a day.
        let days = days.chain([29 * DAY]);
        assert_eq!(left, days.chain(quarters).collect::<Vec<_>>());
    }

    #[test]
    fn a_clock_that_was_wrong_costs_no_history() {
        let keep = keep("1h:1m");
        let times: Vec<u64> = (0..60).map(|n| 100 * DAY + n * 60).collect();
        let now = 100 * DAY + 3600;
        // While the clock is far in the past, no snapshot is too old. Snapshots taken at that time are deleted when the clock is right
        // again.
        assert_eq!(keep.thinned(5, &times), []);
        let mut back = times.clone();
        back.extend([5, now]);
        assert_eq!(keep.thinned(5, &back), []);
        assert_eq!(keep.thinned(now, &back), [60]);
        // Ahead for some minutes: the later snapshots of the same minutes are kept as well.
        let ahead = [now + 60, now + 120, now, now + 60, now + 120];
        assert_eq!(keep.thinned(now + 120, &ahead), []);
    }

    #[test]
    fn names_are_of_utc() {
        for (taken, name) in [
            (0, "auto-1970-01-01T00:00:00Z"),
            (951_782_400, "auto-2000-02-29T00:00:00Z"),
            (951_868_799, "auto-2000-02-29T23:59:59Z"),
            (1_795_688_100, "auto-2026-11-26T10:15:00Z"),
            (4_107_542_400, "auto-2100-03-01T00:00:00Z"),
            (LATEST, "auto-9999-12-31T23:59:59Z"),
        ] {
            let found = scheduled_name(taken).unwrap();
            assert_eq!(found.as_str(), name);
            let mut snapshot = Snapshot {
                number: Number(1),
                identity: Identity {
                    name: found,
                    taken,
                    mark: Mark::default(),
                },
                stage: Stage::Kept,
            };
            assert!(snapshot.is_scheduled());
            snapshot.identity.taken += 1;
            assert!(
                !snapshot.is_scheduled(),
                "the name is not that of the snapshot's own time"
            );
        }
        assert_eq!(scheduled_name(LATEST + 1), None);
        assert_eq!(scheduled_name(u64::MAX), None);
    }

    fn rules() -> impl Strategy<Value = Keep> {
        let rule = (1..40u64, 1..40u64).prop_map(|(one, two)| Rule {
            span: Span(one.max(two)),
            step: Span(one.min(two)),
        });
        prop::collection::vec(rule, 1..4).prop_map(Keep)
    }

    /// Times in order, and the instants of thinning.
    fn life() -> impl Strategy<Value = (Vec<u64>, Vec<bool>)> {
        prop::collection::vec((0..9u64, any::<bool>()), 1..80).prop_map(|steps| {
            let mut now = 1000;
            let times = steps.iter().map(|(step, _)| {
                now += step;
                now
            });
            (
                times.collect(),
                steps.iter().map(|(_, thins)| *thins).collect(),
            )
        })
    }

    proptest! {
        #[test]
        fn thinning_often_is_thinning_once(keep in rules(), (times, thins) in life(), later in 0..99u64) {
            let mut left = Vec::new();
            for (&time, &is_thinned) in times.iter().zip(&thins) {
                left.push(time);
                if is_thinned {
                    left = thin(&keep, time, &left);
                }
            }
            let now = times.last().unwrap() + later;
            prop_assert_eq!(thin(&keep, now, &left), thin(&keep, now, &times));
        }

        #[test]
        fn each_rule_keeps_no_more_than_it_says(keep in rules(), (times, _) in life(), later in 0..99u64) {
            let now = times.last().unwrap() + later;
            let left = thin(&keep, now, &times);
            let most: u64 = keep.0.iter().map(|rule| rule.steps() + 1).sum();
            prop_assert!(left.len() as u64 <= most + 1);
            for rule in &keep.0 {
                let alone = Keep([*rule].into());
                let newest = times.last().unwrap();
                let left = thin(&alone, now, &times);
                let old = left.iter().filter(|time| *time != newest);
                prop_assert!(old.count() as u64 <= rule.steps() + 1);
                // Each step within the span that had a snapshot still has one.
                for time in times.iter().filter(|time| **time + rule.span.0 >= now) {
                    let is_of_it = |other: &&u64| rule.step.number(**other) == rule.step.number(*time);
                    prop_assert_eq!(left.iter().filter(is_of_it).min(), times.iter().filter(is_of_it).min());
                }
            }
        }

        #[test]
        fn thinning_keeps_one_of_each_step_whatever_the_clock_said(
            keep in rules(),
            times in prop::collection::vec(prop_oneof![0..99u64, Just(u64::MAX), any::<u64>()], 0..60),
            now in prop_oneof![0..200u64, any::<u64>()],
        ) {
            let left = thin(&keep, now, &times);
            prop_assert_eq!(left.last(), times.last());
            prop_assert_eq!(keep.thinned(now, &left), Vec::<usize>::new());
        }
    }
}
