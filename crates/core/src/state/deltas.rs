//! The table of deltas: which parts are deltas, and for each its base, the part that is needed to decode it (CSA-FS §3.2).
//!
//! A base is no delta itself, so a chain has two links, and reading a delta costs one more read. The table names parts by the numbers of
//! their pages, so either page may move and nothing here changes. The table is written with map checkpoints, in separate leaves; log
//! records hold the later deltas. No record marks the end of a delta: it ends when its page is given up. After a crash, the map shows
//! which pages have no owners.

use super::dirty::Dirty;
use crate::addr::{Leaf, Vba};
use crate::entry::{DELTA_BYTES, LEAF_DELTAS, MAX_PARTS, PACKED_PAGES, PartId};
use alloc::vec::Vec;
use hashbrown::HashMap;

/// Set in each number of a used cell.
const TAKEN: u32 = 1 << 31;

/// The table of deltas.
pub struct Deltas {
    limit: usize,
    cells: Vec<Option<(PartId, PartId)>>,
    free: Vec<u32>,
    by_part: HashMap<u32, u32>,
    dirty: Dirty,
}

fn limit_of(leaves: u32) -> usize {
    leaves as usize * LEAF_DELTAS
}

impl Deltas {
    /// An empty table of `leaves` leaves.
    #[must_use]
    pub(super) fn new(leaves: u32) -> Self {
        Self {
            limit: limit_of(leaves),
            cells: Vec::new(),
            free: Vec::new(),
            by_part: HashMap::new(),
            dirty: Dirty::new(leaves as usize),
        }
    }

    /// Grows to `leaves` leaves, at least as many as now.
    pub(super) fn lengthen(&mut self, leaves: u32) {
        self.limit = limit_of(leaves);
        self.dirty.lengthen(leaves as usize);
    }

