//! The entries that a replay sets in leaves that are not in memory.
//!
//! A replay does not need what an entry was before, because it counts only at its end. So it does not read a leaf for each record: it sets
//! the entries of a leaf together, leaf by leaf ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)). If a census follows, it
//! does not even do that: whoever reads the leaf gets it with these entries.

use super::changes::LeafEntries;
use crate::addr::Lba;
use crate::entry::{Entry, LEAF_ENTRIES, split};
use alloc::{collections::BTreeMap, vec::Vec};

/// The memory that a leaf takes besides that of its entries: the list, and its place in the tree.
const LEAF_BYTES: usize = 64;

/// An entry's index in its leaf, and the entry.
type Waiting = (u16, u32);

/// Entries to be set, by leaf, in the order of their records.
#[derive(Default)]
pub(super) struct Later {
    leaves: BTreeMap<usize, Vec<Waiting>>,
    entries: usize,
}

impl Later {
    /// True if a block's entry has to wait for others of its leaf, which are set before it.
    pub fn holds(&self, lba: Lba) -> bool {
        self.has(split(lba).0)
    }

    /// The memory that the entries take, roughly, in bytes.
    pub fn bytes(&self) -> usize {
        self.entries * size_of::<Waiting>() + self.leaves.len() * LEAF_BYTES
    }

    /// True if no entry waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Adds an entry, which takes the place of an earlier one of its block.
    pub fn add(&mut self, lba: Lba, entry: Entry) {
        let (leaf, index) = split(lba);
        let waiting = self.leaves.entry(leaf).or_default();
        waiting.push((index as u16, entry.pack()));
        self.entries += 1;
    }

    /// The first LBAs of the leaves that have any.
    pub fn leaves(&self) -> impl Iterator<Item = Lba> + '_ {
        let first = |leaf: &usize| Lba((leaf * LEAF_ENTRIES) as u64);
        self.leaves.keys().map(first)
    }

    /// True if a leaf has any.
    pub fn has(&self, leaf: usize) -> bool {
        self.leaves.contains_key(&leaf)
    }

    /// Sets the entries of a leaf in the leaf as it was read.
    pub fn set_in(&self, leaf: usize, page: &mut LeafEntries) {
        for (index, raw) in self.leaves.get(&leaf).into_iter().flatten() {
            page[usize::from(*index)] = *raw;
        }
    }

    /// Forgets the entries of a leaf: the medium has the leaf with them.
    pub fn forget(&mut self, leaf: usize) {
        if let Some(entries) = self.leaves.remove(&leaf) {
            self.entries -= entries.len();
        }
    }

    /// Takes the entries of the first leaf that has any of these blocks, the last included.
    pub fn take(
        &mut self,
        first: Lba,
        last: Lba,
    ) -> Option<impl Iterator<Item = (Lba, Entry)> + use<>> {
        let leaves = split(first).0..=split(last).0;
        let leaf = *self.leaves.range(leaves).next()?.0;
        let entries = self.leaves.remove(&leaf)?;
        self.entries -= entries.len();
        let start = (leaf * LEAF_ENTRIES) as u64;
        let entry = move |(index, raw)| (Lba(start + u64::from(index)), Entry::unpack(raw));
        Some(entries.into_iter().map(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn entries_are_taken_leaf_by_leaf_in_the_order_of_their_records() {
        let mut later = Later::default();
        for lba in [5000, 7, 9, 7, 1024] {
            later.add(Lba(lba), Entry::Zero);
        }
        assert!(!later.is_empty() && later.holds(Lba(4100)) && !later.holds(Lba(4000)));
        let mut lbas = |first, last| {
            let entries = later.take(Lba(first), Lba(last))?;
            Some(entries.map(|(lba, _)| lba.0).collect::<Vec<_>>())
        };
        assert_eq!(lbas(2048, 4095), None);
        assert_eq!(lbas(0, u64::MAX), Some(vec![7, 9, 7]));
        assert_eq!(lbas(1030, 1031), Some(vec![1024]));
        assert_eq!(lbas(0, u64::MAX), Some(vec![5000]));
        assert_eq!(lbas(0, u64::MAX), None);
        assert!(later.is_empty() && later.bytes() == 0);
    }
}
