//! The leaves of a table. Not all need be in memory: a leaf may be evicted if the medium has it, but for a few changes that stay in
//! memory. It is read again when it is needed ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)).
//!
//! The table knows whether a leaf that is not in memory was evicted, or holds nothing.

use super::bounds::Unwritten;
use super::changes::LeafEntries;
use super::dirty::Dirty;
use super::shelf::{Shelf, decode, encode};
use crate::addr::{BLOCK_BYTES, Leaf};
use crate::entry::LEAF_ENTRIES;
use alloc::{boxed::Box, vec::Vec};
use core::cell::OnceCell;

/// How many leaves one trim considers when there are too many.
const STEPS_OF_A_TRIM: usize = 16;

/// The same for a trim that may evict many at once: some milliseconds.
const STEPS_OF_A_LONG_TRIM: usize = 4096;

/// The leaves of a table.
#[derive(Default)]
pub(super) struct Resident {
    leaves: Vec<OnceCell<Box<LeafEntries>>>,
    /// Where evicted leaves are read from; without a shelf, all stay in memory.
    shelf: Option<Box<Shelf>>,
}

impl Resident {
    /// Sets where leaves are read from.
    pub fn set_shelf(&mut self, shelf: Shelf) {
        self.shelf = Some(Box::new(shelf));
    }

    /// Where leaves are read from.
    #[inline]
    pub fn shelf(&self) -> Option<&Shelf> {
        self.shelf.as_deref()
    }

    /// The same, mutable.
    pub fn shelf_mut(&mut self) -> Option<&mut Shelf> {
        self.shelf.as_deref_mut()
    }

    /// The number of leaves.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// Grows to `leaves` leaves, at least as many as now.
    pub fn lengthen(&mut self, leaves: usize) {
        self.leaves.resize_with(leaves, OnceCell::new);
    }

    /// Returns a leaf, if it is in memory.
    #[inline]
    pub fn here(&self, leaf: usize) -> Option<&LeafEntries> {
        self.leaves[leaf].get().map(|page| &**page)
    }

    /// True if a leaf is on the medium, but not in memory.
    pub fn is_away(&self, leaf: usize) -> bool {
        let is_on_medium = |shelf: &Shelf| shelf.is_on_medium(leaf);
        let is_one = leaf < self.leaves.len();
        is_one && self.here(leaf).is_none() && self.shelf().is_some_and(is_on_medium)
    }

    /// Returns a leaf; reads it if it is not in memory and `is_kept` says that it was evicted.
    #[inline]
    pub fn get(&self, leaf: usize, is_kept: impl FnOnce() -> bool) -> Option<&LeafEntries> {
        let page = match self.leaves[leaf].get() {
            Some(page) => &**page,
            None if is_kept() => self.fetch(leaf)?,
            None => return None,
        };
        if let Some(shelf) = &self.shelf {
            shelf.touch(leaf);
        }
        Some(page)
    }

    /// The same, mutable.
    #[inline]
    pub fn get_mut(
        &mut self,
        leaf: usize,
        is_kept: impl FnOnce() -> bool,
    ) -> Option<&mut LeafEntries> {
        if self.leaves[leaf].get().is_none() {
            if !is_kept() {
                return None;
            }
            self.fetch(leaf)?;
        }
        if let Some(shelf) = &self.shelf {
            shelf.touch(leaf);
        }
        self.leaves[leaf].get_mut().map(|page| &mut **page)
    }

    #[cold]
    fn fetch(&self, leaf: usize) -> Option<&LeafEntries> {
        let shelf = self.shelf.as_ref()?;
        let page = shelf.read(leaf)?;
        shelf.came_back(leaf);
        Some(&**self.leaves[leaf].get_or_init(|| page))
    }