    /// The number of deltas.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_part.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_part.is_empty()
    }

    /// True if there is room for one more.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.by_part.len() < self.limit
    }

    /// True if all deltas are in cells that a map checkpoint writes. After a replay some may not be: see [`Deltas::compact`].
    pub(super) fn fits(&self) -> bool {
        self.cells.len() <= self.limit
    }

    /// Returns a part's base, if it is a delta.
    #[must_use]
    pub fn base_of(&self, part: PartId) -> Option<PartId> {
        // Every read of a part calls this, so volumes without deltas skip the hashing.
        if self.by_part.is_empty() {
            return None;
        }
        let cell = *self.by_part.get(&part.raw())?;
        self.cells[cell as usize].map(|(_, base)| base)
    }

    /// Iterates over all deltas and their bases.
    pub fn iter(&self) -> impl Iterator<Item = (PartId, PartId)> + '_ {
        self.cells.iter().copied().flatten()
    }

    /// The number of cells.
    pub(super) fn cells(&self) -> usize {
        self.cells.len()
    }

    /// The delta in a cell, and its base.
    pub(super) fn at(&self, cell: usize) -> Option<(PartId, PartId)> {
        self.cells[cell]
    }

    /// Makes a part a delta. It must not be one yet.
    pub(super) fn insert(&mut self, part: PartId, base: PartId) {
        let cell = self.free.pop().unwrap_or_else(|| {
            self.cells.push(None);
            self.cells.len() as u32 - 1
        });
        self.put(cell, part, base);
        self.mark_dirty(cell);
    }

    fn put(&mut self, cell: u32, part: PartId, base: PartId) {
        self.cells[cell as usize] = Some((part, base));
        let before = self.by_part.insert(part.raw(), cell);
        debug_assert!(before.is_none(), "part {part} is one delta");
    }

    /// Ends a delta and returns its base, if the part was a delta.
    pub(super) fn remove(&mut self, part: PartId) -> Option<PartId> {
        if self.by_part.is_empty() {
            return None;
        }
        let cell = self.by_part.remove(&part.raw())?;
        self.free.push(cell);
        self.mark_dirty(cell);
        self.cells[cell as usize].take().map(|(_, base)| base)
    }

    /// The parts of a page that may be deltas.
    pub(super) fn slots(&self, page: Vba) -> impl Iterator<Item = PartId> + use<> {
        let slots = match self.by_part.is_empty() || page.0 >= PACKED_PAGES {
            true => 0,
            false => MAX_PARTS as u8,
        };
        (0..slots).map(move |slot| PartId { page, slot })
    }

    /// Iterates over a page's deltas and their bases.
    pub(crate) fn of_page(&self, page: Vba) -> impl Iterator<Item = (PartId, PartId)> + '_ {
        self.slots(page)
            .filter_map(|part| Some((part, self.base_of(part)?)))
    }

    /// Fits all deltas into the table after replay; false if there are too many. During replay the table may exceed its end, because
    /// deltas that had ended are still in it.
    pub(super) fn compact(&mut self) -> bool {
        let limit = self.limit;
        self.free.retain(|&cell| (cell as usize) < limit);
        for cell in self.cells.split_off(limit.min(self.cells.len())) {
            let Some((part, base)) = cell else { continue };
            self.by_part.remove(&part.raw());
            let Some(free) = self.free.pop() else {
                return false;
            };
            self.put(free, part, base);
            self.mark_dirty(free);
        }
        true
    }

    fn mark_dirty(&mut self, cell: u32) {
        // Cells past the end are about to be moved.
        if (cell as usize) < self.limit {
            let leaf = Leaf((cell as usize / LEAF_DELTAS) as u32);
            self.dirty.mark(leaf);
        }
    }

    /// Which leaves of the table have changed since they were written.
    pub(super) fn dirty(&self) -> &Dirty {
        &self.dirty
    }

    /// The same, mutable.
    pub(super) fn dirty_mut(&mut self) -> &mut Dirty {
        &mut self.dirty
    }

    /// Encodes a leaf's block: the part and its base of each cell, zeros for none.
    pub(super) fn encode_leaf(&self, leaf: Leaf, out: &mut [u8]) {
        let first = leaf.0 as usize * LEAF_DELTAS;
        for (index, bytes) in out.chunks_exact_mut(DELTA_BYTES).enumerate() {
            let cell = self.cells.get(first + index).copied().flatten();
            let raw = |part: PartId| TAKEN | part.raw();
            let (part, base) = cell.map_or((0, 0), |(part, base)| (raw(part), raw(base)));
            bytes[..4].copy_from_slice(&part.to_le_bytes());
            bytes[4..].copy_from_slice(&base.to_le_bytes());
        }
    }

    /// Takes a leaf as it was written; leaves must come in order. False if it names a part that was named already.
    pub(super) fn load_leaf(&mut self, leaf: Leaf, block: &[u8]) -> bool {
        let first = leaf.0 as usize * LEAF_DELTAS;
        if self.cells.len() > first {
            return false;
        }
        self.free.extend(self.cells.len() as u32..first as u32);
        self.cells.resize(first, None);
        for bytes in block.chunks_exact(DELTA_BYTES) {
            let word = |at: usize| {
                let raw =
                    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
                (raw & TAKEN != 0).then(|| PartId::from_raw(raw & !TAKEN))
            };
            let cell = self.cells.len() as u32;
            self.cells.push(None);
            let (Some(part), Some(base)) = (word(0), word(4)) else {
                self.free.push(cell);
                continue;
            };
            if self.by_part.contains_key(&part.raw()) {
                return false;
            }
            self.put(cell, part, base);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(page: u32, slot: u8) -> PartId {
        PartId {
            page: Vba(page),
            slot,
        }
    }

    #[test]
    fn an_encoded_leaf_loads_with_the_same_deltas() {
        let mut deltas = Deltas::new(1);
        deltas.insert(part(7, 3), part(1, 0));
        deltas.insert(part(7, 4), part(2, 31));
        deltas.insert(part(0, 0), part(2, 0));
        assert_eq!(deltas.remove(part(7, 3)), Some(part(1, 0)));
        assert!(deltas.dirty.take(Leaf(0)));
        assert!(!deltas.dirty.take(Leaf(0)));
        let mut block = [1; crate::addr::BLOCK_BYTES];
        deltas.encode_leaf(Leaf(0), &mut block);
        let mut again = Deltas::new(1);
        assert!(again.load_leaf(Leaf(0), &block));
        assert_eq!(again.len(), 2);
        assert_eq!(again.base_of(part(7, 4)), Some(part(2, 31)));
        assert_eq!(again.base_of(part(0, 0)), Some(part(2, 0)));
        assert_eq!(again.base_of(part(7, 3)), None);
        // The free cell is reused, and no other.
        again.insert(part(9, 9), part(1, 1));
        let all: Vec<_> = again.of_page(Vba(7)).collect();
        assert_eq!(all, [(part(7, 4), part(2, 31))]);
        assert_eq!(again.iter().count(), 3);
        assert!(!again.load_leaf(Leaf(0), &block), "the same leaf twice");
        let mut twice = Deltas::new(3);
        assert!(
            twice.load_leaf(Leaf(1), &block),
            "a leaf before it is empty"
        );
        assert_eq!(twice.base_of(part(7, 4)), Some(part(2, 31)));
        assert!(!twice.load_leaf(Leaf(2), &block), "the same part twice");
    }

    #[test]
    fn deltas_past_the_end_are_moved_when_others_have_ended() {
        let mut deltas = Deltas::new(1);
        for index in 0..LEAF_DELTAS as u32 + 2 {
            deltas.insert(part(index, 0), part(index, 1));
        }
        for index in [3, 700, 5] {
            deltas.remove(part(index, 0));
        }
        assert!(deltas.compact());
        assert_eq!(deltas.len(), LEAF_DELTAS);
        let last = LEAF_DELTAS as u32 + 1;
        assert_eq!(deltas.base_of(part(last, 0)), Some(part(last, 1)));
        deltas.insert(part(9999, 0), part(1, 1));
        assert!(!deltas.compact(), "one delta more than fit");
    }

    #[test]
    fn a_full_table_has_no_room() {
        let mut deltas = Deltas::new(1);
        for index in 0..LEAF_DELTAS as u32 {
            assert!(deltas.has_room());
            deltas.insert(part(index, 0), part(index, 1));
        }
        assert!(!deltas.has_room());
        deltas.remove(part(5, 0));
        assert!(deltas.has_room());
        assert!(!Deltas::new(0).has_room());
    }
}
