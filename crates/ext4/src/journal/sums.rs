//! Whether what lies in the journal is the copy that a tag names.
//!
//! That a block was written at a copy's place says nothing of its content: below a cache that writes back in an order of its own, blocks
//! of several laps come down mixed. In a journal with checksums v3 each tag has 32 bits of its copy's sum, and of the transaction's
//! number: no block of another transaction passes, nor another version of the same one, but for one in 2^32. Version 2 has
//! 16 bits, version 1 one sum for all of a transaction, and others have none: of these journals nothing is told.

use crate::checksum::crc32c;

/// Of a block that was written into a journal: its checksum, without what comes before it in the tag's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySum(u32);

impl CopySum {
    /// Reads the block.
    #[must_use]
    pub fn of(block: &[u8]) -> Self {
        Self(crc32c(0, block))
    }
}

/// Holds the copies of one transaction against their tags.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    /// What the journal's seed and the transaction's number add to a checksum of a whole block: CRC is linear.
    before: u32,
}

impl Tags {
    /// Of transaction `sequence`, in a journal with this seed and blocks of so many bytes.
    pub fn of(seed: u32, block_bytes: u32, sequence: u32) -> Self {
        const ZEROS: [u8; 1024] = [0; 1024];
        let seed = crc32c(seed, &sequence.to_be_bytes());
        let parts = block_bytes as usize / ZEROS.len();
        let before = (0..parts).fold(seed, |sum, _| crc32c(sum, &ZEROS));
        Self { before }
    }

    /// Whether a block is the copy that a tag with this checksum names.
    pub fn name(self, tag: u32, block: CopySum) -> bool {
        block.0 ^ self.before == tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_names_its_copy_and_no_other() {
        let mut block = [3; 4096];
        block[5] = 9;
        // As jbd2_block_tag_csum_set.
        let tag = |sequence: u32| crc32c(crc32c(77, &sequence.to_be_bytes()), &block);
        let tags = Tags::of(77, 4096, 12);
        assert!(tags.name(tag(12), CopySum::of(&block)));
        assert!(!tags.name(tag(13), CopySum::of(&block)));
        assert!(!tags.name(tag(12), CopySum::of(&[3; 4096])));
    }
}
