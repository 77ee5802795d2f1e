//! A table from physical addresses to numbers: the number of the page there, or the LBA that owns it.
//!
//! The address is stored with the number, 8 bytes together. The page's entry has the address too, but the leaf of that entry may be only
//! on the medium ([0058](../../../docs/decisions/0058-a-map-within-bounds.md)).

use crate::addr::Pba;
use crate::flat::{Slot, hash};
use crate::pieces::{At, Pieces};
use alloc::vec::Vec;
use core::ops::Range;

/// The most entries for each address of a range with which the table is walked over.
const WALK: u64 = 8;

#[derive(Clone, Copy, PartialEq)]
struct Entry {
    pba: u32,
    number: u32,
}

impl Slot for Entry {
    /// The superblock is at this address, never a page.
    const VACANT: Self = Self { pba: 0, number: 0 };
}

fn hash_of(entry: Entry) -> u64 {
    hash(entry.pba)
}

/// A table from physical addresses to numbers.
#[derive(Default)]
pub(crate) struct ByPba {
    entries: Pieces<Entry>,
}

impl ByPba {
    /// Creates a table with room for `entries`.
    pub fn with_room(entries: usize) -> Self {
        Self {
            entries: Pieces::with_room(entries),
        }
    }

    /// The number of addresses.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot(&self, pba: Pba) -> Option<(At, u32)> {
        let pba = pba.0 as u32;
        let found = self.entries.find(hash(pba), |entry| entry.pba == pba);
        found.map(|(at, entry)| (at, entry.number))
    }

    /// Returns the number of an address, if it has one.
    #[inline]
    pub fn get(&self, pba: Pba) -> Option<u32> {
        // The collector calls this for every block it considers, and the table is mostly empty.
        if self.is_empty() {
            return None;
        }
        self.slot(pba).map(|(_, number)| number)
    }

    /// Sets the number of an address; returns the previous one, if there was one.
    pub fn insert(&mut self, pba: Pba, number: u32) -> Option<u32> {
        debug_assert_ne!(pba, Pba::NOWHERE);
        let entry = Entry {
            pba: pba.0 as u32,
            number,
        };
        if let Some((at, before)) = self.slot(pba) {
            self.entries.replace(at, entry);
            return Some(before);
        }
        if !self.entries.has_room(hash_of(entry)) {
            self.entries.make_room(hash_of(entry), hash_of);
        }
        self.entries.insert(entry, hash_of(entry));
        None
    }

    /// Removes an address; if `number` is given, only if it has that number.
    pub fn remove(&mut self, pba: Pba, number: Option<u32>) {
        if let Some((at, found)) = self.slot(pba)
            && number.is_none_or(|number| number == found)
        {
            self.entries.remove(at, hash_of);
        }
    }

    /// Returns the addresses in a range and their numbers, by address. While the table is not much larger than the range, it is quicker
    /// to walk over the table than to look each address up.
    pub fn of(&self, range: Range<Pba>) -> Vec<(Pba, u32)> {
        let pages = range.end.0.saturating_sub(range.start.0);
        if self.len() as u64 > pages.saturating_mul(WALK) {
            let pages = (range.start.0..range.end.0).map(Pba);
            return pages
                .filter_map(|pba| Some((pba, self.get(pba)?)))
                .collect();
        }
        let mut found = Vec::new();
        self.entries.iter().for_each(|entry| {
            let pba = Pba(entry.pba.into());
            if range.contains(&pba) {
                found.push((pba, entry.number));
            }
        });
        found.sort_unstable();
        found
    }

    /// Returns the next address at or after a place in the table, and the place after it.
    pub fn next_from(&self, from: usize) -> Option<(usize, Pba)> {
        let (next, entry) = self.entries.next_from(from)?;
        Some((next, Pba(entry.pba.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_map(
            steps in prop::collection::vec((1u64..400, 0u32..300, 0..3), 1..2000),
        ) {
            let mut numbers = ByPba::default();
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (pba, number, step) in steps {
                match step {
                    0 => prop_assert_eq!(numbers.insert(Pba(pba), number), model.insert(pba, number)),
                    1 => {
                        numbers.remove(Pba(pba), None);
                        model.remove(&pba);
                    }
                    _ => {
                        numbers.remove(Pba(pba), Some(number));
                        model.retain(|at, of| (*at, *of) != (pba, number));
                    }
                }
                prop_assert_eq!(numbers.len(), model.len());
                prop_assert_eq!(numbers.get(Pba(pba)), model.get(&pba).copied());
            }
            for pba in 0..400 {
                prop_assert_eq!(numbers.get(Pba(pba)), model.get(&pba).copied());
            }
            // Short ranges are looked up, long ones are walked for.
            for (start, end) in [(0, 400), (7, 8), (90, 100), (200, 300), (399, 500), (5, 5)] {
                let wanted = model.range(start..end).map(|(&pba, &number)| (Pba(pba), number));
                prop_assert!(numbers.of(Pba(start)..Pba(end)).into_iter().eq(wanted));
            }
        }
    }
}
