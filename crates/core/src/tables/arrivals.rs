//! How fast writes arrive, for the anticipation of commits (OrderMergeDedup §2.2).

use crate::addr::Nanos;

/// The longest gap between writes that counts.
const GAP_MAX: u64 = u32::MAX as u64;

/// See the module.
pub(super) struct Arrivals {
    /// The average time between writes.
    gap: u64,
    /// When the last one arrived.
    last: Nanos,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            gap: GAP_MAX,
            last: Nanos(0),
        }
    }
}

impl Arrivals {
    /// Notes that a write arrives.
    #[inline]
    pub fn note(&mut self, now: Nanos) {
        let gap = (now.0 - self.last.0).min(GAP_MAX);
        self.gap = (self.gap * 7 + gap) / 8;
        self.last = now;
    }

    /// True if another write is likely within this time.
    pub fn are_within(&self, nanos: u64) -> bool {
        self.gap < nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_fast_only_after_several() {
        let mut arrivals = Arrivals::default();
        let mut now = Nanos(0);
        for _ in 0..8 {
            now.0 += 100;
            arrivals.note(now);
            assert!(!arrivals.are_within(1000));
        }
        for _ in 0..200 {
            now.0 += 100;
            arrivals.note(now);
        }
        assert!(arrivals.are_within(1000) && !arrivals.are_within(100));
    }
}
