//! Two copies of a block of the map: for each sector, the newer whole one counts.
//!
//! Both are written in the same stage of a commit, so a crash may leave either of them old or torn; any mixture of sectors is right. If a
//! sector is whole and newer in one copy, that is the version written last, whatever happened to the other copy.

use crate::format::superblock::Superblock;
use crate::format::table::{Entry, SectorEditions};
use crate::recovery::RecoveryError;
use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};

/// The contents of one copy of a table block.
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

/// The result of merging copies.
#[derive(Default)]
pub(super) struct Twins {
    /// Blocks whose copies both have to be written anew.
    pub anew: BTreeSet<u32>,
    /// Blocks with a damaged copy.
    pub damaged: BTreeSet<u32>,
}

impl Twins {
    /// Takes the sectors that are better in the other copy.
    pub fn take<E: Entry>(
        &mut self,
        superblock: &Superblock,
        block: u32,
        seen: &mut Seen<E>,
        other: Seen<E>,
    ) {
        // Two copies of one edition may differ: an earlier opening could not read one of them, wrote both anew, and lost power meanwhile.
        let are_same = seen.sectors == other.sectors && seen.entries == other.entries;
        if are_same && seen.result.is_ok() {
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
            // After a crash one of them may be older; that is no damage.
            if is_damaged || superblock.was_stopped() {
                self.damaged.insert(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::BLOCK_BYTES;
    use crate::format::areas::Layout;
    use crate::format::geometry::{SMALL, plan_tables};
    use crate::format::table::{Edition, Kind, Link, Signer};

    #[test]
    fn copies_of_one_edition_with_different_links_are_written_anew() {
        let superblock = plan_tables(&SMALL, Layout::Ordered).unwrap();
        let signer = Signer::new(&superblock, crc32c::crc32c);
        let copy = |links: &[Link]| {
            let (mut bytes, mut entries) = ([0; BLOCK_BYTES], Vec::<Link>::new());
            signer.encode(3, Edition(5), links, &mut bytes);
            let (sectors, result) = signer.decode(3, &bytes, &mut entries);
            assert_eq!(result, Ok(()));
            Seen {
                entries,
                sectors,
                result: Ok(()),
            }
        };
        let mut twins = Twins::default();
        let mut links = vec![Link::NONE; Kind::Map.entries()];
        let mut seen = copy(&links);
        twins.take(&superblock, 3, &mut seen, copy(&links));
        assert!(twins.anew.is_empty());
        links[7] = Link::to(9, 1);
        twins.take(&superblock, 3, &mut seen, copy(&links));
        assert!(twins.anew.contains(&3));
        assert_eq!(seen.entries[7], Link::NONE, "the first copy counts");
    }
}
