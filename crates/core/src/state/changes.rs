//! What has changed in the leaves of a table since the medium last had them: of each changed entry the old value and the new one.
//!
//! Two things need this. A changed leaf need not stay in memory: what the medium has and its changes are the leaf
//! ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)). And the parity of a stripe changes by the difference of its leaves,
//! so a map checkpoint needs the old contents of each leaf that it writes.
//!
//! Only a few changes of each leaf are kept. A leaf that changes much stays in memory until it is written, and its old contents are read.

use crate::entry::LEAF_ENTRIES;
use alloc::{boxed::Box, vec::Vec};

/// The most runs kept of a leaf, of three changed entries each.
const MOST: usize = 21;

/// No entry has this index.
const NO_ENTRY: u32 = u32::MAX;

/// The entries of a leaf.
pub(super) type LeafEntries = [u32; LEAF_ENTRIES];

/// Three changed entries of a leaf, and before them the place of the leaf's next run, or of the next run that nobody uses. Random writes
/// change few entries of a leaf.
type Run = [u32; 10];

/// A changed entry: its index, its old value, and its new value. Only a leaf's first run has places without an entry.
type Change = [u32; 3];

/// The place of a run, and one more; 0: none.
type RunAt = u32;

/// Runs in a page.
const RUNS: usize = size_of::<LeafEntries>() / size_of::<Run>();

fn changes_of(run: &Run) -> &[Change] {
    run[1..].as_chunks().0
}

fn changes_of_mut(run: &mut Run) -> &mut [Change] {
    run[1..].as_chunks_mut().0
}

/// The runs of all leaves, in memory of evicted leaves.
#[derive(Default)]
struct Runs {
    pages: Vec<Box<LeafEntries>>,
    /// The first run that nobody uses.
    spare: RunAt,
    used: usize,
}

impl Runs {
    fn get(&self, at: RunAt) -> &Run {
        let at = at as usize - 1;
        &self.pages[at / RUNS].as_chunks().0[at % RUNS]
    }

    fn get_mut(&mut self, at: RunAt) -> &mut Run {
        let at = at as usize - 1;
        &mut self.pages[at / RUNS].as_chunks_mut().0[at % RUNS]
    }

    fn add_memory(&mut self, page: Box<LeafEntries>) {
        let first = (self.pages.len() * RUNS) as RunAt + 1;
        self.pages.push(page);
        for at in (first..).take(RUNS) {
            self.get_mut(at)[0] = core::mem::replace(&mut self.spare, at);
        }
    }

    /// Returns a run with this one entry, ahead of `next`.
    fn take(&mut self, next: RunAt, change: Change) -> RunAt {
        let at = self.spare;
        let run = self.get_mut(at);
        let spare = core::mem::replace(&mut run[0], next);
        run[1..].fill(NO_ENTRY);
        changes_of_mut(run)[0] = change;
        self.spare = spare;
        self.used += 1;
        at
    }

    /// Takes back a leaf's runs.
    fn give_back(&mut self, mut first: RunAt) {
        while first != 0 {
            let spare = core::mem::replace(&mut self.spare, first);
            first = core::mem::replace(&mut self.get_mut(first)[0], spare);
            self.used -= 1;
        }
    }

    /// A leaf's changed entries.
    fn of(&self, first: RunAt) -> impl Iterator<Item = Change> + '_ {
        let run = |at: RunAt| (at != 0).then(|| self.get(at));
        let all = core::iter::successors(run(first), move |of| run(of[0]));
        let changes = all.flat_map(changes_of).copied();
        changes.filter(|[index, ..]| *index != NO_ENTRY)
    }
}

/// The first run of each leaf that has any.
#[derive(Default)]
struct Firsts {
    of: Vec<RunAt>,
    leaves: usize,
}

impl Firsts {
    fn get(&self, leaf: u32) -> RunAt {
        self.of.get(leaf as usize).copied().unwrap_or(0)
    }

    /// Returns the run that was the leaf's first.
    fn set(&mut self, leaf: u32, first: RunAt) -> RunAt {
        if self.of.len() <= leaf as usize && first != 0 {
            self.of.resize(leaf as usize + 1, 0);
        }
        let Some(of) = self.of.get_mut(leaf as usize) else {
            return 0;
        };
        let was = core::mem::replace(of, first);
        self.leaves = self.leaves + usize::from(first != 0) - usize::from(was != 0);
        was
    }
}

/// The changed entries of leaves, each once.
#[derive(Default)]
pub(super) struct Changes {
    /// The changes since a map checkpoint last wrote the leaf.
    leaves: Firsts,
    /// The changes that the map checkpoint in flight has written, but that the newest root does not lead to yet.
    written: Firsts,
    /// The memory of both.
    runs: Runs,
}

impl Changes {
    /// True if the next change needs more memory first.
    #[inline]
    pub fn is_out_of_memory(&self) -> bool {
        self.runs.spare == 0
    }

    /// Takes the memory of a leaf, for good.
    pub fn add_memory(&mut self, page: Box<LeafEntries>) {
        self.runs.add_memory(page);
    }

