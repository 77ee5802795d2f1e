//! Shared pages: VBA -> physical page, how many LBAs own it, and the XOR of those LBAs.
//!
//! When all but one owner have left, the XOR *is* the one that remains, and its map entry becomes an
//! ordinary one again (CAFTL §3.3, WOJ §3.4). Counts live in memory alone: after a crash they are
//! counted anew from the map, so they are never too low (promise 5). A freed number is not given out
//! again before the next map checkpoint is durable, because an older leaf may still name it; until then
//! its page stays in the table too, or such a leaf would lead nowhere after a crash.

mod numbers;
mod pages;
mod parts;
mod places;

use crate::addr::{BLOCK_BYTES, Lba, Leaf, Pba, Vba};
use crate::entry::{LEAF_ENTRIES, PACKED_PAGES};
use crate::seam::Fingerprint;
use crate::state::deltas::Deltas;
use crate::state::dirty::Dirty;
use crate::state::resident::Resident;
use crate::state::shelf::{decode, encode};
use alloc::vec::Vec;
use numbers::Free;
use pages::{PARTS, Pages};
use places::Places;

/// What is left of a page when an owner has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Several owners still.
    Shared,
    /// One owner: its entry becomes `Plain(pba)`.
    One(Lba, Pba),
}

/// The table of shared pages.
pub struct Shared {
    limit: u32,
    /// Numbers that recovery must find free: they are not given out.
    reserve: u32,
    pages: Pages,
    free: Free,
    at: Places,
    dirty: Dirty,
    owned: u64,
    /// Pages of parts that have an owner, and how many LBAs own one of those.
    packed: usize,
    parts_owned: u64,
    deltas: Deltas,
    /// Pages of parts that deltas need, and those of them that no LBA owns a part of.
    bases: u64,
    orphans: u64,
    /// Of each page the hash that its content has in an index, where there is one.
    hashes: Vec<u64>,
    /// Of each page the fingerprint of its content, where that is known; zeros where not. It lives as long as the
    /// page is shared: while it is, nothing changes its content.
    prints: Vec<[u8; 16]>,
}

fn limit_of(leaves: u32) -> u32 {
    leaves.saturating_mul(LEAF_ENTRIES as u32).min(1 << 30)
}

impl Shared {
    /// An empty table for at most `leaves` leaves of entries, and `delta_leaves` of deltas.
    #[must_use]
    pub(in crate::state) fn new(leaves: u32, delta_leaves: u32) -> Self {
        Self {
            limit: limit_of(leaves),
            reserve: 0,
            pages: Pages::default(),
            free: Free::default(),
            at: Places::default(),
            dirty: Dirty::new(leaves as usize),
            owned: 0,
            packed: 0,
            parts_owned: 0,
            deltas: Deltas::new(delta_leaves),
            bases: 0,
            orphans: 0,
            hashes: Vec::new(),
            prints: Vec::new(),
        }
    }

    /// There are so many leaves now: as many, or more.
    pub(in crate::state) fn lengthen(&mut self, leaves: u32, delta_leaves: u32) {
        self.limit = limit_of(leaves);
        self.dirty.lengthen(leaves as usize);
        self.deltas.lengthen(delta_leaves);
    }

