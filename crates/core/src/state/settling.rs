//! How far pages are settled: by its owners a page is shared, or belongs to one LBA, or is free. Leaves of the table of pages may be
//! settled in any order, each once.

use super::bounds::Unwritten;
use super::live::Live;
use crate::addr::{Lba, Leaf, Pba, Segment, Vba};
use crate::entry::{LEAF_ENTRIES, split};
use crate::format::superblock::SegmentArea;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{vec, vec::Vec};

/// What a page is by its owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing leads to it: its number is free.
    Free,
    /// A whole page that only this LBA owns: its entry becomes plain.
    Alone(Lba),
    /// A whole page with several owners.
    Whole,
    /// A page of parts that is owned or needed.
    Parts,
}

/// Why a page cannot be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It has no address, or one that it cannot have, or is not of its owners' kind.
    Page(Vba),
    /// Another page is at its address.
    Twice,
}

/// The blocks that live pages are counted in.
pub(super) struct Blocks<'a> {
    pub segments: &'a SegmentArea,
    pub live: &'a mut Live,
}

/// Which pages are settled, and what follows once all are.
pub(super) struct Settling {
    unwritten: Unwritten,
    fresh: u32,
    leaves: Vec<bool>,
    settled: usize,
    /// The numbers after the last ones of leaves that were not full when they were settled.
    ends: Vec<Vba>,
    seen: Seen,
    /// LBAs that own a page alone: its number, and where it is.
    alone: BTreeMap<Lba, (Vba, Pba)>,
    given_up: BTreeSet<Vba>,
    /// A bit for each page that deltas may need.
    bases: Vec<u64>,
    /// Where those of these pages are that nobody owns.
    unowned: BTreeMap<Vba, Pba>,
    fault: Option<Fault>,
}

impl Settling {
    /// Nothing is settled. Pages with numbers from `fresh` on were made since the volume was opened; others are not in what was
    /// `unwritten` then.
    pub fn new(fresh: u32, unwritten: Unwritten) -> Self {
        Self {
            unwritten,
            fresh,
            leaves: Vec::new(),
            settled: 0,
            ends: Vec::new(),
            seen: Seen::default(),
            alone: BTreeMap::new(),
            given_up: BTreeSet::new(),
            bases: Vec::new(),
            unowned: BTreeMap::new(),
            fault: None,
        }
    }

    /// Marks a leaf settled; false if it was already.
    pub fn begin(&mut self, leaf: usize) -> bool {
        if self.leaves.len() <= leaf {
            self.leaves.resize(leaf + 1, false);
        }
        let was_settled = core::mem::replace(&mut self.leaves[leaf], true);
        self.settled += usize::from(!was_settled);
        !was_settled
    }

    /// True if the leaf of a page is settled.
    pub fn has(&self, page: Vba) -> bool {
        let leaf = page.0 as usize / LEAF_ENTRIES;
        self.leaves.get(leaf).is_some_and(|settled| *settled)
    }

    /// Notes that a leaf was settled up to this number, the last one so far.
    pub fn end_at(&mut self, end: Vba) {
        self.ends.push(end);
    }

    /// Takes the numbers noted by [`Settling::end_at`].
    pub fn take_ends(&mut self) -> Vec<Vba> {
        core::mem::take(&mut self.ends)
    }

    /// How many leaves are settled.
    pub fn settled(&self) -> usize {
        self.settled
    }

    /// Returns the first of so many leaves, from `from` on, that is not settled.
    pub fn next(&self, from: usize, leaves: usize) -> Option<usize> {
        let mut rest = match self.settled >= leaves {
            true => leaves..leaves,
            false => from..leaves,
        };
        rest.find(|&leaf| !self.leaves.get(leaf).is_some_and(|settled| *settled))
    }

    /// Settles a page at this address, if it has one.
    pub fn settle(
        &mut self,
        page: Vba,
        standing: Standing,
        place: Option<Pba>,
        blocks: &mut Blocks<'_>,
    ) -> Result<(), Fault> {
        if standing == Standing::Free {
            return Ok(());
        }
        let pba = place.ok_or(Fault::Page(page))?;
        if !self.seen.is_first(blocks.segments, pba) {
            return Err(Fault::Twice);
        }
        let is_written = page.0 >= self.fresh || !self.unwritten.has(blocks.segments, pba);
        let is_counted = is_written && count_block(blocks.segments, blocks.live, pba).is_some();
        if let Standing::Alone(lba) = standing {
            self.alone.insert(lba, (page, pba));
        }
        is_counted.then_some(()).ok_or(Fault::Page(page))
    }

