//! A stripe of leaves and its parity, written in one map checkpoint: whichever block of them is lost, the others tell what it was.
//!
//! A parity has to match its leaves as they are on the medium, not as they are by now. So a stripe is encoded in one go, and its
//! blocks are kept like that until they are written. A leaf that is not dirty is on the medium as it is in memory, or it is
//! written too: its checksum tells. One that is not in memory is on the medium as it was when it went.

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
        let mut holds_any = false;
        let mut leaves_out = 0;
        match parity_leaf {
            Some(leaf) => leaves_out = self.parity_of_those_away(stripe, leaf, dirty, &mut parity),
            None => parity.fill(0),
        }
        for (index, leaf) in leaves.enumerate() {
            let is_dirty = dirty >> index & 1 == 1;
            let known = match self.checkpoint.slots[leaf.0 as usize] {
                _ if is_dirty => None,
                LeafSlot::Absent => continue,
                _ if parity_leaf.is_none() => continue,
                _ if leaves_out >> index & 1 == 1 => {
                    holds_any = true;
                    continue;
                }
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

    /// What leaves of a stripe add to its parity that are not in memory, and which these are, if the parity that there is tells it with
    /// fewer reads than they would take: it is of them, and of those that are here, as the medium has these. Else none is left out.
    fn parity_of_those_away(&self, stripe: u32, parity: Leaf, dirty: u32, out: &mut Block) -> u32 {
        out.fill(0);
        let is_kept = |leaf: Leaf| self.checkpoint.slots[leaf.0 as usize] != LeafSlot::Absent;
        let (mut away, mut others) = (0u32, 0u32);
        for (index, leaf) in self.superblock.stripe(stripe).enumerate() {
            match is_kept(leaf) {
                true if dirty >> index & 1 == 0 && self.state.is_away(leaf) => away |= 1 << index,
                true => others |= 1 << index,
                false => {}
            }
        }
        if away.count_ones() <= others.count_ones() + 1 {
            return 0;
        }
        let leaves = self.superblock.stripe(stripe).enumerate();
        let others = leaves.filter(|(index, _)| others >> index & 1 == 1);
        for leaf in others.map(|(_, leaf)| leaf).chain([parity]) {
            match self.state.kept_leaf(leaf) {
                Some(block) => leaf::add(out, &block),
                None => {
                    out.fill(0);
                    return 0;
                }
            }
        }
        away
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
