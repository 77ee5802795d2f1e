//! The end of a replay, or of a census: owners and live blocks are counted from the map, so that no count is too low, and pages are
//! settled by their owners.
//!
//! Leaves of the table of pages are settled one by one, after all owners are counted. If a request changes a page of a settled leaf, the
//! page is settled anew. So at any time exactly the pages of settled leaves are settled. This module sets aside the numbers that it finds
//! free and the pages that it finds given up, until all pages are settled.

use super::bounds::Unwritten;
use super::census::Census;
use super::settling::{Blocks, Fault, Settling, Standing, count_block};
use super::shared::Shared;
use super::shelf::Shelf;
use super::{Event, State, Unsound};
use crate::addr::{BLOCK_BYTES, Lba, Leaf, Pba, Vba};
use crate::entry::{Entry, split};

impl State {
    /// Counts; from now on [`State::apply`] keeps the counts.
    ///
    /// # Errors
    /// The table whose entries lead past the end of the log, to more blocks than there are, or to a page without an address.
    pub fn settle(&mut self, unwritten: &Unwritten) -> Result<(), Unsound> {
        debug_assert!(!self.is_counted);
        self.catch_up(Lba(0), Lba(u64::MAX));
        self.count_owners(unwritten)?;
        self.shared.expect_whole();
        self.settle_from(Census::of_pages(unwritten.clone()));
        self.end_census()
    }

    /// Begins a census. The bases of deltas are known.
    pub(super) fn settle_from(&mut self, mut census: Census) {
        let deltas = self.shared.deltas().iter();
        deltas.for_each(|(_, base)| census.settling_mut().note_base(base.page));
        self.census = Some(census);
    }

    /// Ends the census when all leaves of the map are counted: settles what is not settled. From now on [`State::apply`] keeps the counts.
    ///
    /// # Errors
    /// The table whose entries lead to more blocks than there are, or to a page without an address.
    pub fn end_census(&mut self) -> Result<(), Unsound> {
        if self.census.is_none() {
            return Ok(());
        }
        let settled = self.settle_rest();
        let census = self.census.take();
        settled?;
        self.shared.free_waiting();
        let given_up = census.into_iter().flat_map(Census::into_given_up);
        self.events.extend(given_up.map(Event::GivenUp));
        self.check_leaves(false);
        self.is_counted = true;
        Ok(())
    }

    fn settle_rest(&mut self) -> Result<(), Unsound> {
        for leaf in 0..self.shared.leaf_count() {
            self.settle_leaf(leaf, None)?;
        }
        let settled = self.with_settling(Shared::settle_ends);
        settled.map_err(|fault| self.blame(fault))?;
        let settled = self.with_settling(Shared::settle_needed);
        settled.ok_or(Unsound::Deltas)?;
        if !self.shared.reserve_for_log(self.pledges.len()) {
            return Err(Unsound::Shared);
        }
        let alone = self.with_settling(|_, settling, _| settling.alone());
        self.make_plain(&alone);
        self.is_sound()
    }

