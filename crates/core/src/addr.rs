//! One type for each kind of address, count and number that modules pass to each other.

/// Bytes in a block: the unit of mapping, of checksums and of medium I/O.
pub const BLOCK_BYTES: usize = 4096;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(/// Logical block address: what a client names, in blocks.
    Lba(u64));
number!(/// Physical block address: a block of the medium, counted from its start.
    Pba(u64));
number!(/// Virtual block address: the number of a shared page in the reference table (CAFTL §3.3).
    Vba(u32));
number!(/// A segment: the unit of erasure and of collection, counted from the first.
    Segment(u32));
number!(/// A leaf of the map: 1024 consecutive LBAs.
    Leaf(u32));
number!(/// A chunk's place in the one order of all that was ever written; never reused.
    Seq(u64));
number!(/// How often the volume has been opened for writing. With a [`Seq`] it names one chunk for ever.
    Life(u64));
number!(/// A map checkpoint's number; its parity is the root's place.
    Generation(u64));
number!(/// A buffer of one block, held by the runtime and known to the core by number alone.
    Buf(u32));
number!(/// A client request in flight, numbered by the runtime.
    RequestId(u32));
number!(/// An effect in flight, numbered by the core.
    EffectId(u32));
number!(/// Time since an arbitrary origin, in nanoseconds; the core only compares and adds.
    Nanos(u64));

impl Lba {
    /// The address `blocks` further on.
    #[must_use]
    pub fn plus(self, blocks: u64) -> Self {
        Self(self.0 + blocks)
    }
}

impl Pba {
    /// The place of a page whose leaf cannot be read. This address holds a superblock, never data. The volume is poisoned before the
    /// place has any effect ([0058](../../../docs/decisions/0058-a-map-within-bounds.md)).
    pub const NOWHERE: Self = Self(0);

    /// The address `blocks` further on.
    #[must_use]
    pub fn plus(self, blocks: u64) -> Self {
        Self(self.0 + blocks)
    }

    /// The byte offset on the medium.
    #[must_use]
    pub fn byte_offset(self) -> u64 {
        self.0 * BLOCK_BYTES as u64
    }
}

impl Seq {
    /// The one after.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
