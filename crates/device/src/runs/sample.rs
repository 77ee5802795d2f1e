//! What the tests of archives and of streams have in common.

use super::{Damaged, Problem};
use std::fmt::Debug;
use vellum_core::addr::BLOCK_BYTES;

/// Blocks whose first byte is this one. They do not compress if it is odd.
pub(crate) fn blocks_of(byte: u8, blocks: u64) -> Vec<u8> {
    let mut bytes = vec![byte; blocks as usize * BLOCK_BYTES];
    if byte & 1 == 1 {
        // Pseudo-random bytes.
        let mut word = u64::from(byte);
        for part in bytes.chunks_exact_mut(8) {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            part.copy_from_slice(&(word ^ word >> 29).to_le_bytes());
        }
        let blocks = bytes.chunks_exact_mut(BLOCK_BYTES);
        blocks.for_each(|block| block[0] = byte);
    }
    bytes
}

/// Checks that bytes are never read to their end if they are cut or changed at one of them, or if one is added or left out.
pub(crate) fn assert_all_needed<T: Debug>(
    bytes: &[u8],
    at: usize,
    bit: u8,
    read: impl Fn(&[u8]) -> Result<T, Damaged>,
) {
    let cut = read(&bytes[..at]).unwrap_err();
    assert!(matches!(cut.problem, Problem::CutShort), "{cut}");
    assert!(cut.at <= at as u64);
    let mut changed = bytes.to_vec();
    changed[at] ^= 1 << bit;
    assert!(read(&changed).is_err());
    changed[at] ^= 1 << bit;
    changed.remove(at);
    assert!(read(&changed).is_err());
    changed = bytes.to_vec();
    changed.push(0);
    assert!(matches!(read(&changed).unwrap_err().problem, Problem::More));
}
