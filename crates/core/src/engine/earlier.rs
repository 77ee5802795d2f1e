//! The base that a block's delta may be made against.

use crate::entry::PartId;

/// The kind of content that is stored where a block is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// Nothing, or zeros.
    Nothing,
    /// A block that no delta may be made against.
    Unfit,
    /// This part, or a delta against it.
    Base(PartId),
    /// Unknown, because its leaf is not in memory. Nothing waits for it: a block unused for so long is hardly worth a delta.
    Away,
}
