//! Chunk headers, as recovery reads them.

use crate::format::chunk::{ChunkHeader, Record};
use crate::format::root::Cursor;
use crate::format::summary::Tag;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A whole chunk header that is in its right place.
pub(super) struct Found {
    pub header: ChunkHeader,
    pub records: Vec<Record>,
    /// The tag of its own block, if that is a page of parts.
    pub own: Option<Tag>,
}

/// How many records of a head's chunks are remembered: some MiB of memory. A log of small chunks, which is the one that takes long to
/// read, has fewer.
const REMEMBERED_RECORDS: usize = 1 << 16;

/// A head's chunks that [the first walk](super::durable) has read, in order, and where they are: replay need not read them again.
#[derive(Default)]
pub(super) struct Remembered {
    chunks: VecDeque<(Cursor, Found)>,
    records: usize,
}

impl Remembered {
    pub fn remember(&mut self, at: Cursor, found: Found) {
        if self.records < REMEMBERED_RECORDS {
            self.records += found.records.len();
            self.chunks.push_back((at, found));
        }
    }

    /// Takes the next chunk, if it is this one.
    pub fn take(&mut self, at: Cursor) -> Option<Found> {
        let is_it = |(there, _): &mut (Cursor, Found)| *there == at;
        self.chunks.pop_front_if(is_it).map(|(_, found)| found)
    }
}
