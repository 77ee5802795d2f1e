//! Pledges: the log's notes of the blocks that a journal's committed transaction will write home.
//!
//! A pledge pairs a home address with a block of the journal. After a crash, the home address reads as the journal's block: the file
//! system's own replay would write the same bytes there. A pledge is a record of the log, so recovery need not understand journals. It
//! lasts until something else is written, or recorded, at either address. While the volume runs, a pledge changes nothing that a client
//! reads.

use crate::addr::Lba;
use crate::format::chunk::Record;
use alloc::collections::BTreeMap;

/// The pledges in force.
#[derive(Default)]
pub struct Pledges {
    by_home: BTreeMap<u64, u64>,
    by_journal: BTreeMap<u64, u64>,
}

impl Pledges {
    /// The number of pledges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_home.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_home.is_empty()
    }

    /// Returns the journal's block that is pledged to a home address.
    #[must_use]
    pub fn journal_of(&self, home: Lba) -> Option<Lba> {
        self.by_home.get(&home.0).copied().map(Lba)
    }

    /// True if something is pledged to this address, or from it.
    #[must_use]
    pub fn concern(&self, lba: Lba) -> bool {
        !self.is_empty()
            && (self.by_home.contains_key(&lba.0) || self.by_journal.contains_key(&lba.0))
    }

    /// Returns the first address in `from..end` to which something is pledged.
    #[must_use]
    pub fn next_home(&self, from: Lba, end: Lba) -> Option<Lba> {
        let (&home, _) = self.by_home.range(from.0..end.0).next()?;
        Some(Lba(home))
    }

    /// Ends the pledges that concern any address the record names.
    pub(super) fn end_with(&mut self, record: &Record) {
        if let Record::Pledge { journal, .. } = *record {
            self.end(journal, 1);
        }
        if let Some((lba, blocks)) = record.names() {
            self.end(lba, blocks);
        }
    }

    /// Applies a record to them, at its place in the log.
    pub(super) fn apply(&mut self, record: &Record) {
        self.end_with(record);
        if let Record::Pledge { home, journal } = *record {
            self.by_home.insert(home.0, journal.0);
            self.by_journal.insert(journal.0, home.0);
        }
    }

    /// Ends the pledges at these addresses, which now hold something else.
    fn end(&mut self, lba: Lba, blocks: u64) {
        if self.by_home.is_empty() {
            return;
        }
        let end = lba.0.saturating_add(blocks);
        remove(&mut self.by_home, &mut self.by_journal, lba.0, end);
        remove(&mut self.by_journal, &mut self.by_home, lba.0, end);
    }

    /// Ends all pledges: a map checkpoint is durable, and a replay from there does not see them.
    pub(super) fn clear(&mut self) {
        self.by_home.clear();
        self.by_journal.clear();
    }

    /// Iterates over home addresses with their journal's blocks, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Lba, Lba)> + '_ {
        let pairs = self.by_home.iter();
        pairs.map(|(&home, &journal)| (Lba(home), Lba(journal)))
    }
}

/// Removes the keys in `from..end` from one map, and their values from the other.
fn remove(here: &mut BTreeMap<u64, u64>, there: &mut BTreeMap<u64, u64>, from: u64, end: u64) {
    while let Some((&key, &value)) = here.range(from..end).next() {
        here.remove(&key);
        there.remove(&value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn pledge(home: u64, journal: u64) -> Record {
        Record::Pledge {
            home: Lba(home),
            journal: Lba(journal),
        }
    }

    #[test]
    fn a_pledge_ends_with_either_address() {
        for lba in [5, 100] {
            let mut pledges = Pledges::default();
            pledges.apply(&pledge(5, 100));
            assert_eq!(pledges.journal_of(Lba(5)), Some(Lba(100)));
            pledges.apply(&Record::Data {
                lba: Lba(lba),
                sum: 0,
            });
            assert!(pledges.is_empty() && !pledges.concern(Lba(5)) && !pledges.concern(Lba(100)));
        }
    }

    #[test]
    fn a_later_pledge_replaces_pledges_that_share_an_address_with_it() {
        let mut pledges = Pledges::default();
        pledges.apply(&pledge(5, 100));
        pledges.apply(&pledge(6, 101));
        pledges.apply(&pledge(5, 101));
        assert!(pledges.iter().eq([(Lba(5), Lba(101))]));
    }

    #[test]
    fn a_record_of_an_extent_ends_all_pledges_within_it() {
        let mut pledges = Pledges::default();
        for index in 0..10 {
            pledges.apply(&pledge(index, 100 + index));
        }
        pledges.apply(&Record::Discard {
            lba: Lba(2),
            blocks: 3,
        });
        pledges.apply(&Record::Zero {
            lba: Lba(107),
            blocks: u64::MAX,
        });
        let homes = pledges.iter().map(|(home, _)| home.0);
        assert_eq!(homes.collect::<Vec<_>>(), [0, 1, 5, 6]);
    }
}
