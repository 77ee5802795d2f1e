//! What has changed in the leaves of a table since the medium last had them: of each changed entry the old value and the new one.
//!
//! Two things need this. A changed leaf need not stay in memory: what the medium has and its changes are the leaf
//! ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)). And the parity of a stripe changes by the difference of its leaves,
//! so a map checkpoint needs the old contents of each leaf that it writes.
//!
//! Only a few changes of each leaf are kept. A leaf that changes much stays in memory until it is written, and its old contents are read.

use crate::entry::LEAF_ENTRIES;
use alloc::{collections::BTreeMap, vec::Vec};

/// The most changed entries kept of a leaf.
const MOST: usize = 64;

/// The memory that a leaf takes besides that of its changed entries: the list, and its place in the tree.
const LEAF_BYTES: usize = 64;

/// The entries of a leaf.
pub(super) type Page = [u32; LEAF_ENTRIES];

/// A changed entry of a leaf.
#[derive(Clone, Copy)]
struct Change {
    index: u16,
    was: u32,
    now: u32,
}

/// The changed entries of a leaf, each once.
type Entries = Vec<Change>;

/// The changed entries of leaves.
#[derive(Default)]
pub(super) struct Changes {
    /// The changes since a map checkpoint last wrote the leaf.
    leaves: BTreeMap<u32, Entries>,
    /// The changes that the map checkpoint in flight has written, but that the newest root does not lead to yet.
    written: BTreeMap<u32, Entries>,
    /// The entries in both.
    entries: usize,
    /// Reused memory for further leaves.
    spare: Vec<Entries>,
}

impl Changes {
    /// Notes the first change of an entry since its leaf was written.
    pub fn begin(&mut self, leaf: u32, index: usize, was: u32, now: u32) {
        let mut entries = self.spare.pop().unwrap_or_default();
        entries.push(Change {
            index: index as u16,
            was,
            now,
        });
        self.entries += 1;
        if let Some(stale) = self.leaves.insert(leaf, entries) {
            debug_assert!(false, "leaf {leaf} changes for the first time, twice");
            self.give_back(stale);
        }
    }

    /// Notes a change of an entry in a leaf that has changed before.
    pub fn go_on(&mut self, leaf: u32, index: usize, was: u32, now: u32) {
        let Some(entries) = self.leaves.get_mut(&leaf) else {
            return;
        };
        let known = entries.iter().position(|of| usize::from(of.index) == index);
        match known {
            Some(at) => entries[at].now = now,
            None if entries.len() == MOST => self.forget(leaf),
            None => {
                entries.push(Change {
                    index: index as u16,
                    was,
                    now,
                });
                self.entries += 1;
            }
        }
    }

    /// Forgets the changes of a leaf that is in memory, and changes in an unknown way.
    pub fn forget(&mut self, leaf: u32) {
        if let Some(entries) = self.leaves.remove(&leaf) {
            self.give_back(entries);
        }
    }

    /// Notes that a map checkpoint writes a leaf as it is now.
    pub fn writes(&mut self, leaf: u32) {
        let Some(entries) = self.leaves.remove(&leaf) else {
            return;
        };
        if let Some(stale) = self.written.insert(leaf, entries) {
            debug_assert!(false, "a map checkpoint writes leaf {leaf} twice");
            self.give_back(stale);
        }
    }

    /// Notes that the newest root leads to a leaf as the map checkpoint wrote it.
    pub fn is_rooted(&mut self, leaf: u32) {
        if let Some(entries) = self.written.remove(&leaf) {
            self.give_back(entries);
        }
    }

    fn give_back(&mut self, mut entries: Entries) {
        self.entries -= entries.len();
        entries.clear();
        self.spare.push(entries);
    }

    /// True if the changes since a leaf was last written are known.
    pub fn knows(&self, leaf: u32) -> bool {
        self.leaves.contains_key(&leaf)
    }

    /// True if a leaf has known changes that the newest root does not lead to.
    pub fn has(&self, leaf: u32) -> bool {
        self.knows(leaf) || self.written.contains_key(&leaf)
    }

