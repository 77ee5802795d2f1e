//! The reasons to keep a data block: its count, which is on the medium too; the LBAs that lead to it now; and pins.
//!
//! A block is free, or something keeps it. Its count is raised before anything leads to it and lowered after nothing does, so a
//! count is never lower than the number of LBAs.

use super::space::Space;
use super::stale::Stale;
use super::table::Table;
use crate::format::table::{Edition, Signer};
use crate::stats::Stats;
use alloc::collections::BTreeMap;

/// See the module.
pub(super) struct DataBlocks {
    counts: Table<u16>,
    /// How many LBAs lead to a data block now. Unlike the counts, these leave out links that are being removed.
    refs: Table<u16>,
    /// How often each data block is being read, written or compared.
    pins: BTreeMap<u32, u32>,
    space: Space,
}

impl DataBlocks {
    /// Data blocks as recovery found them.
    pub fn new(counts: Table<u16>, refs: Table<u16>, space: Space) -> Self {
        Self {
            counts,
            refs,
            pins: BTreeMap::new(),
            space,
        }
    }

    #[inline]
    pub fn count(&self, index: u32) -> u16 {
        self.counts.get(index)
    }

    /// How many LBAs lead to a block now.
    #[inline]
    pub fn refs(&self, index: u32) -> u16 {
        self.refs.get(index)
    }

    /// Raises a count, before the link that needs it.
    #[inline]
    pub fn raise(&mut self, index: u32) {
        let count = self.counts.get(index);
        assert!(count < u16::MAX, "the count of data block {index} has room");
        self.counts.set(index, count + 1);
    }

    /// Lowers a count, after the link or fingerprint that it was raised for is gone from the medium, or never was there. Returns true if
    /// nothing keeps the block any more.
    #[inline]
    pub fn lower(&mut self, index: u32) -> bool {
        let count = self.counts.get(index);
        assert!(count > 0, "the count of data block {index} is too low");
        self.counts.set(index, count - 1);
        debug_assert!(
            self.refs.get(index) < count,
            "data block {index} lost a count"
        );
        count == 1 && !self.is_kept(index)
    }

    /// Notes that one more LBA leads to a block. The block must have been counted for it.
    #[inline]
    pub fn refer(&mut self, index: u32, stats: &mut Stats) {
        let refs = self.refs.get(index);
        debug_assert!(
            refs < self.counts.get(index),
            "data block {index} is not counted"
        );
        self.refs.set(index, refs + 1);
        match refs {
            0 => stats.live_blocks += 1,
            1 => {
                stats.shared_pages += 1;
                stats.shared_owners += 2;
            }
            _ => stats.shared_owners += 1,
        }
    }

    /// Notes that one LBA less leads to a block.
    #[inline]
    pub fn unrefer(&mut self, index: u32, stats: &mut Stats) {
        let refs = self.refs.get(index);
        self.refs.set(index, refs - 1);
        match refs {
            1 => stats.live_blocks -= 1,
            2 => {
                stats.shared_pages -= 1;
                stats.shared_owners -= 2;
            }
            _ => stats.shared_owners -= 1,
        }
    }

    /// Pins a block, so that it is not overwritten.
    #[inline]
    pub fn pin(&mut self, index: u32) {
        *self.pins.entry(index).or_default() += 1;
    }

    /// Takes one pin off a block. Returns true if nothing keeps the block any more.
    #[inline]
    pub fn unpin(&mut self, index: u32) -> bool {
        let Some(pins) = self.pins.get_mut(&index) else {
            unreachable!("data block {index} is pinned")
        };
        *pins -= 1;
        if *pins > 0 {
            return false;
        }
        self.pins.remove(&index);
        !self.is_kept(index)
    }

    #[inline]
    pub fn is_pinned(&self, index: u32) -> bool {
        self.pins.contains_key(&index)
    }

    fn is_kept(&self, index: u32) -> bool {
        self.counts.get(index) > 0 || self.is_pinned(index)
    }

