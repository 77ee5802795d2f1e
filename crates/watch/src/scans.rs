//! Decides when a volume is scanned, and whether the results of a scan still hold. No change may be missed, although
//! writes continue while a scan reads:
//!
//! 1. A write is [checked](Checked) against the scan before it is handed to the core, and counts as a change when it is answered,
//!    because by then a read sees it.
//! 2. The scan number is odd while a scan runs. A write answered meanwhile is remembered, and checked against the new scan at its end.
//! 3. A write that was checked against an older scan than the one in force when it is answered is also checked against the latter.
//!
//! After a change the next scan waits until what it depends on has been left alone ([`SCAN_QUIET`]). Until then the results count
//! for less: see [`Scans::is_current`].

use crate::limits::{SCAN_LATEST, SCAN_QUIET, SCAN_WRITES};
use core::time::Duration;
use vellum_core::addr::Nanos;
use vellum_ext4::Span;

/// The state of scans; see the module.
#[derive(Debug, Default)]
pub struct Scans {
    /// Odd while a scan runs.
    number: u64,
    due: Option<Due>,
    /// Writes answered since the running scan began.
    meanwhile: Vec<Span>,
    /// Writes that changed bytes that a scan depended on: how many were handed to the core, and how many of them are answered.
    admitted: u64,
    answered: u64,
    /// How many of them the running scan sees, and how many the scan in force has seen; `None` if that is in doubt.
    sees: Option<u64>,
    seen: Option<u64>,
    ended: u64,
    /// How many scans the core has been told about.
    told: u64,
}

/// When changes arrived that no scan has seen.
#[derive(Clone, Copy, Debug)]
struct Due {
    first: Nanos,
    last: Nanos,
}

/// The result of checking a write before it is handed to the core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    /// The [number](Scans::number) of scans at that time.
    pub number: u64,
    /// True if it changes what that scan saw.
    pub touched: bool,
}

impl Checked {
    /// True if the write's answer means nothing new; `number`: the present number of scans. That holds for almost all writes.
    #[must_use]
    pub fn is_passed(self, number: u64) -> bool {
        !self.touched && self.number == number && number.is_multiple_of(2)
    }
}

impl Scans {
    /// Identifies the scan in force, and whether one runs.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many scans have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// When the next scan should begin, if anything has changed.
    #[must_use]
    pub fn due(&self) -> Option<Nanos> {
        let after = |at: Nanos, time: Duration| at.0.saturating_add(time.as_nanos() as u64);
        let due = self.due?;
        Some(Nanos(
            after(due.last, SCAN_QUIET).min(after(due.first, SCAN_LATEST)),
        ))
    }

    /// Starts a scan.
    pub fn begin(&mut self) {
        self.due = None;
        self.meanwhile.clear();
        self.sees = (self.answered == self.admitted).then_some(self.admitted);
        self.number |= 1;
    }

    /// Ends a scan. From now on writes are checked against it. `overlaps`: whether it depends on a range. Returns true if it may
    /// have missed something, so that the next one is due.
    pub fn end(&mut self, now: Nanos, overlaps: impl Fn(Span) -> bool) -> bool {
        self.ended += 1;
        self.number += 1;
        self.seen = self.sees;
        let mut meanwhile = self.meanwhile.iter();
        let is_missed = self.meanwhile.len() > SCAN_WRITES || meanwhile.any(|span| overlaps(*span));
        if is_missed {
            self.seen = None;
            self.change(now);
        }
        is_missed
    }

    /// Records that the core has been told about the latest scan.
    pub fn tell(&mut self) {
        self.told = self.ended;
    }

    /// Counts a write that changes what the scan saw, before it is handed to the core or refused.
    pub fn admit(&mut self) {
        self.admitted += 1;
    }

    /// Handles the answer to a change that was [not passed](Checked::is_passed). `overlaps`: whether the scan in force depends on a
    /// range. Returns true if the results must no longer be trusted, so that the next scan is due.
    pub fn answer(
        &mut self,
        now: Nanos,
        checked: Checked,
        span: Span,
        overlaps: impl FnOnce(Span) -> bool,
    ) -> bool {
        if checked.touched {
            self.answered += 1;
        } else if !self.number.is_multiple_of(2) {
            if self.meanwhile.len() <= SCAN_WRITES {
                self.meanwhile.push(span);
            }
            return false;
        } else if overlaps(span) {
            self.seen = None;
        } else {
            return false;
        }
        self.change(now);
        true
    }

    /// Makes the next scan due, whatever was written.
    pub fn change(&mut self, now: Nanos) {
        let first = self.due.map_or(now, |due| due.first);
        self.due = Some(Due { first, last: now });
    }

