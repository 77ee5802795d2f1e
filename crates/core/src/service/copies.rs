//! Decides which block is a copy of a damaged one: what a scrub may mend it from.
//!
//! Copies are found by their sums. As everywhere, a sum of 32 bits proposes and does not decide: a volume has so many blocks that two
//! different contents occasionally have the same sum. The damaged bytes cannot be compared, so other evidence decides: the copy must
//! belong to the same address, or must match the rest of the damaged block. Without such evidence the block is left as it is, and
//! reported.

use crate::addr::{BLOCK_BYTES, Lba};
use crate::format::SumKind;
use crate::format::summary::{Owner, Tag};
use crate::format::superblock::Superblock;

const SECTOR: usize = 512;

/// True if a volume's sums distinguish an older content of an address from its present one. A CRC32C does not: blocks that end
/// with their own CRC have the same sum whatever else they contain, as an ext4 superblock does. So nothing is mended there.
#[must_use]
pub fn are_told_apart(superblock: &Superblock) -> bool {
    superblock.sums() != SumKind::Crc32c
}

/// Returns `None` if a tag cannot be that of a copy; otherwise the LBA that it names as the owner, if any.
#[must_use]
pub fn owner(superblock: &Superblock, tag: &Tag) -> Option<Option<Lba>> {
    match tag.owner {
        Owner::None => None,
        // The tag may be from a time when that LBA meant another block.
        Owner::Lba(lba) => Some(Some(lba).filter(|lba| superblock.is_settled(*lba))),
        Owner::Vba(_) => Some(None),
    }
}

/// True if there is evidence, besides the sum, that a block with this content is a copy of the block at `lba`. `left`: what remains of
/// that block.
#[must_use]
pub fn is_copy(owner: Option<Lba>, lba: Lba, left: Option<&[u8]>, content: &[u8]) -> bool {
    owner == Some(lba) || left.is_some_and(|left| resemble(left, content))
}

/// True if half of the sectors are the same, and not all of them are uniform.
fn resemble(left: &[u8], content: &[u8]) -> bool {
    let sectors = left.chunks_exact(SECTOR).zip(content.chunks_exact(SECTOR));
    let same = sectors.filter(|(one, other)| one == other);
    let (mut count, mut says) = (0, false);
    for (sector, _) in same {
        count += 1;
        says |= sector.iter().any(|byte| *byte != sector[0]);
    }
    says && count * 2 >= BLOCK_BYTES / SECTOR
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn a_sum_alone_makes_no_copy() {
        let content: Vec<u8> = (0..BLOCK_BYTES).map(|i| (i * 7 % 251) as u8).collect();
        let mut left = content.clone();
        left[77] ^= 4;
        assert!(is_copy(None, Lba(3), Some(&left), &content));
        for sector in 0..5 {
            left[sector * SECTOR] ^= 1;
        }
        assert!(!is_copy(None, Lba(3), Some(&left), &content));
        assert!(!is_copy(Some(Lba(4)), Lba(3), Some(&left), &content));
        assert!(!is_copy(Some(Lba(4)), Lba(3), None, &content));
        assert!(is_copy(Some(Lba(3)), Lba(3), None, &content));
        // Zeros are no evidence.
        let mut left = vec![0; BLOCK_BYTES];
        assert!(!is_copy(None, Lba(3), Some(&left), &vec![0; BLOCK_BYTES]));
        left[0] = 1;
        assert!(!is_copy(None, Lba(3), Some(&left), &vec![0; BLOCK_BYTES]));
    }
}
