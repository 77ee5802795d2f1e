//! The shelf of a table: where its leaves are read from when they are needed, and which leaves in memory may be evicted.
//!
//! The core pulls them, as recovery pulls what it reads ([0002](../../../../docs/decisions/0002-the-core-pulls-recovery.md)): a caller
//! gets the entry it needs, wherever the entry was, and users of the map need not know
//! ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)). A damaged leaf is rebuilt from its stripe. If that fails too, the
//! map can no longer be relied on. The shelf notes that, and the engine poisons itself before the request has any effect.

use super::bounds::{Bounds, Unwritten};
use super::changes::{Changes, LeafEntries};
use super::later::Later;
use super::paging::Paging;
use crate::addr::{BLOCK_BYTES, Leaf, Pba};
use crate::entry::LEAF_ENTRIES;
use crate::format::Crc;
use crate::format::leaf::{self, Leaves};
use crate::format::root::LeafSlot;
use crate::format::slots::Slots;
use crate::format::superblock::Superblock;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::{boxed::Box, vec, vec::Vec};
use core::cell::{Cell, RefCell};
use core::ops::Range;

/// The source of a table's leaves.
pub(super) struct Shelf {
    paging: Paging,
    superblock: Superblock,
    crc: Crc,
    /// The slots of the leaves of all tables, and of the parities: a stripe has leaves of several tables.
    slots: Slots,
    /// The leaves of this table.
    own: Range<u32>,
    /// The leaves in memory, in the order of their turns to be evicted. A leaf used since its last turn goes to the end. A leaf listed
    /// here may have left memory in another way.
    turns: RefCell<VecDeque<u32>>,
    /// For each leaf whether it has a turn, and whether it was used since the last one.
    marks: Vec<Cell<Marks>>,
    /// Memory of evicted leaves, reused for new ones by every thread. So the process never takes memory for more leaves than were in use
    /// at one time.
    spare: RefCell<Vec<Box<LeafEntries>>>,
    /// What has changed in leaves since the newest root. Without parities, changed leaves stay in memory, and nothing is here.
    changes: Changes,
    /// What a replay has set in leaves that were not read. These leaves are dirty, so they are written with it.
    later: Later,
    /// What leaves may lead to, until all have been checked.
    bounds: Option<Bounds>,
    /// No leaf of before the opening leads to it, until all have been checked.
    unwritten: Option<Unwritten>,
    fetched: Cell<u64>,
    lost: Cell<Option<Leaf>>,
    /// Leaves that are damaged on the medium, and that their stripes have restored; whether that has been reported.
    rebuilt: RefCell<BTreeMap<Leaf, bool>>,
}

#[derive(Clone, Copy, Default)]
struct Marks {
    has_turn: bool,
    is_touched: bool,
    /// True if a map checkpoint has written it since the volume was opened.
    is_rewritten: bool,
}

impl Shelf {
    pub fn new(
        paging: Paging,
        superblock: &Superblock,
        slots: &Slots,
        own: Range<u32>,
        crc: Crc,
    ) -> Self {
        Self {
            paging,
            superblock: superblock.clone(),
            crc,
            slots: slots.clone(),
            turns: RefCell::default(),
            marks: vec![Cell::default(); own.len()],
            own,
            spare: RefCell::default(),
            changes: Changes::default(),
            later: Later::default(),
            bounds: None,
            unwritten: None,
            fetched: Cell::new(0),
            lost: Cell::new(None),
            rebuilt: RefCell::default(),
        }
    }

    /// A leaf's number among all leaves.
    fn number(&self, leaf: usize) -> Leaf {
        Leaf(self.own.start + leaf as u32)
    }

    /// True if a leaf that is not in memory holds something: the newest root leads to it, or it has changed since.
    pub fn is_kept(&self, leaf: usize) -> bool {
        self.is_on_medium(leaf) || self.changes.has(leaf as u32)
    }

    /// True if the newest root leads to a leaf.
    pub fn is_on_medium(&self, leaf: usize) -> bool {
        self.slots.get(self.number(leaf)) != LeafSlot::Absent
    }

    /// Reads a leaf, and applies what has changed since it was written. `None`: it cannot be read or rebuilt from the medium.
    pub fn read(&self, leaf: usize) -> Option<Box<LeafEntries>> {
        let mut page = match self.is_on_medium(leaf) || !self.changes.has(leaf as u32) {
            true => self.read_from_medium(self.number(leaf))?,
            false => {
                let mut page = self.memory();
                page.fill(0);
                page
            }
        };
        self.redo(leaf, &mut page);
        Some(page)
    }

