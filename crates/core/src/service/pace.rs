//! How fast a service reads, and how it makes way for the volume's clients.

use crate::addr::Nanos;

/// How long to wait while clients are served, before they are asked for again.
pub const PAUSE: Nanos = Nanos(1_000_000);
/// How long clients are waited for before a service goes on by one thing.
pub const PATIENCE: Nanos = Nanos(100_000_000);
/// How long clients must have been quiet for a service that waits for that.
pub const QUIET: Nanos = Nanos(5_000_000_000);

/// Blocks a second that a service reads unless it is told otherwise: 64 MiB.
pub const RATE: u32 = 16 << 10;
/// Blocks that clients must have written since the last one for another of its own accord (256 MiB).
pub const NEWS: u64 = 64 << 10;

/// How a service is with the volume's clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// Only while they are quiet.
    #[default]
    Idle,
    /// It waits while they are served, but not for ever, and reads no more in a second than it may.
    Beside,
    /// It waits for nothing.
    Now,
}

/// What is around a service when it asks for its turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around {
    /// Whether a client's request is being served.
    pub busy: bool,
    /// How many of their requests have come so far.
    pub came: u64,
    /// Blocks a second that the service may read; 0: as many as it can.
    pub rate: u32,
    /// How whoever waits for the service wants it to be with clients; it is that from then on, or still hastier.
    pub haste: Haste,
}

/// When a service may go on: clients come first, and it reads no more of the medium than it is allowed, unless its user told it otherwise.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    haste: Haste,
    /// How many requests had come when it was last looked.
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

    /// So many blocks were read.
    pub fn spend(&mut self, blocks: u64) {
        self.pace.spend(blocks);
    }

    /// Until when to wait, unless it may go on by one thing.
    pub fn wait(&mut self, now: Nanos, around: &Around) -> Option<Nanos> {
        self.haste = self.haste.max(around.haste);
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
        // Its rate may be another by then.
        until.map(|until| Nanos(until.0.min(now.0 + QUIET.0)))
    }
}

/// How fast.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    rate: u32,
    /// Blocks that were read since when.
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

    /// Until when to wait.
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
        // What was not used is not saved up.
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
    };

    #[test]
    fn who_is_idle_waits_until_nobody_has_come_for_a_while() {
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
    fn who_goes_on_beside_clients_waits_for_them_but_not_for_ever() {
        let mut turn = Turn::new(Haste::Beside, Nanos(0));
        assert_eq!(turn.wait(Nanos(0), &BUSY), Some(PAUSE));
        assert_eq!(turn.wait(PATIENCE, &BUSY), None);
        assert!(turn.wait(PATIENCE, &BUSY).is_some());
    }

    #[test]
    fn who_is_wanted_in_haste_stays_hasty() {
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
    fn it_reads_no_faster_than_it_may() {
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
