//! What a scrub's thread is to do, and how far it is.

use super::report::ScrubReport;
use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Orders for the thread, and its progress.
#[derive(Default)]
pub(crate) struct Scrubber {
    pub state: Mutex<State>,
    given: Condvar,
}

/// What the orders are, and what there is to report.
#[derive(Default)]
pub(crate) struct State {
    stopping: bool,
    /// Blocks a second that the next scrub may read.
    asked: Option<u32>,
    pub rate: Option<u32>,
    pub halt: bool,
    pub report: ScrubReport,
    /// The place of a scrub of tables.
    pub place: u32,
}

impl Scrubber {
    /// Begins a scrub, or has the current one go on, at so many blocks a second; 0: as many as it can.
    pub fn ask(&self, rate: u32) {
        let mut state = self.state.lock();
        match state.report.permille {
            Some(_) => state.rate = Some(rate),
            None => {
                state.asked = Some(rate);
                state.halt = false;
                // The requester sees at once that a scrub is under way.
                state.report.permille = Some(0);
            }
        }
        self.given.notify_one();
    }

    /// Ends the current scrub where it is.
    pub fn halt(&self) {
        let mut state = self.state.lock();
        state.halt = state.report.permille.is_some();
        self.given.notify_one();
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.given.notify_one();
    }

    pub fn report(&self) -> ScrubReport {
        self.state.lock().report.clone()
    }

    /// True if the current scrub is to end.
    pub fn is_to_end(&self) -> bool {
        let state = self.state.lock();
        state.stopping || state.halt
    }

    /// Waits, unless the scrub is to end.
    pub fn pause(&self, time: Duration) {
        let mut state = self.state.lock();
        if !state.stopping && !state.halt {
            self.given.wait_for(&mut state, time);
        }
    }

    /// Waits for the next scrub, and returns its rate; `None` when the thread is to end.
    pub fn next(&self) -> Option<u32> {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return None;
            }
            if let Some(rate) = state.asked.take() {
                return Some(rate);
            }
            self.given.wait(&mut state);
        }
    }

    /// Changes the report.
    pub fn tell(&self, change: impl FnOnce(&mut ScrubReport)) {
        change(&mut self.state.lock().report);
    }
}
