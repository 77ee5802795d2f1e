//! The CRC32C of blocks that follow each other, from the CRC32C of each.
//!
//! CRC is linear: what appending a block of zeros makes of a CRC is a map of its 32 bits.

use crate::addr::BLOCK_BYTES;

/// The polynomial, its bits reversed.
const CASTAGNOLI: u32 = 0x82F6_3B78;

/// What each bit becomes.
type Map = [u32; 32];

const A_BLOCK_OF_ZEROS: Map = after(8 * BLOCK_BYTES);

/// The CRC32C of blocks and of one more after them. `before`: the CRC of those blocks, 0 if there are none. `block`: the CRC of the last
/// one.
pub(super) fn with_block(before: u32, block: u32) -> u32 {
    apply(&A_BLOCK_OF_ZEROS, before) ^ block
}

/// What appending so many zero bits, a power of two, makes of a CRC.
const fn after(bits: usize) -> Map {
    let mut map = [CASTAGNOLI; 32];
    let mut bit = 1;
    while bit < 32 {
        map[bit] = 1 << (bit - 1);
        bit += 1;
    }
    let mut done = 1;
    while done < bits {
        map = twice(&map);
        done *= 2;
    }
    map
}

const fn twice(map: &Map) -> Map {
    let mut out = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        out[bit] = apply(map, map[bit]);
        bit += 1;
    }
    out
}

const fn apply(map: &Map, crc: u32) -> u32 {
    let (mut out, mut bit) = (0, 0);
    while bit < 32 {
        if crc >> bit & 1 == 1 {
            out ^= map[bit];
        }
        bit += 1;
    }
    out
}

const _: () = assert!(BLOCK_BYTES.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;
    use crc32c::crc32c;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_have_the_crc_that_they_have_together(seed: u64, count in 0..5_usize) {
            let bytes: alloc::vec::Vec<u8> = (0..count * BLOCK_BYTES)
                .map(|at| ((at as u64 + 1).wrapping_mul(seed | 1) >> 40) as u8)
                .collect();
            let blocks = bytes.chunks_exact(BLOCK_BYTES);
            let sum = blocks.fold(0, |before, block| with_block(before, crc32c(block)));
            prop_assert_eq!(sum, crc32c(&bytes));
        }
    }
}
