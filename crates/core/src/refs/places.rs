//! Which page is at a physical address. A number alone is kept, in 4 bytes: the page says itself where it is.

use super::Page;
use core::hash::BuildHasher;
use hashbrown::{DefaultHashBuilder, HashTable};

#[derive(Default)]
pub(super) struct Places {
    numbers: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Places {
    /// How many pages can be found.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    pub fn clear(&mut self) {
        self.numbers.clear();
    }

    /// The page that is found at an address.
    pub fn find(&self, pages: &[Page], pba: u32) -> Option<u32> {
        let hash = self.hasher.hash_one(pba);
        let is_there = |&number: &u32| pages[number as usize].pba() == pba;
        self.numbers.find(hash, is_there).copied()
    }

    /// From now on this page is found where it is; the one that was, if there was one.
    pub fn insert(&mut self, pages: &[Page], number: u32) -> Option<u32> {
        let at = |number: u32| pages[number as usize].pba();
        let hash = self.hasher.hash_one(at(number));
        let is_there = |&other: &u32| at(other) == at(number);
        if let Some(found) = self.numbers.find_mut(hash, is_there) {
            return Some(core::mem::replace(found, number));
        }
        let hasher = &self.hasher;
        let rehash = |&other: &u32| hasher.hash_one(at(other));
        self.numbers.insert_unique(hash, number, rehash);
        None
    }

    /// This page is not found any more where it still is. Nothing, when another took over its place.
    pub fn remove(&mut self, pages: &[Page], number: u32) {
        let hash = self.hasher.hash_one(pages[number as usize].pba());
        if let Ok(entry) = self.numbers.find_entry(hash, |&other| other == number) {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    const NUMBERS: usize = 12;

    proptest! {
        /// Against a map from addresses, as pages move, leave, and take over each other's places.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0..NUMBERS, 1u32..8, any::<bool>()), 1..200)) {
            let mut pages = [Page::default(); NUMBERS];
            let mut places = Places::default();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for (number, pba, moves) in steps {
                model.retain(|_, found| *found as usize != number);
                places.remove(&pages, number as u32);
                if moves {
                    pages[number].place = pba;
                    prop_assert_eq!(places.insert(&pages, number as u32), model.insert(pba, number as u32));
                }
                prop_assert_eq!(places.len(), model.len());
                for pba in 1..8 {
                    prop_assert_eq!(places.find(&pages, pba), model.get(&pba).copied());
                }
            }
        }
    }
}
