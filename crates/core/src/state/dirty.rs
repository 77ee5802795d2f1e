//! Which leaves of a table have changed since a map checkpoint wrote them.

use crate::addr::Leaf;
use alloc::{vec, vec::Vec};

/// A set of a table's leaves, counted from the table's first.
#[derive(Default)]
pub(super) struct Dirty {
    words: Vec<u64>,
    count: u64,
}

impl Dirty {
    /// An empty set for `leaves` leaves.
    pub fn new(leaves: usize) -> Self {
        Self {
            words: vec![0; leaves.div_ceil(64)],
            count: 0,
        }
    }

    /// Grows to `leaves` leaves, at least as many as now.
    pub fn lengthen(&mut self, leaves: usize) {
        self.words.resize(leaves.div_ceil(64), 0);
    }

    /// The number of dirty leaves.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Makes the next map checkpoint write this leaf; true if it was not dirty.
    #[inline]
    pub fn mark(&mut self, leaf: Leaf) -> bool {
        let (word, bit) = self.at(leaf);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += u64::from(is_new);
        is_new
    }

    /// True if a leaf is dirty.
    pub fn holds(&self, leaf: Leaf) -> bool {
        self.words[leaf.0 as usize / 64] >> (leaf.0 % 64) & 1 == 1
    }

    /// Marks a leaf clean; true if it was dirty.
    pub fn take(&mut self, leaf: Leaf) -> bool {
        let (word, bit) = self.at(leaf);
        let was_dirty = *word & bit != 0;
        *word &= !bit;
        self.count -= u64::from(was_dirty);
        was_dirty
    }

    fn at(&mut self, leaf: Leaf) -> (&mut u64, u64) {
        (&mut self.words[leaf.0 as usize / 64], 1 << (leaf.0 % 64))
    }
}
