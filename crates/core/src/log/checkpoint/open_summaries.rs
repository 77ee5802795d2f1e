//! Summaries of the segments that the heads still write to, stored after a root's second copy.
//!
//! A segment gets its summary when its head leaves it. Until then only chunk headers describe its blocks, and replay reads only the
//! headers since the map checkpoint. So a map checkpoint repeats what the earlier headers say.

use crate::addr::BLOCK_BYTES;
use crate::format::root::RootHeader;
use crate::format::{Crc, summary, superblock::Superblock};
use crate::log::sums::Sums;
use alloc::vec::Vec;

/// The summaries, encoded once: a copy of the root may be rewritten after the segments have grown.
#[derive(Default)]
pub(super) struct OpenSummaries {
    bytes: Vec<u8>,
}

impl OpenSummaries {
    /// Encodes them as they are now: every chunk that the root includes has been written, so all checksums are known. A segment that was
    /// left and already has its summary is empty here: the sync that is about to begin makes that summary durable.
    pub fn keep(&mut self, superblock: &Superblock, sums: &Sums, root: &RootHeader, crc: Crc) {
        let length = superblock.open_summary_blocks() as usize * BLOCK_BYTES;
        self.bytes.clear();
        self.bytes.resize(2 * length, 0);
        let blocks = self.bytes.chunks_exact_mut(length.max(1));
        for (cursor, out) in root.cursors.iter().zip(blocks) {
            let tags = sums.tags(cursor.segment).unwrap_or_default();
            summary::encode(
                &superblock.signature(),
                cursor.segment,
                root.seq,
                tags,
                crc,
                out,
            );
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
