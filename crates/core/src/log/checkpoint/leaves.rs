//! The leaves of a checkpoint: their slots, their copies, and what is read for their parities.

use super::{Block, Checkpoint, LeafBlocks, Mask};
use crate::addr::{BLOCK_BYTES, Leaf};
use crate::format::root::LeafSlot;

impl Checkpoint {
    /// Returns the checksum by which the durable root names a leaf; `None`: it names none.
    pub fn kept_sum(&self, leaf: Leaf) -> Option<u32> {
        self.slots.get(leaf).found().map(|(_, sum)| sum)
    }

    /// Returns the slot of a leaf that the durable root does not name.
    pub fn target(&self, leaf: Leaf) -> u32 {
        self.slots.get(leaf).other()
    }

    /// Notes that a leaf with this checksum is going to be written to its [`target`](Self::target).
    pub fn on_leaf_begun(&mut self, leaf: Leaf, sum: u32, block: Block) {
        let slot = LeafSlot::at(self.target(leaf), sum);
        self.staged.push((leaf, slot));
        self.blocks.keep(leaf, block);
        self.in_flight += 1;
    }

    /// Notes that a leaf holds nothing, so it is not written.
    pub fn on_leaf_empty(&mut self, leaf: Leaf, block: Block) {
        self.staged.push((leaf, LeafSlot::Absent));
        self.blocks.give_back(block);
    }

    /// The memory of leaves that are encoded.
    pub fn blocks(&mut self) -> &mut LeafBlocks {
        &mut self.blocks
    }

    /// True if something is read for parities.
    pub fn reads_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Returns the next stripe after `stripe` to read for, if there is one and not too much is being read.
    pub fn poll_ahead(&mut self, stripe: u32) -> Option<u32> {
        self.ahead.poll(stripe, self.stripes)
    }

    /// Notes that these blocks of a stripe are requested. Returns those that were not requested before.
    pub fn on_asked(&mut self, stripe: u32, mask: Mask) -> Mask {
        self.ahead.ask(stripe, mask, &mut self.blocks)
    }

    /// Notes that a block that was requested has arrived, or cannot be had (`None`).
    pub fn on_read(&mut self, stripe: u32, bit: Mask, block: Option<&[u8; BLOCK_BYTES]>) {
        self.ahead.came(stripe, bit, block);
    }

    /// True if a block requested for a stripe has not arrived.
    pub fn waits_for(&self, stripe: u32) -> bool {
        self.ahead.waits(stripe)
    }

    /// Takes the blocks read for a stripe: which they are, and their sum. `None`: its parity is not among them, one of `mask` is not, or
    /// one is not intact.
    pub fn take_read(&mut self, stripe: u32, mask: Mask) -> Option<(Mask, Block)> {
        self.ahead.take(stripe, mask, &mut self.blocks)
    }
}
