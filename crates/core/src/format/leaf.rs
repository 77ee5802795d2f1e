//! A leaf of the map, or of the table of shared pages: 1024 entries of 4 bytes, a block.
//!
//! Its checksum is kept in the root, and covers the leaf's number, so that a leaf which was written to
//! another's place is not taken for it.

use super::Crc;
use crate::addr::Leaf;

/// The checksum of leaf `leaf` with these bytes.
#[must_use]
pub fn checksum(leaf: Leaf, bytes: &[u8], crc: Crc) -> u32 {
    let mut parts = [0; 8];
    parts[..4].copy_from_slice(&leaf.0.to_le_bytes());
    parts[4..].copy_from_slice(&crc(bytes).to_le_bytes());
    crc(&parts)
}