    fn read_from_medium(&self, leaf: Leaf) -> Option<Box<LeafEntries>> {
        let leaves = Leaves {
            superblock: &self.superblock,
            slots: &self.slots,
            crc: self.crc,
        };
        let mut read = |at, block: &mut [u8; BLOCK_BYTES]| self.paging.read(at, block);
        let block = match leaves.read(leaf, &mut read) {
            Ok(found) => found.map(|(_, block)| block),
            Err(_) => {
                let block = leaves.rebuild(leaf, &mut read);
                if block.is_some() {
                    self.rebuilt.borrow_mut().entry(leaf).or_default();
                    self.paging.set_damage(true);
                }
                block
            }
        };
        self.fetched.set(self.fetched.get() + 1);
        if block.is_none() {
            self.lose(leaf);
        }
        let block = block?;
        let mut page = self.memory();
        decode(&block, &mut page);
        if !self.admits((leaf.0 - self.own.start) as usize, &page) {
            self.lose(leaf);
            return None;
        }
        Some(page)
    }

    /// Checks from now on what the leaves that are read lead to; with `None`, no longer.
    pub fn check(&mut self, bounds: Option<Bounds>) {
        self.bounds = bounds;
        self.unwritten = None;
    }

    /// From now on, checks each leaf that is read and was written before the opening: it may name no block that was not written by then.
    pub fn end_at(&mut self, unwritten: &Unwritten) {
        self.unwritten = Some(unwritten.clone());
    }

    /// Notes a leaf of before the opening as lost if it leads to what was not written then: new data goes there.
    pub fn check_end(&self, leaf: usize, page: &LeafEntries) {
        if self.leads_ahead(leaf, page) {
            self.lose(self.number(leaf));
        }
    }

    /// An entry that a record of the log replaces may lead anywhere: its block was free, and may have been used again.
    fn leads_ahead(&self, leaf: usize, page: &LeafEntries) -> bool {
        let (Some(bounds), Some(unwritten)) = (self.bounds, &self.unwritten) else {
            return false;
        };
        if self.marks[leaf].get().is_rewritten {
            return false;
        }
        let segments = self.superblock.segments();
        let is_ahead = |raw| {
            let block = bounds.block_of(raw);
            block.is_some_and(|pba| unwritten.has(&segments, pba))
        };
        let mut entries = page.iter().enumerate();
        entries.any(|(index, &raw)| is_ahead(raw) && !self.changes.names(leaf as u32, index))
    }

    /// True if a leaf with these contents may have been written by this volume.
    pub fn admits(&self, leaf: usize, page: &LeafEntries) -> bool {
        self.bounds.is_none_or(|bounds| bounds.admit(leaf, page))
    }

    /// Notes that an entry names a page of which this leaf of the table says nothing. Does nothing if all leaves have been checked. The
    /// leaf may be past the end of the table.
    pub fn leads_nowhere(&self, leaf: usize) {
        if self.bounds.is_some() {
            let leaf = leaf.min(self.own.len().saturating_sub(1));
            self.lose(self.number(leaf));
        }
    }

    /// True if another leaf may be in memory.
    pub fn has_room(&self) -> bool {
        let (here, most) = self.here();
        here < most
    }

    /// Applies what has changed in a leaf since the newest root.
    pub fn redo(&self, leaf: usize, page: &mut LeafEntries) {
        // What a replay set is older than what has changed since.
        if !self.later.is_empty() {
            self.later.set_in(leaf, page);
        }
        self.check_end(leaf, page);
        self.changes.redo_all(leaf as u32, page);
    }

    /// Keeps entries to set in leaves that are not in memory: each is set when its leaf is read. The caller has marked these leaves dirty,
    /// so once read they stay in memory until they are written.
    pub fn set_later(&mut self, later: Later) {
        self.later = later;
    }

    /// What has changed in leaves.
    #[inline]
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The same, mutable.
    #[inline]
    pub fn changes_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// The same, with memory for one more change.
    #[inline]
    pub fn changes_to_add(&mut self) -> &mut Changes {
        if self.changes.is_out_of_memory() {
            self.lend();
        }
        &mut self.changes
    }

    #[cold]
    fn lend(&mut self) {
        let page = self.memory();
        self.changes.add_memory(page);
        self.paging.lend();
    }

    /// True if a leaf may be evicted: what the newest root leads to, and the changes kept of the leaf, are the leaf as it is.
    pub fn may_evict(&self, leaf: usize, page: &LeafEntries, is_dirty: bool) -> bool {
        let changes = &self.changes;
        if is_dirty && !changes.knows(leaf as u32) {
            return false;
        }
        // It may have changed back into what the medium has. Read again, it would have what the replay set once more.
        if !self.later.is_empty() && self.later.has(leaf) {
            return false;
        }
        if !changes.has(leaf as u32) {
            return self.has(leaf, page);
        }
        let mut other = self.memory();
        *other = *page;
        changes.undo_all(leaf as u32, &mut other);
        let is_there = match self.is_on_medium(leaf) {
            true => self.has(leaf, &other),
            false => other.iter().all(|&raw| raw == 0),
        };
        // A change that was not noted would be lost with the leaf, so this is checked.
        changes.redo_all(leaf as u32, &mut other);
        let is_same = *other == *page;
        debug_assert!(is_same, "a change of leaf {leaf} was not noted");
        self.give_back(other);
        is_there && is_same
    }

