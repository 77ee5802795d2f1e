//! Which block is a copy of a damaged one: what a scrub may mend it from.
//!
//! Copies are looked for by their sums, and a sum of 32 bits proposes, as everywhere, and does not decide: with as many blocks as a
//! volume has, one of another content has the same sum now and then. What decides when the bytes themselves are lost: the copy must be of
//! that very address, or what is left of the damaged block must say so. What cannot be decided so is left as it is, and told.

use crate::addr::{BLOCK_BYTES, Lba};
use crate::format::SumKind;
use crate::format::summary::{Owner, Tag};
use crate::format::superblock::Superblock;

const SECTOR: usize = 512;

/// Whether sums of a volume tell an older content of an address from its present one. A CRC32C does not: blocks that end with their own
/// have the same sum whatever else is in them, as an ext4 superblock does. So nothing is mended there.
#[must_use]
pub fn are_told_apart(superblock: &Superblock) -> bool {
    superblock.sums() != SumKind::Crc32c
}

/// Whether a tag is that of a block that may be a copy; if so, whose it is said to be.
#[must_use]
pub fn owner(superblock: &Superblock, tag: &Tag) -> Option<Option<Lba>> {
    match tag.owner {
        Owner::None => None,
        // It may name what has had that LBA before.
        Owner::Lba(lba) => Some(Some(lba).filter(|lba| superblock.is_settled(*lba))),
        Owner::Vba(_) => Some(None),
    }
}

/// Whether it is more than its sum that says that a block with this content is a copy of what was at `lba`, of which this is left.
#[must_use]
pub fn is_copy(owner: Option<Lba>, lba: Lba, left: Option<&[u8]>, content: &[u8]) -> bool {
    owner == Some(lba) || left.is_some_and(|left| resemble(left, content))
}

/// Whether half of the sectors are the same, and say something.
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
        // Zeros say nothing.
        let mut left = vec![0; BLOCK_BYTES];
        assert!(!is_copy(None, Lba(3), Some(&left), &vec![0; BLOCK_BYTES]));
        left[0] = 1;
        assert!(!is_copy(None, Lba(3), Some(&left), &vec![0; BLOCK_BYTES]));
    }
}
