//! Pledges: what a journal's committed transaction is going to put home.
//!
//! A pledge says that after a crash a home address reads what the journal's block holds: what the file system's own
//! replay would write there. It is a fact of the log, so recovery needs to know nothing of journals; and it lasts as
//! long as nothing else is written, or said, at either address. While the volume runs it changes nothing that a
//! client reads.

use crate::addr::Lba;
use crate::format::chunk::Record;
use alloc::collections::BTreeMap;

/// Those in force.
#[derive(Default)]
pub struct Pledges {
    by_home: BTreeMap<u64, u64>,
    by_journal: BTreeMap<u64, u64>,
}

impl Pledges {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_home.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_home.is_empty()
    }

    /// The journal's block that is pledged to a home address.
    #[must_use]
    pub fn journal_of(&self, home: Lba) -> Option<Lba> {
        self.by_home.get(&home.0).copied().map(Lba)
    }

    /// Whether something is pledged to this address, or of it.
    #[must_use]
    pub fn concern(&self, lba: Lba) -> bool {
        !self.is_empty()
            && (self.by_home.contains_key(&lba.0) || self.by_journal.contains_key(&lba.0))
    }

    /// The first address from `from` to before `end` to which something is pledged.
    #[must_use]
    pub fn next_home(&self, from: Lba, end: Lba) -> Option<Lba> {
        let (&home, _) = self.by_home.range(from.0..end.0).next()?;
        Some(Lba(home))
    }

    /// What a record ends of them: all that concerns what it names.
    pub(super) fn end_with(&mut self, record: &Record) {
        match *record {
            Record::Pledge { home, journal } => {
                self.end(home, 1);
                self.end(journal, 1);
            }
            ref other => self.apply(other),
        }
    }

    /// What a record says of them, at its place in the log.
    pub(super) fn apply(&mut self, record: &Record) {
        match *record {
            Record::Pledge { home, journal } => self.make(home, journal),
            Record::Data { lba, .. }
            | Record::Share { lba, .. }
            | Record::Part { lba, .. }
            | Record::Delta { lba, .. }
            | Record::SharePart { lba, .. } => self.end(lba, 1),
            Record::Zero { lba, blocks } | Record::Discard { lba, blocks } => self.end(lba, blocks),
            Record::Move { .. }
            | Record::MoveShared { .. }
            | Record::Pack { .. }
            | Record::PackHere { .. } => {}
        }
    }

    fn make(&mut self, home: Lba, journal: Lba) {
        self.end(home, 1);
        self.end(journal, 1);
        self.by_home.insert(home.0, journal.0);
        self.by_journal.insert(journal.0, home.0);
    }

    /// Something else is at these addresses.
    fn end(&mut self, lba: Lba, blocks: u64) {
        if self.by_home.is_empty() {
            return;
        }
        let end = lba.0.saturating_add(blocks);
        remove(&mut self.by_home, &mut self.by_journal, lba.0, end);
        remove(&mut self.by_journal, &mut self.by_home, lba.0, end);
    }

    /// All of them end: a map checkpoint is durable, and replay from there does not see them.
    pub(super) fn clear(&mut self) {
        self.by_home.clear();
        self.by_journal.clear();
    }

    /// Home addresses with their journal's blocks, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Lba, Lba)> + '_ {
        let pairs = self.by_home.iter();
        pairs.map(|(&home, &journal)| (Lba(home), Lba(journal)))
    }
}

/// Takes the keys from `from` to before `end` out of one, and their values out of the other.
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
    fn a_later_pledge_replaces_what_shares_an_address_with_it() {
        let mut pledges = Pledges::default();
        pledges.apply(&pledge(5, 100));
        pledges.apply(&pledge(6, 101));
        pledges.apply(&pledge(5, 101));
        assert!(pledges.iter().eq([(Lba(5), Lba(101))]));
    }

    #[test]
    fn an_extent_ends_all_within_it() {
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
