//! What a write to a clone asks for.

use crate::addr::Lba;
use crate::format::history::Row;
use alloc::vec::Vec;

/// Blocks that a clone has not had of its own. First they are written where the places say, in this order, then the block of
/// rows. When all that has taken effect, it is [made](super::Snapshots::made); otherwise [dropped](super::Snapshots::drop_change).
#[derive(Debug, Default)]
pub struct Change {
    /// Where they are to be written: runs of blocks.
    pub places: Vec<(Lba, u64)>,
    /// The block of rows that says so, by number. It is one: so all of the change takes effect at once, or nothing.
    pub row_block: u64,
    pub(super) added: Vec<(Row, u32)>,
}

/// A run of a clone's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it is.
    pub place: Lba,
    /// How many blocks.
    pub blocks: u64,
    /// Whether they are the clone's own: it writes them where they are.
    pub own: bool,
}

impl Change {
    /// How many blocks it is of.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.added.len() as u64
    }
}
