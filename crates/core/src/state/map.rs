//! The map: LBA -> where its bytes are, in 4 bytes a block.
//!
//! The map has two levels. Its leaves of 1024 entries are allocated when first written, and freed when nothing in them is mapped. So a
//! thin or sparse volume takes memory only for the blocks it holds. A leaf is also the unit of a map checkpoint: one block of the medium.
//! So a leaf need not stay in memory if the medium has it, but for a few changes
//! ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)).

use super::bounds::Bounds;
use super::changes::LeafEntries;
use super::dirty::Dirty;
use super::resident::{Look, Resident};
use super::shelf::{decode, encode};
use crate::addr::{BLOCK_BYTES, Lba, Leaf};
use crate::entry::{Entry, LEAF_ENTRIES, UNMAPPED, ZERO, split};
use crate::format::superblock::SegmentArea;
use alloc::vec::Vec;

/// The count of a leaf's entries that is on the medium, and was not changed or counted yet: it holds something.
const UNKNOWN: u16 = u16::MAX;

/// The map of a volume.
pub struct Map {
    blocks: u64,
    /// If a leaf holds something and is not in memory, it is on the medium.
    leaves: Resident,
    /// How many entries of each leaf hold something, or [`UNKNOWN`]. The counts are kept apart from the leaves, so that they stay in a CPU cache.
    used: Vec<u16>,
    dirty: Dirty,
}

