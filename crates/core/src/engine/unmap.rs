//! Discards and zeroes: one record an extent, whatever its length.

use super::Engine;
use crate::addr::Lba;
use crate::format::chunk::Record;
use crate::front::Ended;
use crate::log::Head;
use crate::seam::Refusal;
use crate::state::Origin;

impl Engine {
    /// Places a discard, or zeros; `None` if there is no room for the record now.
    pub(super) fn place_unmap(&mut self, lba: Lba, blocks: u64) -> Option<Ended> {
        let end = lba.plus(blocks);
        // Unmapped blocks read as zeros already: they need no record.
        let mapped = self
            .state
            .map()
            .next_mapped(lba, end)
            .map(|(first, _)| first);
        let pledged = self.next_pledged(lba, end);
        if self.state.lost_leaf().is_some() {
            // A leaf cannot be read, so it is not known what is mapped here.
            return Some(Err(Refusal::Poisoned));
        }
        if let Some(first) = mapped.into_iter().chain(pledged).min() {
            // Zeroed blocks are unmapped too: they read as zeros, and an unmapped leaf takes no memory.
            let rest = Record::Discard {
                lba: first,
                blocks: end.0 - first.0,
            };
            if !self.add_extent(rest, false) {
                return None;
            }
            self.forget_homes(first, end.0 - first.0);
            if self.proposers.dedup().forgets() {
                self.outlive_one_by_one(first, end);
            }
            self.apply(Origin::NONE, &rest);
        }
        Some(Ok(()))
    }

    /// Records in the log that an extent is zero or unmapped, joined to the previous record if adjacent. If zeros are pledged there
    /// (`pledged`), no FLUSH waits for the record. `false`: there is no room for the record now.
    pub(super) fn add_extent(&mut self, record: Record, pledged: bool) -> bool {
        if self.joins(&record, pledged) {
            return true;
        }
        let Some(chunk) = self.chunk_with_room(Head::Hot, record.encoded_len(), false) else {
            return false;
        };
        self.log.get_mut(chunk).push_link(record, pledged);
        true
    }

    /// Forgets the journal's copies of these blocks: they must not be written home.
    pub(super) fn forget_homes(&mut self, lba: Lba, blocks: u64) {
        if self.proposers.once().is_on() {
            self.proposers.once_mut().forget(lba, blocks);
        }
    }

    /// Joins zeros to the previous record; true if that was possible.
    fn joins(&mut self, record: &Record, pledged: bool) -> bool {
        match (self.log.open_mut(Head::Hot), *record) {
            (Some(chunk), Record::Zero { lba, blocks }) => chunk.join_zeros(lba, blocks, pledged),
            _ => false,
        }
    }

    /// Releases each block before it examines the next: the next may by then be the only owner of its content.
    fn outlive_one_by_one(&mut self, from: Lba, end: Lba) {
        let mut at = from;
        while let Some((lba, _)) = self.state.map().next_mapped(at, end) {
            self.outlive_content(lba);
            self.apply(Origin::NONE, &Record::Discard { lba, blocks: 1 });
            at = lba.plus(1);
        }
    }
}
