//! Shared pages: VBA -> physical page, the number of LBAs that own it, and the XOR of those LBAs.
//!
//! When all but one owner have left, the XOR *is* the remaining one, and its map entry becomes an ordinary one again (CAFTL §3.3,
//! WOJ §3.4). Counts exist only in memory: after a crash they are recounted from the map, so they are never too low (promise 5).
//! A freed number is not reused before the next map checkpoint is durable, because an older leaf may still name it; until then
//! its page stays in the table too, or such a leaf would lead nowhere after a crash.

mod numbers;
mod pages;
mod parts;
mod settle;

use crate::addr::{BLOCK_BYTES, Lba, Leaf, Pba, Vba};
use crate::by_pba::ByPba;
use crate::entry::{LEAF_ENTRIES, PACKED_PAGES};
use crate::seam::Fingerprint;
use crate::state::deltas::Deltas;
use crate::state::dirty::Dirty;
use crate::state::resident::Resident;
use crate::state::shelf::{decode, encode};
use alloc::vec::Vec;
use numbers::Free;
use pages::{PARTS, Pages, Uses};

/// The state of a page after an owner has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It still has several owners.
    Shared,
    /// One owner: its entry becomes `Plain(pba)`.
    One(Lba, Pba),
}

/// The table of shared pages.
pub struct Shared {
    limit: u32,
    /// How many numbers are kept free for recovery: they are not allocated.
    reserve: u32,
    /// As many are kept at least, until a map checkpoint is durable: recovery would find these pledges in the log again.
    reserve_of_log: u32,
    pages: Pages,
    free: Free,
    /// The whole page at each address. The segment's summary names a page of parts, so such a page is here only if the summary was lost.
    at: ByPba,
    dirty: Dirty,
    /// Whole pages, and how many LBAs own them.
    whole: usize,
    owned: u64,
    /// Pages of parts that have an owner, and how many LBAs own a part of them.
    packed: usize,
    parts_owned: u64,
    deltas: Deltas,
    /// Pages of parts that deltas need, and how many of these pages have no other use.
    bases: u64,
    orphans: u64,
    /// The hash that each page's content has in an index, if there is one.
    hashes: Vec<u64>,
    /// The fingerprint of each page's content, or zeros if it is not known. It is valid as long as the page is shared, because nothing
    /// changes the content until then.
    prints: Vec<[u8; 16]>,
}