    /// Calls `change` with all that settling changes.
    fn with_settling<T>(
        &mut self,
        change: impl FnOnce(&mut Shared, &mut Settling, &mut Blocks<'_>) -> T,
    ) -> T {
        let Some(census) = &mut self.census else {
            unreachable!("pages are settled only by a census")
        };
        let mut blocks = Blocks {
            segments: &self.segments,
            live: &mut self.live,
        };
        change(&mut self.shared, census.settling_mut(), &mut blocks)
    }

    /// An error if a page could not be settled anew, or a leaf not be read.
    pub(super) fn is_sound(&self) -> Result<(), Unsound> {
        if let Some(leaf) = self.lost_leaf() {
            return Err(Unsound::Map(leaf));
        }
        let census = self.census.as_ref();
        let fault = census.and_then(|census| census.settling().fault());
        fault.map_or(Ok(()), |fault| Err(self.blame(fault)))
    }

    /// Settles the pages of a leaf, unless they are settled already. `block` is what the medium has of it, if that was read.
    pub(super) fn settle_leaf(
        &mut self,
        leaf: usize,
        block: Option<&[u8; BLOCK_BYTES]>,
    ) -> Result<(), Unsound> {
        let census = self.census.as_mut();
        debug_assert!(census.as_ref().is_none_or(|census| census.left() == 0));
        if !census.is_some_and(|census| census.settling_mut().begin(leaf)) {
            return Ok(());
        }
        let shelf = self.shared.leaves().shelf();
        if let Some(block) = block
            && shelf.is_some_and(Shelf::has_room)
        {
            self.shared.leaves_mut().take_in(leaf, block);
        }
        let settled = self.with_settling(|shared, settling, blocks| {
            shared.settle_leaf(leaf, block, settling, blocks)
        });
        self.is_sound()?;
        settled.map_err(|fault| self.blame(fault))
    }

    /// Changes how many lead into a page. If it is settled, and now is something else, it is settled anew.
    pub(super) fn change_uses<T>(&mut self, page: Vba, change: impl FnOnce(&mut Shared) -> T) -> T {
        if !self.is_settled(page) {
            return change(&mut self.shared);
        }
        let before = self.shared.standing(page);
        let changed = change(&mut self.shared);
        if self.shared.standing(page) != before {
            self.unsettle(page, before);
            self.settle_again(page);
        }
        changed
    }

    /// The same for a page that is put somewhere.
    pub(super) fn change_place<T>(
        &mut self,
        page: Vba,
        change: impl FnOnce(&mut Shared) -> T,
    ) -> T {
        if !self.is_settled(page) {
            return change(&mut self.shared);
        }
        self.unsettle(page, self.shared.standing(page));
        let changed = change(&mut self.shared);
        self.settle_again(page);
        changed
    }

    fn unsettle(&mut self, page: Vba, standing: Standing) {
        self.with_settling(|shared, settling, blocks| {
            shared.unsettle(page, standing, settling, blocks);
        });
    }

    fn settle_again(&mut self, page: Vba) {
        let settled =
            self.with_settling(|shared, settling, blocks| shared.settle(page, settling, blocks));
        if let (Err(fault), Some(census)) = (settled, &mut self.census) {
            census.settling_mut().set_fault(fault);
        }
    }

    /// Maps the LBAs that own pages alone to the pages themselves.
    pub(super) fn make_plain(&mut self, alone: &[(Lba, (Vba, Pba))]) {
        for &(lba, (page, pba)) in alone {
            if self.lost_leaf().is_some() {
                return;
            }
            self.change_uses(page, |shared| shared.uncount_owner(page, lba));
            self.map.set(lba, Entry::Plain(pba));
            let is_counted = count_block(&self.segments, &mut self.live, pba);
            debug_assert!(is_counted.is_some(), "the page at {pba} was counted");
            self.strays.insert(pba, lba);
        }
    }

    fn count_owners(&mut self, unwritten: &Unwritten) -> Result<(), Unsound> {
        let (map, shared) = (&self.map, &mut self.shared);
        let mut count = |pba| {
            let is_written = !unwritten.has(&self.segments, pba);
            is_written && count_block(&self.segments, &mut self.live, pba).is_some()
        };
        for (lba, entry) in map.iter() {
            let is_sound = match entry {
                Entry::Unmapped | Entry::Zero => true,
                Entry::Plain(pba) => count(pba),
                Entry::Shared(vba) => shared.count_owner(vba, lba),
                Entry::Packed(vba, _) => shared.count_part(vba),
            };
            if !is_sound {
                return Err(Unsound::Map(Leaf(split(lba).0 as u32)));
            }
        }
        Ok(())
    }

    /// The table that a fault is in; of a page, the first leaf of the map that names it.
    fn blame(&self, fault: Fault) -> Unsound {
        let Fault::Page(page) = fault else {
            return Unsound::Shared;
        };
        let names = |entry| match entry {
            Entry::Shared(vba) | Entry::Packed(vba, _) => vba == page,
            Entry::Unmapped | Entry::Zero | Entry::Plain(_) => false,
        };
        let mut entries = self.map.iter();
        let first = entries.find(|(_, entry)| names(*entry));
        first.map_or(Unsound::Shared, |(lba, _)| {
            Unsound::Map(Leaf(split(lba).0 as u32))
        })
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Segment;
    use crate::format::chunk::Record;
    use crate::format::geometry::{SMALL, plan};
    use crate::state::Origin;

    #[test]
    fn the_number_that_took_over_a_page_is_found_there_after_recovery() {
        let volume = plan(&SMALL).unwrap();
        let pba = volume.segment_start(Segment(0));
        for [freed, vba] in [[Vba(0), Vba(1)], [Vba(1), Vba(0)]] {
            let mut state = State::new(&volume);
            let share = |state: &mut State, lba, vba| {
                let lba = Lba(lba);
                let record = Record::Share { lba, vba, pba };
                assert_eq!(state.apply(Origin::NONE, &record), Some(()));
            };
            for (lba, vba) in [(5, freed), (6, freed), (5, vba), (6, vba)] {
                share(&mut state, lba, vba);
            }
            assert_eq!(state.settle(&Unwritten::default()), Ok(()));
            assert_eq!(state.shared().find(pba), Some(vba));
            assert_eq!((state.shared().len(), state.live().total()), (1, 1));
        }
    }
}
