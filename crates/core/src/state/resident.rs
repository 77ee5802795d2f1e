//! The leaves of a table, which need not all be in memory: one that is on the medium just as it is here may go, and is fetched again
//! when somebody asks for it ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)).
//!
//! Whether a leaf that is not here is on the medium, or holds nothing, its table knows.

use super::dirty::Dirty;
use super::shelf::{Page, Shelf, decode};
use crate::addr::{BLOCK_BYTES, Leaf};
use crate::entry::LEAF_ENTRIES;
use alloc::{boxed::Box, vec::Vec};
use core::cell::OnceCell;

/// How many leaves are thought of at once when there are too many.
const STEPS_OF_A_TRIM: usize = 16;

/// See the module.
#[derive(Default)]
pub(super) struct Resident {
    leaves: Vec<OnceCell<Box<Page>>>,
    /// Where they are fetched from; without one all stay here.
    shelf: Option<Box<Shelf>>,
}

impl Resident {
    /// From now on leaves are fetched from there.
    pub fn set_shelf(&mut self, shelf: Shelf) {
        self.shelf = Some(Box::new(shelf));
    }

    /// Where they are fetched from.
    #[inline]
    pub fn shelf(&self) -> Option<&Shelf> {
        self.shelf.as_deref()
    }

    /// The same, to be told.
    pub fn shelf_mut(&mut self) -> Option<&mut Shelf> {
        self.shelf.as_deref_mut()
    }

    /// How many leaves there are.
    pub fn len(&self) -> usize {
        self.leaves.len()
    }

    /// There are so many now: as many, or more.
    pub fn lengthen(&mut self, leaves: usize) {
        self.leaves.resize_with(leaves, OnceCell::new);
    }

    /// A leaf, if it is here.
    #[inline]
    pub fn here(&self, leaf: usize) -> Option<&Page> {
        self.leaves[leaf].get().map(|page| &**page)
    }

    /// Whether a leaf that is on the medium is not here.
    pub fn is_away(&self, leaf: usize) -> bool {
        self.shelf.is_some()
            && self
                .leaves
                .get(leaf)
                .is_some_and(|page| page.get().is_none())
    }

    /// A leaf; if it is not here and `is_kept` says that it is on the medium, it is fetched.
    #[inline]
    pub fn get(&self, leaf: usize, is_kept: impl FnOnce() -> bool) -> Option<&Page> {
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

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, leaf: usize, is_kept: impl FnOnce() -> bool) -> Option<&mut Page> {
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
    fn fetch(&self, leaf: usize) -> Option<&Page> {
        let shelf = self.shelf.as_ref()?;
        let page = shelf.read(leaf)?;
        shelf.came(leaf);
        Some(&**self.leaves[leaf].get_or_init(|| page))
    }

    /// A leaf, which does not stay if it has to be fetched: for whoever looks at all leaves, and at each once.
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

    /// A leaf comes to be here, or is another one.
    pub fn put(&mut self, leaf: usize, page: Box<Page>) -> &mut Page {
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

    /// Memory for a leaf, with anything in it.
    pub fn memory(&self) -> Box<Page> {
        let shelf = self.shelf.as_ref();
        shelf.map_or_else(|| Box::new([0; LEAF_ENTRIES]), |shelf| shelf.memory())
    }

    /// As [`Resident::put`], of one that holds nothing.
    pub fn put_empty(&mut self, leaf: usize) -> &mut Page {
        let mut page = self.memory();
        page.fill(0);
        self.put(leaf, page)
    }

    /// A leaf is here no more, and nowhere.
    pub fn remove(&mut self, leaf: usize) {
        if self.leaves[leaf].take().is_some()
            && let Some(shelf) = &self.shelf
        {
            shelf.went();
        }
    }

    /// Takes a leaf that was read, if the newest root leads to it just so; not if there is one here.
    pub fn take_in(&mut self, leaf: usize, block: &[u8; BLOCK_BYTES]) {
        let mut page = self.memory();
        decode(block, &mut page);
        let Some(shelf) = &mut self.shelf else { return };
        shelf.was_read();
        match self.leaves[leaf].get().is_none() && shelf.has(leaf, &page) {
            true => {
                self.put(leaf, page);
            }
            false => shelf.give_back(page),
        }
    }

    /// Lets leaves go that were not looked at for long, if there are more than there may be. It takes a few steps, or thinks of all
    /// that there are: mostly nobody is to wait for it, and it is asked for again and again. A leaf goes only if it is on the medium just as it is here: its checksum
    /// decides.
    pub fn trim(&mut self, dirty: &Dirty, all: bool) {
        let Some(shelf) = &mut self.shelf else {
            return;
        };
        let steps = if all { shelf.turns() } else { STEPS_OF_A_TRIM };
        for _ in 0..steps {
            let Some(leaf) = shelf.next() else {
                return;
            };
            let Some(page) = self.leaves[leaf].get() else {
                continue;
            };
            let is_in_use = shelf.was_touched(leaf) || dirty.holds(Leaf(leaf as u32));
            if is_in_use || !shelf.has(leaf, page) {
                shelf.stays(leaf);
                continue;
            }
            if let Some(page) = self.leaves[leaf].take() {
                shelf.took(page);
            }
        }
    }
}

/// A leaf that is looked at.
pub(super) enum Look<'a> {
    /// It is in memory.
    Here(&'a Page),
    /// It was read for that.
    Fetched(Lent<'a>),
}

/// A leaf whose memory goes back where it is from.
pub(super) struct Lent<'a> {
    page: Option<Box<Page>>,
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
    /// Its entries.
    pub fn entries(&self) -> &Page {
        match self {
            Self::Here(page) => page,
            Self::Fetched(lent) => lent.page.as_ref().unwrap_or_else(|| unreachable!()),
        }
    }
}
