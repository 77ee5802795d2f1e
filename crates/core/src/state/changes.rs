//! The old contents of changed leaves.
//!
//! The parity of a stripe changes by the difference of its leaves. So a map checkpoint needs the old contents of each leaf that it
//! writes. It takes them from here, or else reads them from the medium. Only a few changes of each leaf are kept: the old contents of a
//! leaf that changes much are read.

use super::shelf::Page;
use alloc::{collections::BTreeMap, vec::Vec};

/// The most old entries kept of a leaf.
const MOST: usize = 32;

/// Old entries of a leaf: the index and the old value of each.
type Entries = Vec<(u16, u32)>;

/// The old entries of changed leaves.
#[derive(Default)]
pub(super) struct Changes {
    leaves: BTreeMap<u32, Entries>,
    /// Reused memory for further leaves.
    spare: Vec<Entries>,
}

impl Changes {
    /// Notes the first change of an entry since its leaf was written.
    pub fn begin(&mut self, leaf: u32, index: usize, was: u32) {
        let mut entries = self.spare.pop().unwrap_or_default();
        entries.push((index as u16, was));
        if let Some(stale) = self.leaves.insert(leaf, entries) {
            debug_assert!(false, "leaf {leaf} changes for the first time, twice");
            self.give_back(stale);
        }
    }

    /// Notes a change of an entry in a leaf that has changed before.
    pub fn go_on(&mut self, leaf: u32, index: usize, was: u32) {
        let Some(entries) = self.leaves.get_mut(&leaf) else {
            return;
        };
        if entries.iter().any(|(of, _)| usize::from(*of) == index) {
            return;
        }
        match entries.len() < MOST {
            true => entries.push((index as u16, was)),
            false => self.forget(leaf),
        }
    }

    /// Forgets a leaf that is written, or changes in an unknown way.
    pub fn forget(&mut self, leaf: u32) {
        if let Some(entries) = self.leaves.remove(&leaf) {
            self.give_back(entries);
        }
    }

    fn give_back(&mut self, mut entries: Entries) {
        entries.clear();
        self.spare.push(entries);
    }

    /// True if a leaf's old contents are known.
    pub fn knows(&self, leaf: u32) -> bool {
        self.leaves.contains_key(&leaf)
    }

    /// Restores a leaf's old contents, if they are known; true if so.
    pub fn undo(&self, leaf: u32, page: &mut Page) -> bool {
        let Some(entries) = self.leaves.get(&leaf) else {
            return false;
        };
        for (index, was) in entries {
            page[usize::from(*index)] = *was;
        }
        true
    }

    /// True if nothing is known.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::LEAF_ENTRIES;

    #[test]
    fn undo_restores_the_oldest_contents_not_those_in_between() {
        let mut changes = Changes::default();
        let mut page = [7; LEAF_ENTRIES];
        changes.begin(3, 5, 1);
        changes.go_on(3, 9, 2);
        changes.go_on(3, 5, 100);
        assert!(changes.undo(3, &mut page));
        assert_eq!((page[5], page[9], page[6]), (1, 2, 7));
        assert!(!changes.undo(4, &mut page) && !changes.knows(4));
    }

    #[test]
    fn the_old_contents_of_a_leaf_that_changes_much_are_not_kept() {
        let mut changes = Changes::default();
        changes.begin(0, 0, 0);
        (1..MOST).for_each(|index| changes.go_on(0, index, 0));
        assert!(changes.knows(0));
        changes.go_on(0, MOST, 0);
        assert!(!changes.knows(0) && changes.is_empty());
        // They stay unknown until the leaf is written.
        changes.go_on(0, 1, 0);
        assert!(!changes.knows(0));
        changes.begin(0, 8, 4);
        let mut page = [1; LEAF_ENTRIES];
        assert!(changes.undo(0, &mut page));
        assert_eq!(page.iter().filter(|raw| **raw != 1).count(), 1);
    }
}