    /// Takes back what [`Settling::settle`] has done.
    pub fn unsettle(&mut self, page: Vba, standing: Standing, pba: Pba, blocks: &mut Blocks<'_>) {
        self.given_up.remove(&page);
        self.unowned.remove(&page);
        if standing == Standing::Free {
            return;
        }
        if let Standing::Alone(lba) = standing {
            self.alone.remove(&lba);
        }
        self.seen.forget(blocks.segments, pba);
        if let Some((segment, _)) = blocks.segments.segment_of(pba) {
            blocks.live.died(segment);
        }
    }

    /// Notes that a delta may need a page.
    pub fn note_base(&mut self, page: Vba) {
        let word = page.0 as usize / 64;
        if self.bases.len() <= word {
            self.bases.resize(word + 1, 0);
        }
        self.bases[word] |= 1 << (page.0 % 64);
    }

    fn is_base(&self, page: Vba) -> bool {
        let word = self.bases.get(page.0 as usize / 64);
        word.is_some_and(|word| word >> (page.0 % 64) & 1 != 0)
    }

    /// True if it matters where a page is that nobody owns.
    pub fn needs_place(&self, page: Vba) -> bool {
        page.0 >= self.fresh || self.is_base(page)
    }

    /// Notes a page of parts that nobody owns. Deltas may need it; if not, and it was made since the volume was opened, it is given up.
    pub fn on_unowned(&mut self, page: Vba, pba: Pba) {
        if page.0 >= self.fresh {
            self.given_up.insert(page);
        }
        if self.is_base(page) {
            self.unowned.insert(page, pba);
        }
    }

    /// Where a page of parts is that deltas may need, and that nobody owns.
    pub fn unowned(&self, page: Vba) -> Option<Pba> {
        self.unowned.get(&page).copied()
    }

    /// The new pages of parts that nothing leads to, in the order of their numbers.
    pub fn into_given_up(self) -> impl Iterator<Item = Vba> {
        self.given_up.into_iter()
    }

    /// Returns the first leaf of the map, from `from` on, with an LBA that owns a page alone.
    pub fn next_alone(&self, from: Leaf) -> Option<Leaf> {
        let first = Lba(u64::from(from.0) * LEAF_ENTRIES as u64);
        let (lba, _) = self.alone.range(first..).next()?;
        Some(Leaf(split(*lba).0 as u32))
    }

    /// Where the page is that an LBA owns alone.
    pub fn place_of_alone(&self, lba: Lba) -> Option<Pba> {
        self.alone.get(&lba).map(|(_, pba)| *pba)
    }

    /// The LBAs of a leaf of the map that own pages alone, and these pages.
    pub fn alone_in(&self, leaf: Leaf) -> Vec<(Lba, (Vba, Pba))> {
        let first = u64::from(leaf.0) * LEAF_ENTRIES as u64;
        let of_leaf = self
            .alone
            .range(Lba(first)..Lba(first + LEAF_ENTRIES as u64));
        of_leaf.map(|(lba, page)| (*lba, *page)).collect()
    }

    /// All of these.
    pub fn alone(&self) -> Vec<(Lba, (Vba, Pba))> {
        self.alone.iter().map(|(lba, page)| (*lba, *page)).collect()
    }

    /// Notes that a page could not be settled anew.
    pub fn set_fault(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// The first such page.
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }
}

/// Where pages have been found, a bit for each block of the segments that have any: two pages at one place are an error.
#[derive(Default)]
struct Seen(BTreeMap<Segment, Vec<u64>>);

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

    fn forget(&mut self, segments: &SegmentArea, pba: Pba) {
        if let Some((segment, offset)) = segments.segment_of(pba)
            && let Some(blocks) = self.0.get_mut(&segment)
        {
            blocks[offset as usize / 64] &= !(1 << (offset % 64));
        }
    }
}

/// Counts a block as live; fails if the segment would have more live blocks than it has blocks.
pub(super) fn count_block(segments: &SegmentArea, live: &mut Live, pba: Pba) -> Option<()> {
    let (segment, _) = segments.segment_of(pba)?;
    (live.born(segment) <= segments.usable()).then_some(())
}
