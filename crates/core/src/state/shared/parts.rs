//! Pages of parts: who leads into them. LBAs do, and deltas do, which need what they are a difference to.
//!
//! A page is given up when nothing leads into it any more, and its deltas with it; so what only they need is given up as well. A
//! delta needs a page of an older chunk (`engine::delta`), so there is no circle, and this ends.

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

    /// Pages that deltas need, and how many of them are kept for that alone.
    #[must_use]
    pub fn bases(&self) -> (u64, u64) {
        (self.bases, self.orphans)
    }

    /// Whether deltas need parts of a page.
    #[must_use]
    pub fn is_base(&self, vba: Vba) -> bool {
        let page = self.pages.get(vba.0);
        page.is_some_and(|page| page.has_parts() && page.xor > 0)
    }

    /// Whether a page holds parts, and anything leads to one of them.
    #[must_use]
    pub fn is_owned_or_needed(&self, vba: Vba) -> bool {
        let page = self.pages.get(vba.0);
        page.is_some_and(|page| page.has_parts() && page.is_needed())
    }

    /// One more LBA is mapped to a part of the page. There are fewer LBAs than a count can hold.
    pub(in crate::state) fn add_part(&mut self, vba: Vba) {
        debug_assert!(self.has_parts(vba));
        let mut page = self.pages.page(vba.0);
        self.orphans -= u64::from(page.owners == 0 && page.xor > 0);
        page.owners += 1;
        self.pages.set(vba.0, page);
        self.parts_owned += 1;
    }

    /// One fewer is. Pages that are given up by that go to `died`, with where they were: that one, and those that
    /// its deltas were the last to need.
    pub(in crate::state) fn remove_part(&mut self, vba: Vba, died: &mut Vec<(Vba, Pba)>) {
        let mut page = self.pages.page(vba.0);
        assert!(
            page.owners > 0,
            "page of parts {vba} has fewer owners than none"
        );
        page.owners -= 1;
        self.pages.set(vba.0, page);
        self.parts_owned -= 1;
        if page.owners > 0 {
            return;
        }
        if page.xor > 0 {
            self.orphans += 1;
            return;
        }
        let mut next = died.len();
        died.push((vba, Pba(u64::from(page.pba()))));
        while let Some(&(vba, _)) = died.get(next) {
            self.packed -= 1;
            self.free_page(vba);
            self.end_deltas(vba, died);
            next += 1;
        }
    }

    /// A page is given up, and its deltas with it.
    fn end_deltas(&mut self, vba: Vba, died: &mut Vec<(Vba, Pba)>) {
        for part in self.deltas.slots(vba) {
            let Some(base) = self.deltas.remove(part) else {
                continue;
            };
            let mut page = self.pages.page(base.page.0);
            assert!(page.xor > 0, "page {} is needed by delta {part}", base.page);
            page.xor -= 1;
            self.pages.set(base.page.0, page);
            if page.xor > 0 {
                continue;
            }
            self.bases -= 1;
            if page.owners == 0 {
                self.orphans -= 1;
                died.push((base.page, Pba(u64::from(page.pba()))));
            }
        }
    }

    /// `part`, of a page that somebody is about to own, is a delta that needs `base`.
    pub(in crate::state) fn add_delta(&mut self, part: PartId, base: PartId) {
        debug_assert!(
            self.deltas.base_of(base).is_none(),
            "{base} is a delta itself"
        );
        self.deltas.insert(part, base);
        self.need(base.page);
    }

    fn need(&mut self, base: Vba) {
        let mut page = self.pages.page(base.0);
        self.bases += u64::from(page.xor == 0);
        self.orphans += u64::from(page.xor == 0 && page.owners == 0);
        page.xor += 1;
        self.pages.set(base.0, page);
    }

    /// What replay says of a part.
    pub(in crate::state) fn restore_delta(&mut self, part: PartId, base: PartId) {
        self.deltas.remove(part);
        self.deltas.insert(part, base);
    }

    /// What a page's number stood for before does not matter, nor do the deltas of that.
    pub(super) fn forget_deltas(&mut self, vba: Vba) {
        for part in self.deltas.slots(vba) {
            self.deltas.remove(part);
        }
    }

    /// A part is no delta: what it needs is not there.
    pub(in crate::state) fn forget_delta(&mut self, part: PartId) {
        self.deltas.remove(part);
    }

    /// After recovery has counted the owners: counts who is needed by a delta that somebody owns, or that is in a page
    /// which is needed itself. The others are forgotten. Pages that are needed for that alone are returned; `None`: a
    /// delta's base is nowhere, or there are more than the table holds.
    pub(in crate::state) fn settle_deltas(&mut self) -> Option<Vec<Pba>> {
        let mut needed: Vec<Vba> = Vec::new();
        let mut alive: Vec<Vba> = self.deltas.iter().map(|(part, _)| part.page).collect();
        alive.sort_unstable();
        alive.dedup();
        alive.retain(|&page| self.has_parts(page) && self.owners(page) > 0);
        while let Some(page) = alive.pop() {
            let of_page: Vec<_> = self.deltas.of_page(page).collect();
            for (part, base) in of_page {
                if base.page == part.page
                    || !self.has_parts(base.page)
                    || self.deltas.base_of(base).is_some()
                {
                    return None;
                }
                let orphan = self.owners(base.page) == 0 && !self.is_base(base.page);
                self.need(base.page);
                if orphan {
                    needed.push(base.page);
                    alive.push(base.page);
                }
            }
        }
        let dead: Vec<PartId> = self.deltas.iter().map(|(part, _)| part).collect();
        for part in dead {
            let page = self.pages.get(part.page.0);
            if !page.is_some_and(|page| page.has_parts() && page.is_needed()) {
                self.deltas.remove(part);
            }
        }
        let pbas = needed.into_iter().map(|page| self.pba(page)).collect();
        self.deltas.compact().then_some(pbas)
    }
}
