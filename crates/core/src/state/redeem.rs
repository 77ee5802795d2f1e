//! Redeeming pledges: recovery maps each home address to its journal's block.

use super::{Origin, State};
use crate::entry::Entry;
use crate::format::chunk::Record;

impl State {
    /// Redeems all pledges, as if each had a record, and returns how many home addresses changed. If any did, nothing may follow
    /// in the log before a map checkpoint is durable: see [`State::is_redeeming`].
    pub fn redeem(&mut self) -> u64 {
        let pledges = core::mem::take(&mut self.pledges);
        let mut redeemed = 0;
        for (home, journal) in pledges.iter() {
            let entry = self.map.get(journal);
            let record = match entry {
                _ if self.map.get(home) == entry => continue,
                // Zeros are replayed like discards.
                Entry::Unmapped | Entry::Zero => Record::Discard {
                    lba: home,
                    blocks: 1,
                },
                Entry::Packed(vba, slot) => Record::SharePart {
                    lba: home,
                    vba,
                    slot,
                },
                Entry::Shared(vba) => Record::Share {
                    lba: home,
                    vba,
                    pba: self.shared.pba(vba),
                },
                Entry::Plain(pba) => {
                    let Some(vba) = self.shared.number_in_reserve() else {
                        unreachable!("numbers are reserved for pledges")
                    };
                    self.carry_out_pledge(&Record::Share {
                        lba: journal,
                        vba,
                        pba,
                    });
                    Record::Share {
                        lba: home,
                        vba,
                        pba,
                    }
                }
            };
            self.carry_out_pledge(&record);
            redeemed += 1;
        }
        self.is_redeeming = redeemed > 0;
        redeemed
    }

    fn carry_out_pledge(&mut self, record: &Record) {
        let is_known = self.carry_out(Origin::NONE, record);
        debug_assert!(is_known.is_some(), "pledges are of the volume");
    }
}
