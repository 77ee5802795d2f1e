//! The end of a replay: owners and live blocks are counted from the map, so that no count is too low.

use super::bounds::Unwritten;
use super::live::Live;
use super::{Event, State, Unsound};
use crate::addr::{Lba, Leaf, Pba, Segment, Vba};
use crate::entry::{Entry, split};
use crate::format::superblock::SegmentArea;
use alloc::{collections::BTreeMap, vec, vec::Vec};

impl State {
    /// Counts; from now on [`State::apply`] keeps the counts.
    ///
    /// # Errors
    /// The table whose entries lead past the end of the log, to more blocks than there are, or to a page without an address.
    pub fn settle(&mut self, unwritten: &Unwritten) -> Result<(), Unsound> {
        debug_assert!(!self.is_counted);
        self.catch_up(Lba(0), Lba(u64::MAX));
        self.count_owners(unwritten)?;
        let mut seen = Seen::default();
        self.count_pages(unwritten, u32::MAX, &mut seen)?;
        self.settle_pages(unwritten, &mut seen, u32::MAX)
    }

    /// Settles pages after their owners were counted. An event is made for each page of parts with a number from `fresh` on that nothing
    /// leads to.
    pub(super) fn settle_pages(
        &mut self,
        unwritten: &Unwritten,
        seen: &mut Seen,
        fresh: u32,
    ) -> Result<(), Unsound> {
        for pba in self.shared.settle_deltas().ok_or(Unsound::Deltas)? {
            if !seen.is_first(&self.segments, pba) {
                return Err(Unsound::Deltas);
            }
            if unwritten.has(&self.segments, pba) {
                return Err(Unsound::Deltas);
            }
            count_block(&self.segments, &mut self.live, pba).ok_or(Unsound::Deltas)?;
        }
        if !self.shared.reserve_for_log(self.pledges.len()) {
            return Err(Unsound::Shared);
        }
        let (plain, given_up) = self.shared.settle(fresh);
        for (lba, pba) in plain {
            self.map.set(lba, Entry::Plain(pba));
            self.strays.insert(pba, lba);
        }
        self.events.extend(given_up.into_iter().map(Event::GivenUp));
        self.check_leaves(false);
        self.is_counted = true;
        Ok(())
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

    /// Counts the blocks of the pages that have owners. Those with numbers from `fresh` on may be in what was `unwritten`.
    pub(super) fn count_pages(
        &mut self,
        unwritten: &Unwritten,
        fresh: u32,
        seen: &mut Seen,
    ) -> Result<(), Unsound> {
        // Pages are visited leaf by leaf. The order of their owners would jump between leaves.
        let mut is_twice = false;
        let (segments, live) = (&self.segments, &mut self.live);
        let shared = &self.shared;
        let counted = shared.visit_owned(|page, pba| {
            is_twice |= !seen.is_first(&self.segments, pba);
            let is_written = page.0 >= fresh || !unwritten.has(segments, pba);
            !is_twice && is_written && count_block(segments, live, pba).is_some()
        });
        if let Some(leaf) = self.lost_leaf() {
            return Err(Unsound::Map(leaf));
        }
        counted.map_err(|page| match is_twice {
            true => Unsound::Shared,
            false => self.blame(page),
        })
    }

    /// The first leaf of the map that names a page.
    fn blame(&self, page: Vba) -> Unsound {
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

/// Where pages have been found, a bit for each block of the segments that have any: two pages at one place are an error.
#[derive(Default)]
pub(super) struct Seen(BTreeMap<Segment, Vec<u64>>);

impl Seen {
    fn is_first(&mut self, segments: &SegmentArea, pba: Pba) -> bool {
        let Some((segment, offset)) = segments.segment_of(pba) else {
            return true;
        };
        let words = (segments.usable() as usize).div_ceil(64);
        let blocks = (self.0.entry(segment)).or_insert_with(|| vec![0; words]);
        let (word, bit) = (&mut blocks[offset as usize / 64], 1 << (offset % 64));
        let is_first = *word & bit == 0;
        *word |= bit;
        is_first
    }
}

/// Counts a block as live; fails if the segment would have more live blocks than it has blocks.
pub(super) fn count_block(segments: &SegmentArea, live: &mut Live, pba: Pba) -> Option<()> {
    let (segment, _) = segments.segment_of(pba)?;
    (live.born(segment) <= segments.usable()).then_some(())
}
