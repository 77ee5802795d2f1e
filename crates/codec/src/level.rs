//! How hard zstd tries.

/// A compression level of zstd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(u8);

impl Level {
    /// The lowest: the fastest.
    pub const MIN: Self = Self(1);
    /// The highest. zstd has higher levels, but in 4 KiB they find nothing more.
    pub const MAX: Self = Self(9);

    /// The level that the measurements recommend: higher levels cost more time than they save.
    pub const DEFAULT: Self = Self::MIN;

    /// Returns `None` if there is no such level.
    #[must_use]
    pub fn new(level: u8) -> Option<Self> {
        (Self::MIN.0..=Self::MAX.0)
            .contains(&level)
            .then_some(Self(level))
    }

    /// Its number.
    #[must_use]
    pub fn get(self) -> u8 {
        self.0
    }
}
