//! How many blocks clients see of a volume that has shrunk.
//!
//! Its map stays as it is, and so do the LBAs of snapshots. Only the end that clients see is another one.

use super::{Layout, Superblock, WHAT};
use crate::format::error::{FormatError, can_be};

impl Superblock {
    /// Blocks that clients see.
    #[must_use]
    pub fn logical_blocks(&self) -> u64 {
        self.features.shrunk.unwrap_or(self.logical_blocks)
    }

    /// Blocks that clients see, or saw before the volume shrank. Those that they do not see any more hold no data.
    #[must_use]
    pub fn addressed_blocks(&self) -> u64 {
        self.logical_blocks
    }

    /// Sets how many of the addressed blocks clients see.
    pub(in crate::format) fn end_at(&mut self, blocks: u64) {
        self.features.shrunk = (blocks < self.logical_blocks).then_some(blocks);
    }

    /// Checks where a shrunk volume ends.
    pub(super) fn validate_end(&self) -> Result<(), FormatError> {
        let Some(blocks) = self.features.shrunk else {
            return Ok(());
        };
        let ok = self.layout == Layout::Log && (1..self.logical_blocks).contains(&blocks);
        can_be(WHAT, ok, "shrunk blocks", blocks)
    }
}
