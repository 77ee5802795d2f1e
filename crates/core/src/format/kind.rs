//! The kinds of tables in place.

use crate::addr::BLOCK_BYTES;

/// Bytes that a medium writes atomically.
pub const SECTOR_BYTES: usize = 512;

/// Bytes for entries in a sector.
pub(super) const ROOM: usize = 504;

/// Sectors of a block.
pub(super) const SECTORS: usize = BLOCK_BYTES / SECTOR_BYTES;

/// A kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// LBA to data block.
    Map,
    /// Reference counts of data blocks.
    Counts,
    /// Fingerprints of data blocks.
    Prints,
    /// Editions of the map's blocks that are known to be durable.
    Editions,
}

impl Kind {
    /// All kinds, in the order in which they lie on the medium.
    pub const ALL: [Self; 4] = [Self::Map, Self::Counts, Self::Prints, Self::Editions];

    /// Bytes of an entry.
    #[must_use]
    pub const fn entry_bytes(self) -> usize {
        match self {
            Self::Map => 8,
            Self::Counts => 2,
            Self::Prints | Self::Editions => 4,
        }
    }

    /// Entries of a block.
    #[must_use]
    pub const fn entries(self) -> usize {
        self.sector_entries() * SECTORS
    }

    /// Entries of a sector.
    #[must_use]
    pub const fn sector_entries(self) -> usize {
        ROOM / self.entry_bytes()
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map table",
            Self::Counts => "table of counts",
            Self::Prints => "table of fingerprints",
            Self::Editions => "table of editions",
        }
    }
}