impl Map {
    /// An empty map of `blocks` LBAs.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        let mut map = Self {
            blocks: 0,
            leaves: Resident::default(),
            used: Vec::new(),
            dirty: Dirty::default(),
        };
        map.lengthen(blocks);
        map
    }

    /// Grows the map to `blocks` LBAs, at least as many as now.
    pub(super) fn lengthen(&mut self, blocks: u64) {
        let leaves = usize::try_from(blocks.div_ceil(LEAF_ENTRIES as u64)).unwrap_or(usize::MAX);
        self.blocks = blocks;
        self.leaves.lengthen(leaves);
        self.used.resize(leaves, 0);
        self.dirty.lengthen(leaves);
    }

    /// The number of LBAs.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns where `lba` is stored.
    #[must_use]
    pub fn get(&self, lba: Lba) -> Entry {
        let (leaf, index) = split(lba);
        match self.page(leaf) {
            Some(page) => Entry::unpack(page[index]),
            None => Entry::Unmapped,
        }
    }

    /// Returns a leaf that holds something.
    fn page(&self, leaf: usize) -> Option<&LeafEntries> {
        self.leaves.get(leaf, || self.used[leaf] > 0)
    }

    /// Prefetches entries that will soon be needed one by one, so that their cache misses overlap.
    pub fn look_ahead(&self, lbas: impl Iterator<Item = Lba>) {
        let entries = lbas.filter(|lba| lba.0 < self.blocks).map(|lba| {
            let (leaf, index) = split(lba);
            self.leaves.here(leaf).map_or(UNMAPPED, |page| page[index])
        });
        core::hint::black_box(entries.fold(0, |all, raw| all ^ raw));
    }

    /// Maps `lba`, and returns what was there; marks the leaf dirty when it changes.
    pub fn set(&mut self, lba: Lba, entry: Entry) -> Entry {
        debug_assert!(lba.0 < self.blocks);
        let (leaf, index) = split(lba);
        let raw = entry.pack();
        let used = &mut self.used[leaf];
        let page = match *used {
            // If the leaf is on the medium and cannot be read, it stays unchanged there.
            1.. => self.leaves.get_mut(leaf, || true),
            0 if raw == UNMAPPED => None,
            0 => Some(self.leaves.put_empty(leaf)),
        };
        let Some(page) = page else {
            return Entry::Unmapped;
        };
        let old = core::mem::replace(&mut page[index], raw);
        if (raw == UNMAPPED) != (old == UNMAPPED) {
            *used = match *used {
                UNKNOWN => entries_of(page),
                used => used + u16::from(raw != UNMAPPED) - u16::from(old != UNMAPPED),
            };
            if *used == 0 {
                self.leaves.remove(leaf);
            }
        }
        if raw != old {
            self.leaves
                .changed(&mut self.dirty, Leaf(leaf as u32), index, old, raw);
        }
        Entry::unpack(old)
    }

    /// Returns the first mapped LBA in `from..to`; skips leaves that hold nothing in one step each.
    #[must_use]
    pub fn next_mapped(&self, from: Lba, to: Lba) -> Option<(Lba, Entry)> {
        let mut lba = from.0;
        while lba < to.0 {
            let (leaf, index) = split(Lba(lba));
            let end = to.0.min((leaf as u64 + 1) * LEAF_ENTRIES as u64);
            if let Some(page) = self.page(leaf) {
                let last = index + (end - lba) as usize;
                if let Some(found) = page[index..last].iter().position(|&raw| raw != UNMAPPED) {
                    return Some((Lba(lba + found as u64), Entry::unpack(page[index + found])));
                }
            }
            lba = end;
        }
        None
    }

    /// Returns the run that begins at `from`, as far as its leaf and `to` reach: how many blocks, and whether they have data on
    /// the medium. A leaf that holds nothing costs one step.
    #[must_use]
    pub fn run(&self, from: Lba, to: Lba) -> (u64, bool) {
        debug_assert!(from < to && to.0 <= self.blocks);
        let (leaf, index) = split(from);
        let end = to.0.min((leaf as u64 + 1) * LEAF_ENTRIES as u64);
        let blocks = end - from.0;
        let Some(page) = self.page(leaf) else {
            return (blocks, false);
        };
        let has_data = |raw: u32| raw != UNMAPPED && raw != ZERO;
        let entries = &page[index..index + blocks as usize];
        let mapped = has_data(entries[0]);
        let run = entries.iter().position(|&raw| has_data(raw) != mapped);
        (run.map_or(blocks, |run| run as u64), mapped)
    }

    /// Returns the first of these blocks that has data on the medium, and how many have.
    #[must_use]
    pub fn stored_in(&self, from: Lba, to: Lba) -> Option<(Lba, u64)> {
        let (mut at, mut found) = (from, None);
        while at < to {
            let (blocks, has_data) = self.run(at, to);
            if has_data {
                found.get_or_insert((at, 0)).1 += blocks;
            }
            at = at.plus(blocks);
        }
        found
    }

    /// Iterates over every mapped LBA, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Lba, Entry)> + '_ {
        self.iter_of(0)
    }

    /// The same, from this LBA on.
    pub fn iter_from(&self, first: Lba) -> impl Iterator<Item = (Lba, Entry)> + '_ {
        let (leaf, _) = split(first);
        self.iter_of(leaf).skip_while(move |(lba, _)| *lba < first)
    }

    fn iter_of(&self, first: usize) -> impl Iterator<Item = (Lba, Entry)> + '_ {
        (first..self.leaves.len())
            .filter_map(|leaf| Some((leaf, self.look_at(leaf)?)))
            .flat_map(|(leaf, page)| {
                (0..LEAF_ENTRIES).filter_map(move |index| {
                    let raw = page.entries()[index];
                    let lba = Lba((leaf * LEAF_ENTRIES + index) as u64);
                    (raw != UNMAPPED).then(|| (lba, Entry::unpack(raw)))
                })
            })
    }

    fn look_at(&self, leaf: usize) -> Option<Look<'_>> {
        self.leaves.look_at(leaf, || self.used[leaf] > 0)
    }

    /// Takes note of a leaf that is on the medium. It is not read before it is needed.
    pub(super) fn leave_on_medium(&mut self, leaf: usize) {
        self.used[leaf] = UNKNOWN;
        if let Some(shelf) = self.leaves.shelf() {
            shelf.left_out();
        }
    }

    /// Prepares a leaf for entries that are set in it when it is read: it is dirty, and nothing is known of its entries. False if they have
    /// to be set now, because it is in memory, or some of its changes are.
    pub(super) fn changes_later(&mut self, leaf: Leaf) -> bool {
        let shelf = self.leaves.shelf();
        let has_changes = shelf.is_some_and(|shelf| shelf.changes().has(leaf.0));
        if has_changes || !self.is_away(leaf) {
            return false;
        }
        self.used[leaf.0 as usize] = UNKNOWN;
        self.write_anew(leaf);
        true
    }

    /// What leaves of the map may lead to.
    pub(super) fn bounds(&self, segments: SegmentArea) -> Bounds {
        Bounds::Map(segments, self.blocks)
    }

    /// True if a leaf holds nothing.
    pub(super) fn is_empty_leaf(&self, leaf: Leaf) -> bool {
        self.used[leaf.0 as usize] == 0
    }

    /// Visits the entries of a leaf that hold something, until `visit` returns false; true if it never did. `block` is the leaf as it was
    /// read, if it was: a leaf that is not in memory does not stay there.
    pub(super) fn visit_leaf(
        &self,
        leaf: usize,
        block: Option<&[u8; BLOCK_BYTES]>,
        mut visit: impl FnMut(Lba, Entry) -> bool,
    ) -> bool {
        let look = match block {
            _ if self.used[leaf] == 0 => None,
            Some(block) => self.leaves.look_through(leaf, block),
            None => self.look_at(leaf),
        };
        let Some(look) = look else {
            return true;
        };
        let first = (leaf * LEAF_ENTRIES) as u64;
        let mut entries = (first..)
            .zip(look.entries())
            .filter(|(_, raw)| **raw != UNMAPPED);
        entries.all(|(lba, raw)| visit(Lba(lba), Entry::unpack(*raw)))
    }

    /// Encodes a leaf's block; all zeros when nothing in it is mapped. Returns whether anything is.
    pub fn encode_leaf(&self, leaf: Leaf, out: &mut [u8]) -> bool {
        debug_assert_eq!(out.len(), BLOCK_BYTES);
        match self.look_at(leaf.0 as usize) {
            Some(page) => {
                encode(page.entries(), out);
                true
            }
            None => {
                out.fill(0);
                false
            }
        }
    }

    /// Takes a leaf from its block, without marking it dirty; false if it has entries past the last LBA.
    #[must_use]
    pub fn load_leaf(&mut self, leaf: Leaf, bytes: &[u8; BLOCK_BYTES]) -> bool {
        let mut page = self.leaves.memory();
        decode(bytes, &mut page);
        let used = entries_of(&page);
        let (last, end) = split(Lba(self.blocks));
        if leaf.0 as usize == last && page[end..].iter().any(|&raw| raw != UNMAPPED) {
            return false;
        }
        self.used[leaf.0 as usize] = used;
        match used {
            0 => self.leaves.remove(leaf.0 as usize),
            _ => {
                self.leaves.put(leaf.0 as usize, page);
            }
        }
        true
    }

    /// Returns the leaf of a block's entry, if the leaf has to be read first.
    pub(super) fn leaf_away(&self, lba: Lba) -> Option<Leaf> {
        let (leaf, _) = split(lba);
        let leaf = Leaf(leaf as u32);
        self.is_away(leaf).then_some(leaf)
    }

    /// True if a leaf holds something, and has to be read first.
    pub(super) fn is_away(&self, leaf: Leaf) -> bool {
        let leaf = leaf.0 as usize;
        self.used[leaf] > 0 && self.leaves.is_away(leaf)
    }

    /// Takes a leaf that was read, if it is needed and the newest root names it.
    pub(super) fn take_leaf(&mut self, leaf: Leaf, block: &[u8; BLOCK_BYTES]) {
        if self.used[leaf.0 as usize] > 0 {
            self.leaves.take_in(leaf.0 as usize, block);
        }
    }

    /// The map's leaves.
    pub(super) fn leaves(&self) -> &Resident {
        &self.leaves
    }

    /// The same, mutable.
    pub(super) fn leaves_mut(&mut self) -> &mut Resident {
        &mut self.leaves
    }

    /// Evicts leaves, if there are more in memory than allowed.
    pub(super) fn trim(&mut self, long: bool) {
        self.leaves.trim(&self.dirty, long);
    }

    /// Which leaves of the table have changed since they were written.
    pub(super) fn dirty(&self) -> &Dirty {
        &self.dirty
    }

    /// Makes the next map checkpoint rewrite a leaf.
    pub(super) fn write_anew(&mut self, leaf: Leaf) {
        self.dirty.mark(leaf);
    }

    /// Marks a leaf clean, which a map checkpoint writes; true if it was dirty.
    pub(super) fn writes(&mut self, leaf: Leaf) -> bool {
        self.leaves.writes(&mut self.dirty, leaf)
    }

    /// The number of dirty leaves.
    #[must_use]
    pub fn dirty_count(&self) -> u64 {
        self.dirty.count()
    }
}

