//! A stripe of leaves and its parity, written in one map checkpoint: whichever block of them is lost, the others tell what it was.
//!
//! A parity has to match its leaves as they are on the medium, not as they are by now. So a stripe is encoded in one go, and its
//! blocks are kept like that until they are written. A leaf that is not dirty is on the medium as it is in memory, or it is
//! written too: its checksum tells.

use super::leaf_blocks::Block;
use super::{Engine, Pending};
use crate::addr::{Leaf, Pba};
use crate::format::leaf;
use crate::format::root::LeafSlot;
use crate::seam::Effect;

impl Engine {
    /// Begins to write what is dirty of a stripe, and its parity.
    pub(super) fn write_stripe(&mut self, stripe: u32) {
        let leaves = self.superblock.stripe(stripe);
        let mut dirty = 0u32;
        for (index, leaf) in leaves.clone().enumerate() {
            dirty |= u32::from(self.state.take_dirty(leaf)) << index;
        }
        if dirty == 0 {
            return;
        }
        let parity_leaf = self.superblock.parity(stripe);
        let mut parity = self.checkpoint.blocks.take();
        parity.fill(0);
        let mut holds_any = false;
        for (index, leaf) in leaves.enumerate() {
            let is_dirty = dirty >> index & 1 == 1;
            let known = match self.checkpoint.slots[leaf.0 as usize] {
                _ if is_dirty => None,
                LeafSlot::Absent => continue,
                _ if parity_leaf.is_none() => continue,
                LeafSlot::Slot0(sum) | LeafSlot::Slot1(sum) => Some(sum),
            };
            let mut block = self.checkpoint.blocks.take();
            let holds = self.state.encode_leaf(leaf, &mut block[..]);
            holds_any |= holds;
            leaf::add(&mut parity, &block);
            match known == Some(leaf::checksum(leaf, &block[..], self.superblock.crc())) {
                true => self.checkpoint.blocks.give_back(block),
                false => self.write_leaf(leaf, block, holds),
            }
        }
        match parity_leaf {
            Some(leaf) => {
                self.stats.medium_copies += u64::from(holds_any);
                self.write_leaf(leaf, parity, holds_any);
            }
            None => self.checkpoint.blocks.give_back(parity),
        }
    }

    /// Writes a leaf; not one that holds nothing.
    fn write_leaf(&mut self, leaf: Leaf, block: Block, holds: bool) {
        if !holds {
            self.checkpoint.staged.push((leaf, LeafSlot::Absent));
            return self.checkpoint.blocks.give_back(block);
        }
        let sum = leaf::checksum(leaf, &block[..], self.superblock.crc());
        let slot = match self.checkpoint.slots[leaf.0 as usize] {
            LeafSlot::Slot0(_) => LeafSlot::Slot1(sum),
            LeafSlot::Absent | LeafSlot::Slot1(_) => LeafSlot::Slot0(sum),
        };
        self.checkpoint.staged.push((leaf, slot));
        self.checkpoint.blocks.keep(leaf, block);
        self.checkpoint.in_flight += 1;
        self.stats.medium_map += 1;
        let at = self.leaf_target(leaf);
        self.outbox
            .ask(Pending::Leaf(leaf), |id| Effect::WriteMeta {
                id,
                at,
                blocks: 1,
                durable: false,
            });
    }

    /// The slot that the durable root does not name.
    pub(super) fn leaf_target(&self, leaf: Leaf) -> Pba {
        let slot = u32::from(matches!(
            self.checkpoint.slots[leaf.0 as usize],
            LeafSlot::Slot0(_)
        ));
        self.superblock.leaf_slot(leaf, slot)
    }

    /// The next map checkpoint writes a leaf anew; of a parity one that it is made of.
    pub(super) fn write_anew(&mut self, leaf: Leaf) {
        let leaf = match leaf.0 < self.superblock.first_parity() {
            true => leaf,
            false => Leaf(self.superblock.stripe_of(leaf)),
        };
        self.state.write_anew(leaf);
    }
}
