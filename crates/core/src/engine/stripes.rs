//! A stripe of leaves and its parity, written in one map checkpoint: if one block of them is lost, the others reconstruct it.
//!
//! A parity has to match its leaves on the medium, not in memory. So a stripe is encoded in one step, and its blocks are kept unchanged
//! until they are written. A leaf that is not dirty should be the same on the medium as in memory. Its checksum decides: if the two
//! differ, the leaf is written too. If some leaves are not in memory, they stay unchanged, and the parity changes by the difference of
//! the written leaves.

use super::{Engine, Pending};
use crate::addr::Leaf;
use crate::format::leaf;
use crate::log::checkpoint::Block;

impl Engine {
    /// Starts to write the dirty leaves of a stripe, and its parity.
    pub(super) fn write_stripe(&mut self, stripe: u32) {
        let leaves = self.superblock.stripe(stripe);
        let dirty = self.dirty_of(stripe);
        if dirty == 0 {
            return;
        }
        let read = self.parity_without(stripe, dirty);
        for leaf in leaves.clone() {
            self.state.take_dirty(leaf);
        }
        let Some(parity_leaf) = self.superblock.parity(stripe) else {
            let leaves = leaves.enumerate();
            leaves
                .filter(|(index, _)| dirty >> index & 1 == 1)
                .for_each(|(_, leaf)| self.write_leaf_as_is(leaf));
            return;
        };
        let is_changed = read.is_some();
        let mut parity = read.unwrap_or_else(|| {
            let mut parity = self.checkpoint.blocks().take();
            parity.fill(0);
            parity
        });
        let mut holds_any = is_changed;
        for (index, leaf) in leaves.enumerate() {
            let is_dirty = dirty >> index & 1 == 1;
            let known = match self.checkpoint.kept_sum(leaf) {
                _ if is_dirty => None,
                // The parity already contains this leaf as it is on the medium.
                _ if is_changed => continue,
                None => continue,
                known => known,
            };
            let mut block = self.checkpoint.blocks().take();
            let holds = self.state.encode_leaf(leaf, &mut block[..]);
            holds_any |= holds;
            leaf::add(&mut parity, &block);
            match known == Some(leaf::checksum(leaf, &block[..], self.superblock.crc())) {
                true => self.checkpoint.blocks().give_back(block),
                false => self.write_leaf(leaf, block, holds),
            }
        }
        self.stats.medium_copies += u64::from(holds_any);
        self.write_leaf(parity_leaf, parity, holds_any);
    }

    fn write_leaf_as_is(&mut self, leaf: Leaf) {
        let mut block = self.checkpoint.blocks().take();
        let holds = self.state.encode_leaf(leaf, &mut block[..]);
        self.write_leaf(leaf, block, holds);
    }

    /// Writes a leaf, unless it holds nothing.
    fn write_leaf(&mut self, leaf: Leaf, block: Block, holds: bool) {
        if !holds {
            return self.checkpoint.on_leaf_empty(leaf, block);
        }
        let sum = leaf::checksum(leaf, &block[..], self.superblock.crc());
        self.checkpoint.on_leaf_begun(leaf, sum, block);
        self.stats.medium_map += 1;
        self.start_write(Pending::Leaf(leaf));
    }

    /// Makes the next map checkpoint rewrite a leaf; for a parity, a leaf of its stripe.
    pub(super) fn write_anew(&mut self, leaf: Leaf) {
        let leaf = match leaf.0 < self.superblock.first_parity() {
            true => leaf,
            false => Leaf(self.superblock.stripe_of(leaf)),
        };
        self.state.write_anew(leaf);
    }
}
