//! After recovery, the owners of all pages are counted, and each page is settled by its owners.

use super::pages::PARTS;
use super::{Shared, pba_of};
use crate::addr::{BLOCK_BYTES, Lba, Pba, Vba};
use crate::by_pba::ByPba;
use crate::entry::LEAF_ENTRIES;
use crate::format::superblock::SegmentArea;
use crate::state::bounds::Bounds;
use crate::state::settling::{Blocks, Fault, Settling, Standing};

impl Shared {
    /// Counts an owner of a whole page during recovery; false if the number does not stand for a whole page.
    #[must_use]
    pub(in crate::state) fn count_owner(&mut self, vba: Vba, lba: Lba) -> bool {
        let uses = self.pages.uses(vba.0);
        let may_be = (vba.0 as usize) < self.pages.len() && !uses.of_parts;
        may_be && self.add(vba, lba)
    }

    /// The same for a part.
    #[must_use]
    pub(in crate::state) fn count_part(&mut self, vba: Vba) -> bool {
        let uses = self.pages.uses(vba.0);
        let may_be = (vba.0 as usize) < self.pages.len() && (uses.of_parts || !uses.is_any());
        if may_be {
            self.add_part(vba);
        }
        may_be
    }

    /// Takes note of a leaf that is on the medium. It is not read before it is needed.
    pub(in crate::state) fn leave_on_medium(&mut self, leaf: usize) {
        let end = (leaf + 1) * LEAF_ENTRIES;
        self.pages.lengthen(end.min(self.limit as usize));
        if let Some(shelf) = self.pages.leaves().shelf() {
            shelf.left_out();
        }
    }

    /// Reads the last leaves to find the last number that has a page. Later numbers were never used.
    pub(in crate::state) fn end_at_last_page(&mut self) {
        self.pages.end_at_last_page();
    }

    /// What leaves of the table may lead to.
    pub(in crate::state) fn bounds(&self, segments: SegmentArea) -> Bounds {
        Bounds::Pages(segments, PARTS)
    }

