//! Checks the map that a rescue has made. Each entry has to lead to a block inside a segment, no block may be used twice, and no segment
//! may have more live blocks than it has blocks. Certain entries are checked first; guesses get the blocks that are left.

use super::super::replay::Replay;
use super::lbas::LbaSet;
use crate::addr::{Lba, Pba, Vba};
use crate::entry::{Entry, PartId};
use crate::format::summary::Owner;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::{vec, vec::Vec};

/// The blocks that checked entries lead to.
struct Led {
    /// How many of them each segment has.
    live: Vec<u32>,
    /// The number of each page.
    numbers: BTreeMap<Pba, Vba>,
    /// Pages whose deltas have been looked at.
    followed: BTreeSet<Vba>,
}

impl Replay<'_> {
    /// Unmaps entries that lead to no block of a segment, or to more blocks than the segment holds, and returns their LBAs. Forgets
    /// deltas whose base does so, because they cannot be decoded.
    pub(super) fn drop_dead_ends(&mut self, guessed: &LbaSet) -> Vec<Lba> {
        let mut led = Led {
            live: vec![0; self.superblock.segment_count() as usize],
            numbers: BTreeMap::new(),
            followed: BTreeSet::new(),
        };
        let mut dead = Vec::new();
        for is_guess in [false, true] {
            let of_rank = self.state.map().iter();
            let of_rank = of_rank.filter(|(lba, _)| guessed.contains(*lba) == is_guess);
            let mut pages = Vec::new();
            for (lba, entry) in of_rank {
                match (entry, self.leads_somewhere(&mut led, entry)) {
                    (_, false) => dead.push(lba),
                    (Entry::Packed(vba, _), true) => pages.push(vba),
                    _ => {}
                }
            }
            self.drop_dead_deltas(&mut led, pages);
        }
        for &lba in &dead {
            self.state.doubt(lba, 1);
        }
        dead
    }

    fn leads_somewhere(&self, led: &mut Led, entry: Entry) -> bool {
        match entry {
            Entry::Unmapped | Entry::Zero => true,
            Entry::Plain(pba) => self.has_room(led, pba),
            Entry::Shared(vba) => self.is_page(led, vba, false),
            Entry::Packed(vba, _) => self.is_page(led, vba, true),
        }
    }

    /// True if a number stands for a page, and no other number stands for the same page.
    fn is_page(&self, led: &mut Led, vba: Vba, parts: bool) -> bool {
        let shared = self.state.shared();
        if !shared.is_placed(vba) || shared.has_parts(vba) != parts {
            return false;
        }
        let pba = shared.pba(vba);
        match led.numbers.get(&pba).copied() {
            Some(number) => number == vba,
            None if self.has_room(led, pba) => {
                led.numbers.insert(pba, vba);
                true
            }
            None => false,
        }
    }

    /// Counts a block, if its segment has room for it.
    fn has_room(&self, led: &mut Led, pba: Pba) -> bool {
        let Some((segment, _)) = self.superblock.segment_of(pba) else {
            return false;
        };
        let live = &mut led.live[segment.0 as usize];
        let fits = *live < self.superblock.usable_blocks();
        *live += u32::from(fits);
        fits
    }

    /// Checks the deltas of these pages, and of the pages that they need.
    fn drop_dead_deltas(&mut self, led: &mut Led, mut pages: Vec<Vba>) {
        while let Some(page) = pages.pop() {
            if !led.followed.insert(page) {
                continue;
            }
            let deltas: Vec<_> = self.state.shared().deltas().of_page(page).collect();
            for (part, base) in deltas {
                match self.is_base(led, part, base) {
                    true => pages.push(base.page),
                    false => self.state.forget_delta(part),
                }
            }
        }
    }

    /// True if the base of a delta exists. A page of parts keeps its number for as long as it exists, and its block's tag names the
    /// number.
    fn is_base(&self, led: &mut Led, part: PartId, base: PartId) -> bool {
        let shared = self.state.shared();
        let is_written_over = shared.is_placed(base.page)
            && self
                .tag_of(shared.pba(base.page))
                .is_some_and(|owner| owner != Owner::Vba(base.page));
        base.page != part.page
            && shared.deltas().base_of(base).is_none()
            && !is_written_over
            && self.is_page(led, base.page, true)
    }

    /// The owner that a block had when it was written, if that is known of its segment.
    fn tag_of(&self, pba: Pba) -> Option<Owner> {
        let (segment, offset) = self.superblock.segment_of(pba)?;
        let (_, tags) = self.tags.iter().rev().find(|(of, _)| *of == segment)?;
        let owner = tags[offset as usize].owner;
        (owner != Owner::None).then_some(owner)
    }
}
