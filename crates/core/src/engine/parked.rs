//! Who waits until the checksums of a segment are known, or cannot be had.
//!
//! Each kind has a list of its own, for they are served one kind after another.

use crate::addr::{Lba, Pba, RequestId, Segment};
use crate::index::Holder;
use crate::state::Place;
use alloc::vec::Vec;

/// See the module.
#[derive(Default)]
pub(super) struct Parked {
    pub reads: List<Unchecked>,
    pub unsure: List<Unsure>,
    pub pairs: List<Pair>,
}

/// Blocks that have been read before the checksums they are held against.
pub(super) struct Unchecked {
    pub request: RequestId,
    pub at: Pba,
    pub sums: Vec<u32>,
    pub fault: Fault,
}

/// What is at fault for blocks in fewer bytes that were not decoded to what was written, when their own page is as it was; none,
/// when all were. It is what a delta was decoded with, if that was read: it may be another block, whole in itself.
pub(super) type Fault = Option<Pba>;

/// A block that is equal to what was read of a page, of which it is not known yet whether that is what was written there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsure {
    pub request: RequestId,
    pub index: u32,
    pub page: Pba,
    /// The checksum of what was read.
    pub sum: u32,
}

/// A pair of blocks that may be merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub request: RequestId,
    pub lba: Lba,
    pub of: Holder,
    /// Where the block was, and the checksum of the page there, if that has come.
    pub known: Option<(Place, u32)>,
}

/// Those of one kind, by the segments that they wait for.
pub(super) struct List<T>(Vec<(Segment, T)>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> List<T> {
    pub fn park(&mut self, segment: Segment, who: T) {
        self.0.push((segment, who));
    }

    /// Those that wait for this segment.
    pub fn of(&self, segment: Segment) -> impl Iterator<Item = &T> + '_ {
        let its = self.0.iter().filter(move |(of, _)| *of == segment);
        its.map(|(_, who)| who)
    }

    /// Takes those that wait for this segment; the others keep their order.
    pub fn take(&mut self, segment: Segment) -> Vec<T> {
        let its = self.0.extract_if(.., |(of, _)| *of == segment);
        its.map(|(_, who)| who).collect()
    }

    /// Takes all, for whoever parks those again, in their turn, that wait for another segment.
    pub fn take_all(&mut self) -> Vec<(Segment, T)> {
        core::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_taken_with_its_segment_in_order() {
        let mut list = List::default();
        for (segment, who) in [(1, 'a'), (2, 'b'), (1, 'c'), (2, 'd')] {
            list.park(Segment(segment), who);
        }
        assert_eq!(list.of(Segment(2)).collect::<Vec<_>>(), [&'b', &'d']);
        assert_eq!(list.take(Segment(1)), ['a', 'c']);
        assert!(list.take(Segment(1)).is_empty());
        list.park(Segment(3), 'e');
        let left = [(2, 'b'), (2, 'd'), (3, 'e')].map(|(of, who)| (Segment(of), who));
        assert_eq!(list.take_all(), left);
        assert!(list.take_all().is_empty());
    }
}
