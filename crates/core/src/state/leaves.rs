//! The leaves that map checkpoints write, one behind the other: of the map, of shared pages, of deltas.

use super::State;
use crate::addr::{BLOCK_BYTES, Lba, Leaf, Vba};
use crate::entry::LEAF_ENTRIES;
use crate::format::root::LeafSlot;

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

    /// How many leaves of the map have changed since they were written.
    #[must_use]
    pub fn dirty_map_leaves(&self) -> u64 {
        self.map.dirty_count()
    }

    /// The next root leads to a leaf there.
    pub fn place_leaf(&mut self, leaf: Leaf, slot: LeafSlot) {
        if let Some(shelf) = self.map.shelf_mut() {
            shelf.place(leaf, slot);
        }
    }

    /// Lets leaves of the map go, if there are more in memory than there may be.
    pub fn trim(&mut self) {
        self.map.trim();
    }

    /// Brings the entries of some blocks into memory; `false`: some cannot be had.
    #[must_use]
    pub fn bring(&self, lba: Lba, blocks: u32) -> bool {
        self.map
            .shelf()
            .is_none_or(|_| self.map.brings(lba, blocks))
    }

    /// A leaf of the map that could not be read when it was needed, if there was one: nothing may be gone by from then on.
    #[must_use]
    pub fn lost_leaf(&self) -> Option<Leaf> {
        self.map.shelf()?.lost()
    }

    /// Of the leaves of the map how many are in memory, how many there may be, and how many were read since the volume was
    /// opened; `None`: all stay in memory.
    #[must_use]
    pub fn residency(&self) -> Option<(usize, usize, u64)> {
        let shelf = self.map.shelf()?;
        let (here, most) = shelf.here();
        Some((here, most, shelf.fetched()))
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
            Table::Shared(leaf) => (self.load_shared(leaf, block), "a leaf of shared pages"),
            Table::Deltas(leaf) => {
                let is_sound = self.shared.deltas_mut().load_leaf(leaf, block);
                (is_sound, "a leaf of deltas")
            }
        };
        is_sound.then_some(()).ok_or(what)
    }

    fn load_shared(&mut self, leaf: Leaf, block: &[u8; BLOCK_BYTES]) -> bool {
        let entries = block.chunks_exact(4).enumerate();
        let mut used = entries.filter_map(|(index, raw)| {
            let raw = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
            (raw != 0).then_some((leaf.0 * LEAF_ENTRIES as u32 + index as u32, raw))
        });
        let is_sound = used.all(|(number, raw)| {
            let place = self.shared.restore_entry(Vba(number), raw);
            place.is_some_and(|pba| self.segments.segment_of(pba).is_some())
        });
        // It is on the medium just so. Else each opening would have the whole table written anew.
        self.shared.dirty_mut().take(leaf);
        is_sound
    }
}
