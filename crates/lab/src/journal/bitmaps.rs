//! The block bitmaps of a simulated file system, as ext4 has them.
//!
//! Metadata is always used, indirect blocks included: their places do not change.

use super::places::{GROUP_BLOCKS, Places};
use crate::content::BYTES;
use crate::workload::Block;

/// A bit for each block, set if the block is used or does not exist.
#[derive(Clone)]
pub(crate) struct Bitmaps(Vec<u8>);

impl Bitmaps {
    /// The bitmaps of a file system without files.
    pub fn new(at: &Places) -> Self {
        let groups = at.logical.div_ceil(GROUP_BLOCKS) as usize;
        let mut all = Self(vec![0; groups * BYTES]);
        let bits = groups as u64 * GROUP_BLOCKS;
        (0..at.data_at).chain(at.logical..bits).for_each(|block| {
            all.take(block);
        });
        all
    }

    pub fn is_used(&self, block: u64) -> bool {
        self.0[block as usize / 8] >> (block % 8) & 1 == 1
    }

    /// Marks a block used. True if it was free.
    pub fn take(&mut self, block: u64) -> bool {
        let was_free = !self.is_used(block);
        self.0[block as usize / 8] |= 1 << (block % 8);
        was_free
    }

    /// Marks a block free. True if it was used.
    pub fn give_back(&mut self, block: u64) -> bool {
        let was_used = self.is_used(block);
        self.0[block as usize / 8] &= !(1 << (block % 8));
        was_used
    }

    /// The bytes of a group's bitmap.
    pub fn of_group(&self, group: u64) -> Block {
        let first = group as usize * BYTES;
        self.0[first..first + BYTES].into()
    }
}
