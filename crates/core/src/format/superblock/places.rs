//! Where things lie on a volume, and how much it has room for: what follows from its geometry.

use super::{Layout, SegmentArea, Superblock};
use crate::addr::{Generation, Leaf, Pba, Segment};
use crate::limits::COLLECTOR_SEGMENTS;

impl Superblock {
    /// Where the root of a map checkpoint is.
    #[must_use]
    pub fn root_place(&self, generation: Generation) -> Pba {
        Pba(self.roots + (generation.0 & 1) * u64::from(self.root_blocks()))
    }

    /// Where its second copy is: behind the map area, so far from the first.
    #[must_use]
    pub fn root_twin(&self, generation: Generation) -> Option<Pba> {
        let behind = self.map_area + 2 * u64::from(self.leaves());
        let place = (generation.0 & 1) * self.twin_blocks();
        (self.leaves.parities > 0).then_some(Pba(behind + place))
    }

    /// Where that repeats what the headers say of the segment which a head is in; the cold head's is behind the hot one's.
    #[must_use]
    pub fn open_summary(&self, generation: Generation, head: u32) -> Option<Pba> {
        let twin = self.root_twin(generation)?;
        let before = self.root_blocks() + head * self.open_summary_blocks();
        (self.open_summary_blocks() > 0).then(|| twin.plus(before.into()))
    }

    /// How long one is; 0: there are none.
    #[must_use]
    pub fn open_summary_blocks(&self) -> u32 {
        match self.features.open_summaries {
            true => self.segment_blocks() - self.usable_blocks(),
            false => 0,
        }
    }

    /// All copies of it.
    pub fn root_copies(&self, generation: Generation) -> impl Iterator<Item = Pba> + use<> {
        let twin = self.root_twin(generation);
        core::iter::once(self.root_place(generation)).chain(twin)
    }

    /// Blocks that the second copy of a root takes, with what is behind it.
    pub(crate) fn twin_blocks(&self) -> u64 {
        match self.leaves.parities {
            0 => 0,
            _ => u64::from(self.root_blocks() + 2 * self.open_summary_blocks()),
        }
    }

    /// Where slot `slot` (0 or 1) of a leaf is.
    #[must_use]
    pub fn leaf_slot(&self, leaf: Leaf, slot: u32) -> Pba {
        debug_assert!(leaf.0 < self.leaves() && slot < 2);
        Pba(self.map_area + 2 * u64::from(leaf.0) + u64::from(slot))
    }

    /// The superblock's two places.
    #[must_use]
    pub fn mirrors(&self) -> [Pba; 2] {
        [Pba(0), Pba(self.medium_blocks - 1)]
    }

    /// Where the segments are.
    #[must_use]
    pub fn segments(&self) -> SegmentArea {
        self.segments
    }

    /// Blocks in a segment.
    #[must_use]
    pub fn segment_blocks(&self) -> u32 {
        self.segments.blocks()
    }

    /// Blocks in a segment before its summary.
    #[must_use]
    pub fn usable_blocks(&self) -> u32 {
        self.segments.usable()
    }

    /// Segments.
    #[must_use]
    pub fn segment_count(&self) -> u32 {
        self.segments.count()
    }

    /// A segment's first block.
    #[must_use]
    pub fn segment_start(&self, segment: Segment) -> Pba {
        self.segments.start(segment)
    }

    /// The segment that a block is in, and its place there; `None` outside of them and on summaries.
    #[must_use]
    pub fn segment_of(&self, pba: Pba) -> Option<(Segment, u32)> {
        self.segments.segment_of(pba)
    }

    /// Data blocks that may be live at once. The reserve, both heads' segments and those they go on in
    /// are taken off, and of each segment so much that the emptiest one always gives the collector more
    /// ([`victim_limit`](Self::victim_limit)) than its survivors' headers take.
    #[must_use]
    pub fn capacity_blocks(&self) -> u64 {
        if self.layout != Layout::Log {
            return self.areas.capacity_blocks();
        }
        let segments =
            u64::from(self.segment_count()).saturating_sub(COLLECTOR_SEGMENTS as u64 + 4);
        let usable = self.usable_blocks();
        segments * u64::from(usable - 8 - usable / 32)
    }

    /// Live blocks with which a segment is still worth collecting.
    #[must_use]
    pub fn victim_limit(&self) -> u32 {
        let usable = self.usable_blocks();
        usable - 4 - usable / 64
    }
}
