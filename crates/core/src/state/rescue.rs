//! The changes that a rescue makes to a damaged volume's state: guesses, and doubts. Nothing is counted yet.

use super::State;
use crate::addr::{Lba, Pba, Vba};
use crate::entry::{Entry, PartId};
use crate::format::chunk::Record;
use alloc::vec::Vec;

impl State {
    /// Maps an LBA to what it may have been mapped to.
    pub(crate) fn guess(&mut self, lba: Lba, entry: Entry) {
        debug_assert!(!self.is_counted);
        self.map.set(lba, entry);
    }

    /// Unmaps LBAs of which nothing is known.
    pub(crate) fn doubt(&mut self, lba: Lba, blocks: u64) {
        debug_assert!(!self.is_counted);
        let is_known = self.unmap(lba, blocks);
        debug_assert!(is_known.is_some(), "doubted LBAs are of the volume");
    }

    /// Guesses that a number named the page at `pba`.
    pub(crate) fn guess_page(&mut self, vba: Vba, pba: Pba, parts: bool) {
        debug_assert!(!self.is_counted);
        self.shared.restore(vba, pba, parts);
    }

    /// Guesses that a part is a delta.
    pub(crate) fn guess_delta(&mut self, part: PartId, base: PartId) {
        debug_assert!(!self.is_counted);
        self.shared.restore_delta(part, base);
    }

    /// Forgets a delta that cannot be decoded.
    pub(crate) fn forget_delta(&mut self, part: PartId) {
        self.shared.forget_delta(part);
    }

    /// Forgets pledges whose home or journal block is in doubt; returns their homes.
    pub(crate) fn drop_pledges(&mut self, in_doubt: &dyn Fn(Lba) -> bool) -> Vec<Lba> {
        let pledges = core::mem::take(&mut self.pledges);
        let (doubtful, certain): (Vec<_>, Vec<_>) = pledges
            .iter()
            .partition(|(home, journal)| in_doubt(*home) || in_doubt(*journal));
        for (home, journal) in certain {
            self.pledges.apply(&Record::Pledge { home, journal });
        }
        doubtful.into_iter().map(|(home, _)| home).collect()
    }
}
