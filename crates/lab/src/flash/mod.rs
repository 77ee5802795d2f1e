//! NAND flash: what it is made of, how long it takes, and what wears it out.

mod commands;
mod dies;
mod endurance;
mod errors;
mod options;
mod preset;
mod speed;
mod wear;

pub use commands::Busy;
pub use dies::{Counts, Flash};
pub use endurance::{NoSpare, Worn};
pub use errors::Reads;
pub use options::{BitErrors, Endurance, Options, Suspend};
pub use preset::{Block, Kind, Nand, PLAIN, PageMapping, Preset};
pub use speed::{POINTS_MAX, Point, Speed, Table, TableError};
pub use wear::Wear;

use vellum_core::addr::BLOCK_BYTES;

/// A die, counted over all channels: die `d` is on channel `d % channels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Die(pub u32);

/// An erase block of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EraseBlock(pub u32);

/// How the flash is addressed, in blocks of 4 KiB: what one die programs and erases at a time.
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
    /// That of a part, with as many erase blocks a die as `bytes` need.
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
