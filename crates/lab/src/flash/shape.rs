//! The shape of the flash, and the numbers of its dies and erase blocks.

use super::preset::Nand;
use vellum_core::addr::BLOCK_BYTES;

/// A die, counted over all channels: die `d` is on channel `d % channels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Die(pub u32);

/// An erase block of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EraseBlock(pub u32);

/// The geometry of the flash, in blocks of 4 KiB. A program unit and an erase block are what one die programs and erases at a
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Channels.
    pub channels: u32,
    /// Dies over all channels.
    pub dies: u32,
    /// Erase blocks of a die.
    pub erase_blocks: u32,
    /// Program units of an erase block.
    pub units: u32,
    /// Blocks of a program unit: a page, or the pages of all planes together.
    pub unit_blocks: u32,
}

impl Shape {
    /// Returns the shape of `nand`, with enough erase blocks on each die for `bytes`.
    #[must_use]
    pub fn of(nand: &Nand, bytes: u64) -> Self {
        let page_blocks = nand.page_bytes / BLOCK_BYTES as u32;
        let together = if nand.multi_plane { nand.planes } else { 1 };
        let mut shape = Self {
            channels: nand.channels,
            dies: nand.channels * nand.dies_per_channel,
            erase_blocks: 0,
            units: nand.pages_per_block,
            unit_blocks: page_blocks * together,
        };
        let per_round = u64::from(shape.dies) * u64::from(shape.block_blocks());
        let rounds = bytes.div_ceil(BLOCK_BYTES as u64).div_ceil(per_round);
        shape.erase_blocks = rounds.min(u64::from(u32::MAX)) as u32;
        shape
    }

    /// Blocks of an erase block.
    #[must_use]
    pub fn block_blocks(&self) -> u32 {
        self.units * self.unit_blocks
    }

    /// All blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        u64::from(self.dies) * u64::from(self.erase_blocks) * u64::from(self.block_blocks())
    }
}