    /// One more than the largest number that may have a page.
    pub(in crate::state) fn numbers(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Takes back what [`Shared::count_owner`] has counted.
    pub(in crate::state) fn uncount_owner(&mut self, vba: Vba, lba: Lba) {
        let mut uses = self.pages.uses(vba.0);
        assert!(
            uses.owners > 0,
            "shared page {vba}: an owner was not counted"
        );
        uses.owners -= 1;
        uses.xor ^= lba.0;
        self.pages.set_uses(vba.0, uses);
        self.owned -= 1;
    }

    /// The same for a part.
    pub(in crate::state) fn uncount_part(&mut self, vba: Vba) {
        let mut uses = self.pages.uses(vba.0);
        assert!(
            uses.owners > 0,
            "page of parts {vba}: an owner was not counted"
        );
        uses.owners -= 1;
        self.pages.set_uses(vba.0, uses);
        self.parts_owned -= 1;
    }

    /// What a page is by its owners, as far as they are counted.
    pub(in crate::state) fn standing(&self, vba: Vba) -> Standing {
        match self.pages.uses(vba.0) {
            uses if !uses.is_any() => Standing::Free,
            uses if uses.of_parts => Standing::Parts,
            uses if uses.owners == 1 => Standing::Alone(Lba(uses.xor)),
            _ => Standing::Whole,
        }
    }

    /// The number of leaves that the table has.
    pub(in crate::state) fn leaf_count(&self) -> usize {
        self.pages.pieces()
    }

    /// Makes room for the whole pages that settling will find.
    pub(in crate::state) fn expect_whole(&mut self) {
        let numbers = (0..self.numbers()).map(Vba);
        let whole = numbers.filter(|number| self.standing(*number) == Standing::Whole);
        self.at = ByPba::with_room(whole.count());
    }

    /// Settles the pages of a leaf after all owners are counted: those without owners are free, whole ones with several are found by
    /// their addresses from now on. `block` is what the medium has of the leaf, if that was read: it stays in memory if there is room.
    pub(in crate::state) fn settle_leaf(
        &mut self,
        leaf: usize,
        block: Option<&[u8; BLOCK_BYTES]>,
        settling: &mut Settling,
        blocks: &mut Blocks<'_>,
    ) -> Result<(), Fault> {
        let mut places = [0; LEAF_ENTRIES];
        self.pages.read_places(leaf, block, &mut places);
        let numbers = self.pages.numbers_of(leaf);
        if numbers.len() < LEAF_ENTRIES {
            settling.end_at(Vba(numbers.end));
        }
        for (number, place) in numbers.zip(places) {
            self.settle_at(Vba(number), place, settling, blocks)?;
        }
        Ok(())
    }

    /// Settles the numbers that were added to settled leaves and that no page has got.
    pub(in crate::state) fn settle_ends(
        &mut self,
        settling: &mut Settling,
        blocks: &mut Blocks<'_>,
    ) -> Result<(), Fault> {
        for end in settling.take_ends() {
            let of_leaf = self.pages.numbers_of(end.0 as usize / LEAF_ENTRIES);
            for number in (end.0..of_leaf.end).map(Vba) {
                if !self.is_used(number) {
                    self.settle(number, settling, blocks)?;
                }
            }
        }
        Ok(())
    }

    /// Settles a page of a leaf that is settled.
    pub(in crate::state) fn settle(
        &mut self,
        vba: Vba,
        settling: &mut Settling,
        blocks: &mut Blocks<'_>,
    ) -> Result<(), Fault> {
        let needs_place = settling.needs_place(vba) || self.is_used(vba);
        let place = if needs_place {
            self.pages.place(vba.0)
        } else {
            0
        };
        self.settle_at(vba, place, settling, blocks)
    }

    fn settle_at(
        &mut self,
        vba: Vba,
        place: u32,
        settling: &mut Settling,
        blocks: &mut Blocks<'_>,
    ) -> Result<(), Fault> {
        let standing = self.standing(vba);
        let of_parts = place & PARTS != 0;
        let is_one = place != 0 && of_parts == (standing == Standing::Parts);
        let pba = is_one.then_some(pba_of(place));
        settling.settle(vba, standing, pba, blocks)?;
        match standing {
            Standing::Free => {
                self.forget_content(vba);
                self.free.put_later(vba.0);
                if of_parts {
                    settling.on_unowned(vba, pba_of(place));
                }
            }
            Standing::Alone(_) => {}
            Standing::Whole => {
                self.at.insert(pba_of(place), vba.0);
                self.whole += 1;
            }
            Standing::Parts => self.packed += 1,
        }
        Ok(())
    }

    /// Takes back what settling a page has done that was of this standing.
    pub(in crate::state) fn unsettle(
        &mut self,
        vba: Vba,
        standing: Standing,
        settling: &mut Settling,
        blocks: &mut Blocks<'_>,
    ) {
        let pba = match standing {
            Standing::Free => Pba::NOWHERE,
            Standing::Alone(lba) => {
                let place = settling.place_of_alone(lba);
                place.unwrap_or_else(|| self.pba(vba))
            }
            Standing::Whole | Standing::Parts => self.pba(vba),
        };
        settling.unsettle(vba, standing, pba, blocks);
        match standing {
            Standing::Free => self.free.take_back(vba.0),
            Standing::Alone(_) => {}
            Standing::Whole => {
                self.at.remove(pba, Some(vba.0));
                self.whole -= 1;
            }
            Standing::Parts => self.packed -= 1,
        }
    }

    /// Settles deltas once all pages are settled, and the pages that only deltas need: so far they were free.
    pub(in crate::state) fn settle_needed(
        &mut self,
        settling: &mut Settling,
        blocks: &mut Blocks<'_>,
    ) -> Option<()> {
        let needed = self.settle_deltas(|page| settling.unowned(page).is_some())?;
        for page in needed {
            let place = PARTS | settling.unowned(page)?.0 as u32;
            self.unsettle(page, Standing::Free, settling, blocks);
            self.settle_at(page, place, settling, blocks).ok()?;
        }
        Some(())
    }

    /// Frees the numbers that settling has found to be free: all pages are settled.
    pub(in crate::state) fn free_waiting(&mut self) {
        self.free.put_waiting();
    }

    /// Lets pages of parts at these addresses be found without a summary from now on.
    pub(in crate::state) fn find_pages_of_parts(&mut self, is_one_of_these: impl Fn(Pba) -> bool) {
        let mut places = self.pages.leaves().memory();
        for piece in 0..self.pages.pieces() {
            if !self.pages.has_uses(piece) {
                continue;
            }
            self.pages.read_places(piece, None, &mut places);
            for (number, &place) in self.pages.numbers_of(piece).zip(places.iter()) {
                if self.pages.uses(number).of_parts && is_one_of_these(pba_of(place)) {
                    self.at.insert(pba_of(place), number);
                }
            }
        }
    }
}
