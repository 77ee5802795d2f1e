//! Which LBAs of a volume have always meant the same block.

use super::Superblock;
use super::resettled::Resettled;
use crate::addr::{Lba, Life};

impl Superblock {
    /// Which LBAs have meant another block before, if any have.
    #[must_use]
    pub fn resettled(&self) -> Option<Resettled> {
        self.features.resettled
    }

    /// Whether an LBA has meant the same block since ever.
    #[must_use]
    pub fn is_settled(&self, lba: Lba) -> bool {
        self.features
            .resettled
            .is_none_or(|how| lba.0 < how.settled)
    }

    /// It grows from what `before` says: what belongs to snapshots moves, in the life that begins with that.
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
