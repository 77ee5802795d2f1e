//! Where things lie on a volume, and how much room it has, computed from its geometry.

use super::{Layout, SegmentArea, Superblock};
use crate::addr::{Generation, Leaf, Pba, Segment};
use crate::limits::COLLECTOR_SEGMENTS;

impl Superblock {
    /// The place of a map checkpoint's root.
    #[must_use]
    pub fn root_place(&self, generation: Generation) -> Pba {
        Pba(self.roots + (generation.0 & 1) * u64::from(self.root_blocks()))
    }

    /// The place of the root's second copy: after the map area, so that it is far from the first.
    #[must_use]
    pub fn root_twin(&self, generation: Generation) -> Option<Pba> {
        let behind = self.map_area + 2 * u64::from(self.leaves());
        let place = (generation.0 & 1) * self.twin_blocks();
        (self.leaves.parities > 0).then_some(Pba(behind + place))
    }

    /// The place of the open summary of the segment that a head is in; the cold head's follows the hot one's.
    #[must_use]
    pub fn open_summary(&self, generation: Generation, head: u32) -> Option<Pba> {
        let twin = self.root_twin(generation)?;
        let before = self.root_blocks() + head * self.open_summary_blocks();
        (self.open_summary_blocks() > 0).then(|| twin.plus(before.into()))
    }

    /// The length of an open summary; 0 if there are none.
    #[must_use]
    pub fn open_summary_blocks(&self) -> u32 {
        match self.features.open_summaries {
            true => self.segment_blocks() - self.usable_blocks(),
            false => 0,
        }
    }

    /// The places of all copies of a root.
    pub fn root_copies(&self, generation: Generation) -> impl Iterator<Item = Pba> + Clone + use<> {
        let twin = self.root_twin(generation);
        core::iter::once(self.root_place(generation)).chain(twin)
    }

    /// The number of blocks of a root's second copy, with the open summaries after it.
    pub(crate) fn twin_blocks(&self) -> u64 {
        match self.leaves.parities {
            0 => 0,
            _ => u64::from(self.root_blocks() + 2 * self.open_summary_blocks()),
        }
    }

    /// The place of slot `slot` (0 or 1) of a leaf.
    #[must_use]
    pub fn leaf_slot(&self, leaf: Leaf, slot: u32) -> Pba {
        debug_assert!(leaf.0 < self.leaves() && slot < 2);
        Pba(self.map_area + 2 * u64::from(leaf.0) + u64::from(slot))
    }

    /// The places of the two superblocks.
    #[must_use]
    pub fn mirrors(&self) -> [Pba; 2] {
        [Pba(0), Pba(self.medium_blocks - 1)]
    }

    /// Where the segments are.
    #[must_use]
    pub fn segments(&self) -> SegmentArea {
        self.segments
    }

    /// The number of blocks in a segment.
    #[must_use]
    pub fn segment_blocks(&self) -> u32 {
        self.segments.blocks()
    }

    /// The number of blocks in a segment before its summary.
    #[must_use]
    pub fn usable_blocks(&self) -> u32 {
        self.segments.usable()
    }

    /// The number of segments.
    #[must_use]
    pub fn segment_count(&self) -> u32 {
        self.segments.count()
    }

    /// A segment's first block.
    #[must_use]
    pub fn segment_start(&self, segment: Segment) -> Pba {
        self.segments.start(segment)
    }

    /// The segment that a block is in, and its offset there; `None` outside the segments and on summaries.
    #[must_use]
    pub fn segment_of(&self, pba: Pba) -> Option<(Segment, u32)> {
        self.segments.segment_of(pba)
    }

    /// How many data blocks may be live at once. This excludes the reserve, and the segments that both heads are in and continue
    /// in. It also excludes enough of each segment that the emptiest one always gives the collector more
    /// ([`victim_limit`](Self::victim_limit)) than its survivors' headers take.
    #[must_use]
    pub fn capacity_blocks(&self) -> u64 {
        if self.layout != Layout::Log {
            return self.areas.capacity_blocks();
        }
        self.capacity_of(self.segment_count())
    }

    /// The same, of a log with so many segments.
    #[must_use]
    pub fn capacity_of(&self, segments: u32) -> u64 {
        let segments = u64::from(segments).saturating_sub(COLLECTOR_SEGMENTS as u64 + 4);
        let usable = self.usable_blocks();
        segments * u64::from(usable - 8 - usable / 32)
    }

    /// The most live blocks with which a segment is still worth collecting.
    #[must_use]
    pub fn victim_limit(&self) -> u32 {
        let usable = self.usable_blocks();
        usable - 4 - usable / 64
    }
}