    /// True if scan number `scan` is the latest and has seen all changes handed to the core. Then its results can be relied
    /// on without comparing contents.
    #[must_use]
    pub fn is_current(&self, scan: u64) -> bool {
        scan == self.ended && self.seen == Some(self.admitted)
    }

    /// True if there is something that no scan has seen, or that the core has not been told about.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.told == 0 || self.told != self.ended || !self.is_current(self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WATCHED: Span = Span {
        start: 4096,
        bytes: 4096,
    };
    const ELSEWHERE: Span = Span {
        start: 40_960,
        bytes: 4096,
    };

    fn is_watched(span: Span) -> bool {
        span.overlaps(WATCHED)
    }

    fn at(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    /// Scans after one has ended and the core was told about it, without any change since.
    fn scanned() -> Scans {
        let mut scans = Scans::default();
        scans.begin();
        assert!(scans.is_behind());
        assert!(!scans.end(at(0), is_watched));
        assert!(scans.is_behind(), "the core is not told");
        scans.tell();
        assert!(!scans.is_behind() && scans.due().is_none());
        scans
    }

    fn checked(scans: &Scans, touched: bool) -> Checked {
        Checked {
            number: scans.number(),
            touched,
        }
    }

    #[test]
    fn no_scan_has_seen_a_change_in_flight() {
        let mut scans = scanned();
        assert!(scans.is_current(1) && !scans.is_current(0));
        let change = checked(&scans, true);
        assert!(!change.is_passed(scans.number()));
        scans.admit();
        assert!(!scans.is_current(1));
        // A scan that begins before the answer may not see the write.
        scans.begin();
        assert!(scans.answer(at(1), change, WATCHED, is_watched));
        assert!(!scans.end(at(2), is_watched));
        assert!(
            !scans.is_current(2),
            "the write was in flight when the scan began"
        );
        assert_eq!(scans.due(), Some(at(51)), "another scan is due");
        scans.begin();
        assert!(!scans.end(at(60), is_watched));
        assert!(scans.is_current(3) && !scans.is_current(2));
        assert_eq!(scans.due(), None);
    }

    #[test]
    fn changes_answered_while_a_scan_runs_are_checked_against_it_at_its_end() {
        let mut scans = scanned();
        let before = checked(&scans, false);
        assert!(before.is_passed(scans.number()));
        scans.begin();
        assert!(!before.is_passed(scans.number()));
        assert!(!scans.answer(at(1), before, ELSEWHERE, is_watched));
        assert!(!scans.end(at(2), is_watched));
        scans.begin();
        let during = checked(&scans, false);
        assert!(!scans.answer(at(3), during, ELSEWHERE, is_watched));
        assert!(!scans.answer(at(3), during, WATCHED, is_watched));
        assert!(
            scans.end(at(4), is_watched),
            "the scan may have missed the write"
        );
        assert!(!scans.is_current(3));
        assert_eq!(scans.due(), Some(at(54)));
    }

    #[test]
    fn changes_checked_against_an_older_scan_are_checked_against_the_one_in_force() {
        let mut scans = scanned();
        let (one, other) = (checked(&scans, false), checked(&scans, false));
        scans.begin();
        assert!(!scans.end(at(1), is_watched));
        assert!(!one.is_passed(scans.number()));
        assert!(!scans.answer(at(2), one, ELSEWHERE, is_watched));
        assert!(scans.is_current(2));
        assert!(scans.answer(at(2), other, WATCHED, is_watched));
        assert!(!scans.is_current(2) && scans.is_behind());
    }

    #[test]
    fn remembered_changes_are_bounded_and_none_is_missed() {
        let mut scans = scanned();
        scans.begin();
        let during = checked(&scans, false);
        for _ in 0..2 * SCAN_WRITES {
            assert!(!scans.answer(at(1), during, ELSEWHERE, is_watched));
        }
        assert_eq!(scans.meanwhile.len(), SCAN_WRITES + 1);
        assert!(scans.end(at(2), is_watched));
    }

    #[test]
    fn the_next_scan_waits_until_it_is_quiet_but_not_for_ever() {
        let mut scans = scanned();
        let quiet = SCAN_QUIET.as_millis() as u64;
        scans.change(at(100));
        assert_eq!(scans.due(), Some(at(100 + quiet)));
        scans.change(at(140));
        assert_eq!(scans.due(), Some(at(140 + quiet)));
        for now in (140..3000).step_by(20) {
            scans.change(at(now));
        }
        assert_eq!(scans.due(), Some(at(100 + SCAN_LATEST.as_millis() as u64)));
    }
}
