//! Which LBAs of a volume have always meant the same block.

use super::Superblock;
use super::resettled::Resettled;
use crate::addr::{Lba, Life};

impl Superblock {
    /// The LBAs that once meant another block, if there are any.
    #[must_use]
    pub fn resettled(&self) -> Option<Resettled> {
        self.features.resettled
    }

    /// True if an LBA has always meant the same block.
    #[must_use]
    pub fn is_settled(&self, lba: Lba) -> bool {
        self.features
            .resettled
            .is_none_or(|how| lba.0 < how.settled)
    }

    /// Applies growth from the geometry of `before`: the blocks of snapshots move, in the life that begins with it.
    pub(in crate::format) fn resettle(&mut self, before: &Self) {
        if before.kept_blocks == 0 || before.history() == self.history() {
            return;
        }
        let settled = before
            .resettled()
            .map_or(before.logical_blocks, |how| how.settled);
        let since = Life(before.life.0 + 1);
        self.features.resettled = Some(Resettled { settled, since });
    }
}
