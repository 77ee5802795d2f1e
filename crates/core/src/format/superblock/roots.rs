//! How long the roots of a volume are.

use super::super::error::{FormatError, can_be};
use super::super::root;
use super::{Superblock, WHAT};

/// More segments than any medium has: addresses have 32 bits, and a segment has at least 256 blocks.
const SEGMENTS_MOST: u32 = 1 << 24;

impl Superblock {
    /// The number of blocks of a root.
    #[must_use]
    pub fn root_blocks(&self) -> u32 {
        match self.features.free_segments {
            // A volume that loses segments keeps its roots as they are.
            true => (self.map_area.saturating_sub(self.roots) / 2) as u32,
            false => root::blocks(self.leaves()),
        }
    }

    /// The number of blocks that a root needs, if the volume has so many segments.
    pub(in crate::format) fn root_blocks_with(&self, segments: u32) -> u32 {
        let free = match self.features.free_segments {
            true => root::free_blocks(segments),
            false => 0,
        };
        root::blocks(self.leaves()) + free
    }

    /// True if roots say which segments are free.
    #[must_use]
    pub fn tells_free_segments(&self) -> bool {
        self.features.free_segments
    }

    /// Checks that the places of the roots are long enough, and no longer than those of any volume.
    pub(super) fn validate_roots(&self) -> Result<(), FormatError> {
        let places = self.map_area.saturating_sub(self.roots) / 2;
        let least = u64::from(self.root_blocks_with(self.segments.count()));
        // A volume that has lost segments keeps roots that had room for more.
        let most = least + u64::from(root::free_blocks(SEGMENTS_MOST));
        let is_sound = !self.features.free_segments || (least..=most).contains(&places);
        can_be(WHAT, is_sound, "root blocks", places)
    }
}
