//! Which leaves of the map a census has counted, and which pages it has settled.
//!
//! Leaves may be counted in any order. Each is counted once.

use super::bounds::Unwritten;
use super::settling::Settling;
use crate::addr::{Leaf, Vba};
use alloc::{vec, vec::Vec};

/// A leaf of the map or of the table of pages that a census has to count, settle or change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncounted {
    /// It is in memory, or holds nothing on the medium: this can be done now.
    Here(Leaf),
    /// It has to be read first.
    Away(Leaf),
}

impl Uncounted {
    /// The leaf.
    #[must_use]
    pub fn leaf(self) -> Leaf {
        let (Self::Here(leaf) | Self::Away(leaf)) = self;
        leaf
    }
}

/// A census under way.
pub(super) struct Census {
    counted: Vec<bool>,
    /// How many are not.
    left: u64,
    settling: Settling,
}

impl Census {
    /// Begins the census of so many leaves of the map, and of all pages. Pages with numbers from `fresh` on were made since the volume was
    /// opened; others are not in what was `unwritten` then.
    pub fn new(leaves: u32, fresh: u32, unwritten: Unwritten) -> Self {
        Self {
            counted: vec![false; leaves as usize],
            left: leaves.into(),
            settling: Settling::new(fresh, unwritten),
        }
    }

    /// The same for a map that is counted already, and pages that were all made before.
    pub fn of_pages(unwritten: Unwritten) -> Self {
        Self::new(0, u32::MAX, unwritten)
    }

    /// Which pages are settled.
    pub fn settling(&self) -> &Settling {
        &self.settling
    }

    /// The same, mutable.
    pub fn settling_mut(&mut self) -> &mut Settling {
        &mut self.settling
    }

    /// Ends the census: the new pages that nothing leads to.
    pub fn into_given_up(self) -> impl Iterator<Item = Vba> {
        self.settling.into_given_up()
    }

    /// The number of leaves of the map that are not counted.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// True if a leaf is counted.
    pub fn has(&self, leaf: usize) -> bool {
        self.counted[leaf]
    }

    /// Counts a leaf; false if it was counted already.
    pub fn count(&mut self, leaf: Leaf) -> bool {
        let was_counted = core::mem::replace(&mut self.counted[leaf.0 as usize], true);
        self.left -= u64::from(!was_counted);
        !was_counted
    }

    /// Returns the first leaf from `from` on that is not counted.
    pub fn next(&self, from: Leaf) -> Option<Leaf> {
        let mut rest = self.counted.get(from.0 as usize..)?.iter();
        let next = rest.position(|counted| !counted)?;
        Some(Leaf(from.0 + next as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaf_is_counted_once_in_any_order() {
        let mut census = Census::new(4, 9, Unwritten::default());
        assert_eq!((census.left(), census.next(Leaf(0))), (4, Some(Leaf(0))));
        assert!(census.count(Leaf(1)) && !census.count(Leaf(1)));
        assert_eq!((census.left(), census.next(Leaf(1))), (3, Some(Leaf(2))));
        assert!(census.count(Leaf(0)) && census.count(Leaf(3)));
        assert_eq!(census.next(Leaf(0)), Some(Leaf(2)));
        assert_eq!(census.next(Leaf(3)), None);
        assert!(census.count(Leaf(2)) && census.has(2));
        assert_eq!((census.left(), census.next(Leaf(0))), (0, None));
        assert_eq!(census.next(Leaf(7)), None);
    }
}
