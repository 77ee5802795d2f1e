//! Requests that wait until the checksums of a segment are known, or turn out to be unreadable.
//!
//! Each kind has a separate list, because they are served one kind after another.

use crate::addr::{Lba, Pba, RequestId, Segment};
use crate::index::Holder;
use crate::state::Place;
use alloc::vec::Vec;

/// The requests that wait for checksums, by kind.
#[derive(Default)]
pub(super) struct Parked {
    pub reads: BySegment<Unchecked>,
    pub unsure: BySegment<Unsure>,
    pub pairs: BySegment<Pair>,
}

/// Blocks that were read before the checksums to verify them were known.
pub(super) struct Unchecked {
    pub request: RequestId,
    pub at: Pba,
    pub sums: Vec<u32>,
    pub fault: Fault,
}

/// The page to blame when a part fails to decode although its own page passes its checksum; `None` if all parts decoded. If a delta's
/// base was read from the medium, that is the base's page: the read may have returned another, intact block.
pub(super) type Fault = Option<Pba>;

/// A block that equals the bytes that were read from a page. Their checksum is not known yet, so the read may have returned other bytes
/// than were written there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsure {
    pub request: RequestId,
    pub index: u32,
    pub page: Pba,
    /// The checksum of the bytes that were read.
    pub sum: u32,
}

/// A pair of blocks that may be merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub request: RequestId,
    pub lba: Lba,
    pub of: Holder,
    /// The block's place, and the checksum of the page there, if known.
    pub known: Option<(Place, u32)>,
}

/// Waiters of one kind, by the segments they wait for.
pub(super) struct BySegment<T>(Vec<(Segment, T)>);

impl<T> Default for BySegment<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> BySegment<T> {
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

    /// Takes all. The caller parks those that wait for another segment again, in order.
    pub fn take_all(&mut self) -> Vec<(Segment, T)> {
        core::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_taken_by_segment_in_order() {
        let mut parked = BySegment::default();
        for (segment, who) in [(1, 'a'), (2, 'b'), (1, 'c'), (2, 'd')] {
            parked.park(Segment(segment), who);
        }
        assert_eq!(parked.of(Segment(2)).collect::<Vec<_>>(), [&'b', &'d']);
        assert_eq!(parked.take(Segment(1)), ['a', 'c']);
        assert!(parked.take(Segment(1)).is_empty());
        parked.park(Segment(3), 'e');
        let left = [(2, 'b'), (2, 'd'), (3, 'e')].map(|(of, who)| (Segment(of), who));
        assert_eq!(parked.take_all(), left);
        assert!(parked.take_all().is_empty());
    }
}
