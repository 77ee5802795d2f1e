//! Traces whose times nobody measured: what is said of them by such times is worth nothing.

use crate::replay::Summary;

/// Times in a trace that nobody measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeUp {
    /// All requests have one time.
    Same,
    /// Most are dated before the one before them.
    Falling,
}

impl Summary {
    /// Whether its times are made up, so that nothing can be concluded from them.
    #[must_use]
    pub fn made_up_times(&self) -> Option<MadeUp> {
        let requests = self.reads + self.writes + self.discards + self.flushes;
        if requests > 1 && self.seen.backwards > requests / 2 {
            return Some(MadeUp::Falling);
        }
        (requests > 1 && self.first_at == self.last_at).then_some(MadeUp::Same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_nobody_measured_are_told_from_others() {
        let of = |first_at, last_at, backwards| {
            let mut summary = Summary {
                writes: 10,
                first_at,
                last_at,
                ..Summary::default()
            };
            summary.seen.backwards = backwards;
            summary.made_up_times()
        };
        assert_eq!(of(0, 0, 0), Some(MadeUp::Same));
        assert_eq!(of(7, 7, 0), Some(MadeUp::Same));
        assert_eq!(of(7, 7, 9), Some(MadeUp::Falling));
        assert_eq!(of(7, 90, 6), Some(MadeUp::Falling));
        // A clock that was set back once is a clock.
        assert_eq!(of(7, 90, 1), None);
        assert_eq!(of(0, 1, 0), None);
        let one = Summary {
            writes: 1,
            ..Summary::default()
        };
        assert_eq!(one.made_up_times(), None);
    }
}
