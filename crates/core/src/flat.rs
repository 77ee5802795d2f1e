//! A table with open addressing: what is in it says itself what it is found by, so nothing else is kept.
//!
//! Four fifths of it are used at most, and it grows by a quarter, where one of powers of two doubles. What leaves it leaves no
//! mark behind, so that it does not grow by coming and going. The hash is a fixed one, and so is the order: the core's inputs
//! decide alone what it does. To grow, all of it is put in anew: it is a piece of a larger one ([`crate::pieces`]).

use alloc::{vec, vec::Vec};

/// What such a table holds.
pub(crate) trait Slot: Copy + PartialEq {
    /// Where there is nothing.
    const VACANT: Self;
}

/// Room, before anything grows.
const SLOTS: usize = 64;

/// A hash of a physical address, in its upper half more than in its lower one.
pub(crate) fn hash(pba: u32) -> u64 {
    let mixed = u64::from(pba).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// See the module.
pub(crate) struct Flat<T> {
    slots: Vec<T>,
    used: usize,
}

impl<T: Slot> Flat<T> {
    /// Has room for so many and some more. Tables have the sizes that come by growing, and no others: what one of them
    /// gives back another one takes.
    pub fn with_room(entries: usize) -> Self {
        let mut slots = SLOTS;
        while slots * 3 < entries * 4 {
            slots += slots / 4;
        }
        Self::of_slots(slots)
    }

    fn of_slots(slots: usize) -> Self {
        Self {
            slots: vec![T::VACANT; slots],
            used: 0,
        }
    }

    /// An empty one that is a quarter larger.
    pub fn grown(&self) -> Self {
        Self::of_slots(self.slots.len() + self.slots.len() / 4)
    }

    /// An empty one that is as large.
    pub fn emptied(&self) -> Self {
        Self::of_slots(self.slots.len())
    }

    pub fn len(&self) -> usize {
        self.used
    }

    #[cfg(test)]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    fn get(&self, at: usize) -> Option<T> {
        let slot = *self.slots.get(at)?;
        (slot != T::VACANT).then_some(slot)
    }

    /// All, from a place of the table on, and each one's place.
    pub fn iter_from(&self, at: usize) -> impl Iterator<Item = (usize, T)> + '_ {
        let slots = self.slots.iter().copied().enumerate().skip(at);
        slots.filter(|(_, slot)| *slot != T::VACANT)
    }

    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() {
            return 0;
        }
        at + 1
    }

    /// How far one place is behind another, going round.
    fn behind(&self, at: usize, other: usize) -> usize {
        if at >= other {
            return at - other;
        }
        at + self.slots.len() - other
    }

    /// What is found by a hash, and its place.
    pub fn find(&self, hash: u64, is_it: impl Fn(T) -> bool) -> Option<(usize, T)> {
        if self.used == 0 {
            return None;
        }
        let mut at = self.home(hash);
        while let Some(slot) = self.get(at) {
            if is_it(slot) {
                return Some((at, slot));
            }
            at = self.after(at);
        }
        None
    }

    /// Puts another in its place, with the same hash.
    pub fn replace(&mut self, at: usize, by: T) {
        self.slots[at] = by;
    }

    /// Whether there is room for one more.
    pub fn has_room(&self) -> bool {
        (self.used + 1) * 5 <= self.slots.len() * 4
    }

    /// Adds one that is not there.
    pub fn insert(&mut self, slot: T, hash: u64) {
        debug_assert!(self.has_room() && slot != T::VACANT);
        let mut at = self.home(hash);
        while self.get(at).is_some() {
            at = self.after(at);
        }
        self.slots[at] = slot;
        self.used += 1;
    }

    /// Takes one out, and moves those up that it was in the way of (Knuth, vol. 3, 6.4, algorithm R).
    pub fn remove(&mut self, mut hole: usize, hash_of: impl Fn(T) -> u64) {
        let mut at = hole;
        loop {
            at = self.after(at);
            let Some(slot) = self.get(at) else {
                break;
            };
            if self.behind(at, self.home(hash_of(slot))) >= self.behind(at, hole) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = T::VACANT;
        self.used -= 1;
    }
}