/// The number of a leaf's entries that hold something.
fn entries_of(page: &LeafEntries) -> u16 {
    page.iter().filter(|&&raw| raw != UNMAPPED).count() as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::tests::any_entry;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_btree(ops in prop::collection::vec((0..5000u64, any_entry()), 1..400)) {
            let mut map = Map::new(5000);
            let mut model = BTreeMap::new();
            for (lba, entry) in ops {
                let old = model.insert(lba, entry).unwrap_or(Entry::Unmapped);
                prop_assert_eq!(map.set(Lba(lba), entry), old);
            }
            model.retain(|_, e| *e != Entry::Unmapped);
            let got: Vec<_> = map.iter().map(|(l, e)| (l.0, e)).collect();
            prop_assert_eq!(got, model.clone().into_iter().collect::<Vec<_>>());
            let mut copy = Map::new(5000);
            let mut block = [0; BLOCK_BYTES];
            for leaf in 0..map.leaves.len() as u32 {
                if map.encode_leaf(Leaf(leaf), &mut block) {
                    prop_assert!(copy.load_leaf(Leaf(leaf), &block));
                }
            }
            prop_assert!(copy.iter().eq(map.iter()));
            let dirty = map.dirty_count();
            let leaves = 0..map.leaves.len() as u32;
            let taken = leaves.filter(|&leaf| map.writes(Leaf(leaf))).count() as u64;
            prop_assert_eq!((taken, map.dirty_count()), (dirty, 0));
            for from in [0, 1023, 1024, 3000, 5000] {
                let rest = model.range(from..).map(|(l, e)| (*l, *e));
                prop_assert!(map.iter_from(Lba(from)).map(|(l, e)| (l.0, e)).eq(rest));
            }
            let first = model.iter().next().map(|(l, e)| (Lba(*l), *e));
            prop_assert_eq!(map.next_mapped(Lba(0), Lba(5000)), first);
            let mut at = 0;
            while at < 4990 {
                let (run, mapped) = map.run(Lba(at), Lba(4990));
                let has_data = |lba| model.get(&lba).is_some_and(|entry| *entry != Entry::Zero);
                prop_assert!((at..at + run).all(|lba| has_data(lba) == mapped));
                at += run;
                let is_border = at.is_multiple_of(LEAF_ENTRIES as u64) || at == 4990;
                prop_assert!(is_border || has_data(at) != mapped);
            }
            prop_assert_eq!(at, 4990);
            for from in [0, 1024, 3000, 4990] {
                let has_data = |(_, e): &(&u64, &Entry)| **e != Entry::Zero;
                let mut stored = model.range(from..4990).filter(has_data).map(|(l, _)| Lba(*l));
                let first = stored.next();
                let all = first.map(|first| (first, 1 + stored.count() as u64));
                prop_assert_eq!(map.stored_in(Lba(from), Lba(4990)), all);
            }
        }
    }
}
