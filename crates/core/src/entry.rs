//! An entry of the map, in 4 bytes.

use crate::addr::{BLOCK_BYTES, Lba, Pba, Vba};

/// Entries in a leaf.
pub const LEAF_ENTRIES: usize = BLOCK_BYTES / 4;

/// Deltas in a leaf of their table.
pub const LEAF_DELTAS: usize = BLOCK_BYTES / DELTA_BYTES;

/// Bytes of a delta there: its part, and its base.
pub const DELTA_BYTES: usize = 8;

pub(crate) const UNMAPPED: u32 = 0;
pub(crate) const ZERO: u32 = 1;
const SHARED: u32 = 0b10 << 30;
const FRAGMENT: u32 = 0b11 << 30;
const NUMBER: u32 = (1 << 30) - 1;
const SLOT_BITS: u32 = 5;

/// The most parts in a page: as many as an entry can distinguish.
pub const MAX_PARTS: usize = 1 << SLOT_BITS;

/// One more than the largest number of a page of parts that an entry can hold (128 GiB of such pages).
pub const PACKED_PAGES: u32 = 1 << (30 - SLOT_BITS);

/// The largest physical address that an entry of 4 bytes can hold.
pub const MAX_PBA: u64 = (1 << 31) - 1;

/// Where an LBA's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Never written, or discarded: reads as zeros.
    Unmapped,
    /// Written with zeros: reads as zeros, takes no data block.
    Zero,
    /// A physical page by itself.
    Plain(Pba),
    /// A physical page that has several owners (CAFTL §3.3).
    Shared(Vba),
    /// A part of a page: the page's number, and the part. Such a page holds several blocks, each stored in fewer bytes than a block has.
    Packed(Vba, u8),
}

/// A part of a page that holds several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartId {
    /// The page's number.
    pub page: Vba,
    /// The part.
    pub slot: u8,
}

impl PartId {
    /// As one number of 30 bits.
    #[must_use]
    pub fn raw(self) -> u32 {
        debug_assert!(self.page.0 < PACKED_PAGES && usize::from(self.slot) < MAX_PARTS);
        self.page.0 << SLOT_BITS | u32::from(self.slot)
    }

    /// From that number; bits above its 30 are ignored.
    #[must_use]
    pub fn from_raw(raw: u32) -> Self {
        Self {
            page: Vba((raw & NUMBER) >> SLOT_BITS),
            slot: (raw & (MAX_PARTS as u32 - 1)) as u8,
        }
    }
}

impl core::fmt::Display for PartId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.page, self.slot)
    }
}

impl Entry {
    /// The 4 bytes.
    #[must_use]
    pub fn pack(self) -> u32 {
        match self {
            Self::Unmapped => UNMAPPED,
            Self::Zero => ZERO,
            Self::Plain(pba) => {
                debug_assert!(pba.0 > u64::from(ZERO) && pba.0 <= MAX_PBA);
                pba.0 as u32
            }
            Self::Shared(vba) => {
                debug_assert!(vba.0 <= NUMBER);
                SHARED | vba.0
            }
            Self::Packed(page, slot) => FRAGMENT | PartId { page, slot }.raw(),
        }
    }

    /// Decodes an entry from its 4 bytes. Every number is a valid entry, but it may lead nowhere.
    #[must_use]
    pub fn unpack(raw: u32) -> Self {
        match raw {
            UNMAPPED => Self::Unmapped,
            ZERO => Self::Zero,
            _ if raw & SHARED == 0 => Self::Plain(Pba(u64::from(raw))),
            _ if raw & FRAGMENT == SHARED => Self::Shared(Vba(raw & NUMBER)),
            _ => {
                let PartId { page, slot } = PartId::from_raw(raw);
                Self::Packed(page, slot)
            }
        }
    }
}

/// The leaf of a block's entry, and the entry's index in it.
pub(crate) fn split(lba: Lba) -> (usize, usize) {
    (
        (lba.0 / LEAF_ENTRIES as u64) as usize,
        (lba.0 % LEAF_ENTRIES as u64) as usize,
    )
}

/// The kind of content that is stored where a block is to be written: the base that its delta may be made against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// Nothing, or zeros.
    Nothing,
    /// A block that no delta may be made against.
    Unfit,
    /// This part, or a delta against it.
    Base(PartId),
    /// Unknown, because its leaf is not in memory. Nothing waits for it: a block unused for so long is hardly worth a delta.
    Away,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_entry() -> impl Strategy<Value = Entry> {
        prop_oneof![
            Just(Entry::Unmapped),
            Just(Entry::Zero),
            (2..=MAX_PBA).prop_map(|p| Entry::Plain(Pba(p))),
            (0..=NUMBER).prop_map(|v| Entry::Shared(Vba(v))),
            (0..PACKED_PAGES, 0..MAX_PARTS as u8).prop_map(|(v, s)| Entry::Packed(Vba(v), s)),
        ]
    }

    proptest! {
        #[test]
        fn an_entry_survives_its_four_bytes(entry in any_entry()) {
            prop_assert_eq!(Entry::unpack(entry.pack()), entry);
        }
    }
}
