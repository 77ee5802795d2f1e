//! The summaries so far of the segments that the heads are in, behind a root's second copy.
//!
//! A segment has its summary when it is left. Until then chunk headers alone say what its blocks are, and replay reads those since
//! the map checkpoint. So a map checkpoint repeats what the headers before it say.

use super::sums::Sums;
use crate::addr::{BLOCK_BYTES, Seq};
use crate::format::root::Cursor;
use crate::format::{Crc, summary, superblock::Superblock};
use alloc::vec::Vec;

/// As they are written: a root may be written again, when the segments have grown.
#[derive(Default)]
pub(super) struct OpenSummaries {
    bytes: Vec<u8>,
}

impl OpenSummaries {
    /// Keeps them as they are now: every chunk through `seq` has been written, so all sums are known. Of a segment that was left and
    /// has its summary already nothing is said: the sync that is about to begin makes that durable.
    pub fn keep(
        &mut self,
        superblock: &Superblock,
        sums: &Sums,
        cursors: &[Cursor; 2],
        seq: Seq,
        crc: Crc,
    ) {
        let length = superblock.open_summary_blocks() as usize * BLOCK_BYTES;
        self.bytes.clear();
        self.bytes.resize(2 * length, 0);
        for (cursor, out) in cursors
            .iter()
            .zip(self.bytes.chunks_exact_mut(length.max(1)))
        {
            let tags = sums.tags(cursor.segment).unwrap_or_default();
            summary::encode(&superblock.signature(), cursor.segment, seq, tags, crc, out);
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
