//! Out-of-line deduplication: two stored blocks that turn out equal become one page (CAFTL §3.5).
//!
//! The runtime finds pairs that may be equal (by the summaries' checksums, in idle time). It may be wrong or late. So both blocks are
//! read and compared, and one is mapped to the other's page only if both are still where they were. Nothing changes for a client: the
//! bytes are the same. A block that fails its checksum is left alone: otherwise an error would become data.
//!
//! A block in a part of a page is decoded into a buffer, after the page has been verified against its checksum. If both blocks of a pair
//! are parts, both are decoded. Otherwise equal parts of a damaged page could become shared, and every read of them would fail.

mod run;

use crate::addr::{Buf, Lba, RequestId, Segment};
use crate::index::Holder;
use crate::seam::Outcome;
use crate::state::Place;

/// A pair being merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merge {
    request: RequestId,
    /// The block that is to give up its place, and the place.
    lba: Lba,
    from: Side,
    /// The block that is to be shared.
    of: Holder,
    to: Side,
    /// True if both blocks are in their buffers.
    both: bool,
}

/// One of a pair.
#[derive(Clone, Copy, Debug)]
struct Side {
    place: Place,
    /// The checksum of the page there.
    sum: u32,
    /// The buffer it is read to. The second of a pair may be compared in place, if it is a whole block.
    buf: Option<Buf>,
}

impl Side {
    fn is_read(&self, outcome: Outcome<'_>) -> bool {
        match outcome {
            Outcome::Sums(sums) => self.place.slot.is_none() && sums == [self.sum],
            Outcome::Parts { sum, whole, .. } => {
                self.place.slot.is_some() && whole && sum == self.sum
            }
            _ => false,
        }
    }
}

/// A page's checksum.
enum Sum {
    Is(u32),
    /// The summary that holds it is being read.
    Awaited(Segment),
    Unknown,
}
