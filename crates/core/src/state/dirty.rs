//! Which leaves of a table have changed since a map checkpoint wrote them.

use super::changes::Changes;
use super::shelf::Page;
use crate::addr::Leaf;
use alloc::{vec, vec::Vec};

/// A set of a table's leaves, counted from the table's first.
#[derive(Default)]
pub(super) struct Dirty {
    words: Vec<u64>,
    count: u64,
    changes: Changes,
}

impl Dirty {
    /// An empty set for `leaves` leaves.
    pub fn new(leaves: usize) -> Self {
        Self {
            words: vec![0; leaves.div_ceil(64)],
            count: 0,
            changes: Changes::default(),
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

    /// Makes the next map checkpoint write this leaf. Its old contents are unknown from now on.
    #[inline]
    pub fn mark(&mut self, leaf: Leaf) {
        self.add(leaf);
        if !self.changes.is_empty() {
            self.changes.forget(leaf.0);
        }
    }

    /// The same for a leaf of which one entry has changed. `was`: the old value.
    pub fn change(&mut self, leaf: Leaf, index: usize, was: u32) {
        match self.add(leaf) {
            true => self.changes.begin(leaf.0, index, was),
            false => self.changes.go_on(leaf.0, index, was),
        }
    }

    /// Adds a leaf; true if it was not dirty.
    #[inline]
    fn add(&mut self, leaf: Leaf) -> bool {
        let (word, bit) = self.at(leaf);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += u64::from(is_new);
        is_new
    }

    /// True if a dirty leaf's last written contents are known.
    pub fn knows(&self, leaf: Leaf) -> bool {
        self.changes.knows(leaf.0)
    }

    /// Restores a leaf's last written contents, if they are known; true if so.
    pub fn undo(&self, leaf: Leaf, page: &mut Page) -> bool {
        self.changes.undo(leaf.0, page)
    }

    /// True if a leaf is dirty.
    pub fn holds(&self, leaf: Leaf) -> bool {
        self.words[leaf.0 as usize / 64] >> (leaf.0 % 64) & 1 == 1
    }

    /// Marks a leaf clean; true if it was dirty.
    pub fn take(&mut self, leaf: Leaf) -> bool {
        self.changes.forget(leaf.0);
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
