//! How worn a drive says it is.

/// A drive's report of its wear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wear {
    /// The most of its life that is used; over 100 if it has outlived its promised life.
    pub used_percent: u8,
    /// The resolution of `used_percent`.
    pub step_percent: u8,
    /// Bytes that hosts have written to it over its life.
    pub written_bytes: Option<u64>,
}
