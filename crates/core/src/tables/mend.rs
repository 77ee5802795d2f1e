//! What a scrub reads from the tables, and what it makes them rewrite. It never changes what a client reads.

use super::Tables;
use super::shadow::Shadow;
use crate::addr::{Generation, Lba, Pba};
use crate::seam::Mend;

impl Tables {
    /// True if `lba` now leads to what is at `pba`, and no waiting request would change that.
    #[must_use]
    pub fn leads_to(&self, lba: Lba, pba: Pba) -> bool {
        !self.front.queue.will_change(lba, 1) && self.whole_at(lba).is_some_and(|(at, _)| at == pba)
    }

    /// The place of the block at `lba`, and its sum.
    #[must_use]
    pub fn whole_at(&self, lba: Lba) -> Option<(Pba, u32)> {
        let link = (lba.0 < self.superblock.logical_blocks()).then(|| self.link(lba))?;
        let unit = link.index().filter(|unit| !self.buffers.has(*unit))?;
        Some((self.superblock.areas().data(unit), link.sum))
    }

    /// The newest durable root; for tables without roots, the first number.
    #[must_use]
    pub fn root_generation(&self) -> Generation {
        self.shadow
            .as_ref()
            .map_or(Generation(0), Shadow::newest_durable)
    }

    /// True if none of the tables is being written.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        self.groups.commit().is_none() && self.superblock.is_written()
    }

    pub(super) fn mend(&mut self, what: Mend<'_>) {
        if !self.front.course.is_running() || self.front.course.is_poisoned() {
            return;
        }
        let number = match what {
            Mend::Table(number) => number,
            Mend::Mirror(index) => return self.superblock.write_anew(usize::from(index > 0)),
            // Any write makes a new root.
            Mend::Checkpoint => 0,
            // A block of the directory: writing one of the tables' blocks that it names writes it as well.
            Mend::Leaf(leaf) => u64::from(leaf.0) * crate::format::areas::DIRECTORY_ENTRIES,
            Mend::Summary { .. } | Mend::Scrubbed { .. } => return,
        };
        self.backlog.write_anew(self.superblock.table_of(number));
    }
}