    /// Returns a leaf without keeping it in memory if it has to be read: for callers that visit all leaves once.
    pub fn look_at(&self, leaf: usize, is_kept: impl FnOnce() -> bool) -> Option<Look<'_>> {
        match self.here(leaf) {
            Some(page) => Some(Look::Here(page)),
            None if is_kept() => {
                let shelf = self.shelf.as_deref()?;
                let page = Some(shelf.read(leaf)?);
                Some(Look::Fetched(Lent { page, shelf }))
            }
            None => None,
        }
    }

    /// The same for a leaf that was read, if the newest root names exactly these contents; other contents are read again.
    pub fn look_through(&self, leaf: usize, block: &[u8; BLOCK_BYTES]) -> Option<Look<'_>> {
        if let (None, Some(shelf)) = (self.here(leaf), self.shelf.as_deref()) {
            let mut page = self.memory();
            decode(block, &mut page);
            if shelf.has(leaf, &page) && shelf.admits(leaf, &page) {
                shelf.was_read();
                shelf.redo(leaf, &mut page);
                let page = Some(page);
                return Some(Look::Fetched(Lent { page, shelf }));
            }
            shelf.give_back(page);
        }
        self.look_at(leaf, || true)
    }

    /// Checks each leaf that was written before the opening: none may name a block that was not written by then. Checks the leaves in
    /// memory now, and the others when they are read.
    pub fn end_at(&mut self, unwritten: &Unwritten) {
        let Some(shelf) = &mut self.shelf else { return };
        shelf.end_at(unwritten);
        let here = self.leaves.iter().enumerate();
        for (leaf, page) in here.filter_map(|(leaf, page)| Some((leaf, page.get()?))) {
            shelf.check_end(leaf, page);
        }
    }

    /// Puts a leaf into memory, or replaces it.
    pub fn put(&mut self, leaf: usize, page: Box<LeafEntries>) -> &mut LeafEntries {
        self.remove(leaf);
        if let Some(shelf) = &self.shelf {
            shelf.came(leaf);
        }
        self.leaves[leaf].get_or_init(|| page);
        match self.leaves[leaf].get_mut() {
            Some(page) => page,
            None => unreachable!("leaf {leaf} was put there"),
        }
    }

    /// Takes note of a leaf that is on the medium, but does not keep it in memory.
    pub fn leave_out(&mut self, page: Box<LeafEntries>) {
        if let Some(shelf) = &self.shelf {
            shelf.left_out();
            shelf.give_back(page);
        }
    }

    /// Notes that an entry of a leaf has changed. If leaves may soon be evicted, the values are kept too: so this leaf may be, and the
    /// parity of its stripe can be changed by the difference.
    #[inline]
    pub fn changed(&mut self, dirty: &mut Dirty, leaf: Leaf, index: usize, was: u32, now: u32) {
        let is_new = dirty.mark(leaf);
        let Some(shelf) = &mut self.shelf else { return };
        let (keeps, may_evict) = (shelf.is_nearly_full(), shelf.may_evict_changed());
        match is_new {
            // The leaf is in memory, and stays there until it is written.
            _ if !keeps => shelf.changes_mut().forget(leaf.0),
            true if may_evict => shelf.changes_to_add().begin(leaf.0, index, was, now),
            true => {}
            false => shelf.changes_to_add().go_on(leaf.0, index, was, now),
        }
    }

    /// Marks a leaf clean, which a map checkpoint writes; true if it was dirty.
    pub fn writes(&mut self, dirty: &mut Dirty, leaf: Leaf) -> bool {
        if let Some(shelf) = &mut self.shelf {
            shelf.changes_mut().writes(leaf.0);
        }
        dirty.take(leaf)
    }

    /// True if memory has what is needed to restore a leaf as it was last written. It must not be away.
    pub fn knows_written(&self, leaf: Leaf) -> bool {
        self.shelf()
            .is_some_and(|shelf| shelf.changes().knows(leaf.0))
    }

    /// Encodes a leaf as it was last written, if that is known. It must not be away.
    pub fn as_written(&self, leaf: Leaf, out: &mut [u8]) -> bool {
        let Some(shelf) = self.shelf().filter(|_| self.knows_written(leaf)) else {
            return false;
        };
        let mut page = shelf.memory();
        match self.here(leaf.0 as usize) {
            Some(now) => *page = *now,
            None => page.fill(0),
        }
        shelf.changes().undo(leaf.0, &mut page);
        encode(&page, out);
        shelf.give_back(page);
        true
    }

    /// Returns memory for a leaf, with any contents.
    pub fn memory(&self) -> Box<LeafEntries> {
        let shelf = self.shelf.as_ref();
        shelf.map_or_else(|| Box::new([0; LEAF_ENTRIES]), |shelf| shelf.memory())
    }

    /// As [`Resident::put`], for a leaf that holds nothing.
    pub fn put_empty(&mut self, leaf: usize) -> &mut LeafEntries {
        let mut page = self.memory();
        page.fill(0);
        self.put(leaf, page)
    }

    /// Removes a leaf, which no longer exists.
    pub fn remove(&mut self, leaf: usize) {
        if self.leaves[leaf].take().is_some()
            && let Some(shelf) = &self.shelf
        {
            shelf.went();
        }
    }

    /// Takes a leaf that was read, if the newest root names exactly these contents, and it is not in memory already.
    pub fn take_in(&mut self, leaf: usize, block: &[u8; BLOCK_BYTES]) {
        let mut page = self.memory();
        decode(block, &mut page);
        let Some(shelf) = &mut self.shelf else { return };
        shelf.was_read();
        let is_missed = self.leaves[leaf].get().is_none();
        match is_missed && shelf.has(leaf, &page) && shelf.admits(leaf, &page) {
            true => {
                shelf.redo(leaf, &mut page);
                shelf.came_back(leaf);
                self.leaves[leaf].get_or_init(|| page);
            }
            false => shelf.give_back(page),
        }
    }

    /// Evicts leaves that were not used for long, if there are more than allowed. It looks at only a few leaves, because it is called
    /// again and again; with `long`, at as many as a caller may wait for. A leaf is evicted only if the medium has it, but for changes that
    /// stay in memory: its checksum decides.
    pub fn trim(&mut self, dirty: &Dirty, long: bool) {
        let Some(shelf) = &mut self.shelf else {
            return;
        };
        let steps = match long {
            true => shelf.turns().min(STEPS_OF_A_LONG_TRIM),
            false => STEPS_OF_A_TRIM,
        };
        for _ in 0..steps {
            let Some(leaf) = shelf.next() else {
                return;
            };
            let Some(page) = self.leaves[leaf].get() else {
                continue;
            };
            let is_dirty = dirty.holds(Leaf(leaf as u32));
            if shelf.was_touched(leaf) || !shelf.may_evict(leaf, page, is_dirty) {
                shelf.stays(leaf);
                continue;
            }
            if let Some(page) = self.leaves[leaf].take() {
                shelf.took(page);
            }
        }
    }
}

/// A leaf that a caller looks at.
pub(super) enum Look<'a> {
    /// It is in memory.
    Here(&'a LeafEntries),
    /// It was read for the caller.
    Fetched(Lent<'a>),
}

/// A leaf whose memory is given back when it is dropped.
pub(super) struct Lent<'a> {
    page: Option<Box<LeafEntries>>,
    shelf: &'a Shelf,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(page) = self.page.take() {
            self.shelf.give_back(page);
        }
    }
}

impl Look<'_> {
    /// The leaf's entries.
    pub fn entries(&self) -> &LeafEntries {
        match self {
            Self::Here(page) => page,
            Self::Fetched(lent) => lent.page.as_ref().unwrap_or_else(|| unreachable!()),
        }
    }
}
