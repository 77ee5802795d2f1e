//! How worn a drive says that it is.

/// What a drive tells of its wear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wear {
    /// How much of its life is used, at most; over 100 when it has outlived what was promised.
    pub used_percent: u8,
    /// In steps of so many.
    pub step_percent: u8,
    /// Bytes that hosts have written to it in its life.
    pub written_bytes: Option<u64>,
}
