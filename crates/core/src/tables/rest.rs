//! The rest of damaged tables: links in whole sectors are certain, others are lost.
//!
//! Each link stands for itself: each sector of the map has its own checksum, and any mixture of sectors is right. So a damaged
//! sector costs the LBAs whose links it held. What is not certain may be guessed ([`Trust::Newest`]): from the other slot of a
//! shadowed block, which has the links of the previous commit, or from a block in place that is older than it should be. A guess
//! never yields another LBA's data: the sum of the block lies beside the link.

use super::recover::{Anew, Recovered, lbas_of, look};
use super::table::Table;
use crate::addr::{BLOCK_BYTES, Lba, Pba};
use crate::format::Crc;
use crate::format::areas::Layout;
use crate::format::root::LeafSlot;
use crate::format::table::{Edition, Kind, Link, Signer};
use crate::recovery::rescue::{Loss, Trust};
use crate::recovery::{RecoveryError, Source};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Reads what is left of a damaged volume, for reading only.
///
/// # Errors
/// When there is no superblock.
pub fn rescue(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
    trust: Trust,
) -> Result<(Recovered, Loss), RecoveryError> {
    let mut found = look(source, medium_blocks, crc, trust)?;
    found.doubt_the_uncounted(trust);
    found.is_rest = true;
    // Nothing is corrected, because the volume is not written.
    (found.mended, found.anew) = (BTreeSet::new(), Anew::default());
    (found.unprinted, found.lost) = (Vec::new(), Vec::new());
    let nothing = Loss::none(found.superblock.logical_blocks());
    let loss = core::mem::replace(&mut found.loss, nothing);
    Ok((found, loss))
}

impl Recovered {
    /// The first count that is too low, unless it is known that the counts are old and not the links. It is known if links have two
    /// copies and all counts that are too low are in one table block. One lost write explains that, while old links would need two lost
    /// writes.
    #[must_use]
    pub fn doubt(&self) -> Option<RecoveryError> {
        let &(at, count, links) = self.too_low.first()?;
        let indices = self
            .too_low
            .iter()
            .filter_map(|(at, ..)| self.superblock.areas().data_index(*at));
        let blocks: BTreeSet<u32> = indices.map(Table::<u16>::block_of).collect();
        let are_counts_old = self.superblock.has_twins() && blocks.len() == 1;
        (!are_counts_old).then_some(RecoveryError::CountTooLow { at, count, links })
    }

    /// A count that is too low shows that either the count or a link to its block is old. Only after a clean stop is it known which of
    /// the two. If a block of the map is old, all of its links are old.
    fn doubt_the_uncounted(&mut self, trust: Trust) {
        if self.doubt().is_none() {
            return;
        }
        for &(at, count, links) in &self.too_low {
            self.loss
                .note(RecoveryError::CountTooLow { at, count, links });
        }
        let too_low: BTreeSet<Pba> = self.too_low.iter().map(|(at, ..)| *at).collect();
        let doubtful = self.links().filter(|(_, at, _)| too_low.contains(at));
        let doubtful = doubtful.map(|(lba, ..)| Table::<Link>::block_of(lba));
        let doubtful: BTreeSet<u32> = doubtful.filter(|block| !self.is_proven(*block)).collect();
        for block in doubtful {
            let (first, _) = lbas_of(block, 0);
            let blocks = Kind::Map.entries() as u64;
            match trust {
                Trust::Certain | Trust::Shown => self.forget(first, blocks),
                Trust::Newest => {
                    let lbas = (first.0..first.0 + blocks).map(Lba);
                    let lost = &self.loss.lost;
                    let there: Vec<Lba> = lbas.filter(|lba| !lost.contains(*lba)).collect();
                    there
                        .into_iter()
                        .for_each(|lba| self.loss.guessed.insert(lba, 1));
                }
            }
        }
    }

    /// True if a block of the map is certainly the newest: since a clean stop the table of editions names its edition.
    fn is_proven(&self, block: u32) -> bool {
        let of_table = Table::<Edition>::block_of(block);
        let is_told = self.superblock.has_editions() && !self.anew.editions.contains(&of_table);
        is_told && self.superblock.was_stopped()
    }

    /// Replaces lost links by older ones.
    pub(super) fn guess(&mut self, source: &mut dyn Source, signer: &Signer) {
        let mut entries = Vec::new();
        let mut bytes = [0; BLOCK_BYTES];
        for block in 0..self.superblock.table_blocks()[Kind::Map as usize] as u32 {
            let lost = |found: &Self| -> Vec<u32> {
                let sectors = 0..(Kind::Map.entries() / Kind::Map.sector_entries()) as u32;
                let is_lost = |sector: &u32| found.loss.lost.contains(lbas_of(block, *sector).0);
                sectors.filter(is_lost).collect()
            };
            let number = self.superblock.table_number(Kind::Map, block);
            for slot in self.candidates(number) {
                let mut missing = lost(self);
                let at = self.superblock.table_at(number, slot);
                if missing.is_empty() || source.read(at, &mut bytes).is_err() {
                    continue;
                }
                let (sectors, _) = signer.decode(number, &bytes, &mut entries);
                missing.retain(|sector| sectors.missing().all(|other| other != *sector));
                for sector in missing {
                    self.take_guess(block, sector, &entries);
                }
            }
        }
    }

    /// Whatever is not lost may be older than it should be.
    pub(super) fn guess_all(&mut self) {
        let Loss { lost, guessed, .. } = &mut self.loss;
        guessed.insert(Lba(0), self.superblock.logical_blocks());
        for (lba, blocks) in lost.runs() {
            guessed.remove(lba, blocks);
        }
    }

    /// The slots of a table block, in the order in which they are tried.
    fn candidates(&self, number: u64) -> impl Iterator<Item = u64> + use<> {
        let slots = match (self.superblock.layout(), self.slots.get(number as usize)) {
            (Layout::Shadow, Some(LeafSlot::Slot1(_))) => [Some(1), Some(0)],
            (Layout::Shadow, _) => [Some(0), Some(1)],
            _ => [Some(0), None],
        };
        slots.into_iter().flatten()
    }

    fn take_guess(&mut self, block: u32, sector: u32, entries: &[Link]) {
        let (lba, blocks) = lbas_of(block, sector);
        self.loss.lost.remove(lba, blocks);
        self.loss.guessed.insert(lba, blocks);
        let end = (lba.0 + blocks).min(self.superblock.logical_blocks());
        for key in lba.0 as u32..end as u32 {
            self.map
                .set(key, entries[key as usize % Kind::Map.entries()]);
        }
    }
}
