//! The totals of a whole stream.

/// What a stream holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Blocks with data.
    pub blocks: u64,
    /// Blocks that it says are zeros.
    pub zeros: u64,
    /// The sum of the whole stream.
    pub sum: u64,
}

impl Totals {
    pub(super) fn of((blocks, zeros, sum): (u64, u64, u64)) -> Self {
        Self { blocks, zeros, sum }
    }
}
