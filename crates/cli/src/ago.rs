//! Finds a snapshot by its age: `VOLUME@-15m` is the newest one that is at least a quarter of an hour old.

use crate::outcome::usage;
use anyhow::{Result, bail};
use std::time::SystemTime;
use vellum_core::snapshots::Span;
use vellum_device::SnapshotInfo;

/// The age in a text; `None` if it is a name. Names of snapshots do not begin with a dash.
fn age(text: &str) -> Option<&str> {
    text.strip_prefix('-')
}

/// True if this is an age, not a name.
pub fn is_age(text: &str) -> bool {
    age(text).is_some()
}

/// The name of the one of these snapshots that a name or an age refers to.
pub fn meant(text: &str, all: &[SnapshotInfo]) -> Result<String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    meant_at(text, all, now.map_or(0, |now| now.as_secs()))
}

fn meant_at(text: &str, all: &[SnapshotInfo], now: u64) -> Result<String> {
    let Some(span) = age(text) else {
        return Ok(text.to_owned());
    };
    let span: Span = span.parse().map_err(|error| {
        usage(format!(
            "@{text}: {error}; @-15m is the snapshot of 15 minutes ago"
        ))
    })?;
    // A snapshot dated 1970 was taken while the clock was not set, so its age is not known.
    let is_known = |one: &&SnapshotInfo| {
        one.taken > 0 && !one.leaves && !one.arrives && one.clone_of.is_none()
    };
    let known = || all.iter().filter(is_known);
    let is_old = |one: &&SnapshotInfo| one.taken <= now.saturating_sub(span.seconds());
    if let Some(one) = known()
        .filter(is_old)
        .max_by_key(|one| (one.taken, one.number))
    {
        return Ok(one.name.clone());
    }
    match known().min_by_key(|one| (one.taken, one.number)) {
        Some(oldest) => bail!(
            "@{text}: no snapshot is that old; the oldest is {}, of {} ago",
            oldest.name,
            words(now.saturating_sub(oldest.taken))
        ),
        None if all.is_empty() => bail!("@{text}: the volume has no snapshots"),
        None => bail!("@{text}: no snapshot has a time: give its name"),
    }
}

/// Formats how long ago something was, in the largest unit of which there are at least two.
pub fn words(seconds: u64) -> String {
    let units = [(86400, "d"), (3600, "h"), (60, "min")];
    let unit = units.iter().find(|(unit, _)| seconds >= 2 * unit);
    let (unit, name) = unit.unwrap_or(&(1, "s"));
    format!("{} {name}", seconds / unit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::{meant_at, words};
    use vellum_device::SnapshotInfo;

    const NOW: u64 = 1_000_000_000;

    fn of(number: u32, name: &str, ago: u64) -> SnapshotInfo {
        SnapshotInfo {
            name: name.to_owned(),
            number,
            taken: NOW - ago,
            kept_bytes: 0,
            leaves: false,
            scheduled: false,
            arrives: false,
            clone_of: None,
        }
    }

    #[test]
    fn an_age_means_the_newest_snapshot_that_is_old_enough() {
        // The clock was set back between b and c.
        let all = [
            of(1, "a", 7200),
            of(2, "b", 90),
            of(3, "c", 3600),
            of(4, "d", 90),
        ];
        for (asked, name) in [
            ("-2h", "a"),
            ("-119m", "a"),
            ("-59m", "c"),
            ("-1h", "c"),
            ("-90s", "d"),
            ("-1s", "d"),
            ("c", "c"),
            ("unknown", "unknown"),
        ] {
            assert_eq!(meant_at(asked, &all, NOW).unwrap(), name, "{asked}");
        }
    }

    #[test]
    fn an_age_that_no_snapshot_has_is_an_error() {
        let told =
            |asked: &str, all: &[SnapshotInfo]| meant_at(asked, all, NOW).unwrap_err().to_string();
        let (mut one, mut leaving) = (of(1, "a", 7200), of(2, "b", 90_000));
        leaving.leaves = true;
        let error = told("-1d", &[one.clone(), leaving]);
        assert!(error.contains("the oldest is a, of 2 h ago"), "{error}");
        assert!(told("-1d", &[]).contains("has no snapshots"));
        for bad in ["-", "-1", "-1y", "--1h", "-0s"] {
            let error = told(bad, &[one.clone()]);
            assert!(error.contains("a time is a number and"), "{error}");
        }
        one.taken = 0;
        assert!(told("-1h", &[one]).contains("give its name"));
    }

    #[test]
    fn ages_are_formatted_in_one_unit() {
        let told = [0, 119, 120, 7199, 7200, 172_799, 172_800].map(words);
        let expected = ["0 s", "119 s", "2 min", "119 min", "2 h", "47 h", "2 d"];
        assert_eq!(told, expected);
    }
}
