//! What is the same wherever an inode's blocks are walked: extent trees, and block numbers as in ext3.

pub(crate) const EXTENT_MAGIC: u16 = 0xF30A;

/// Bytes of an entry of an extent tree's node, and of the header before the entries.
pub(crate) const ENTRY: usize = 12;

/// The most blocks of a written extent. A larger number means an unwritten extent, shorter by this many blocks.
pub(crate) const LENGTH_MAX: u16 = 1 << 15;

/// The blocks of an extent, written or not, by the number that its entry has.
pub(crate) fn extent_blocks(length: u16) -> u16 {
    match length > LENGTH_MAX {
        true => length - LENGTH_MAX,
        false => length,
    }
}

/// The numbers in a block of them.
pub(crate) fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.iter().map(|b| u32::from_le_bytes(*b).into())
}

/// The numbers in an inode: twelve of blocks, then of trees of depth 1, 2 and 3. Each with that depth.
pub(crate) fn roots(inode: &[u8]) -> impl Iterator<Item = (usize, u64)> + '_ {
    let depths = (0..).map(|index: usize| index.saturating_sub(11));
    depths.zip(numbers(inode))
}