    /// Returns memory for a leaf, with any contents.
    pub fn memory(&self) -> Box<LeafEntries> {
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| Box::new([0; LEAF_ENTRIES]))
    }

    /// True if the newest root leads to a leaf with exactly these contents.
    pub fn has(&self, leaf: usize, page: &LeafEntries) -> bool {
        let leaf = self.number(leaf);
        match self.slots.get(leaf) {
            LeafSlot::Absent => false,
            LeafSlot::Slot0(sum) | LeafSlot::Slot1(sum) => {
                let mut block = [0; BLOCK_BYTES];
                encode(page, &mut block);
                leaf::checksum(leaf, &block, self.crc) == sum
            }
        }
    }

    /// Returns the place of a leaf according to the newest root.
    pub fn place_of(&self, leaf: Leaf) -> Option<Pba> {
        let slot = match self.slots.get(leaf) {
            LeafSlot::Absent => return None,
            LeafSlot::Slot0(_) => 0,
            LeafSlot::Slot1(_) => 1,
        };
        Some(self.superblock.leaf_slot(leaf, slot))
    }

    /// Counts a leaf that the engine read for this table.
    pub fn was_read(&self) {
        self.fetched.set(self.fetched.get() + 1);
    }

    /// Notes that the newest root leads to a leaf, of whatever table, as the map checkpoint wrote it.
    pub fn on_rooted(&mut self, leaf: Leaf) {
        if self.own.contains(&leaf.0) {
            self.changes.on_rooted(leaf.0 - self.own.start);
            self.later.forget((leaf.0 - self.own.start) as usize);
            self.rebuilt.get_mut().remove(&leaf);
            let marks = self.marks[(leaf.0 - self.own.start) as usize].get_mut();
            marks.is_rewritten = true;
        }
    }

    /// True if changed leaves may be evicted. A map checkpoint reads them for their stripe's parity.
    pub fn may_evict_changed(&self) -> bool {
        self.superblock.parity(0).is_some()
    }

    /// True if some leaf is not in memory, or soon will not be: most volumes have few leaves, and need not know what has changed.
    #[inline]
    pub fn is_nearly_full(&self) -> bool {
        let (here, most) = self.here();
        here > most - most / 8 || self.has_away()
    }

    /// Notes that a leaf is now in memory.
    pub fn came(&self, leaf: usize) {
        self.paging.came();
        let marks = self.marks[leaf].get();
        self.marks[leaf].set(Marks {
            has_turn: true,
            is_touched: true,
            ..marks
        });
        if !marks.has_turn {
            self.turns.borrow_mut().push_back(leaf as u32);
        }
    }

    /// Notes that a leaf was evicted, and reuses its memory.
    pub fn took(&self, page: Box<LeafEntries>) {
        self.went();
        self.left_out();
        self.give_back(page);
    }

    /// Notes that one more leaf is only on the medium.
    pub fn left_out(&self) {
        self.paging.left_out();
    }

    /// Notes that a leaf that was only on the medium is in memory. A leaf that was damaged when the volume was opened was never counted.
    pub fn came_back(&self, leaf: usize) {
        self.paging.came_back();
        self.came(leaf);
    }

    /// True if any leaf is only on the medium. Most volumes have none: all fit.
    #[inline]
    pub fn has_away(&self) -> bool {
        self.paging.has_away()
    }

    /// Takes back memory for other leaves.
    pub fn give_back(&self, page: Box<LeafEntries>) {
        self.spare.borrow_mut().push(page);
    }

    /// Notes that one leaf fewer is in memory.
    pub fn went(&self) {
        self.paging.went();
    }

    /// Returns how many leaves of all tables are in memory, and how many may be. A quarter may always be, however much has changed.
    pub fn here(&self) -> (usize, usize) {
        self.paging.here()
    }

    /// True if more leaves are in memory than allowed.
    pub fn is_over(&self) -> bool {
        let (here, most) = self.here();
        here > most
    }

    /// True if what has changed takes so much memory that a map checkpoint is due. `dirty`: the leaves that have to stay until they are
    /// written; `bytes`: the memory of the changes of others. As long as there is room for all leaves, none has to be written to make
    /// room.
    pub fn is_too_dirty(&self, dirty: usize, bytes: usize) -> bool {
        let fits = !self.is_over() && !self.has_away();
        !fits && dirty * BLOCK_BYTES + bytes > self.room_for_changes()
    }

    /// The memory that what has changed may take, in bytes.
    pub fn room_for_changes(&self) -> usize {
        self.paging.room_for_changes()
    }

    /// True if leaves and changes take too much memory. Then nothing more may change until the map checkpoint in flight ends. `bytes`:
    /// what they take.
    pub fn is_overfull(&self, bytes: usize) -> bool {
        self.paging.is_overfull() || bytes > 2 * self.room_for_changes()
    }

    /// The number of leaves that have a turn.
    pub fn turns(&self) -> usize {
        self.turns.borrow().len()
    }

    /// The number of leaves read.
    pub fn fetched(&self) -> u64 {
        self.fetched.get()
    }

    /// True if a leaf of any table is lost, or was found damaged since [`Shelf::damage_is_known`]. Every input asks.
    #[inline]
    pub fn has_damage(&self) -> bool {
        self.paging.has_damage()
    }

    /// Notes that damaged leaves have been reported, for all tables; `is_lost`: one is lost.
    pub fn damage_is_known(&self, is_lost: bool) {
        self.paging.set_damage(is_lost);
    }

    fn lose(&self, leaf: Leaf) {
        self.lost.set(Some(leaf));
        self.paging.set_damage(true);
    }

    /// Returns the leaves that were found damaged since the last call, and that their stripes have restored.
    pub fn take_rebuilt(&mut self) -> impl Iterator<Item = Leaf> + '_ {
        let all = self.rebuilt.get_mut().iter_mut();
        all.filter_map(|(leaf, told)| (!core::mem::replace(told, true)).then_some(*leaf))
    }

    /// Returns a leaf that could not be read, if there was one.
    pub fn lost(&self) -> Option<Leaf> {
        self.lost.get()
    }

    /// Notes that a leaf is used.
    pub fn touch(&self, leaf: usize) {
        let marks = self.marks[leaf].get();
        if !marks.is_touched {
            self.marks[leaf].set(Marks {
                is_touched: true,
                ..marks
            });
        }
    }

    /// Returns the leaf whose turn it is to be evicted, if there are more than allowed, and takes it out of the order of turns.
    pub fn next(&mut self) -> Option<usize> {
        let (here, most) = self.here();
        if here <= most {
            return None;
        }
        let leaf = self.turns.get_mut().pop_front()? as usize;
        self.marks[leaf].get_mut().has_turn = false;
        Some(leaf)
    }

    /// True if a leaf was used since its last turn.
    pub fn was_touched(&mut self, leaf: usize) -> bool {
        core::mem::take(&mut self.marks[leaf].get_mut().is_touched)
    }

    /// Gives a leaf another turn: it stays in memory for now.
    pub fn stays(&mut self, leaf: usize) {
        self.marks[leaf].get_mut().has_turn = true;
        self.turns.get_mut().push_back(leaf as u32);
    }
}

