//! Leaves of the map that are on their way to the medium, as they are written.
//!
//! A leaf may change while it is written; what is here does not. Memory that is not needed any more is used again.

use crate::addr::{BLOCK_BYTES, Leaf};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A leaf, encoded.
pub(super) type Block = Box<[u8; BLOCK_BYTES]>;

/// See the module.
#[derive(Default)]
pub(super) struct LeafBlocks {
    kept: Vec<(Leaf, Block)>,
    spare: Vec<Block>,
}

impl LeafBlocks {
    /// What is written of a leaf that is on its way.
    pub fn get(&self, leaf: Leaf) -> &[u8] {
        let mut kept = self.kept.iter();
        match kept.find(|(of, _)| *of == leaf) {
            Some((_, block)) => &block[..],
            None => unreachable!("leaf {leaf} is not on its way"),
        }
    }

    /// It is on the medium.
    pub fn written(&mut self, leaf: Leaf) {
        if let Some(index) = self.kept.iter().position(|(of, _)| *of == leaf) {
            let (_, block) = self.kept.swap_remove(index);
            self.spare.push(block);
        }
    }

    /// Memory to encode a leaf in: [`keep`](Self::keep) it, or [`give_back`](Self::give_back).
    pub fn take(&mut self) -> Block {
        let spare = self.spare.pop();
        spare.unwrap_or_else(|| Box::new([0; BLOCK_BYTES]))
    }

    /// It is not written after all.
    pub fn give_back(&mut self, block: Block) {
        self.spare.push(block);
    }

    /// A leaf is about to be written.
    pub fn keep(&mut self, leaf: Leaf, block: Block) {
        debug_assert!(self.kept.iter().all(|(of, _)| *of != leaf), "twice at once");
        self.kept.push((leaf, block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_stays_until_it_is() {
        let mut blocks = LeafBlocks::default();
        for leaf in [3, 5] {
            let mut block = blocks.take();
            block.fill(leaf as u8);
            blocks.keep(Leaf(leaf), block);
        }
        let mut spare = blocks.take();
        spare.fill(9);
        blocks.give_back(spare);
        assert_eq!((blocks.get(Leaf(3))[0], blocks.get(Leaf(5))[0]), (3, 5));
        blocks.written(Leaf(3));
        assert_eq!(blocks.get(Leaf(5))[7], 5);
        // The memory of the leaf that is written, and of what was given back.
        assert_eq!((blocks.take()[0], blocks.take()[0]), (3, 9));
    }
}
