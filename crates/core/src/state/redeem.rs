//! Redeeming pledges: recovery maps each home address to its journal's block.

use super::State;
use crate::entry::Entry;

impl State {
    /// Redeems all pledges, as if each had a record, and returns how many home addresses changed. If any did, nothing may follow
    /// in the log before a map checkpoint is durable: see [`State::is_redeeming`].
    pub fn redeem(&mut self) -> u64 {
        let pledges = core::mem::take(&mut self.pledges);
        let mut redeemed = 0;
        for (home, journal) in pledges.iter() {
            let entry = self.map.get(journal);
            match entry {
                _ if self.map.get(home) == entry => continue,
                // Zeros are replayed like discards.
                Entry::Unmapped | Entry::Zero => self.remap(home, Entry::Unmapped),
                Entry::Packed(vba, slot) => self.lead_to_part(home, vba, slot),
                Entry::Shared(vba) => {
                    let is_known = self.share(home, vba, self.shared.pba(vba));
                    debug_assert!(is_known.is_some(), "pledges are of the volume");
                }
                Entry::Plain(pba) => {
                    let Some(vba) = self.shared.number_in_reserve() else {
                        unreachable!("numbers are reserved for pledges")
                    };
                    for lba in [journal, home] {
                        let is_known = self.share(lba, vba, pba);
                        debug_assert!(is_known.is_some(), "pledges are of the volume");
                    }
                }
            }
            redeemed += 1;
        }
        self.is_redeeming = redeemed > 0;
        redeemed
    }
}