/// Decodes a leaf from its block.
pub(super) fn decode(bytes: &[u8; BLOCK_BYTES], page: &mut LeafEntries) {
    for (entry, raw) in page.iter_mut().zip(bytes.chunks_exact(4)) {
        *entry = u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]);
    }
}

/// Encodes a leaf's block.
pub(super) fn encode(page: &LeafEntries, out: &mut [u8]) {
    for (bytes, raw) in out.chunks_exact_mut(4).zip(page) {
        bytes.copy_from_slice(&raw.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::paging::Nodes;
    use super::*;
    use crate::addr::Lba;
    use crate::entry::Entry;
    use crate::format::geometry::{SMALL, plan};
    use alloc::sync::Arc;
    use crc32c::crc32c as crc;

    struct Nothing;

    impl Nodes for Nothing {
        fn read(&self, _: Pba, _: &mut [u8; BLOCK_BYTES]) -> bool {
            false
        }
    }

    /// A request may have undone what a replay set in the leaf, so that the leaf equals what the medium has. Read again, it would be set
    /// once more.
    #[test]
    fn a_leaf_with_entries_of_a_replay_stays_until_the_medium_has_them() {
        let volume = plan(&SMALL).unwrap_or_else(|error| panic!("{error}"));
        let page = [0; LEAF_ENTRIES];
        let mut block = [0; BLOCK_BYTES];
        encode(&page, &mut block);
        let slot = LeafSlot::Slot0(leaf::checksum(Leaf(0), &block, crc));
        let slots = Slots::from(vec![slot; volume.leaves() as usize]);
        let paging = Paging::new(Arc::new(Nothing), 0);
        let mut shelf = Shelf::new(paging, &volume, &slots, 0..1, crc);
        assert!(shelf.may_evict(0, &page, false));
        let mut later = Later::default();
        later.add(Lba(5), Entry::Zero);
        shelf.set_later(later);
        assert!(!shelf.may_evict(0, &page, false));
        shelf.on_rooted(Leaf(0));
        assert!(shelf.may_evict(0, &page, false));
    }
}
