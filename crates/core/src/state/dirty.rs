//! Which leaves of a table have changed since a map checkpoint wrote them.

use crate::addr::Leaf;
use alloc::{vec, vec::Vec};

/// A set of leaves, counted from their table's own first.
#[derive(Default)]
pub(super) struct Dirty {
    words: Vec<u64>,
    count: u64,
}

impl Dirty {
    /// None of so many.
    pub fn new(leaves: usize) -> Self {
        Self {
            words: vec![0; leaves.div_ceil(64)],
            count: 0,
        }
    }

    /// There are so many leaves now: as many, or more.
    pub fn lengthen(&mut self, leaves: usize) {
        self.words.resize(leaves.div_ceil(64), 0);
    }

    /// How many are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The next map checkpoint writes this leaf.
    pub fn mark(&mut self, leaf: Leaf) {
        let (word, bit) = self.at(leaf);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += u64::from(is_new);
    }

    /// Whether a leaf is dirty.
    pub fn holds(&self, leaf: Leaf) -> bool {
        self.words[leaf.0 as usize / 64] >> (leaf.0 % 64) & 1 == 1
    }

    /// Marks a leaf clean; whether it was dirty.
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
