//! When a drive folds its cache because the host is idle.

/// The idle timer; see the module.
pub(super) struct Idle {
    /// How long the host must be idle before folding begins.
    after_ns: u64,
    /// The time of the last request.
    asked: u64,
    /// A fold is in progress.
    folds: bool,
    /// Nothing is left to fold.
    empty: bool,
    /// Folding has begun, and continues without waiting until a request arrives.
    goes_on: bool,
}

impl Idle {
    pub fn new(after_ns: u64) -> Self {
        Self {
            after_ns,
            asked: 0,
            folds: false,
            empty: true,
            goes_on: false,
        }
    }

    /// Records a request; a write adds something to fold.
    pub fn asked(&mut self, now: u64, writes: bool) {
        self.asked = now;
        self.goes_on = false;
        self.empty &= !writes;
    }

    /// Returns when a fold begins, unless a request arrives before.
    pub fn due(&self) -> Option<u64> {
        if self.folds || self.empty {
            return None;
        }
        match self.goes_on {
            true => Some(self.asked),
            false => Some(self.asked.saturating_add(self.after_ns)),
        }
    }

    /// Records that a fold begins.
    pub fn begins(&mut self) {
        (self.folds, self.goes_on) = (true, true);
    }

    /// Records that it ended, or that there was nothing to fold.
    pub fn ended(&mut self) {
        self.folds = false;
    }

    /// Records that nothing is left to fold.
    pub fn empties(&mut self) {
        self.empty = true;
    }
}