    /// True if only its fingerprint keeps a block.
    pub fn is_unused(&self, index: u32) -> bool {
        self.counts.get(index) == 1 && self.refs.get(index) == 0 && !self.is_pinned(index)
    }

    /// Frees a block that nothing keeps.
    #[inline]
    pub fn free(&mut self, index: u32) {
        debug_assert!(!self.is_kept(index), "something keeps data block {index}");
        self.space.free(index);
    }

    /// Takes a free block, if possible the one after `before`.
    #[inline]
    pub fn take(&mut self, before: Option<u32>) -> Option<u32> {
        let taken = self.space.take(before);
        debug_assert!(taken.is_none_or(|index| !self.is_kept(index)));
        taken
    }

    /// How many blocks are free.
    #[inline]
    pub fn free_blocks(&self) -> u32 {
        self.space.free_blocks()
    }

    /// See [`Space::keep_stale`].
    pub fn keep_stale(&mut self, least: u32) {
        self.space.keep_stale(least);
    }

    /// The free blocks that the medium takes for used, if they are tracked.
    pub fn known_stale(&self) -> Option<&Stale> {
        self.space.known_stale()
    }

    /// The same, for changing it.
    pub fn stale(&mut self) -> Option<&mut Stale> {
        self.space.stale()
    }

    /// See [`Space::take_stale`].
    pub fn take_stale(&mut self, most: u32) -> Option<(u32, u32)> {
        self.space.take_stale(most)
    }

    /// See [`Space::discards`].
    pub fn discards(&self) -> u32 {
        self.space.discards()
    }

    /// See [`Space::discarded`].
    pub fn discarded(&mut self, first: u32, blocks: u32) {
        self.space.discarded(first, blocks);
    }

    /// Encodes a block of the counts, whose number over all tables is `number`.
    pub fn encode_counts(&self, block: u32, number: u64, signer: &Signer, out: &mut [u8]) {
        let none = Edition::default();
        self.counts.encode(block, number, none, signer, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten() -> DataBlocks {
        let mut blocks = DataBlocks::new(Table::new(1), Table::new(1), Space::new(10));
        (0..10).for_each(|index| blocks.free(index));
        blocks
    }

    #[test]
    fn a_block_is_kept_until_its_count_is_zero_and_its_pins_are_gone() {
        let (mut blocks, mut stats) = (ten(), Stats::default());
        let index = blocks.take(None).expect("all are free");
        blocks.raise(index);
        blocks.refer(index, &mut stats);
        blocks.pin(index);
        blocks.pin(index);
        blocks.unrefer(index, &mut stats);
        assert!(!blocks.is_unused(index), "it is pinned");
        assert!(!blocks.lower(index), "it is pinned");
        assert!(!blocks.unpin(index), "it is pinned once more");
        assert!(blocks.unpin(index));
        assert_eq!(blocks.free_blocks(), 9);
        blocks.free(index);
        assert_eq!(blocks.free_blocks(), 10);
        assert_eq!(stats.live_blocks, 0);
    }

    #[test]
    fn blocks_with_several_owners_are_shared() {
        let (mut blocks, mut stats) = (ten(), Stats::default());
        let shared = |stats: &Stats| (stats.live_blocks, stats.shared_pages, stats.shared_owners);
        for expected in [(1, 0, 0), (1, 1, 2), (1, 1, 3)] {
            blocks.raise(7);
            blocks.refer(7, &mut stats);
            assert_eq!(shared(&stats), expected);
        }
        for expected in [(1, 1, 2), (1, 0, 0), (0, 0, 0)] {
            blocks.unrefer(7, &mut stats);
            assert_eq!(shared(&stats), expected);
        }
        assert_eq!((blocks.refs(7), blocks.count(7)), (0, 3));
        assert!(!blocks.lower(7) && !blocks.lower(7));
        assert!(blocks.is_unused(7), "a fingerprint may still keep it");
        assert!(blocks.lower(7));
    }
}
