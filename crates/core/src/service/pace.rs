//! How fast a service reads, and how it gives way to the volume's clients.

use crate::addr::Nanos;

/// How long to wait while clients are served, before checking again.
pub const PAUSE: Nanos = Nanos(1_000_000);
/// How long a service waits for busy clients before it takes one step anyway.
pub const PATIENCE: Nanos = Nanos(100_000_000);
/// How long clients must have been quiet for an idle service.
pub const QUIET: Nanos = Nanos(5_000_000_000);

/// How long to wait before checking again whether the volume is counted.
pub const CENSUS: Nanos = Nanos(50_000_000);

/// The blocks a second that a service reads by default: 64 MiB.
pub const RATE: u32 = 16 << 10;
/// Blocks that clients must have written since the last run before a service starts by itself again (256 MiB).
pub const NEWS: u64 = 64 << 10;

/// How a service treats the volume's clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// It runs only while they are quiet.
    #[default]
    Idle,
    /// It waits while they are served, but not forever, and keeps to its read rate.
    Beside,
    /// It waits for nothing.
    Now,
}

/// A service's surroundings when it wants its turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around {
    /// True if a client's request is being served.
    pub busy: bool,
    /// How many client requests have arrived so far.
    pub came: u64,
    /// Blocks a second that the service may read; 0: as many as it can.
    pub rate: u32,
    /// The haste that is wanted now, by a caller that waits for the service. From then on the service has at least this haste.
    pub haste: Haste,
    /// True if owners and live blocks are still being counted. No service begins before: it would act on counts that are too low.
    pub uncounted: bool,
}

/// Decides when a service may continue. Clients come first, and the service keeps to its read rate, unless its user chose otherwise.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    haste: Haste,
    /// How many requests had arrived at the last check.
    came: Option<u64>,
    pace: Pace,
}

impl Turn {
    pub fn new(haste: Haste, now: Nanos) -> Self {
        Self {
            haste,
            came: None,
            pace: Pace::new(0, now),
        }
    }

    /// Notes that blocks were read.
    pub fn spend(&mut self, blocks: u64) {
        self.pace.spend(blocks);
    }

    /// Returns until when to wait; `None` if the service may take its next step.
    pub fn wait(&mut self, now: Nanos, around: &Around) -> Option<Nanos> {
        self.haste = self.haste.max(around.haste);
        if around.uncounted {
            return Some(Nanos(now.0 + CENSUS.0));
        }
        if self.pace.rate != around.rate {
            self.pace = Pace::new(around.rate, now);
        }
        let until = match self.haste {
            Haste::Now => None,
            Haste::Beside => self.pace.wait(now, around.busy),
            Haste::Idle => {
                let came = self.came.replace(around.came);
                let is_quiet = !around.busy && came.is_none_or(|came| came == around.came);
                let quiet = (!is_quiet).then_some(Nanos(now.0 + QUIET.0));
                quiet.or_else(|| self.pace.wait(now, false))
            }
        };
        // The rate may change while it waits, so it never waits for long.
        until.map(|until| Nanos(until.0.min(now.0 + QUIET.0)))
    }
}

/// Limits the read rate.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    rate: u32,
    /// Blocks read, and since when.
    spent: u64,
    since: Nanos,
    /// When it first found clients busy.
    waits_since: Option<Nanos>,
}

impl Pace {
    pub fn new(rate: u32, now: Nanos) -> Self {
        Self {
            rate,
            spent: 0,
            since: now,
            waits_since: None,
        }
    }

    pub fn spend(&mut self, blocks: u64) {
        self.spent += blocks;
    }

    /// Returns until when to wait.
    pub fn wait(&mut self, now: Nanos, busy: bool) -> Option<Nanos> {
        let due = u128::from(self.spent) * 1_000_000_000;
        let due = due.checked_div(self.rate.into()).unwrap_or(0);
        let due = self
            .since
            .0
            .saturating_add(u64::try_from(due).unwrap_or(u64::MAX));
        if now.0 < due {
            return Some(Nanos(due));
        }
        if busy {
            let since = *self.waits_since.get_or_insert(now);
            if now.0 < since.0 + PATIENCE.0 {
                return Some(Nanos(now.0 + PAUSE.0));
            }
        }
        self.waits_since = None;
        // Unused allowance is not saved up.
        if now.0 - due > PATIENCE.0 {
            (self.spent, self.since) = (0, now);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Around = Around {
        busy: true,
        came: 0,
        rate: 0,
        haste: Haste::Idle,
        uncounted: false,
    };

    #[test]
    fn an_idle_service_waits_until_clients_have_been_quiet_for_a_while() {
        let mut turn = Turn::new(Haste::Idle, Nanos(0));
        let mut around = Around::default();
        assert_eq!(turn.wait(Nanos(0), &around), None);
        around.came = 1;
        assert_eq!(turn.wait(Nanos(1), &around), Some(Nanos(1 + QUIET.0)));
        assert_eq!(turn.wait(Nanos(1 + QUIET.0), &around), None);
        for moment in 2..100 {
            let now = Nanos(moment * QUIET.0);
            assert_eq!(turn.wait(now, &BUSY), Some(Nanos(now.0 + QUIET.0)));
        }
    }

    #[test]
    fn a_service_beside_clients_waits_for_them_but_not_for_ever() {
        let mut turn = Turn::new(Haste::Beside, Nanos(0));
        assert_eq!(turn.wait(Nanos(0), &BUSY), Some(PAUSE));
        assert_eq!(turn.wait(PATIENCE, &BUSY), None);
        assert!(turn.wait(PATIENCE, &BUSY).is_some());
    }

    #[test]
    fn no_service_begins_before_the_volume_is_counted() {
        let mut turn = Turn::new(Haste::Now, Nanos(0));
        let around = Around {
            haste: Haste::Now,
            uncounted: true,
            ..Around::default()
        };
        assert_eq!(turn.wait(Nanos(7), &around), Some(Nanos(7 + CENSUS.0)));
        assert_eq!(turn.wait(Nanos(8), &Around::default()), None);
    }

    #[test]
    fn a_service_that_was_wanted_in_haste_stays_hasty() {
        let mut turn = Turn::new(Haste::Idle, Nanos(0));
        assert!(turn.wait(Nanos(0), &BUSY).is_some());
        let hasty = Around {
            haste: Haste::Now,
            ..BUSY
        };
        assert_eq!(turn.wait(Nanos(0), &hasty), None);
        assert_eq!(turn.wait(Nanos(0), &BUSY), None);
    }

    #[test]
    fn a_service_reads_no_faster_than_its_rate() {
        let mut turn = Turn::new(Haste::Beside, Nanos(0));
        let around = Around {
            rate: 100,
            ..Around::default()
        };
        assert_eq!(turn.wait(Nanos(0), &around), None);
        turn.spend(10);
        assert_eq!(turn.wait(Nanos(0), &around), Some(Nanos(100_000_000)));
        assert_eq!(turn.wait(Nanos(100_000_000), &around), None);
    }
}
