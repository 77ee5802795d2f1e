//! The number of live blocks of each segment.

use crate::addr::Segment;
use alloc::{vec, vec::Vec};

/// A block is live as long as the map or a shared page names it.
#[derive(Debug)]
pub struct Live {
    valid: Vec<u32>,
    total: u64,
}

impl Live {
    pub(super) fn new(segments: u32) -> Self {
        Self {
            valid: vec![0; segments as usize],
            total: 0,
        }
    }

    /// Grows to `segments` segments, at least as many as now.
    pub(super) fn lengthen(&mut self, segments: u32) {
        self.valid.resize(segments as usize, 0);
    }

    /// The number of live blocks of all segments.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The number of live blocks of one segment.
    #[must_use]
    pub fn valid(&self, segment: Segment) -> u32 {
        self.valid[segment.0 as usize]
    }

    /// The numbers of live blocks of each segment, in order.
    #[must_use]
    pub fn of_all(&self) -> &[u32] {
        &self.valid
    }

    /// Counts a new live block of the segment; returns its number of live blocks.
    pub(super) fn born(&mut self, segment: Segment) -> u32 {
        let valid = &mut self.valid[segment.0 as usize];
        *valid += 1;
        self.total += 1;
        *valid
    }

    /// Counts a block of the segment that died; true if it was the last.
    pub(super) fn died(&mut self, segment: Segment) -> bool {
        let valid = &mut self.valid[segment.0 as usize];
        assert!(
            *valid > 0,
            "segment {segment}: a block died that was not counted as live"
        );
        *valid -= 1;
        self.total -= 1;
        *valid == 0
    }
}
