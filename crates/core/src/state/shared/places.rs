//! Which page is at a physical address. Its number alone is kept, in 4 bytes: the page says itself where it is.

use super::pages::Pages;
use crate::flat::{Slot, hash};
use crate::pieces::{At, Pieces};

impl Slot for u32 {
    const VACANT: Self = 0;
}

/// How a number is kept: plus one, in so many lower bits; above them is part of its hash, so that few pages are looked at
/// that are elsewhere.
#[derive(Clone, Copy, Default)]
struct Packing {
    bits: u32,
}

impl Packing {
    /// That of numbers up to this one.
    fn of(number: u32) -> Self {
        Self {
            bits: (number + 1).ilog2() + 1,
        }
    }

    /// That of numbers up to twice this one: where there are so many, what holds it has grown, too, and was packed anew.
    fn with_spare(number: u32) -> Self {
        Self {
            bits: (Self::of(number).bits + 1).min(31),
        }
    }

    fn pack(self, number: u32, hash: u64) -> u32 {
        (hash as u32) >> self.bits << self.bits | (number + 1)
    }

    fn number(self, slot: u32) -> u32 {
        (slot & ((1 << self.bits) - 1)) - 1
    }

    fn may_be(self, slot: u32, hash: u64) -> bool {
        (slot ^ hash as u32) >> self.bits == 0
    }
}

#[derive(Default)]
pub(super) struct Places {
    numbers: Pieces<u32, Packing>,
}

impl Places {
    /// For so many pages, of numbers below that.
    pub fn with_room(pages: usize, numbers: usize) -> Self {
        Self {
            numbers: Pieces::with_room(pages, Packing::with_spare(numbers as u32)),
        }
    }

    /// How many pages can be found.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn slot(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<(At, u32)> {
        let packing = self.numbers.packing(hash);
        let is_it = |slot| packing.may_be(slot, hash) && is_it(packing.number(slot));
        let (at, slot) = self.numbers.find(hash, is_it)?;
        Some((at, packing.number(slot)))
    }

    /// The page that is found at an address.
    pub fn find(&self, pages: &Pages, pba: u32) -> Option<u32> {
        let is_there = |number: u32| pages.pba(number) == pba;
        let (_, number) = self.slot(hash(pba), is_there)?;
        Some(number)
    }

    /// From now on this page is found where it is; the one that was, if there was one.
    pub fn insert(&mut self, pages: &Pages, number: u32) -> Option<u32> {
        let pba = |number: u32| pages.pba(number);
        let hash_of = |number: u32| hash(pba(number));
        let hash = hash_of(number);
        let narrow = self.numbers.packing(hash);
        let fits = Packing::of(number).bits <= narrow.bits;
        if !fits || !self.numbers.has_room(hash) {
            let spare = Packing::with_spare(number);
            let wide = Packing {
                bits: narrow.bits.max(spare.bits),
            };
            self.numbers.make_room(hash, wide, |slot| {
                let number = narrow.number(slot);
                let hash = hash_of(number);
                (wide.pack(number, hash), hash)
            });
        }
        let slot = self.numbers.packing(hash).pack(number, hash);
        if let Some((at, other)) = self.slot(hash, |other| pba(other) == pba(number)) {
            self.numbers.replace(at, slot);
            return Some(other);
        }
        self.numbers.insert(slot, hash);
        None
    }

    /// This page is not found any more where it still is. Nothing, when another took over its place.
    pub fn remove(&mut self, pages: &Pages, number: u32) {
        let hash_of = |number: u32| hash(pages.pba(number));
        let hash = hash_of(number);
        if let Some((at, _)) = self.slot(hash, |other| other == number) {
            let packing = self.numbers.packing(hash);
            self.numbers
                .remove(at, |slot| hash_of(packing.number(slot)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    const NUMBERS: usize = 300;

    proptest! {
        /// Against a map from addresses, as pages move, leave, and take over each other's places.
        #[test]
        fn behaves_like_a_map(
            steps in prop::collection::vec((0..NUMBERS, 1u32..400, any::<bool>()), 1..2000),
        ) {
            let mut pages = Pages::default();
            pages.lengthen(NUMBERS);
            let mut places = Places::default();
            let mut model: BTreeMap<u32, u32> = BTreeMap::new();
            for (number, pba, moves) in steps {
                model.retain(|_, found| *found as usize != number);
                places.remove(&pages, number as u32);
                if moves {
                    pages.set_place(number as u32, pba);
                    prop_assert_eq!(places.insert(&pages, number as u32), model.insert(pba, number as u32));
                }
                prop_assert_eq!(places.len(), model.len());
                prop_assert_eq!(places.find(&pages, pba), model.get(&pba).copied());
            }
            for pba in 1..400 {
                prop_assert_eq!(places.find(&pages, pba), model.get(&pba).copied());
            }
        }
    }
    /// More than a piece of the table takes, so that pieces are divided, and numbers become longer than they were packed.
    #[test]
    fn so_many_are_found_where_they_are() {
        const MANY: u32 = 100_000;
        let place = |number: u32| 1 + number * 3;
        let mut pages = Pages::default();
        let mut places = Places::default();
        for number in 0..MANY {
            pages.lengthen(number as usize + 1);
            pages.set_place(number, place(number));
            assert_eq!(places.insert(&pages, number), None);
        }
        for number in (0..MANY).step_by(2) {
            places.remove(&pages, number);
            pages.set_place(number, place(number) + 1);
            assert_eq!(places.insert(&pages, number), None);
        }
        assert_eq!(places.len(), MANY as usize);
        for number in 0..MANY {
            let even = number % 2 == 0;
            let (pba, left) = (
                place(number) + u32::from(even),
                place(number) + u32::from(!even),
            );
            assert_eq!(places.find(&pages, pba), Some(number));
            assert_eq!(places.find(&pages, left), None);
        }
    }
}
