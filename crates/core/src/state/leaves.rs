//! The leaves that map checkpoints write, in order: of the map, of shared pages, of deltas.

use super::State;
use super::resident::Resident;
use super::shelf::Shelf;
use crate::addr::{BLOCK_BYTES, Lba, Leaf, Pba};
use crate::entry::{Entry, PartId};
use crate::format::summary::Owner;
use alloc::vec::Vec;

/// The table that a leaf belongs to, and its number there.
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

    /// True if what has changed takes so much memory that a map checkpoint is due.
    #[must_use]
    pub fn is_too_dirty(&self) -> bool {
        let Some(shelf) = self.map.leaves().shelf() else {
            return false;
        };
        let known: usize = self.shelves().map(|shelf| shelf.changes().known()).sum();
        let dirty = self.dirty_with_turns() as usize;
        debug_assert!(known <= dirty, "a leaf with changes is clean");
        shelf.is_too_dirty(dirty - known, self.bytes_of_changes())
    }

    /// True if leaves and changes take so much memory that nothing more may change before the map checkpoint in flight has ended.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        let shelf = self.map.leaves().shelf();
        shelf.is_some_and(|shelf| shelf.is_overfull(self.bytes_of_changes()))
    }

    /// The memory of the changes of leaves that need not be in memory.
    fn bytes_of_changes(&self) -> usize {
        self.shelves().map(|shelf| shelf.changes().bytes()).sum()
    }

    /// The number of leaves that have changed since they were written, of all tables.
    #[must_use]
    pub fn dirty_leaves(&self) -> u64 {
        self.dirty_with_turns() + self.shared.deltas().dirty().count()
    }

    /// The same for the tables that need not stay in memory.
    fn dirty_with_turns(&self) -> u64 {
        self.map.dirty_count() + self.shared.dirty().count()
    }

    /// Notes that the newest root leads to a leaf as the map checkpoint wrote it.
    pub fn on_leaf_rooted(&mut self, leaf: Leaf) {
        let tables = [self.map.leaves_mut(), self.shared.leaves_mut()];
        for shelf in tables.into_iter().filter_map(Resident::shelf_mut) {
            shelf.on_rooted(leaf);
        }
    }

    /// True if a leaf is on the medium but not in memory.
    #[must_use]
    pub fn is_away(&self, leaf: Leaf) -> bool {
        match self.table_of(leaf) {
            Table::Map(leaf) => self.map.is_away(leaf),
            Table::Shared(leaf) => self.shared.leaves().is_away(leaf.0 as usize),
            Table::Deltas(_) => false,
        }
    }

    fn shelves(&self) -> impl Iterator<Item = &Shelf> {
        let tables = [self.map.leaves(), self.shared.leaves()];
        tables.into_iter().filter_map(Resident::shelf)
    }

    /// Evicts a few leaves, if there are more in memory than allowed.
    #[inline]
    pub fn trim(&mut self) {
        if !self.map.leaves().shelf().is_some_and(Shelf::is_over) {
            return;
        }
        self.map.trim(false);
        self.shared.trim(false);
    }

    /// Evicts many, if there are more than allowed: a map checkpoint has written the dirty ones.
    pub fn trim_long(&mut self) {
        self.map.trim(true);
        self.shared.trim(true);
    }

    /// True if the leaf of a block's entry has to be read first.
    #[must_use]
    pub fn is_entry_away(&self, lba: Lba) -> bool {
        self.has_away() && self.map.leaf_away(lba).is_some()
    }

    /// True if some leaf is not in memory.
    #[must_use]
    #[inline]
    pub fn has_away(&self) -> bool {
        self.map.leaves().shelf().is_some_and(Shelf::has_away)
    }

    /// True if leaves may be evicted.
    #[must_use]
    #[inline]
    pub fn is_paged(&self) -> bool {
        self.map.leaves().shelf().is_some()
    }

    /// Lists leaves that have to be read to find some blocks. Once these leaves are in memory, more may be needed.
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

    /// Lists leaves that have to be read before some blocks can be changed. The place of a block's page is not needed while other blocks
    /// own the page.
    pub fn missing_to_change(&self, lba: Lba, blocks: u32, out: &mut Vec<Leaf>) {
        let note_page = |out: &mut Vec<Leaf>, leaf: Option<Leaf>| {
            leaf.into_iter()
                .for_each(|leaf| note(out, Leaf(self.map_leaves + leaf.0)));
        };
        for lba in (lba.0..lba.0 + u64::from(blocks)).map(Lba) {
            if let Some(leaf) = self.map.leaf_away(lba) {
                note(out, leaf);
                continue;
            }
            // Until a census has settled a page, no owner leaves it, and counts do not tell who would be the last.
            if let Entry::Shared(page) | Entry::Packed(page, _) = self.map.get(lba)
                && (self.is_counted || self.is_settled(page))
            {
                note_page(out, self.shared.leaf_away_to_leave(page, blocks));
                let heir = self.shared.heir(page, lba);
                let leaf = heir.and_then(|heir| self.map.leaf_away(heir));
                leaf.into_iter().for_each(|leaf| note(out, leaf));
            }
        }
        note_page(out, self.shared.leaf_away_to_begin());
    }

    /// Lists leaves that have to be read to decide whether the owners that tags name still have their blocks.
    pub fn missing_of_owners(&self, owners: impl Iterator<Item = Owner>, out: &mut Vec<Leaf>) {
        for owner in owners {
            let away = match owner {
                Owner::Lba(lba) if lba.0 < self.map.blocks() => self.map.leaf_away(lba),
                // A page that nothing leads into is dead, so its place does not matter.
                Owner::Vba(page) if self.shared.is_used(page) => self
                    .shared
                    .leaf_away(page)
                    .map(|leaf| Leaf(self.map_leaves + leaf.0)),
                Owner::Vba(_) | Owner::Lba(_) | Owner::None => None,
            };
            away.into_iter().for_each(|leaf| note(out, leaf));
        }
    }

    /// Returns the place of a leaf according to the newest root.
    #[must_use]
    pub fn place_of_leaf(&self, leaf: Leaf) -> Option<Pba> {
        self.map.leaves().shelf()?.place_of(leaf)
    }

    /// Takes a leaf that was read, if it is the leaf that the newest root names, and is not in memory.
    pub fn take_leaf(&mut self, leaf: Leaf, block: &[u8; BLOCK_BYTES]) {
        match self.table_of(leaf) {
            Table::Map(leaf) => self.map.take_leaf(leaf, block),
            Table::Shared(leaf) => self.shared.leaves_mut().take_in(leaf.0 as usize, block),
            Table::Deltas(_) => {}
        }
    }

    /// Reads the leaves that lead to some blocks into memory; false if one cannot be read.
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

    /// Returns a leaf that could not be read when it was needed, if there was one: from then on the state cannot be relied on.
    #[must_use]
    pub fn lost_leaf(&self) -> Option<Leaf> {
        self.shelves().find_map(Shelf::lost)
    }

    /// True if a leaf is lost, or was found damaged since the last call of [`State::take_rebuilt`].
    #[must_use]
    #[inline]
    pub fn has_damage(&self) -> bool {
        self.map.leaves().shelf().is_some_and(Shelf::has_damage)
    }

    /// Returns the leaves that were damaged and that their stripes restored, since the last call; the next map checkpoint rewrites them.
    pub fn take_rebuilt(&mut self) -> usize {
        let is_lost = self.lost_leaf().is_some();
        self.shelves()
            .for_each(|shelf| shelf.damage_is_known(is_lost));
        let tables = [self.map.leaves_mut(), self.shared.leaves_mut()];
        let shelves = tables.into_iter().filter_map(Resident::shelf_mut);
        let rebuilt: Vec<Leaf> = shelves.flat_map(Shelf::take_rebuilt).collect();
        rebuilt.iter().for_each(|leaf| self.write_anew(*leaf));
        rebuilt.len()
    }

    /// Returns how many leaves are in memory, how many may be, and how many were read since the volume was opened; `None`: all
    /// stay in memory.
    #[must_use]
    pub fn residency(&self) -> Option<(usize, usize, u64)> {
        let (here, most) = self.map.leaves().shelf()?.here();
        Some((here, most, self.shelves().map(Shelf::fetched).sum()))
    }

    /// True if a leaf has changed since a map checkpoint wrote it.
    #[must_use]
    pub fn is_dirty(&self, leaf: Leaf) -> bool {
        match self.table_of(leaf) {
            Table::Map(leaf) => self.map.dirty().holds(leaf),
            Table::Shared(leaf) => self.shared.dirty().holds(leaf),
            Table::Deltas(leaf) => self.shared.deltas().dirty().holds(leaf),
        }
    }

    /// True if memory holds a changed leaf's old contents.
    #[must_use]
    pub fn knows_written(&self, leaf: Leaf) -> bool {
        !self.is_away(leaf)
            && match self.table_of(leaf) {
                Table::Map(leaf) => self.map.leaves().knows_written(leaf),
                Table::Shared(leaf) => self.shared.leaves().knows_written(leaf),
                Table::Deltas(_) => false,
            }
    }

    /// Encodes a changed leaf as it was last written; false if memory does not hold that.
    #[must_use]
    pub fn as_written(&self, leaf: Leaf, out: &mut [u8]) -> bool {
        !self.is_away(leaf)
            && match self.table_of(leaf) {
                Table::Map(leaf) => self.map.leaves().as_written(leaf, out),
                Table::Shared(leaf) => self.shared.leaves().as_written(leaf, out),
                Table::Deltas(_) => false,
            }
    }

    /// Marks a leaf clean, which a map checkpoint writes; true if it was dirty.
    pub fn take_dirty(&mut self, leaf: Leaf) -> bool {
        match self.table_of(leaf) {
            Table::Map(leaf) => self.map.writes(leaf),
            Table::Shared(leaf) => self.shared.writes(leaf),
            Table::Deltas(leaf) => self.shared.deltas_mut().dirty_mut().take(leaf),
        }
    }

    /// Makes the next map checkpoint rewrite a leaf.
    pub fn write_anew(&mut self, leaf: Leaf) {
        match self.table_of(leaf) {
            Table::Map(leaf) => self.map.write_anew(leaf),
            Table::Shared(leaf) => self.shared.write_anew(leaf),
            Table::Deltas(leaf) => {
                self.shared.deltas_mut().dirty_mut().mark(leaf);
            }
        }
    }

    /// Encodes a leaf as it is now; true if it must be on the medium. A leaf of the map that holds nothing need not be. Leaves of the
    /// other tables stay once they exist.
    pub fn encode_leaf(&self, leaf: Leaf, out: &mut [u8]) -> bool {
        match self.table_of(leaf) {
            Table::Map(leaf) => return self.map.encode_leaf(leaf, out),
            Table::Shared(leaf) => self.shared.encode_leaf(leaf, out),
            Table::Deltas(leaf) => self.shared.deltas().encode_leaf(leaf, out),
        }
        true
    }

    /// Takes a leaf as a map checkpoint wrote it, in the order of the numbers.
    ///
    /// # Errors
    /// A description of the leaf, if it names what the volume does not hold.
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

    /// True if the entry of a block is set later, because its leaf is not in memory: a replay does not need what the entry was.
    pub(super) fn sets_later(&mut self, lba: Lba, entry: Entry) -> bool {
        let is_one = self.is_entry_away(lba) || self.later.holds(lba);
        if is_one {
            self.later.add(lba, entry);
            let shelf = self.map.leaves().shelf();
            let room = shelf.map_or(0, Shelf::room_for_changes);
            if self.later.bytes() > room {
                self.catch_up(Lba(0), Lba(u64::MAX));
            }
        }
        is_one
    }

    /// Sets the entries that wait in the leaves of these blocks, the last included.
    #[inline]
    pub(super) fn catch_up(&mut self, first: Lba, last: Lba) {
        if !self.later.is_empty() {
            self.set_waiting(first, last);
        }
    }

    fn set_waiting(&mut self, first: Lba, last: Lba) {
        while let Some(entries) = self.later.take(first, last) {
            for (lba, entry) in entries {
                self.map.set(lba, entry);
            }
            self.trim();
        }
    }
}

/// Notes a leaf once; consecutive blocks mostly share one.
fn note(leaves: &mut Vec<Leaf>, leaf: Leaf) {
    if !leaves.contains(&leaf) {
        leaves.push(leaf);
    }
}
