//! The place of a head.

use super::chunks::ChunkId;
use crate::addr::Segment;
use crate::format::root::Cursor;

/// An append point.
pub(super) struct Position {
    pub segment: Segment,
    /// The block of the segment at which the next chunk to be sealed starts.
    pub offset: u32,
    pub open: Option<ChunkId>,
    /// The segment to continue in, taken before the last chunk of this one is opened.
    pub next: Option<Segment>,
    /// Chunks opened so far by this head, and the newest of them that is durable.
    pub opened: u64,
    pub durable: u64,
}

impl Position {
    pub fn found(cursor: Cursor) -> Self {
        Self {
            segment: cursor.segment,
            offset: cursor.offset,
            open: None,
            next: None,
            opened: 0,
            durable: 0,
        }
    }
}
