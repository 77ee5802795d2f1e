//! Two copies of a block of the map: of each sector the newer one that is whole counts.
//!
//! Both are written in the same stage of a commit, so a crash may leave either of them old, or torn; any mixture of sectors is
//! right. What is whole and newer in one of them is what was written last, whatever became of the other.

use crate::format::superblock::Superblock;
use crate::format::table::{Entry, SectorEditions};
use crate::recovery::RecoveryError;
use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};

/// What is in one copy of a block of a table.
pub(super) struct Seen<E> {
    pub entries: Vec<E>,
    pub sectors: SectorEditions,
    /// What is wrong with the first sector that is not whole.
    pub result: Result<(), RecoveryError>,
}

impl<E: Entry> Seen<E> {
    pub fn nothing() -> Self {
        Self {
            entries: vec![E::default(); E::KIND.entries()],
            sectors: SectorEditions::default(),
            result: Ok(()),
        }
    }
}

/// What became of twins.
#[derive(Default)]
pub(super) struct Twins {
    /// Blocks of which both copies are to be written anew.
    pub anew: BTreeSet<u32>,
    /// Those of which one copy was damaged.
    pub damaged: BTreeSet<u32>,
}

impl Twins {
    /// Takes from the other copy what is better there.
    pub fn take<E: Entry>(
        &mut self,
        superblock: &Superblock,
        block: u32,
        seen: &mut Seen<E>,
        other: Seen<E>,
    ) {
        if seen.sectors == other.sectors && seen.result.is_ok() {
            return;
        }
        let is_damaged = seen.result.is_err() || other.result.is_err();
        let of_sector = E::KIND.sector_entries();
        for sector in seen.sectors.better_in(other.sectors) {
            let entries = sector as usize * of_sector..(sector as usize + 1) * of_sector;
            seen.entries[entries.clone()].copy_from_slice(&other.entries[entries]);
            seen.sectors.take(sector, other.sectors);
        }
        if seen.sectors.missing().next().is_none() {
            seen.result = Ok(());
            self.anew.insert(block);
            // After a crash one of them may be the older one, and is no damage.
            if is_damaged || superblock.was_stopped() {
                self.damaged.insert(block);
            }
        }
    }
}
