//! The leaves that map checkpoints write, one behind the other: of the map, of shared pages, of deltas.

use super::State;
use super::resident::Resident;
use super::shelf::Shelf;
use crate::addr::{BLOCK_BYTES, Lba, Leaf, Pba};
use crate::entry::{Entry, PartId};
use crate::format::root::LeafSlot;
use alloc::vec::Vec;

/// Which table a leaf is of, and its number there.
enum Table {
    Map(Leaf),
    Shared(Leaf),
    Deltas(Leaf),
}

impl State {
    fn table_of(&self, leaf: Leaf) -> Table {
        let behind = self.map_leaves + self.shared_leaves;
        match leaf.0 {
            index if index < self.map_leaves => Table::Map(leaf),
            index if index < behind => Table::Shared(Leaf(index - self.map_leaves)),
            index => Table::Deltas(Leaf(index - behind)),
        }
    }

    /// Whether so many leaves have changed that a map checkpoint is due for the memory that they take.
    #[must_use]
    pub fn is_too_dirty(&self) -> bool {
        let shelf = self.map.leaves().shelf();
        shelf.is_some_and(|shelf| {
            shelf.is_too_dirty(self.map.dirty_count() + self.shared.dirty().count())
        })
    }

    /// Whether so many leaves are in memory that nothing more may change before the map checkpoint under way has ended.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.map.leaves().shelf().is_some_and(Shelf::is_overfull)
    }

    /// How many leaves of the map have changed since they were written.
    #[must_use]
    pub fn dirty_map_leaves(&self) -> u64 {
        self.map.dirty_count()
    }

    /// The next root leads to a leaf there.
    pub fn place_leaf(&mut self, leaf: Leaf, slot: LeafSlot) {
        let tables = [self.map.leaves_mut(), self.shared.leaves_mut()];
        for shelf in tables.into_iter().filter_map(Resident::shelf_mut) {
            shelf.place(leaf, slot);
        }
    }

    /// Whether a leaf that is on the medium is not in memory.
    #[must_use]
    pub fn is_away(&self, leaf: Leaf) -> bool {
        match self.table_of(leaf) {
            Table::Map(leaf) => self.map.leaves().is_away(leaf.0 as usize),
            Table::Shared(leaf) => self.shared.leaves().is_away(leaf.0 as usize),
            Table::Deltas(_) => false,
        }
    }

    /// A leaf, or a parity, as the newest root leads to it; `None`: it is damaged, or not needed to be read.
    #[must_use]
    pub fn kept_leaf(&self, leaf: Leaf) -> Option<[u8; BLOCK_BYTES]> {
        self.map.leaves().shelf()?.as_kept(leaf)
    }

    fn shelves(&self) -> impl Iterator<Item = &Shelf> {
        let tables = [self.map.leaves(), self.shared.leaves()];
        tables.into_iter().filter_map(Resident::shelf)
    }

    /// Lets a few leaves go, if there are more in memory than there may be.
    pub fn trim(&mut self) {
        self.map.trim(false);
        self.shared.trim(false);
    }

    /// Lets all go that may, if there are more.
    pub fn trim_all(&mut self) {
        self.map.trim(true);
        self.shared.trim(true);
    }

    /// Whether leaves need not all stay in memory.
    #[must_use]
    #[inline]
    pub fn is_paged(&self) -> bool {
        self.map.leaves().shelf().is_some()
    }

    /// Leaves that have to be read before it can be said where some blocks are. There may be more when these have come.
    pub fn missing(&self, lba: Lba, blocks: u32, out: &mut Vec<Leaf>) {
        for lba in (lba.0..lba.0 + u64::from(blocks)).map(Lba) {
            if let Some(leaf) = self.map.leaf_away(lba) {
                note(out, leaf);
                continue;
            }
            let (page, slot) = match self.map.get(lba) {
                Entry::Shared(page) => (page, None),
                Entry::Packed(page, slot) => (page, Some(slot)),
                _ => continue,
            };
            let part = slot.map(|slot| PartId { page, slot });
            let base = part.and_then(|part| self.shared.deltas().base_of(part));
            for page in [Some(page), base.map(|base| base.page)]
                .into_iter()
                .flatten()
            {
                if let Some(leaf) = self.shared.leaf_away(page) {
                    note(out, Leaf(self.map_leaves + leaf.0));
                }
            }
        }
    }

    /// Where the newest root leads to a leaf.
    #[must_use]
    pub fn place_of_leaf(&self, leaf: Leaf) -> Option<Pba> {
        self.map.leaves().shelf()?.place_of(leaf)
    }

    /// Takes a leaf that was read, if it is what the newest root leads to and is not in memory.
    pub fn take_leaf(&mut self, leaf: Leaf, block: &[u8; BLOCK_BYTES]) {
        match self.table_of(leaf) {
            Table::Map(leaf) => self.map.take_leaf(leaf, block),
            Table::Shared(leaf) => self.shared.leaves_mut().take_in(leaf.0 as usize, block),
            Table::Deltas(_) => {}
        }
    }

    /// Brings into memory what says where some blocks are; `false`: some of it cannot be had.
    #[must_use]
    pub fn bring(&self, lba: Lba, blocks: u32) -> bool {
        for lba in (lba.0..lba.0 + u64::from(blocks)).map(Lba) {
            let entry = self.map.get(lba);
            let base = match entry {
                Entry::Packed(page, slot) => self.shared.deltas().base_of(PartId { page, slot }),
                _ => None,
            };
            let pages = [
                self.place_of(entry).map(|at| at.pba),
                base.map(|of| self.shared.pba(of.page)),
            ];
            core::hint::black_box(pages);
        }
        self.lost_leaf().is_none()
    }

    /// A leaf that could not be read when it was needed, if there was one: nothing may be gone by from then on.
    #[must_use]
    pub fn lost_leaf(&self) -> Option<Leaf> {
        self.shelves().find_map(Shelf::lost)
    }

    /// How many leaves are in memory, how many there may be, and how many were read since the volume was opened; `None`: all
    /// stay in memory.
    #[must_use]
    pub fn residency(&self) -> Option<(usize, usize, u64)> {
        let (here, most) = self.map.leaves().shelf()?.here();
        Some((here, most, self.shelves().map(Shelf::fetched).sum()))
    }

    /// Marks a leaf clean; whether it was dirty.
    pub fn take_dirty(&mut self, leaf: Leaf) -> bool {
        match self.table_of(leaf) {
            Table::Map(leaf) => self.map.dirty_mut().take(leaf),
            Table::Shared(leaf) => self.shared.dirty_mut().take(leaf),
            Table::Deltas(leaf) => self.shared.deltas_mut().dirty_mut().take(leaf),
        }
    }

    /// The next map checkpoint writes a leaf anew.
    pub fn write_anew(&mut self, leaf: Leaf) {
        match self.table_of(leaf) {
            Table::Map(leaf) => self.map.dirty_mut().mark(leaf),
            Table::Shared(leaf) => self.shared.dirty_mut().mark(leaf),
            Table::Deltas(leaf) => self.shared.deltas_mut().dirty_mut().mark(leaf),
        }
    }

    /// A leaf as it is now; whether it is to be there. Those of tables beside the map stay once they were.
    pub fn encode_leaf(&self, leaf: Leaf, out: &mut [u8]) -> bool {
        match self.table_of(leaf) {
            Table::Map(leaf) => return self.map.encode_leaf(leaf, out),
            Table::Shared(leaf) => self.shared.encode_leaf(leaf, out),
            Table::Deltas(leaf) => self.shared.deltas().encode_leaf(leaf, out),
        }
        true
    }

    /// Takes a leaf as a map checkpoint wrote it, in the order of their numbers.
    ///
    /// # Errors
    /// What it is, if it names what the volume does not hold.
    pub fn load_leaf(&mut self, leaf: Leaf, block: &[u8; BLOCK_BYTES]) -> Result<(), &'static str> {
        debug_assert!(!self.is_counted);
        let (is_sound, what) = match self.table_of(leaf) {
            Table::Map(leaf) => (self.map.load_leaf(leaf, block), "a leaf of the map"),
            Table::Shared(leaf) => {
                let is_data = |pba| self.segments.segment_of(pba).is_some();
                let is_sound = self.shared.load_leaf(leaf, block, is_data);
                (is_sound, "a leaf of shared pages")
            }
            Table::Deltas(leaf) => {
                let is_sound = self.shared.deltas_mut().load_leaf(leaf, block);
                (is_sound, "a leaf of deltas")
            }
        };
        is_sound.then_some(()).ok_or(what)
    }
}

/// Notes a leaf once; those of blocks in a row are mostly the same.
fn note(leaves: &mut Vec<Leaf>, leaf: Leaf) {
    if !leaves.contains(&leaf) {
        leaves.push(leaf);
    }
}
