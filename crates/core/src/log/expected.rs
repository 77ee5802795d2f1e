//! Estimates how much of a header its records will take.
//!
//! The room that records leave in a chunk's header is filled with parts (0011). How many records are still to come is not known when a
//! part is placed. If too much room is reserved, a small fsync's last part takes a page by itself; if too little, a long chunk ends
//! early, with a page of parts that is not full. Loads repeat from one FLUSH to the next. So the estimate is the bytes that arrived
//! between the last two FLUSHes; once more than that has arrived, as much again is expected.

use crate::limits::{HEADER_RESERVE, LEAST_RESERVE};

/// Bytes of records of the host's chunks, from one FLUSH to the next.
pub(super) struct Expected {
    /// The bytes between the last two FLUSHes, or three quarters of the previous estimate if that is more: SQLite's FLUSHes are long and
    /// short by turns.
    last: usize,
    /// The bytes since the last FLUSH, in sealed chunks.
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
    /// The bytes to reserve for records still to come, when the open chunk has `open` bytes of them.
    pub fn left(&self, open: usize) -> usize {
        let so_far = self.sealed.saturating_add(open);
        let left = self.last.checked_sub(so_far).unwrap_or(so_far);
        left.max(LEAST_RESERVE)
    }

    /// Notes that a chunk with `records` bytes of records was sealed; `flushed`: because of a FLUSH.
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
    fn as_many_bytes_are_expected_as_came_between_two_flushes() {
        let mut expected = Expected::default();
        assert_eq!(expected.left(0), HEADER_RESERVE);
        assert_eq!(expected.left(100), HEADER_RESERVE - 100);
        assert_eq!(expected.left(HEADER_RESERVE), LEAST_RESERVE);
        // More records arrive than were expected.
        assert_eq!(expected.left(3000), 3000);
        expected.sealed(3000, false);
        expected.sealed(2000, true);
        assert_eq!(expected.left(0), 5000);
        expected.sealed(3000, false);
        assert_eq!(expected.left(500), 1500);
        // A long interval is forgotten gradually.
        expected.sealed(0, true);
        assert_eq!(expected.left(0), 3750);
        for _ in 0..20 {
            expected.sealed(300, true);
        }
        assert_eq!(expected.left(0), 300);
        assert_eq!(expected.left(usize::MAX), usize::MAX);
    }
}
