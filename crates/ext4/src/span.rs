//! Names for places.

use core::fmt;

/// A range of bytes of the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Its first byte.
    pub start: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Span {
    /// The range of `bytes` bytes from `start`.
    #[must_use]
    pub const fn new(start: u64, bytes: u64) -> Self {
        Self { start, bytes }
    }

    /// The byte after its last.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.start.saturating_add(self.bytes)
    }

    /// True if all of `other` is inside it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// True if they share a byte.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// True if it begins and ends at multiples of `unit`.
    #[must_use]
    pub const fn is_aligned_to(self, unit: u64) -> bool {
        self.start.is_multiple_of(unit) && self.bytes.is_multiple_of(unit)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.start, self.bytes)
    }
}

/// A block of a file system, in its own block size, counted from its partition's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsBlock(pub u64);

/// A UUID in the byte order of the disk.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// True if none was given.
    #[must_use]
    pub fn is_nil(self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
