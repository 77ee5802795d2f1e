//! Where a volume's segments are.

use crate::addr::{Pba, Segment};

/// Segments, one after the other. Each is a power of two of blocks; the last of them hold its summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentArea {
    first: u64,
    blocks: u32,
    usable: u32,
    count: u32,
}

impl SegmentArea {
    /// The area of `count` segments of `blocks` blocks, from block `first` on; a summary takes the last `summary` blocks of each.
    pub(super) fn new(first: u64, blocks: u32, summary: u32, count: u32) -> Self {
        debug_assert!(blocks.is_power_of_two());
        Self {
            first,
            blocks,
            usable: blocks - summary,
            count,
        }
    }

    /// The block that the first segment begins with.
    #[must_use]
    pub fn first(&self) -> Pba {
        Pba(self.first)
    }

    /// The block after the last segment.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.count) * u64::from(self.blocks)
    }

    /// The number of blocks in a segment.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The number of blocks before its summary.
    #[must_use]
    pub fn usable(&self) -> u32 {
        self.usable
    }

    /// The number of segments.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// A segment's first block.
    #[must_use]
    pub fn start(&self, segment: Segment) -> Pba {
        debug_assert!(segment.0 < self.count);
        Pba(self.first + u64::from(segment.0) * u64::from(self.blocks))
    }

    /// The segment that a block is in, and its offset there; `None` outside the segments and on summaries.
    #[must_use]
    pub fn segment_of(&self, pba: Pba) -> Option<(Segment, u32)> {
        let from_first = pba.0.checked_sub(self.first)?;
        // The size is a power of two, and every write computes this: a division would take longer than everything else here.
        let segment = from_first >> self.blocks.trailing_zeros();
        let offset = from_first as u32 & (self.blocks - 1);
        (segment < u64::from(self.count) && offset < self.usable)
            .then_some((Segment(segment as u32), offset))
    }
}