    /// True if a change of this entry is known that the newest root does not lead to.
    pub fn names(&self, leaf: u32, index: usize) -> bool {
        let changes = [self.leaves.get(&leaf), self.written.get(&leaf)];
        let mut changes = changes.into_iter().flatten().flatten();
        changes.any(|change| usize::from(change.index) == index)
    }

    /// Restores a leaf as it was last written, if that is known.
    pub fn undo(&self, leaf: u32, page: &mut Page) {
        let entries = self.leaves.get(&leaf);
        entries.into_iter().for_each(|entries| undo(entries, page));
    }

    /// Restores a leaf as the newest root leads to it.
    pub fn undo_all(&self, leaf: u32, page: &mut Page) {
        self.undo(leaf, page);
        let written = self.written.get(&leaf);
        written.into_iter().for_each(|entries| undo(entries, page));
    }

    /// Changes a leaf that the newest root leads to into the leaf as it is now.
    pub fn redo_all(&self, leaf: u32, page: &mut Page) {
        let changes = [self.written.get(&leaf), self.leaves.get(&leaf)];
        for change in changes.into_iter().flatten().flatten() {
            page[usize::from(change.index)] = change.now;
        }
    }

    /// The number of leaves whose changes since they were written are known.
    pub fn known(&self) -> usize {
        self.leaves.len()
    }

    /// The memory that the changes take, roughly, in bytes.
    pub fn bytes(&self) -> usize {
        let leaves = self.leaves.len() + self.written.len();
        self.entries * size_of::<Change>() + leaves * LEAF_BYTES
    }
}

fn undo(entries: &Entries, page: &mut Page) {
    for change in entries {
        page[usize::from(change.index)] = change.was;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_restores_the_oldest_contents_not_those_in_between() {
        let mut changes = Changes::default();
        let mut page = [7; LEAF_ENTRIES];
        changes.begin(3, 5, 1, 100);
        changes.go_on(3, 9, 2, 7);
        changes.go_on(3, 5, 100, 7);
        changes.undo(3, &mut page);
        assert_eq!((page[5], page[9], page[6]), (1, 2, 7));
        changes.redo_all(3, &mut page);
        assert_eq!(page, [7; LEAF_ENTRIES]);
        assert!(!changes.knows(4));
    }

    #[test]
    fn what_a_checkpoint_has_written_counts_as_changed_until_the_root_leads_to_it() {
        let mut changes = Changes::default();
        let mut page = [0; LEAF_ENTRIES];
        changes.begin(3, 5, 0, 1);
        changes.go_on(3, 6, 0, 1);
        changes.writes(3);
        assert!(changes.has(3) && !changes.knows(3));
        changes.begin(3, 5, 1, 2);
        changes.redo_all(3, &mut page);
        assert_eq!((page[5], page[6]), (2, 1));
        changes.undo(3, &mut page);
        assert_eq!((page[5], page[6]), (1, 1));
        changes.redo_all(3, &mut page);
        changes.undo_all(3, &mut page);
        assert_eq!(page, [0; LEAF_ENTRIES]);
        let before = changes.bytes();
        changes.is_rooted(3);
        assert!(changes.bytes() < before && changes.knows(3));
        // The root leads to the leaf as it was written.
        (page[5], page[6]) = (1, 1);
        changes.redo_all(3, &mut page);
        assert_eq!((page[5], page[6]), (2, 1));
        changes.writes(3);
        changes.is_rooted(3);
        assert!(!changes.has(3) && changes.bytes() == 0);
    }

    #[test]
    fn the_changes_of_a_leaf_that_changes_much_are_not_kept() {
        let mut changes = Changes::default();
        changes.begin(0, 0, 0, 1);
        (1..MOST).for_each(|index| changes.go_on(0, index, 0, 1));
        assert!(changes.knows(0));
        changes.go_on(0, MOST, 0, 1);
        assert!(!changes.knows(0) && changes.bytes() == 0);
        // They stay unknown until the leaf is written.
        changes.go_on(0, 1, 0, 1);
        assert!(!changes.knows(0));
        changes.begin(0, 8, 4, 1);
        let mut page = [1; LEAF_ENTRIES];
        changes.undo(0, &mut page);
        assert_eq!(page.iter().filter(|raw| **raw != 1).count(), 1);
    }
}
