//! A leaf of the map, or of the table of shared pages: one block with 1024 entries of 4 bytes; and parities of leaves.
//!
//! A leaf's checksum is stored in the root, and covers the leaf's number, so that a leaf that was written to the wrong place is
//! not taken for another one.

use super::field::Crc;
use super::slots::Slots;
use super::superblock::Superblock;
use crate::addr::{BLOCK_BYTES, Leaf, Pba};

type Block = [u8; BLOCK_BYTES];

/// Reads a block of the medium; returns `false` if it cannot be read.
pub type Read<'a> = &'a mut dyn FnMut(Pba, &mut Block) -> bool;

/// The checksum of leaf `leaf` with these bytes.
#[must_use]
pub fn checksum(leaf: Leaf, bytes: &[u8], crc: Crc) -> u32 {
    let mut parts = [0; 8];
    parts[..4].copy_from_slice(&leaf.0.to_le_bytes());
    parts[4..].copy_from_slice(&crc(bytes).to_le_bytes());
    crc(&parts)
}

/// Adds a leaf to a parity, or removes it: the parity of a stripe and all leaves but one yield that one.
pub fn add(parity: &mut Block, leaf: &Block) {
    for (sum, byte) in parity.iter_mut().zip(leaf) {
        *sum ^= byte;
    }
}

/// The leaves that a root names.
#[derive(Clone, Copy)]
pub struct Leaves<'a> {
    /// The volume.
    pub superblock: &'a Superblock,
    /// What the root says about each.
    pub slots: &'a Slots,
    /// Their checksum.
    pub crc: Crc,
}

impl Leaves<'_> {
    /// Reads a leaf, or a parity. Also returns where it is; `None` if it holds nothing.
    ///
    /// # Errors
    /// Its place, if it is damaged.
    pub fn read(&self, leaf: Leaf, read: Read<'_>) -> Result<Option<(Pba, Block)>, Pba> {
        let Some((slot, expected)) = self.slots.get(leaf).found() else {
            return Ok(None);
        };
        let mut block = [0; BLOCK_BYTES];
        let at = self.superblock.leaf_slot(leaf, slot);
        let is_whole = read(at, &mut block) && checksum(leaf, &block, self.crc) == expected;
        is_whole.then_some(Some((at, block))).ok_or(at)
    }

    /// Rebuilds a leaf, or a parity, from all others of its stripe; `None` if there is no parity, or another one of them is
    /// damaged.
    pub fn rebuild(&self, lost: Leaf, read: Read<'_>) -> Option<Block> {
        let stripe = self.superblock.stripe_of(lost);
        let parity = self.superblock.parity(stripe)?;
        let mut block = [0; BLOCK_BYTES];
        for leaf in self.superblock.stripe(stripe).chain([parity]) {
            if leaf != lost
                && let Some((_, other)) = self.read(leaf, read).ok()?
            {
                add(&mut block, &other);
            }
        }
        let (_, sum) = self.slots.get(lost).found()?;
        (checksum(lost, &block, self.crc) == sum).then_some(block)
    }
}
