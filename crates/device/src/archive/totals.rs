//! The totals of a whole archive.

/// What an archive holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Blocks.
    pub blocks: u64,
    /// Blocks that it should hold, and that could not be read or were damaged.
    pub missing: u64,
    /// The sum of the whole archive.
    pub sum: u64,
}