    /// How many pages are shared by whole blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.at.len() - self.packed
    }

    /// How many LBAs are mapped to parts.
    #[must_use]
    pub fn parts_owned(&self) -> u64 {
        self.parts_owned
    }

    /// How many pages hold parts.
    #[must_use]
    pub fn packed(&self) -> usize {
        self.packed
    }

    /// How many LBAs own them.
    #[must_use]
    pub fn owned(&self) -> u64 {
        self.owned
    }

    /// Whether no page is shared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// Where a shared page is.
    #[must_use]
    pub fn pba(&self, vba: Vba) -> Pba {
        Pba(self.pages.pba(vba.0).into())
    }

    /// Whether a page of this number is somewhere.
    #[must_use]
    pub fn is_placed(&self, vba: Vba) -> bool {
        self.pages.get(vba.0).is_some_and(|page| page.place != 0)
    }

    /// Whether that page is at this address.
    #[must_use]
    pub fn is_at(&self, vba: Vba, pba: Pba) -> bool {
        self.is_placed(vba) && self.pba(vba) == pba
    }

    /// Whether that page holds parts.
    #[must_use]
    pub fn has_parts(&self, vba: Vba) -> bool {
        self.pages.get(vba.0).is_some_and(pages::Page::has_parts)
    }

    /// Notes the hash of a page's content.
    pub(in crate::state) fn set_hash(&mut self, vba: Vba, hash: u64) {
        if self.hashes.len() <= vba.0 as usize {
            self.hashes.resize(self.pages.len(), 0);
        }
        self.hashes[vba.0 as usize] = hash;
    }

    /// The hash of a page's content as it was noted last; 0 where none was.
    #[must_use]
    pub fn hash(&self, vba: Vba) -> u64 {
        self.hashes.get(vba.0 as usize).copied().unwrap_or(0)
    }

    /// Notes the fingerprint of a page's content.
    pub(in crate::state) fn set_print(&mut self, vba: Vba, print: Fingerprint) {
        if self.prints.len() <= vba.0 as usize {
            self.prints.resize(self.pages.len(), [0; 16]);
        }
        self.prints[vba.0 as usize] = print.0;
    }

    /// The fingerprint of a page's content, if it is known.
    #[must_use]
    pub fn print(&self, vba: Vba) -> Option<Fingerprint> {
        let print = *self.prints.get(vba.0 as usize)?;
        (print != [0; 16]).then_some(Fingerprint(print))
    }

    /// A page's content is not what it was.
    pub(in crate::state) fn forget_print(&mut self, vba: Vba) {
        if let Some(print) = self.prints.get_mut(vba.0 as usize) {
            *print = [0; 16];
        }
    }

    /// Forgets all fingerprints.
    pub(in crate::state) fn forget_prints(&mut self) {
        self.prints = Vec::new();
    }

    /// How many own it.
    #[must_use]
    pub fn owners(&self, vba: Vba) -> u32 {
        self.pages.get(vba.0).map_or(0, |page| page.owners)
    }

    /// Which shared page is at a physical address.
    #[must_use]
    pub fn find(&self, pba: Pba) -> Option<Vba> {
        // Without any the hash of the address is not needed, and every block that the collector moves asks.
        if self.at.is_empty() {
            return None;
        }
        self.at.find(&self.pages, pba.0 as u32).map(Vba)
    }

    /// Keeps so many numbers that were never given out for later; whether there are as many, and one more.
    pub(in crate::state) fn reserve(&mut self, numbers: u32) -> bool {
        self.reserve = numbers;
        self.has_fresh()
    }

    fn has_fresh(&self) -> bool {
        (self.pages.len() as u32).saturating_add(self.reserve) < self.limit
    }

    /// Whether so many numbers are left that were never given out.
    #[must_use]
    pub fn has_numbers(&self, numbers: usize) -> bool {
        self.pages.len().saturating_add(numbers) <= self.limit as usize
    }

    /// A number for a page that is about to come; `None` when the table is full.
    pub(in crate::state) fn number(&mut self) -> Option<Vba> {
        let vba = match self.free.take() {
            Some(vba) => vba,
            None if self.has_fresh() => {
                let vba = self.pages.len();
                self.pages.lengthen(vba + 1);
                vba as u32
            }
            None => return None,
        };
        Some(Vba(vba))
    }

    /// The same for a page of parts, of which an entry tells fewer numbers apart.
    pub(in crate::state) fn number_for_parts(&mut self) -> Option<Vba> {
        match self.free.next() {
            Some(vba) if vba >= PACKED_PAGES => None,
            None if self.pages.len() >= PACKED_PAGES as usize => None,
            _ => self.number(),
        }
    }

    /// A number that was given out stands for the page at `pba` from now on, still without owners.
    pub(in crate::state) fn begin(&mut self, vba: Vba, pba: Pba, parts: bool) {
        let parts = if parts { PARTS } else { 0 };
        self.packed += usize::from(parts != 0);
        self.at.remove(&self.pages, vba.0);
        self.put(vba, pba, parts);
        self.at.insert(&self.pages, vba.0);
    }

    /// Puts a page where replay says it is; a number past the table's limit is refused. [`Shared::settle`] makes it
    /// one that is found there.
    pub(in crate::state) fn restore(&mut self, vba: Vba, pba: Pba, parts: bool) -> bool {
        if vba.0 >= self.limit {
            return false;
        }
        self.pages.lengthen(vba.0 as usize + 1);
        // What the number stood for before does not matter.
        self.forget_deltas(vba);
        self.put(vba, pba, if parts { PARTS } else { 0 });
        true
    }

    /// Takes a leaf from its block; `false`: it has a number past the table's limit, or a place that `is_data` says is none. It is on the
    /// medium just so: else each opening would have the whole table written anew.
    pub(in crate::state) fn load_leaf(
        &mut self,
        leaf: Leaf,
        block: &[u8; BLOCK_BYTES],
        is_data: impl Fn(Pba) -> bool,
    ) -> bool {
        let mut places = self.pages.leaves().memory();
        decode(block, &mut places);
        let first = leaf.0 * LEAF_ENTRIES as u32;
        let used = (first..)
            .zip(places.iter())
            .filter(|(_, place)| **place != 0);
        for (number, place) in used {
            if number >= self.limit || !is_data(Pba(u64::from(place & !PARTS))) {
                return false;
            }
        }
        self.pages.load(leaf.0 as usize, places);
        true
    }

    /// The leaf of a page's place, if it has to be read first.
    pub(in crate::state) fn leaf_away(&self, vba: Vba) -> Option<Leaf> {
        let leaf = Leaf(vba.0 / LEAF_ENTRIES as u32);
        self.pages.is_piece_away(leaf.0 as usize).then_some(leaf)
    }

    /// The leaves of places.
    pub(in crate::state) fn leaves(&self) -> &Resident {
        self.pages.leaves()
    }

    /// The same, to be fetched from somewhere, or to be told where they are.
    pub(in crate::state) fn leaves_mut(&mut self) -> &mut Resident {
        self.pages.leaves_mut()
    }

    /// Lets leaves of places go, if there are more in memory than there may be.
    pub(in crate::state) fn trim(&mut self, all: bool) {
        self.pages.trim(&self.dirty, all);
    }

    /// Replay says that the page has moved.
    pub(in crate::state) fn restore_move(&mut self, vba: Vba, pba: Pba) {
        let parts = self.pages.page(vba.0).place & PARTS;
        self.put(vba, pba, parts);
    }

    /// The page has moved.
    pub(in crate::state) fn relocate(&mut self, vba: Vba, pba: Pba) {
        self.at.remove(&self.pages, vba.0);
        self.restore_move(vba, pba);
        self.at.insert(&self.pages, vba.0);
    }

    fn put(&mut self, vba: Vba, pba: Pba, parts: u32) {
        self.pages.set_place(vba.0, parts | pba.0 as u32);
        self.mark_dirty(vba);
    }

    /// `lba` owns the page too. `false` when the count is full: the caller stores a copy instead.
    #[must_use]
    pub(in crate::state) fn add(&mut self, vba: Vba, lba: Lba) -> bool {
        let mut page = self.pages.page(vba.0);
        let Some(owners) = page.owners.checked_add(1) else {
            return false;
        };
        page.owners = owners;
        page.xor ^= lba.0 as u32;
        self.pages.set(vba.0, page);
        self.owned += 1;
        true
    }

    /// `lba` does not own the page any more.
    pub(in crate::state) fn remove(&mut self, vba: Vba, lba: Lba) -> Left {
        let mut page = self.pages.page(vba.0);
        assert!(
            page.owners > 1,
            "shared page {vba} would have no owner: a count was too low"
        );
        page.owners -= 1;
        self.owned -= 1;
        page.xor ^= lba.0 as u32;
        self.pages.set(vba.0, page);
        if page.owners > 1 {
            return Left::Shared;
        }
        let (owner, pba) = (Lba(u64::from(page.xor)), Pba(u64::from(page.pba())));
        self.free_page(vba);
        Left::One(owner, pba)
    }

    /// After recovery has counted the owners: pages with one become plain (they are returned), pages
    /// with none are freed, and numbers between are free. Which number is found at a page is settled here
    /// as well: a leaf may have held a freed number beside the one that took over its page. `None`: two numbers that
    /// have owners are at one page.
    pub(in crate::state) fn settle(&mut self) -> Option<Vec<(Lba, Pba)>> {
        let mut plain = Vec::new();
        let is_kept = |page: pages::Page| match page.has_parts() {
            true => page.is_needed(),
            false => page.owners > 1,
        };
        let numbers = 0..self.pages.len() as u32;
        let kept = numbers
            .clone()
            .filter(|number| is_kept(self.pages.page(*number)));
        self.at = Places::with_room(kept.count(), self.pages.len());
        for index in numbers {
            let page = self.pages.page(index);
            if page.owners == 1 && !page.has_parts() {
                plain.push((Lba(u64::from(page.xor)), Pba(u64::from(page.pba()))));
            }
            if is_kept(page) {
                if self.at.insert(&self.pages, index).is_some() {
                    return None;
                }
                self.packed += usize::from(page.has_parts());
            } else {
                self.free_page(Vba(index));
            }
        }
        Some(plain)
    }

    fn free_page(&mut self, vba: Vba) {
        let mut page = self.pages.page(vba.0);
        if !page.has_parts() {
            self.owned -= u64::from(page.owners);
        }
        (page.owners, page.xor) = (0, 0);
        self.pages.set(vba.0, page);
        if let Some(hash) = self.hashes.get_mut(vba.0 as usize) {
            *hash = 0;
        }
        if let Some(print) = self.prints.get_mut(vba.0 as usize) {
            *print = [0; 16];
        }
        self.at.remove(&self.pages, vba.0);
        self.free.put(vba.0);
    }

    /// A map checkpoint begins: what was freed until now can be used again once it is durable.
    pub(in crate::state) fn checkpoint_begins(&mut self) {
        self.free.checkpoint_begins();
    }

    /// The map checkpoint is durable.
    pub(in crate::state) fn checkpoint_durable(&mut self) {
        while let Some(vba) = self.free.rested() {
            self.pages.set_place(vba, 0);
            self.mark_dirty(Vba(vba));
        }
    }

    fn mark_dirty(&mut self, vba: Vba) {
        self.dirty.mark(Leaf(vba.0 / LEAF_ENTRIES as u32));
    }

    /// Which leaves of the table have changed since they were written.
    pub(in crate::state) fn dirty(&self) -> &Dirty {
        &self.dirty
    }

    /// The same, to be changed.
    pub(in crate::state) fn dirty_mut(&mut self) -> &mut Dirty {
        &mut self.dirty
    }

    /// A leaf's block: the address of each page, 0 for none.
    pub(in crate::state) fn encode_leaf(&self, leaf: Leaf, out: &mut [u8]) {
        match self.pages.places(leaf.0 as usize) {
            Some(places) => encode(places.entries(), out),
            None => out.fill(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    impl Shared {
        fn insert(&mut self, pba: Pba) -> Option<Vba> {
            let vba = self.number()?;
            self.begin(vba, pba, false);
            Some(vba)
        }
    }

    #[test]
    fn the_xor_names_the_last_owner() {
        let mut shared = Shared::new(1, 1);
        let vba = shared.insert(Pba(77)).unwrap();
        for lba in [5, 9, 1000] {
            assert!(shared.add(vba, Lba(lba)));
        }
        assert_eq!(shared.remove(vba, Lba(9)), Left::Shared);
        assert_eq!(shared.find(Pba(77)), Some(vba));
        assert_eq!(shared.remove(vba, Lba(5)), Left::One(Lba(1000), Pba(77)));
        assert_eq!(shared.find(Pba(77)), None);
    }

    #[test]
    fn a_fingerprint_goes_with_its_page() {
        let mut shared = Shared::new(1, 1);
        let vba = shared.insert(Pba(10)).unwrap();
        assert!(shared.add(vba, Lba(1)) && shared.add(vba, Lba(2)));
        assert_eq!(shared.print(vba), None);
        shared.set_print(vba, Fingerprint([7; 16]));
        assert_eq!(shared.print(vba), Some(Fingerprint([7; 16])));
        shared.remove(vba, Lba(1));
        assert_eq!(shared.print(vba), None);
    }

    #[test]
    fn a_freed_number_waits_for_the_map_checkpoint() {
        let mut shared = Shared::new(1, 1);
        let first = shared.insert(Pba(10)).unwrap();
        assert!(shared.add(first, Lba(1)) && shared.add(first, Lba(2)));
        shared.remove(first, Lba(1));
        assert_ne!(shared.insert(Pba(11)), Some(first));
        shared.checkpoint_begins();
        assert_ne!(shared.insert(Pba(12)), Some(first));
        shared.checkpoint_durable();
        assert_eq!(shared.insert(Pba(13)), Some(first));
    }

    #[test]
    fn a_freed_number_leads_somewhere_as_long_as_a_leaf_may_name_it() {
        let in_leaf = |shared: &Shared| {
            let mut leaf = [0; LEAF_ENTRIES * 4];
            shared.encode_leaf(Leaf(0), &mut leaf);
            u32::from_le_bytes([leaf[0], leaf[1], leaf[2], leaf[3]])
        };
        let mut shared = Shared::new(1, 1);
        let vba = shared.insert(Pba(10)).unwrap();
        assert!(shared.add(vba, Lba(1)) && shared.add(vba, Lba(2)));
        // A map checkpoint writes LBA 2's leaf, which names the page; only then does LBA 1 leave it.
        shared.checkpoint_begins();
        shared.remove(vba, Lba(1));
        assert_eq!(in_leaf(&shared), 10);
        shared.checkpoint_durable();
        assert_eq!(in_leaf(&shared), 10);
        // The next one writes LBA 2's leaf again, as a plain entry.
        shared.checkpoint_begins();
        assert_eq!(in_leaf(&shared), 10);
        shared.checkpoint_durable();
        assert_eq!(in_leaf(&shared), 0);
    }

    #[test]
    fn the_number_that_took_over_a_page_is_found_there_after_recovery() {
        for order in [[0, 1], [1, 0]] {
            let mut shared = Shared::new(1, 1);
            for vba in order {
                assert!(shared.restore(Vba(vba), Pba(10), false));
            }
            // Number 0 was freed; 1 has the owners now.
            assert!(shared.add(Vba(1), Lba(5)) && shared.add(Vba(1), Lba(6)));
            assert_eq!(shared.settle(), Some(vec![]));
            assert_eq!(shared.find(Pba(10)), Some(Vba(1)));
        }
    }
}
