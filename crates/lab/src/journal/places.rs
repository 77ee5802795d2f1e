//! Where a simulated file system has its parts.

use vellum_ext4::made;

/// Blocks of a group: one block of bitmap covers them.
pub(super) const GROUP_BLOCKS: u64 = 32_768;
/// Groups that one block of descriptors describes.
pub(super) const GROUPS_A_BLOCK: u64 = 64;
/// Blocks that an indirect block points to.
pub(super) const INDIRECT_BLOCKS: u64 = 1024;

/// In this order: the superblock, descriptors, the journal's extents (if it is too long for its inode), the journal, a
/// block of inodes, bitmaps, indirect blocks, data.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub logical: u64,
    pub descriptors: u64,
    /// The journal, and its length.
    pub journal: u64,
    pub journal_blocks: u64,
    pub inode: u64,
    pub bitmaps: u64,
    pub indirect: u64,
    pub data_at: u64,
}

impl Places {
    pub fn of(journal_blocks: u64, logical: u64) -> Self {
        let descriptors = 1;
        let behind = descriptors + made::descriptor_blocks(logical);
        let leaf = u64::from(made::FileSystem::has_leaf(journal_blocks));
        let journal = behind + leaf;
        let inode = journal + journal_blocks;
        let bitmaps = inode + 1;
        let indirect = bitmaps + logical.div_ceil(GROUP_BLOCKS);
        // No indirect block points into the journal: the journal is longer than the blocks that the ones before it
        // point to.
        let pointed = logical.div_ceil(INDIRECT_BLOCKS) - 1 - leaf;
        Self {
            logical,
            descriptors,
            journal,
            journal_blocks,
            inode,
            bitmaps,
            indirect,
            data_at: indirect + pointed,
        }
    }

    /// The same, to be written to disk.
    pub fn file_system(&self) -> made::FileSystem {
        made::FileSystem {
            blocks: self.logical,
            journal: (self.journal, self.journal_blocks),
            bitmaps: self.bitmaps,
            inodes: self.inode,
            leaf: self.journal - 1,
        }
    }

    /// True if this block is metadata of the file system.
    pub fn is_metadata(&self, home: u64) -> bool {
        home < self.data_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indirect_blocks_point_to_all_data() {
        for (journal, logical) in [
            (1024, 2048),
            (1024, 1_000_000),
            (16_384, 122_497),
            (131_073, 1 << 20),
            (10_000_000, 1 << 24),
        ] {
            let at = Places::of(journal, logical);
            let pointed = (at.data_at - at.indirect) * INDIRECT_BLOCKS;
            assert!(pointed >= logical - at.data_at, "{journal} {logical}");
        }
    }
}
