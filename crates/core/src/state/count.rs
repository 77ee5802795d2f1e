//! The census: owners and live blocks of a large volume are counted beside requests, after the volume was opened.
//!
//! A leaf of the map is counted at one instant. From then on each change of its entries is counted too; before, none is. So at any time
//! the counts are exactly those of the counted leaves, whatever requests have changed, and in whatever order leaves are counted. They are
//! lower than the whole map's. So nothing may be freed, moved or refused because of a count before the census is complete. Until then
//! records have the same effects as in a replay: pages settle at the end ([0061](../../../../docs/decisions/0061-a-census-beside-requests.md)).

use super::census::{Census, Uncounted};
use super::settle::{Seen, count_block};
use super::shelf::Shelf;
use super::{State, Unsound};
use crate::addr::{BLOCK_BYTES, Lba, Leaf};
use crate::entry::{Entry, split};
use crate::format::root::LeafSlot;
use alloc::vec::Vec;

impl State {
    /// Leaves the map and the table of pages on the medium, from which entries are read when they are needed. Call it before any leaf is
    /// loaded; false if leaves may not be evicted, and have to be loaded.
    pub(crate) fn leave_on_medium(&mut self, slots: &[LeafSlot]) -> bool {
        if !self.is_paged() {
            return false;
        }
        let is_there = |leaf: u32| slots[leaf as usize] != LeafSlot::Absent;
        for leaf in (0..self.map_leaves).filter(|&leaf| is_there(leaf)) {
            self.map.leave_on_medium(leaf as usize);
        }
        let shared = 0..self.shared_leaves;
        for leaf in shared.filter(|&leaf| is_there(self.map_leaves + leaf)) {
            self.shared.leave_on_medium(leaf as usize);
        }
        self.check_leaves(true);
        self.shared.end_at_last_page();
        true
    }

    /// Sets whether leaves are checked when they are read: until all have been counted.
    pub(super) fn check_leaves(&mut self, checks: bool) {
        let map = self.map.bounds(self.segments);
        let pages = self.shared.bounds(self.segments);
        let tables = [
            (self.map.leaves_mut(), map),
            (self.shared.leaves_mut(), pages),
        ];
        for (leaves, bounds) in tables {
            if let Some(shelf) = leaves.shelf_mut() {
                shelf.check(checks.then_some(bounds));
            }
        }
    }

    /// Begins the census, at the end of a replay; false if all has to be counted at once, because only what is found to be free makes room
    /// for the pledges' numbers, or for the deltas.
    pub(crate) fn begin_census(&mut self) -> bool {
        debug_assert!(!self.is_counted);
        self.leave_for_later();
        if !self.shared.reserve_for_log(self.pledges.len()) || !self.shared.deltas().fits() {
            return false;
        }
        self.census = Some(Census::new(self.map_leaves, self.shared.numbers()));
        true
    }

    /// Leaves the entries that a replay has yet to set to whoever reads their leaves.
    fn leave_for_later(&mut self) {
        let leaves: Vec<Lba> = self.later.leaves().collect();
        for first in leaves {
            let leaf = Leaf(split(first).0 as u32);
            if !self.map.changes_later(leaf) {
                self.catch_up(first, first);
            }
        }
        let later = core::mem::take(&mut self.later);
        if let Some(shelf) = self.map.leaves_mut().shelf_mut() {
            shelf.set_later(later);
        }
    }

    /// True if owners and live blocks are still being counted.
    #[must_use]
    #[inline]
    pub fn is_in_census(&self) -> bool {
        self.census.is_some()
    }

    /// The number of leaves that the census has yet to count.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        self.census.as_ref().map_or(0, Census::left)
    }

    /// Returns the next leaf from `from` on that the census has to count.
    pub fn next_uncounted(&self, from: Leaf) -> Option<Uncounted> {
        let leaf = self.census.as_ref()?.next(from)?;
        Some(match self.map.is_away(leaf) {
            true => Uncounted::Away(leaf),
            false => Uncounted::Here(leaf),
        })
    }

    /// Counts a leaf, unless it is counted already; `block` is what the medium has of it, if that was read.
    ///
    /// # Errors
    /// The leaf, if its entries lead to more blocks than there are, or to a page of another kind, or if it cannot be read.
    pub fn count_leaf(
        &mut self,
        leaf: Leaf,
        block: Option<&[u8; BLOCK_BYTES]>,
    ) -> Result<(), Unsound> {
        let Some(census) = &mut self.census else {
            return Ok(());
        };
        if !census.count(leaf) {
            return Ok(());
        }
        // A map that fits in memory is in memory once it is counted.
        let shelf = self.map.leaves().shelf();
        if let Some(block) = block
            && shelf.is_some_and(Shelf::has_room)
        {
            self.map.take_leaf(leaf, block);
        }
        let (segments, live, shared) = (&self.segments, &mut self.live, &mut self.shared);
        let is_read = self
            .map
            .visit_leaf(leaf.0 as usize, block, |lba, entry| match entry {
                Entry::Unmapped | Entry::Zero => true,
                Entry::Plain(pba) => count_block(segments, live, &[], pba).is_some(),
                Entry::Shared(vba) => shared.count_owner(vba, lba),
                Entry::Packed(vba, _) => shared.count_part(vba),
            });
        match is_read && self.lost_leaf().is_none() {
            true => Ok(()),
            false => Err(Unsound::Map(leaf)),
        }
    }

    /// Maps `lba` anew while not all is counted.
    #[cold]
    pub(super) fn remap_uncounted(&mut self, lba: Lba, entry: Entry) {
        if self.census.is_none() && self.sets_later(lba, entry) {
            return;
        }
        let old = self.map.set(lba, entry);
        let (leaf, _) = split(lba);
        if self.census.as_ref().is_some_and(|census| census.has(leaf)) {
            self.uncount(lba, old);
            self.count_entry(lba, entry);
        }
    }

    fn count_entry(&mut self, lba: Lba, entry: Entry) {
        let is_counted = match entry {
            Entry::Unmapped | Entry::Zero => true,
            Entry::Plain(pba) => count_block(&self.segments, &mut self.live, &[], pba).is_some(),
            Entry::Shared(vba) => self.shared.count_owner(vba, lba),
            Entry::Packed(vba, _) => self.shared.count_part(vba),
        };
        debug_assert!(
            is_counted,
            "{lba} is mapped to {entry:?}, which cannot be counted"
        );
    }

    fn uncount(&mut self, lba: Lba, entry: Entry) {
        match entry {
            Entry::Unmapped | Entry::Zero => {}
            Entry::Plain(pba) => {
                if let Some((segment, _)) = self.segments.segment_of(pba) {
                    self.live.died(segment);
                }
            }
            Entry::Shared(vba) => self.shared.uncount_owner(vba, lba),
            Entry::Packed(vba, _) => self.shared.uncount_part(vba),
        }
    }

    /// Ends the census when all leaves of the map are counted: counts and settles pages. From now on [`State::apply`] keeps the counts.
    ///
    /// # Errors
    /// The table whose entries lead to more blocks than there are, or to a page without an address.
    pub fn end_census(&mut self) -> Result<(), Unsound> {
        let Some(census) = self.census.take() else {
            return Ok(());
        };
        debug_assert_eq!(census.left(), 0, "all leaves are counted");
        self.shared.bring_while_room();
        let mut seen = Seen::default();
        self.count_pages(&[], &mut seen)?;
        self.settle_pages(&[], &mut seen, census.fresh())
    }
}