    /// Notes the first change of an entry since its leaf was written.
    pub fn begin(&mut self, leaf: u32, index: usize, was: u32, now: u32) {
        let first = self.runs.take(0, [index as u32, was, now]);
        let stale = self.leaves.set(leaf, first);
        debug_assert_eq!(stale, 0, "leaf {leaf} changes for the first time, twice");
        self.runs.give_back(stale);
    }

    /// Notes a change of an entry in a leaf that has changed before.
    pub fn go_on(&mut self, leaf: u32, index: usize, was: u32, now: u32) {
        let (first, index) = (self.leaves.get(leaf), index as u32);
        let (mut at, mut runs) = (first, 0);
        while at != 0 {
            let run = self.runs.get_mut(at);
            let known = changes_of_mut(run).iter_mut().find(|of| of[0] == index);
            if let Some(known) = known {
                known[2] = now;
                return;
            }
            (at, runs) = (run[0], runs + 1);
        }
        if first == 0 {
            return;
        }
        let change = [index, was, now];
        let places = changes_of_mut(self.runs.get_mut(first));
        match places.iter_mut().find(|of| of[0] == NO_ENTRY) {
            Some(place) => *place = change,
            None if runs == MOST => self.forget(leaf),
            None => {
                let first = self.runs.take(first, change);
                self.leaves.set(leaf, first);
            }
        }
    }

    /// Forgets the changes of a leaf that is in memory, and changes in an unknown way.
    pub fn forget(&mut self, leaf: u32) {
        let runs = self.leaves.set(leaf, 0);
        self.runs.give_back(runs);
    }

    /// Notes that a map checkpoint writes a leaf as it is now.
    pub fn writes(&mut self, leaf: u32) {
        let runs = self.leaves.set(leaf, 0);
        if runs != 0 {
            let stale = self.written.set(leaf, runs);
            debug_assert_eq!(stale, 0, "a map checkpoint writes leaf {leaf} twice");
            self.runs.give_back(stale);
        }
    }

    /// Notes that the newest root leads to a leaf as the map checkpoint wrote it.
    pub fn on_rooted(&mut self, leaf: u32) {
        let runs = self.written.set(leaf, 0);
        self.runs.give_back(runs);
    }

    /// True if the changes since a leaf was last written are known.
    pub fn knows(&self, leaf: u32) -> bool {
        self.leaves.get(leaf) != 0
    }

    /// True if a leaf has known changes that the newest root does not lead to.
    pub fn has(&self, leaf: u32) -> bool {
        self.knows(leaf) || self.written.get(leaf) != 0
    }

    /// True if a change of this entry is known that the newest root does not lead to.
    pub fn names(&self, leaf: u32, index: usize) -> bool {
        let of_both = [&self.written, &self.leaves].map(|firsts| firsts.get(leaf));
        let mut changes = of_both.into_iter().flat_map(|first| self.runs.of(first));
        changes.any(|[of, ..]| of as usize == index)
    }

    /// Restores a leaf as it was last written, if that is known.
    pub fn undo(&self, leaf: u32, page: &mut LeafEntries) {
        for [index, was, _] in self.runs.of(self.leaves.get(leaf)) {
            page[index as usize] = was;
        }
    }

    /// Restores a leaf as the newest root leads to it.
    pub fn undo_all(&self, leaf: u32, page: &mut LeafEntries) {
        self.undo(leaf, page);
        for [index, was, _] in self.runs.of(self.written.get(leaf)) {
            page[index as usize] = was;
        }
    }

    /// Changes a leaf that the newest root leads to into the leaf as it is now.
    pub fn redo_all(&self, leaf: u32, page: &mut LeafEntries) {
        for firsts in [&self.written, &self.leaves] {
            for [index, _, now] in self.runs.of(firsts.get(leaf)) {
                page[index as usize] = now;
            }
        }
    }

    /// The number of leaves whose changes since they were written are known.
    pub fn known(&self) -> usize {
        self.leaves.leaves
    }

    /// The memory that the changes take, in bytes.
    pub fn bytes(&self) -> usize {
        self.runs.used * size_of::<Run>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_memory() -> Changes {
        let mut changes = Changes::default();
        changes.add_memory(Box::new([0; LEAF_ENTRIES]));
        changes
    }

    #[test]
    fn undo_restores_the_oldest_contents_not_those_in_between() {
        let mut changes = with_memory();
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
        let mut changes = with_memory();
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
        changes.on_rooted(3);
        assert!(changes.bytes() < before && changes.knows(3));
        // The root leads to the leaf as it was written.
        (page[5], page[6]) = (1, 1);
        changes.redo_all(3, &mut page);
        assert_eq!((page[5], page[6]), (2, 1));
        changes.writes(3);
        changes.on_rooted(3);
        assert!(!changes.has(3) && changes.bytes() == 0);
    }

    #[test]
    fn the_changes_of_a_leaf_that_changes_much_are_not_kept() {
        let mut changes = with_memory();
        changes.begin(0, 0, 0, 1);
        (1..MOST * 3).for_each(|index| changes.go_on(0, index, 0, 1));
        assert!(changes.knows(0));
        changes.go_on(0, MOST * 3, 0, 1);
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
