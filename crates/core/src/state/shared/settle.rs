//! Recovery's visit of all pages: it counts their owners, and settles each by the count.

use super::pages::{PARTS, Uses};
use super::{Shared, pba_of};
use crate::addr::{Lba, Pba, Vba};
use crate::by_pba::ByPba;
use crate::entry::LEAF_ENTRIES;
use crate::format::superblock::SegmentArea;
use crate::state::bounds::Bounds;
use alloc::vec::Vec;

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

    /// Reads the last leaves, to find which number is the last that has a page: those after it were never used.
    pub(in crate::state) fn end_at_last_page(&mut self) {
        self.pages.end_at_last_page();
    }

    /// Reads leaves into memory as long as there is room.
    pub(in crate::state) fn bring_while_room(&self) {
        self.pages.bring_while_room();
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

    /// Visits all pages whose owners recovery has counted, in the order of their numbers.
    ///
    /// # Errors
    /// The number of a page that has no address, or is not of its owners' kind (whole or parts), or is at an address that `may_be`
    /// refuses.
    pub(in crate::state) fn visit_owned(
        &self,
        mut may_be: impl FnMut(Vba, Pba) -> bool,
    ) -> Result<(), Vba> {
        let mut places = self.pages.leaves().memory();
        for piece in 0..self.pages.pieces() {
            self.pages.read_places(piece, &mut places);
            for (number, &place) in self.pages.numbers_of(piece).zip(places.iter()) {
                let uses = self.pages.uses(number);
                let is_one = place != 0 && uses.of_parts == (place & PARTS != 0);
                if uses.is_any() && !(is_one && may_be(Vba(number), pba_of(place))) {
                    return Err(Vba(number));
                }
            }
        }
        Ok(())
    }

    /// Settles pages after recovery has counted the owners: pages with one owner become plain (they are returned), pages without owners
    /// are freed, and numbers in between are free. This also decides which number is found at a whole page's address: a leaf may still
    /// hold a freed number besides the number that took over its page. Also returns the freed pages of parts with numbers from `fresh` on.
    pub(in crate::state) fn settle(&mut self, fresh: u32) -> (Vec<(Lba, Pba)>, Vec<Vba>) {
        let (mut plain, mut given_up) = (Vec::new(), Vec::new());
        let is_whole = |uses: Uses| !uses.of_parts && uses.owners > 1;
        let numbers = 0..self.pages.len() as u32;
        let whole = numbers.filter(|number| is_whole(self.pages.uses(*number)));
        self.at = ByPba::with_room(whole.count());
        let mut places = self.pages.leaves().memory();
        for piece in 0..self.pages.pieces() {
            self.pages.read_places(piece, &mut places);
            for (number, &place) in self.pages.numbers_of(piece).zip(places.iter()) {
                let (uses, pba) = (self.pages.uses(number), pba_of(place));
                if uses.of_parts {
                    self.packed += 1;
                } else if is_whole(uses) {
                    self.at.insert(pba, number);
                    self.whole += 1;
                } else {
                    if uses.owners == 1 {
                        plain.push((Lba(uses.xor), pba));
                        self.owned -= 1;
                    }
                    if number >= fresh && place & PARTS != 0 {
                        given_up.push(Vba(number));
                    }
                    self.free_page(Vba(number), pba);
                }
            }
        }
        (plain, given_up)
    }

    /// Lets pages of parts at these addresses be found without a summary from now on.
    pub(in crate::state) fn find_pages_of_parts(&mut self, is_one_of_these: impl Fn(Pba) -> bool) {
        let mut places = self.pages.leaves().memory();
        for piece in 0..self.pages.pieces() {
            if !self.pages.has_uses(piece) {
                continue;
            }
            self.pages.read_places(piece, &mut places);
            for (number, &place) in self.pages.numbers_of(piece).zip(places.iter()) {
                if self.pages.uses(number).of_parts && is_one_of_these(pba_of(place)) {
                    self.at.insert(pba_of(place), number);
                }
            }
        }
    }
}
