//! What passes between a page map and the flash.

use crate::flash::{Cell, Die, EraseBlock};

/// No block, and no place.
pub(super) const NONE: u32 = u32::MAX;

/// An operation for the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashOp {
    /// Read a number of blocks of one unit.
    Read(Die, EraseBlock, Cell, u32),
    /// Program a unit.
    Program(Die, Cell),
    /// Program the summary of a full block.
    Summary(Die),
    /// Read a unit and program another one with it, within the die.
    Copy(Die),
    /// Erase.
    Erase(Die, EraseBlock),
    /// Erase a block with one bit a cell.
    EraseCache(Die),
}

impl FlashOp {
    /// Returns the same operation on a unit of that page type.
    pub(super) fn with(self, cell: Cell) -> Self {
        match self {
            Self::Program(die, _) => Self::Program(die, cell),
            other => other,
        }
    }
}

/// A place on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The die, its erase block, and the type of the page.
    pub at: (Die, EraseBlock, Cell),
    /// A number shared by the blocks of one program unit.
    pub unit: u64,
}
