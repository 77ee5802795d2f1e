//! What a write to a clone requires.

use crate::addr::Lba;
use crate::format::history::Row;
use alloc::vec::Vec;

/// New blocks of a clone's own. First they are written to their places, in this order, then the block of rows is written. When all these
/// writes have taken effect, the change is [made](super::Snapshots::made); otherwise it is [dropped](super::Snapshots::drop_change).
#[derive(Debug, Default)]
pub struct Change {
    /// Where they have to be written: runs of blocks.
    pub places: Vec<(Lba, u64)>,
    /// The block of rows for them, by number. There is only one, so the whole change takes effect at once, or not at all.
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
    /// Whether they are the clone's own: then it writes them in place.
    pub own: bool,
}

impl Change {
    /// How many blocks it has.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.added.len() as u64
    }
}