fn pba_of(place: u32) -> Pba {
    Pba(u64::from(place & !PARTS))
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
            reserve_of_log: 0,
            pages: Pages::default(),
            free: Free::default(),
            at: ByPba::default(),
            dirty: Dirty::new(leaves as usize),
            whole: 0,
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

    /// Grows to `leaves` and `delta_leaves` leaves, at least as many as now.
    pub(in crate::state) fn lengthen(&mut self, leaves: u32, delta_leaves: u32) {
        self.limit = limit_of(leaves);
        self.dirty.lengthen(leaves as usize);
        self.deltas.lengthen(delta_leaves);
    }

    /// The number of pages shared as whole blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.whole
    }

    /// The number of LBAs mapped to parts.
    #[must_use]
    pub fn parts_owned(&self) -> u64 {
        self.parts_owned
    }

    /// The number of pages that hold parts.
    #[must_use]
    pub fn packed(&self) -> usize {
        self.packed
    }

    /// The number of LBAs that own shared pages.
    #[must_use]
    pub fn owned(&self) -> u64 {
        self.owned
    }

    /// True if no page is shared as whole blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.whole == 0
    }

    /// Returns where a page is.
    #[must_use]
    pub fn pba(&self, vba: Vba) -> Pba {
        let place = self.pages.place(vba.0);
        if place == 0 {
            self.pages.leads_nowhere(vba.0);
        }
        pba_of(place)
    }

    /// True if a page of this number has an address.
    #[must_use]
    pub fn is_placed(&self, vba: Vba) -> bool {
        self.pages.place(vba.0) != 0
    }

    /// True if the table has an address from `at` on, of whatever page: also of pages that nothing leads to any more.
    #[must_use]
    pub fn names_from(&self, at: Pba) -> bool {
        let mut places = self.pages.leaves().memory();
        (0..self.pages.pieces()).any(|piece| {
            self.pages.read_places(piece, None, &mut places);
            places.iter().any(|&place| pba_of(place) >= at)
        })
    }

    /// True if that page is at this address.
    #[must_use]
    pub fn is_at(&self, vba: Vba, pba: Pba) -> bool {
        self.is_placed(vba) && self.pba(vba) == pba
    }

    /// True if that page holds parts.
    #[must_use]
    pub fn has_parts(&self, vba: Vba) -> bool {
        let uses = self.pages.uses(vba.0);
        match uses.is_any() {
            true => uses.of_parts,
            false => self.pages.place(vba.0) & PARTS != 0,
        }
    }

    /// Notes the hash of a page's content.
    pub(in crate::state) fn set_hash(&mut self, vba: Vba, hash: u64) {
        if self.hashes.len() <= vba.0 as usize {
            self.hashes.resize(self.pages.len(), 0);
        }
        self.hashes[vba.0 as usize] = hash;
    }

    /// Returns the hash of a page's content that was noted last; 0 if there is none.
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

    /// Notes that a page's content has changed.
    pub(in crate::state) fn forget_print(&mut self, vba: Vba) {
        if let Some(print) = self.prints.get_mut(vba.0 as usize) {
            *print = [0; 16];
        }
    }

    /// Forgets all fingerprints.
    pub(in crate::state) fn forget_prints(&mut self) {
        self.prints = Vec::new();
    }

    /// Returns how many LBAs own the page.
    #[must_use]
    pub fn owners(&self, vba: Vba) -> u32 {
        self.pages.uses(vba.0).owners
    }

    /// True if anything leads into the page of this number.
    #[must_use]
    pub fn is_used(&self, vba: Vba) -> bool {
        self.pages.uses(vba.0).is_any()
    }

    /// Returns the whole page at a physical address.
    #[must_use]
    pub fn find(&self, pba: Pba) -> Option<Vba> {
        self.at.get(pba).map(Vba)
    }

    /// Reserves never-used numbers for recovery; true if there are that many, and one more.
    pub(in crate::state) fn reserve(&mut self, numbers: u32) -> bool {
        self.reserve = numbers.max(self.reserve_of_log);
        self.has_fresh()
    }

    fn has_fresh(&self) -> bool {
        (self.pages.len() as u32).saturating_add(self.reserve) < self.limit
    }

    /// Reserves never-used numbers for pledges that recovery has found in the log; false if there are not that many.
    pub(in crate::state) fn reserve_for_log(&mut self, numbers: usize) -> bool {
        self.reserve_of_log = numbers as u32;
        self.reserve = self.reserve_of_log;
        self.pages.len().saturating_add(numbers) <= self.limit as usize
    }

    /// True if there is a number for a pledge that is redeemed: it is one of the reserved ones.
    pub(in crate::state) fn number_in_reserve(&mut self) -> Option<Vba> {
        self.reserve = self.reserve.saturating_sub(1);
        self.number()
    }

    /// Allocates a number for a new page; `None` when the table is full.
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

    /// Leaves so many numbers unused.
    #[cfg(test)]
    pub(in crate::state) fn skip_numbers(&mut self, numbers: usize) {
        self.pages.lengthen(self.pages.len() + numbers);
    }

    /// The same for a page of parts, whose entries can name fewer numbers.
    pub(in crate::state) fn number_for_parts(&mut self) -> Option<Vba> {
        match self.free.next() {
            Some(vba) if vba >= PACKED_PAGES => None,
            None if self.pages.len() >= PACKED_PAGES as usize => None,
            _ => self.number(),
        }
    }

    /// Makes an allocated number name the page at `pba`, still without owners.
    pub(in crate::state) fn begin(&mut self, vba: Vba, pba: Pba, parts: bool) {
        self.leave_place(vba);
        match parts {
            true => {
                self.packed += 1;
                self.put(vba, pba, PARTS);
            }
            false => {
                self.whole += 1;
                self.put(vba, pba, 0);
                self.at.insert(pba, vba.0);
            }
        }
    }

    /// Puts a page where replay says it is; false if the number is past the table's limit. The page can be found by its address only
    /// once it is settled.
    pub(in crate::state) fn restore(&mut self, vba: Vba, pba: Pba, parts: bool) -> bool {
        if vba.0 >= self.limit {
            return false;
        }
        self.pages.lengthen(vba.0 as usize + 1);
        // Deltas of the number's previous page have ended.
        self.forget_deltas(vba);
        self.put(vba, pba, if parts { PARTS } else { 0 });
        true
    }

    /// Takes a leaf from its block; false if it has a number past the table's limit, or a place that `is_data` rejects. The leaf is not
    /// marked dirty, because the medium has exactly its contents: otherwise each opening would rewrite the whole table.
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

    /// Returns the leaf of a page's place, if it has to be read before `leaving` owners leave the page. If other owners remain, the place
    /// is not needed.
    pub(in crate::state) fn leaf_away_to_leave(&self, vba: Vba, leaving: u32) -> Option<Leaf> {
        let uses = self.pages.uses(vba.0);
        // A page of parts ends when its last owner leaves. A whole page stops being shared when its last owner but one leaves.
        let stays = match uses.of_parts {
            true => uses.owners > leaving || uses.xor > 0,
            false => uses.owners > leaving + 1,
        };
        (!stays).then(|| self.leaf_away(vba)).flatten()
    }

    /// Returns the LBA that will own a whole page alone once `leaving` has left it, if only one remains.
    pub(in crate::state) fn heir(&self, vba: Vba, leaving: Lba) -> Option<Lba> {
        let uses = self.pages.uses(vba.0);
        let is_last = !uses.of_parts && uses.owners == 2;
        is_last.then_some(Lba(uses.xor ^ leaving.0))
    }

    /// Returns the leaf that will hold the place of the next new page, if it has to be read first.
    pub(in crate::state) fn leaf_away_to_begin(&self) -> Option<Leaf> {
        self.leaf_away(Vba(self.free.next()?))
    }

    /// Returns the leaf of a page's place, if it has to be read first.
    pub(in crate::state) fn leaf_away(&self, vba: Vba) -> Option<Leaf> {
        let leaf = Leaf(vba.0 / LEAF_ENTRIES as u32);
        self.pages.is_piece_away(leaf.0 as usize).then_some(leaf)
    }

    /// The leaves of places.
    pub(in crate::state) fn leaves(&self) -> &Resident {
        self.pages.leaves()
    }

    /// The same, mutable.
    pub(in crate::state) fn leaves_mut(&mut self) -> &mut Resident {
        self.pages.leaves_mut()
    }

    /// Evicts leaves of places, if there are more in memory than allowed.
    pub(in crate::state) fn trim(&mut self, long: bool) {
        self.pages.trim(&self.dirty, long);
    }

    /// Replays a move of the page.
    pub(in crate::state) fn restore_move(&mut self, vba: Vba, pba: Pba) {
        let parts = self.pages.place(vba.0) & PARTS;
        self.put(vba, pba, parts);
    }

    /// Moves the page.
    pub(in crate::state) fn relocate(&mut self, vba: Vba, pba: Pba) {
        self.leave_place(vba);
        self.restore_move(vba, pba);
        if !self.has_parts(vba) {
            self.at.insert(pba, vba.0);
        }
    }

    /// Makes the page unfindable by its address, unless another page has taken over the address.
    fn leave_place(&mut self, vba: Vba) {
        self.at.remove(self.pba(vba), Some(vba.0));
    }

    fn put(&mut self, vba: Vba, pba: Pba, parts: u32) {
        let place = parts | pba.0 as u32;
        self.pages.set_place(vba.0, place, &mut self.dirty);
    }

    /// Makes `lba` an owner of the page too. False if the count is full: the caller then stores a copy instead.
    #[must_use]
    pub(in crate::state) fn add(&mut self, vba: Vba, lba: Lba) -> bool {
        let mut uses = self.pages.uses(vba.0);
        let Some(owners) = uses.owners.checked_add(1) else {
            return false;
        };
        uses.owners = owners;
        uses.xor ^= lba.0;
        self.pages.set_uses(vba.0, uses);
        self.owned += 1;
        true
    }

    /// Removes `lba` from the page's owners.
    pub(in crate::state) fn remove(&mut self, vba: Vba, lba: Lba) -> Left {
        let mut uses = self.pages.uses(vba.0);
        assert!(
            uses.owners > 1,
            "shared page {vba} would have no owner: a count was too low"
        );
        uses.owners -= 1;
        self.owned -= 1;
        uses.xor ^= lba.0;
        self.pages.set_uses(vba.0, uses);
        if uses.owners > 1 {
            return Left::Shared;
        }
        let pba = self.pba(vba);
        self.owned -= 1;
        self.whole -= 1;
        self.free_page(vba, pba);
        Left::One(Lba(uses.xor), pba)
    }

    /// Frees a page that is no longer owned or needed.
    fn free_page(&mut self, vba: Vba, pba: Pba) {
        self.pages.set_uses(vba.0, Uses::default());
        self.forget_content(vba);
        self.at.remove(pba, Some(vba.0));
        self.free.put(vba.0);
    }

    /// Forgets what is noted of a page's content.
    fn forget_content(&mut self, vba: Vba) {
        if let Some(hash) = self.hashes.get_mut(vba.0 as usize) {
            *hash = 0;
        }
        self.forget_print(vba);
    }

    /// Begins a map checkpoint: numbers freed until now can be reused once it is durable.
    pub(in crate::state) fn checkpoint_begins(&mut self) {
        self.free.checkpoint_begins();
    }

    /// Notes that the map checkpoint is durable.
    pub(in crate::state) fn checkpoint_durable(&mut self) {
        self.reserve_of_log = 0;
        while let Some(vba) = self.free.rested() {
            // The address may stay in a leaf that is not in memory: it does no harm, because a page without owners is free. So no leaf is
            // read to clear it.
            self.pages.clear_place_here(vba, &mut self.dirty);
        }
    }

    /// Which leaves of the table have changed since they were written.
    pub(in crate::state) fn dirty(&self) -> &Dirty {
        &self.dirty
    }

    /// Makes the next map checkpoint rewrite a leaf.
    pub(in crate::state) fn write_anew(&mut self, leaf: Leaf) {
        self.dirty.mark(leaf);
    }

    /// Marks a leaf clean, which a map checkpoint writes; true if it was dirty.
    pub(in crate::state) fn writes(&mut self, leaf: Leaf) -> bool {
        self.pages.leaves_mut().writes(&mut self.dirty, leaf)
    }

    /// Encodes a leaf's block: the address of each page, 0 for none.
    pub(in crate::state) fn encode_leaf(&self, leaf: Leaf, out: &mut [u8]) {
        match self.pages.places(leaf.0 as usize) {
            Some(places) => encode(places.entries(), out),
            None => out.fill(0),
        }
    }

    /// Forgets the deltas of a number's previous page.
    fn forget_deltas(&mut self, vba: Vba) {
        for part in self.deltas.slots(vba) {
            self.deltas.remove(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Shared {
        fn insert(&mut self, pba: Pba) -> Option<Vba> {
            let vba = self.number()?;
            self.begin(vba, pba, false);
            Some(vba)
        }
    }

    #[test]
    fn the_xor_of_the_owners_is_the_last_owner() {
        let mut shared = Shared::new(1, 1);
        let vba = shared.insert(Pba(77)).unwrap();
        let far = (1 << 34) + 5;
        for lba in [5, 9, far] {
            assert!(shared.add(vba, Lba(lba)));
        }
        assert_eq!(shared.remove(vba, Lba(9)), Left::Shared);
        assert_eq!(shared.find(Pba(77)), Some(vba));
        assert_eq!(shared.heir(vba, Lba(5)), Some(Lba(far)));
        assert_eq!(shared.remove(vba, Lba(5)), Left::One(Lba(far), Pba(77)));
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
    fn a_freed_number_keeps_its_page_as_long_as_a_leaf_may_name_it() {
        let in_leaf = |shared: &Shared| {
            let mut leaf = [0; LEAF_ENTRIES * 4];
            shared.encode_leaf(Leaf(0), &mut leaf);
            u32::from_le_bytes([leaf[0], leaf[1], leaf[2], leaf[3]])
        };
        let mut shared = Shared::new(1, 1);
        let vba = shared.insert(Pba(10)).unwrap();
        assert!(shared.add(vba, Lba(1)) && shared.add(vba, Lba(2)));
        // A map checkpoint writes LBA 2's leaf, which names the page. Only then does LBA 1 leave the page.
        shared.checkpoint_begins();
        shared.remove(vba, Lba(1));
        assert_eq!(in_leaf(&shared), 10);
        shared.checkpoint_durable();
        assert_eq!(in_leaf(&shared), 10);
        // The next map checkpoint writes LBA 2's leaf again, now with a plain entry.
        shared.checkpoint_begins();
        assert_eq!(in_leaf(&shared), 10);
        shared.checkpoint_durable();
        assert_eq!(in_leaf(&shared), 0);
    }
}
