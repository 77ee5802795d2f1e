//! Verifies that a block in the journal is the copy that a tag names.
//!
//! A block at a copy's place is not necessarily the copy: below a cache that writes back in its own order, blocks of several laps arrive
//! mixed. In a journal with checksums v3 each tag has a 32-bit checksum over its copy and the transaction's number. No block of another
//! transaction passes, nor another version in the same one, except for one in 2^32. Version 2 has 16 bits, version 1 one checksum for the
//! whole transaction, and others have none; for these journals nothing is reported.

use crate::checksum::crc32c;

/// The checksum of a block written into a journal, without the part that the tag's checksum covers before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySum(u32);

impl CopySum {
    /// Reads the block.
    #[must_use]
    pub fn of(block: &[u8]) -> Self {
        Self(crc32c(0, block))
    }
}

/// Verifies the copies of one transaction against their tags.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    /// The contribution of the journal's seed and the transaction's number to a checksum of a whole block. It can be added, because CRC
    /// is linear.
    before: u32,
}

impl Tags {
    /// For transaction `sequence`, in a journal with this seed and block size.
    pub fn of(seed: u32, block_bytes: u32, sequence: u32) -> Self {
        const ZEROS: [u8; 1024] = [0; 1024];
        let seed = crc32c(seed, &sequence.to_be_bytes());
        let parts = block_bytes as usize / ZEROS.len();
        let before = (0..parts).fold(seed, |sum, _| crc32c(sum, &ZEROS));
        Self { before }
    }

    /// True if a block is the copy named by a tag with this checksum.
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
