//! Encoded copies of the map's leaves that are being written.
//!
//! A leaf may change while it is being written; its copy here does not. The memory of copies is reused.

use crate::addr::{BLOCK_BYTES, Leaf};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A leaf, encoded.
pub(crate) type Block = Box<[u8; BLOCK_BYTES]>;

/// Copies of the leaves being written.
#[derive(Default)]
pub(crate) struct LeafBlocks {
    kept: Vec<(Leaf, Block)>,
    spare: Vec<Block>,
}

impl LeafBlocks {
    /// Returns the bytes of a leaf that is being written.
    pub fn get(&self, leaf: Leaf) -> &[u8] {
        let mut kept = self.kept.iter();
        match kept.find(|(of, _)| *of == leaf) {
            Some((_, block)) => &block[..],
            None => unreachable!("leaf {leaf} is not on its way"),
        }
    }

    /// Frees the copy of a leaf that is on the medium.
    pub fn written(&mut self, leaf: Leaf) {
        if let Some(index) = self.kept.iter().position(|(of, _)| *of == leaf) {
            let (_, block) = self.kept.swap_remove(index);
            self.spare.push(block);
        }
    }

    /// Returns memory to encode a leaf in: [`keep`](Self::keep) it, or [`give_back`](Self::give_back).
    pub fn take(&mut self) -> Block {
        let spare = self.spare.pop();
        spare.unwrap_or_else(|| Box::new([0; BLOCK_BYTES]))
    }

    /// Takes back memory that is not written after all.
    pub fn give_back(&mut self, block: Block) {
        self.spare.push(block);
    }

    /// Keeps a leaf that is about to be written.
    pub fn keep(&mut self, leaf: Leaf, block: Block) {
        debug_assert!(self.kept.iter().all(|(of, _)| *of != leaf), "twice at once");
        self.kept.push((leaf, block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_leaf_stays_until_the_leaf_is_written() {
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
        // The memory of the written leaf, and the memory that was given back.
        assert_eq!((blocks.take()[0], blocks.take()[0]), (3, 9));
    }
}
