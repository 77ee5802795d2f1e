//! What a scrub asks of tables, and has them write anew: nothing of it changes what a client reads.

use super::Tables;
use super::shadow::Shadow;
use crate::addr::{Generation, Lba, Pba};
use crate::format::table::Kind;
use crate::seam::Mend;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

impl Tables {
    /// Whether `lba` leads to what is at `pba` now, and no request that would change that is waiting.
    #[must_use]
    pub fn leads_to(&self, lba: Lba, pba: Pba) -> bool {
        let waits = self.waiting.iter().any(|waiting| {
            let (first, length) = waiting.range();
            (first.0..first.0.saturating_add(length)).contains(&lba.0)
        });
        !waits && self.whole_at(lba).is_some_and(|(at, _)| at == pba)
    }

    /// Where the block at `lba` is, and its sum.
    #[must_use]
    pub fn whole_at(&self, lba: Lba) -> Option<(Pba, u32)> {
        let link = (lba.0 < self.superblock.logical_blocks()).then(|| self.link(lba))?;
        let unit = link.index().filter(|unit| !self.held.contains_key(unit))?;
        Some((self.superblock.areas().data(unit), link.sum))
    }

    /// The newest root that is durable; of tables without one, the first.
    #[must_use]
    pub fn root_generation(&self) -> Generation {
        self.shadow
            .as_ref()
            .map_or(Generation(0), Shadow::newest_durable)
    }

    /// Whether nothing of the tables is being written.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        self.committing.is_none() && self.superblock.is_written()
    }

    pub(super) fn mend(&mut self, what: Mend<'_>) {
        if !self.course.is_running() || self.course.is_poisoned() {
            return;
        }
        let number = match what {
            Mend::Table(number) => number,
            Mend::Mirror(index) => return self.superblock.write_anew(usize::from(index > 0)),
            // Whatever is written has a new root.
            Mend::Checkpoint => 0,
            // A block of the directory: what is written of the tables that it names has it written.
            Mend::Leaf(leaf) => u64::from(leaf.0) * crate::format::areas::DIRECTORY_ENTRIES,
            Mend::Summary { .. } | Mend::Scrubbed { .. } => return,
        };
        self.anew.extend(self.superblock.table_of(number));
    }

    /// What is to be written anew: that which leads to data only with the links, where these have their turn.
    pub(super) fn take_anew(&mut self, links: bool, blocks: &mut BTreeSet<(Kind, u32)>) {
        let ready =
            |(kind, _): &(Kind, u32)| (*kind == Kind::Map) == links || self.shadow.is_some();
        let taken: Vec<_> = self.anew.iter().copied().filter(ready).collect();
        for block in taken {
            self.anew.remove(&block);
            blocks.insert(block);
        }
    }
}
