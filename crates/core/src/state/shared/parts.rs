//! The uses of pages of parts: LBAs own parts, and deltas need parts as their bases.
//!
//! A page is given up when it has no uses any more. Its deltas end with it, so pages that only these deltas needed are given up as well.
//! A delta needs a page of an older chunk (`policy::delta`), so there is no cycle, and this ends.

use super::Shared;
use crate::addr::{Pba, Vba};
use crate::entry::PartId;
use crate::state::deltas::Deltas;
use alloc::vec::Vec;

impl Shared {
    /// Which parts are deltas.
    #[must_use]
    pub fn deltas(&self) -> &Deltas {
        &self.deltas
    }

    /// As [`Shared::deltas`], for map checkpoints.
    pub(in crate::state) fn deltas_mut(&mut self) -> &mut Deltas {
        &mut self.deltas
    }

    /// Returns the number of pages that deltas need, and how many of these are kept only for deltas.
    #[must_use]
    pub fn bases(&self) -> (u64, u64) {
        (self.bases, self.orphans)
    }

    /// True if deltas need parts of a page.
    #[must_use]
    pub fn is_base(&self, vba: Vba) -> bool {
        let uses = self.pages.uses(vba.0);
        uses.of_parts && uses.xor > 0
    }

    /// True if a page holds parts, and one of them is owned, or needed by a delta.
    #[must_use]
    pub fn is_owned_or_needed(&self, vba: Vba) -> bool {
        let uses = self.pages.uses(vba.0);
        uses.of_parts && uses.is_any()
    }

    /// Maps one more LBA to a part of the page. There are fewer LBAs than a count can hold.
    pub(in crate::state) fn add_part(&mut self, vba: Vba) {
        let mut uses = self.pages.uses(vba.0);
        self.orphans -= u64::from(uses.owners == 0 && uses.xor > 0);
        uses.owners += 1;
        uses.of_parts = true;
        self.pages.set_uses(vba.0, uses);
        self.parts_owned += 1;
    }

    /// Maps one LBA fewer to the page. Adds the pages that are given up by that to `died`, with their addresses: the page itself, and
    /// pages that only its deltas needed.
    pub(in crate::state) fn remove_part(&mut self, vba: Vba, died: &mut Vec<(Vba, Pba)>) {
        let mut uses = self.pages.uses(vba.0);
        assert!(
            uses.owners > 0,
            "page of parts {vba} has fewer owners than none"
        );
        uses.owners -= 1;
        self.pages.set_uses(vba.0, uses);
        self.parts_owned -= 1;
        if uses.owners > 0 {
            return;
        }
        if uses.xor > 0 {
            self.orphans += 1;
            return;
        }
        let mut next = died.len();
        died.push((vba, self.pba(vba)));
        while let Some(&(vba, pba)) = died.get(next) {
            self.packed -= 1;
            self.free_page(vba, pba);
            self.end_deltas(vba, died);
            next += 1;
        }
    }

    /// Ends the deltas of a page that is given up.
    fn end_deltas(&mut self, vba: Vba, died: &mut Vec<(Vba, Pba)>) {
        for part in self.deltas.slots(vba) {
            let Some(base) = self.deltas.remove(part) else {
                continue;
            };
            let mut uses = self.pages.uses(base.page.0);
            assert!(uses.xor > 0, "page {} is needed by delta {part}", base.page);
            uses.xor -= 1;
            self.pages.set_uses(base.page.0, uses);
            if uses.xor > 0 {
                continue;
            }
            self.bases -= 1;
            if uses.owners == 0 {
                self.orphans -= 1;
                died.push((base.page, self.pba(base.page)));
            }
        }
    }

    /// Makes `part`, of a page that is about to be owned, a delta that needs `base`.
    pub(in crate::state) fn add_delta(&mut self, part: PartId, base: PartId) {
        debug_assert!(
            self.deltas.base_of(base).is_none(),
            "{base} is a delta itself"
        );
        self.deltas.insert(part, base);
        self.need(base.page);
    }

    fn need(&mut self, base: Vba) {
        let mut uses = self.pages.uses(base.0);
        self.bases += u64::from(uses.xor == 0);
        self.orphans += u64::from(uses.xor == 0 && uses.owners == 0);
        uses.xor += 1;
        uses.of_parts = true;
        self.pages.set_uses(base.0, uses);
    }

    /// Replays a delta.
    pub(in crate::state) fn restore_delta(&mut self, part: PartId, base: PartId) {
        self.deltas.remove(part);
        self.deltas.insert(part, base);
    }

    /// Forgets a delta whose base does not exist.
    pub(in crate::state) fn forget_delta(&mut self, part: PartId) {
        self.deltas.remove(part);
    }

    /// Settles deltas after recovery has counted the owners. Counts the bases of deltas that are owned, or whose page is itself needed, and
    /// forgets the other deltas. Returns the pages that only deltas need; `unowned` says which pages of parts nobody owns. `None`: a
    /// delta's base does not exist, or there are more deltas than the table holds.
    pub(super) fn settle_deltas(&mut self, unowned: impl Fn(Vba) -> bool) -> Option<Vec<Vba>> {
        let mut needed: Vec<Vba> = Vec::new();
        for cell in 0..self.deltas.cells() {
            if let Some((part, base)) = self.deltas.at(cell)
                && self.owners(part.page) > 0
                && self.has_parts(part.page)
            {
                self.settle_delta(part, base, &unowned, &mut needed)?;
            }
        }
        let mut next = 0;
        while let Some(&page) = needed.get(next) {
            let of_page: Vec<_> = self.deltas.of_page(page).collect();
            for (part, base) in of_page {
                self.settle_delta(part, base, &unowned, &mut needed)?;
            }
            next += 1;
        }
        for cell in 0..self.deltas.cells() {
            if let Some((part, _)) = self.deltas.at(cell)
                && !self.is_owned_or_needed(part.page)
            {
                self.deltas.remove(part);
            }
        }
        self.deltas.compact().then_some(needed)
    }

    fn settle_delta(
        &mut self,
        part: PartId,
        base: PartId,
        unowned: impl Fn(Vba) -> bool,
        needed: &mut Vec<Vba>,
    ) -> Option<()> {
        let is_used = self.is_used(base.page);
        let is_there = match is_used {
            true => self.has_parts(base.page),
            false => unowned(base.page),
        };
        if base.page == part.page || !is_there || self.deltas.base_of(base).is_some() {
            return None;
        }
        self.need(base.page);
        if !is_used {
            needed.push(base.page);
        }
        Some(())
    }
}
