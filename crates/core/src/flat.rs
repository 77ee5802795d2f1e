//! A table with open addressing: an entry contains its key, so nothing else is stored.
//!
//! At most four fifths of the table are used. It grows by a quarter, where a table with power-of-two sizes doubles. A removal leaves no
//! tombstone, so insertions and removals in turn do not make it grow. The hash is fixed, and so is the order of entries: the core's
//! behaviour must depend only on its inputs. To grow, all entries are reinserted, which takes time; so a table is a piece of a larger one
//! ([`crate::pieces`]).

use alloc::{vec, vec::Vec};

/// An entry of the table.
pub(crate) trait Slot: Copy + PartialEq {
    /// The empty slot.
    const VACANT: Self;
}

#[cfg(test)]
impl Slot for u32 {
    const VACANT: Self = 0;
}

/// Slots of the smallest table.
const SLOTS: usize = 64;

/// A hash of a physical address. Its upper half is more random than its lower half.
pub(crate) fn hash(pba: u32) -> u64 {
    let mixed = u64::from(pba).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// A table with open addressing.
pub(crate) struct Flat<T> {
    slots: Vec<T>,
    used: usize,
}

impl<T: Slot> Flat<T> {
    /// Creates a table with room for `entries`, and some more. All tables have sizes that arise by growing, so memory that one frees fits
    /// another.
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

    /// Returns an empty table that is a quarter larger.
    pub fn grown(&self) -> Self {
        Self::of_slots(self.slots.len() + self.slots.len() / 4)
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

    /// Iterates over all entries from a place in the table on, with their places.
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

    /// Returns how far one place is after another, going round.
    fn behind(&self, at: usize, other: usize) -> usize {
        if at >= other {
            return at - other;
        }
        at + self.slots.len() - other
    }

    /// Finds an entry by its hash; returns it and its place.
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

    /// Replaces an entry by one with the same hash.
    pub fn replace(&mut self, at: usize, by: T) {
        self.slots[at] = by;
    }

    /// True if there is room for one more.
    pub fn has_room(&self) -> bool {
        (self.used + 1) * 5 <= self.slots.len() * 4
    }

    /// Adds an entry that is not in the table.
    pub fn insert(&mut self, slot: T, hash: u64) {
        debug_assert!(self.has_room() && slot != T::VACANT);
        let mut at = self.home(hash);
        while self.get(at).is_some() {
            at = self.after(at);
        }
        self.slots[at] = slot;
        self.used += 1;
    }

    /// Removes an entry, and moves up the entries that it displaced (Knuth, vol. 3, 6.4, algorithm R).
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
