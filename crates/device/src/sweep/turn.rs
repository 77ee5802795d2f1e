//! When a sweep may go on.

use crate::limits::{SWEEP_PATIENCE, SWEEP_PAUSE, SWEEP_QUIET};
use crate::shared::Shared;
use std::sync::atomic::Ordering;
use std::time::Instant;
use vellum_core::service::pace::Haste;

/// Clients come first, and it takes no more of the medium than it is allowed, unless its user told it otherwise. It asks
/// before every pair, so that a client's request finds the reads of one under way at most.
pub(super) struct Turn {
    haste: Haste,
    /// How many requests of theirs had come when they were looked at last.
    came: u64,
    /// What was read since when.
    spent: u64,
    since: Instant,
}

impl Turn {
    pub fn new(shared: &Shared, haste: Haste) -> Self {
        let mut turn = Self {
            haste,
            came: 0,
            spent: 0,
            since: Instant::now(),
        };
        turn.are_quiet(shared);
        turn
    }

    fn are_quiet(&mut self, shared: &Shared) -> bool {
        let (in_flight, clients) = {
            let inner = shared.inner.lock();
            (inner.requests.len(), inner.counters.clients)
        };
        let came = clients.read.requests + clients.write.requests + clients.flush.requests;
        let before = std::mem::replace(&mut self.came, came);
        in_flight == 0 && (self.haste > Haste::Idle || came == before)
    }

    /// So many blocks were read.
    pub fn spend(&mut self, blocks: u64) {
        self.spent += blocks;
    }

    /// Waits for its turn; `false` when it is to end.
    pub fn wait(&mut self, shared: &Shared) -> bool {
        let began = Instant::now();
        while !shared.sweeper.is_to_end() {
            // Who waits for a sweep to follow this one would not have it wait.
            let wanted = shared.sweeper.wanted();
            self.haste = wanted.map_or(self.haste, |wanted| self.haste.max(wanted));
            let late = self.haste > Haste::Idle && began.elapsed() >= SWEEP_PATIENCE;
            if self.haste == Haste::Now {
                return true;
            } else if !self.is_within_rate(shared) {
                std::thread::sleep(SWEEP_PAUSE);
            } else if late || self.are_quiet(shared) {
                return true;
            } else if self.haste > Haste::Idle {
                std::thread::sleep(SWEEP_PAUSE);
            } else {
                shared.sweeper.pause(SWEEP_QUIET);
            }
        }
        false
    }

    fn is_within_rate(&mut self, shared: &Shared) -> bool {
        let rate = shared.sweeper.rate.load(Ordering::Relaxed);
        let Some(nanos) = (u128::from(self.spent) * 1_000_000_000).checked_div(rate.into()) else {
            return true;
        };
        let elapsed = self.since.elapsed();
        if elapsed.as_nanos() < nanos {
            return false;
        }
        // What was not used is not saved up.
        if elapsed.as_nanos() - nanos > SWEEP_PATIENCE.as_nanos() {
            (self.spent, self.since) = (0, Instant::now());
        }
        true
    }
}
