//! A block's sum: 32 bits that verify a block when it is read, and that propose blocks with equal contents.
//!
//! A structure that ends with its own CRC32C has the same CRC32C in all its versions, because CRC is linear. So if a volume's sums are
//! CRC32C, an older version of such a block passes the check. XXH3 is not linear, and no client that writes to a volume knows the key
//! ([decision 0016](../../../../docs/decisions/0016-block-sums.md)).

use super::field::Crc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The kind of a volume's block sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SumKind {
    /// CRC32C: volumes from before XXH3 sums have these.
    Crc32c,
    /// The lower half of XXH3-64, keyed with the volume's secret.
    #[default]
    Xxh3,
}

impl SumKind {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Xxh3 => "xxh3",
        }
    }
}

/// Computes the sums of a volume's blocks ([`Superblock::sum`](super::superblock::Superblock::sum) returns one).
#[derive(Clone, Copy, Debug)]
pub enum BlockSum {
    /// See [`SumKind::Crc32c`].
    Crc32c(Crc),
    /// See [`SumKind::Xxh3`].
    Xxh3 {
        /// The key.
        seed: u64,
    },
}

impl BlockSum {
    /// A block's sum.
    #[must_use]
    pub fn of(self, block: &[u8]) -> u32 {
        match self {
            Self::Crc32c(crc) => crc(block),
            Self::Xxh3 { seed } => Self::of_hash(xxh3_64_with_seed(block, seed)),
        }
    }

    /// The sum of a block with this XXH3-64; only for sums of that kind.
    #[must_use]
    pub fn of_hash(hash: u64) -> u32 {
        hash as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::BLOCK_BYTES;
    use alloc::vec;

    /// A block of zeros, except for a structure that starts at `start` and whose CRC32C is at `end`.
    fn version(start: usize, end: usize, number: u8) -> vec::Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        block[start..end].fill(0x5a);
        block[start + 8] = number;
        // As in ext4: with a seed, and not inverted.
        let crc = !crc32c::crc32c_append(0x1234_5678, &block[start..end]);
        block[end..end + 4].copy_from_slice(&crc.to_le_bytes());
        block
    }

    #[test]
    fn versions_of_a_block_that_ends_with_its_own_crc_have_different_sums() {
        let families = [
            (1024, 2044, "ext4's superblock"),
            (0, 4092, "an extent block"),
            (0, 2040, "an extent block of 2 KiB"),
            (0, 288, "PostgreSQL's pg_control"),
        ];
        for (start, end, what) in families {
            let versions = (0..200).map(|number| version(start, end, number));
            let mut sums: vec::Vec<_> = versions
                .clone()
                .map(|block| BlockSum::Xxh3 { seed: 7 }.of(&block))
                .collect();
            let mut crcs: vec::Vec<_> = versions
                .map(|block| BlockSum::Crc32c(crc32c::crc32c).of(&block))
                .collect();
            sums.sort_unstable();
            sums.dedup();
            crcs.dedup();
            assert_eq!((sums.len(), crcs.len()), (200, 1), "{what}");
        }
    }

    /// Sums are on the medium, so the functions that compute them must never change.
    #[test]
    fn sums_never_change() {
        // The value published by xxHash.
        assert_eq!(xxh3_64_with_seed(b"", 0), 0x2d06_8005_38d3_94c2);
        let sum = |seed| BlockSum::Xxh3 { seed }.of(&version(0, 288, 1));
        assert_eq!(
            [0, 1, u64::MAX].map(sum),
            [0xcf0d_ee21, 0x8589_ebda, 0x408b_cab9]
        );
    }
}
