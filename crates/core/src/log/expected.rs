//! How much of a header its records will take.
//!
//! What records leave free of a chunk's header is filled with parts (0011). How many are still to come is not known when a part is
//! placed: too much room left for them, and a small fsync's last part takes a page of its own; too little, and a long chunk ends
//! early, with a page of parts that is not full. Loads repeat themselves from one FLUSH to the next, so as many are expected as came
//! between two of them lately; and when it has become more than that, as many again as it is.

use crate::limits::{HEADER_RESERVE, LEAST_RESERVE};

/// Bytes of records of the host's chunks, from one FLUSH to the next.
pub(super) struct Expected {
    /// Between the last two, or three quarters of what was expected of them: SQLite's FLUSHes are long and short by turns.
    last: usize,
    /// Since the last one, in chunks that are sealed.
    sealed: usize,
}

impl Default for Expected {
    fn default() -> Self {
        Self {
            last: HEADER_RESERVE,
            sealed: 0,
        }
    }
}

impl Expected {
    /// Bytes to leave to the records that are still to come, when the open chunk has so many bytes of them.
    pub fn left(&self, open: usize) -> usize {
        let so_far = self.sealed.saturating_add(open);
        let left = self.last.checked_sub(so_far).unwrap_or(so_far);
        left.max(LEAST_RESERVE)
    }

    /// A chunk with so many bytes of records is sealed; `flushed`: because of a FLUSH.
    pub fn sealed(&mut self, records: usize, flushed: bool) {
        self.sealed = self.sealed.saturating_add(records);
        if flushed {
            let came = core::mem::take(&mut self.sealed);
            self.last = came.max(self.last / 4 * 3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_expected_as_came_between_two_flushes() {
        let mut expected = Expected::default();
        assert_eq!(expected.left(0), HEADER_RESERVE);
        assert_eq!(expected.left(100), HEADER_RESERVE - 100);
        assert_eq!(expected.left(HEADER_RESERVE), LEAST_RESERVE);
        // It goes on for longer than was expected.
        assert_eq!(expected.left(3000), 3000);
        expected.sealed(3000, false);
        expected.sealed(2000, true);
        assert_eq!(expected.left(0), 5000);
        expected.sealed(3000, false);
        assert_eq!(expected.left(500), 1500);
        // What was long is forgotten by and by.
        expected.sealed(0, true);
        assert_eq!(expected.left(0), 3750);
        for _ in 0..20 {
            expected.sealed(300, true);
        }
        assert_eq!(expected.left(0), 300);
        assert_eq!(expected.left(usize::MAX), usize::MAX);
    }
}
