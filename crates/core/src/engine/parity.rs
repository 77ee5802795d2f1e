//! Requests the blocks from which a map checkpoint computes the parities of its stripes (`log/checkpoint/ahead.rs`).

use super::{Engine, Pending};
use crate::addr::{BLOCK_BYTES, Leaf};
use crate::format::leaf;
use crate::log::checkpoint::{Block, Mask, PARITY};
use crate::seam::{Effect, Outcome};

impl Engine {
    /// True if the stripe can be written now: everything its parity is computed from is in memory. If not, requests the missing
    /// blocks, and reads ahead for the stripes after it.
    pub(super) fn is_read_for(&mut self, stripe: u32) -> bool {
        if !self.state.has_away() && !self.checkpoint.reads_ahead() {
            return true;
        }
        self.read_for(stripe);
        while let Some(next) = self.checkpoint.poll_ahead(stripe) {
            self.read_for(next);
        }
        !self.checkpoint.waits_for(stripe)
    }

    /// Returns a stripe's parity on the medium, minus the old contents of the leaves to be written: adding the new contents gives the new
    /// parity. `None`: the parity has to be computed from all leaves.
    pub(super) fn parity_without(&mut self, stripe: u32, dirty: Mask) -> Option<Block> {
        let mask = self.read_mask(stripe, dirty);
        let (read, mut sum) = self.checkpoint.take_read(stripe, mask)?;
        debug_assert_eq!(
            read & !dirty & !PARITY,
            0,
            "a leaf that is not written was read"
        );
        for (index, leaf) in self.superblock.stripe(stripe).enumerate() {
            let is_one = dirty & !read & 1 << index != 0;
            if is_one && self.is_kept(leaf) && !self.add_written(leaf, &mut sum) {
                self.checkpoint.blocks().give_back(sum);
                return None;
            }
        }
        Some(sum)
    }

    /// Adds the old contents of a changed leaf from memory; false if they are not the leaf that the newest root names.
    fn add_written(&mut self, leaf: Leaf, sum: &mut Block) -> bool {
        let mut block = self.checkpoint.blocks().take();
        let is_told =
            self.state.as_written(leaf, &mut block[..]) && self.is_as_kept(leaf, &block[..]);
        if is_told {
            leaf::add(sum, &block);
        }
        self.checkpoint.blocks().give_back(block);
        is_told
    }

    fn is_kept(&self, leaf: Leaf) -> bool {
        self.checkpoint.kept_sum(leaf).is_some()
    }

    /// True if the newest root leads to a leaf with these bytes.
    fn is_as_kept(&self, leaf: Leaf, block: &[u8]) -> bool {
        let kept = self.checkpoint.kept_sum(leaf);
        kept.is_some_and(|sum| leaf::checksum(leaf, block, self.superblock.crc()) == sum)
    }

    /// Returns which leaves of a stripe have changed.
    pub(super) fn dirty_of(&self, stripe: u32) -> Mask {
        let leaves = self.superblock.stripe(stripe).enumerate();
        leaves.fold(0, |dirty, (index, leaf)| {
            dirty | Mask::from(self.state.is_dirty(leaf)) << index
        })
    }

    /// Requests the blocks that a stripe's parity is computed from, unless they are already requested.
    fn read_for(&mut self, stripe: u32) {
        let mask = self.read_mask(stripe, self.dirty_of(stripe));
        let new = self.checkpoint.on_asked(stripe, mask);
        for (index, leaf) in self.superblock.stripe(stripe).enumerate() {
            if new >> index & 1 == 1 {
                self.read_kept(leaf);
            }
        }
        if let Some(parity) = self.superblock.parity(stripe)
            && new & PARITY != 0
        {
            self.read_kept(parity);
        }
    }

    /// Returns the blocks to read before the `dirty` leaves of a stripe are written. If all leaves of the stripe are in memory, nothing has
    /// to be read. Otherwise the parity has to be read, and each dirty leaf that was evicted or whose old contents are unknown.
    fn read_mask(&self, stripe: u32, dirty: Mask) -> Mask {
        let parity = self.superblock.parity(stripe);
        if dirty == 0 || !parity.is_some_and(|parity| self.is_kept(parity)) {
            return 0;
        }
        let (mut unknown, mut is_away) = (0, false);
        for (index, leaf) in self.superblock.stripe(stripe).enumerate() {
            if !self.is_kept(leaf) {
                continue;
            }
            is_away |= self.state.is_away(leaf);
            if dirty >> index & 1 == 1 {
                unknown |= Mask::from(!self.state.knows_written(leaf)) << index;
            }
        }
        match is_away {
            true => unknown | PARITY,
            false => 0,
        }
    }

    fn read_kept(&mut self, leaf: Leaf) {
        let Some(at) = self.state.place_of_leaf(leaf) else {
            unreachable!("{leaf} is on the medium");
        };
        self.front.ask(Pending::Kept(leaf), |id| Effect::ReadMeta {
            id,
            at,
            blocks: 1,
        });
    }

    /// Takes a leaf or a parity that a map checkpoint requested.
    pub(super) fn kept_read(&mut self, leaf: Leaf, outcome: Outcome<'_>) {
        let stripe = self.superblock.stripe_of(leaf);
        let mut leaves = self.superblock.stripe(stripe);
        let bit = leaves
            .position(|of| of == leaf)
            .map_or(PARITY, |index| 1 << index);
        let block = match outcome {
            Outcome::Bytes(bytes) => <&[u8; BLOCK_BYTES]>::try_from(bytes).ok(),
            _ => None,
        };
        let block = block.filter(|block| self.is_as_kept(leaf, &block[..]));
        self.checkpoint.on_read(stripe, bit, block);
        // A leaf that was evicted is about to be written: as it was, with its changes.
        if let Some(block) = block
            && bit != PARITY
            && self.state.is_away(leaf)
        {
            self.state.take_leaf(leaf, block);
        }
    }
}
