//! The on-disk format: one file a structure, each with its encoder and its decoder. `docs/FORMAT.md` is
//! rendered from the `FIELDS` of these structs.
//!
//! Everything is little endian. Every structure carries its own checksum and the volume's UUID or its signature, so that
//! bytes from elsewhere are refused; whatever comes from the medium is hostile until decoded here.

pub mod archive;
pub mod areas;
pub mod chunk;
pub mod geometry;
pub mod grown;
pub mod leaf;
pub mod names;
pub mod open_summary;
pub mod pack;
pub mod properties;
pub mod record;
pub mod root;
pub mod sum;
pub mod summary;
pub mod superblock;
pub mod table;

use crate::addr::{BLOCK_BYTES, Generation, Pba};
use alloc::{vec, vec::Vec};

pub use sum::{BlockSum, SumKind};

/// CRC32C (Castagnoli) of some bytes: a pure function that the runtime lends, for it has the instruction.
pub type Crc = fn(&[u8]) -> u32;

/// A field of an on-disk structure, for the docs and the tools.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Where it starts in the structure.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// What it says.
    pub doc: &'static str,
}

/// Declares an on-disk structure: unaligned, little endian, with a table of its fields.
macro_rules! on_disk {
    ($(#[doc = $struct_doc:literal])* $name:ident { $($(#[doc = $doc:literal])* $field:ident: $type:ty,)* }) => {
        $(#[doc = $struct_doc])*
        #[derive(Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout,
                 zerocopy::Immutable, zerocopy::Unaligned)]
        #[repr(C)]
        pub(crate) struct $name { $($(#[doc = $doc])* pub $field: $type,)* }

        impl $name {
            /// Where each field is.
            pub const FIELDS: &'static [$crate::format::Field] = &[$($crate::format::Field {
                name: stringify!($field),
                offset: core::mem::offset_of!($name, $field),
                size: core::mem::size_of::<$type>(),
                doc: concat!($($doc),*),
            },)*];
        }
    };
}
pub(crate) use on_disk;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Shorter than the structure.
    #[error("{what}: {have} bytes where {need} are needed")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// Not this structure at all.
    #[error("{what}: no magic number")]
    Magic {
        /// The structure.
        what: &'static str,
    },
    /// Written by a version that this one does not know.
    #[error("{what}: version {version} is newer than this program's {known}; use a newer vellum")]
    Version {
        /// The structure.
        what: &'static str,
        /// Found.
        version: u32,
        /// Known.
        known: u32,
    },
    /// Damaged.
    #[error("{what}: checksum {found:#010x} where {expected:#010x} was expected")]
    Checksum {
        /// The structure.
        what: &'static str,
        /// Computed.
        found: u32,
        /// Stored.
        expected: u32,
    },
    /// Of another volume.
    #[error("{what}: belongs to another volume")]
    Foreign {
        /// The structure.
        what: &'static str,
    },
    /// Whole, of its place, and of before a write of it that was durable.
    #[error(
        "{what}: edition {edition} of a block of which edition {known} was durable: the medium has lost a write that it confirmed"
    )]
    Stale {
        /// The structure.
        what: &'static str,
        /// Found.
        edition: u32,
        /// Known to have been durable.
        known: u32,
    },
    /// A field whose value cannot be.
    #[error("{what}: {field} is {value}, which cannot be")]
    Value {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// On a medium that had more blocks.
    #[error(
        "{what}: of a medium of {recorded} blocks, and this one has {have}: it was cut short, or is not all there"
    )]
    CutShort {
        /// The structure.
        what: &'static str,
        /// Blocks that the structure tells of.
        recorded: u64,
        /// Blocks that there are.
        have: u64,
    },
    /// What is left of a superblock says where everything is, and not what the user chose.
    #[error(
        "both superblocks are damaged, and properties are lost: the volume can be read \
         (`vellum serve --read-only`), and `vellum rescue` copies it into a new one"
    )]
    PropertiesTorn,
    /// Features that this version must know and does not.
    #[error("{what}: uses features {bits:#x} that this program does not know; use a newer vellum")]
    Features {
        /// The structure.
        what: &'static str,
        /// The unknown bits.
        bits: u64,
    },
}

impl FormatError {
    /// Whether nothing is wrong with it, and a newer program can go by it.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::Features { .. })
    }
}

/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 2;

/// Sequence numbers, lives and generations reach this far, at most: half of what 64 bits hold, so that
/// the next one always exists.
pub const NUMBER_MAX: u64 = u64::MAX >> 1;

/// That a field says what can be.
fn can_be(
    what: &'static str,
    ok: bool,
    field: &'static str,
    value: u64,
) -> Result<(), FormatError> {
    match ok {
        true => Ok(()),
        false => Err(FormatError::Value { what, field, value }),
    }
}

/// That these fields are within [`NUMBER_MAX`].
fn within_numbers(what: &'static str, fields: &[(&'static str, u64)]) -> Result<(), FormatError> {
    match fields.iter().find(|(_, value)| *value > NUMBER_MAX) {
        None => Ok(()),
        Some(&(field, value)) => Err(FormatError::Value { what, field, value }),
    }
}

/// Checksum of `bytes` around the four bytes at `hole`, where the checksum itself is kept.
pub(crate) fn checksum_around(bytes: &[u8], hole: usize, crc: Crc) -> u32 {
    // A checksum of the two parts' checksums: the function lent to us does not continue.
    let mut parts = [0; 8];
    parts[..4].copy_from_slice(&crc(&bytes[..hole]).to_le_bytes());
    parts[4..].copy_from_slice(&crc(&bytes[hole + 4..]).to_le_bytes());
    crc(&parts)
}

/// A structure's fields, for the docs.
#[must_use]
pub fn tables() -> Vec<(&'static str, &'static [Field])> {
    vec![
        ("Superblock", superblock::FIELDS),
        ("Property", properties::FIELDS),
        ("Root header", root::FIELDS),
        ("Chunk header", chunk::FIELDS),
        ("Page of parts", pack::FIELDS),
        ("Summary header", summary::FIELDS),
        ("Sector of a table", table::FIELDS),
        ("Head of an archive", archive::HEAD_FIELDS),
        ("Frame of an archive", archive::FRAME_FIELDS),
    ]
}

/// Writes an empty volume: the first root, then both superblocks (they come last, so that a creation that
/// was cut short is not a volume).
pub fn blank(superblock: &superblock::Superblock, crc: Crc, write: &mut dyn FnMut(Pba, &[u8])) {
    if superblock.layout() != areas::Layout::Log {
        return table::blank(superblock, crc, write);
    }
    let mut root = vec![0; superblock.root_blocks() as usize * BLOCK_BYTES];
    // The other place is cleared: no root of a volume that was here before may be taken for ours.
    for at in superblock.root_copies(Generation(0)) {
        write(at, &root);
    }
    let header = root::RootHeader {
        uuid: superblock.uuid(),
        generation: Generation(1),
        seq: crate::addr::Seq(0),
        life: crate::addr::Life(0),
        durable: crate::addr::Seq(0),
        cursors: [0, 1].map(|n| root::Cursor {
            segment: crate::addr::Segment(n),
            offset: 0,
        }),
        swept: 0,
        scrubbed: 0,
    };
    let slots = vec![root::LeafSlot::Absent; superblock.leaves() as usize];
    root::encode(&header, &slots, crc, &mut root);
    for at in superblock.root_copies(Generation(1)) {
        write(at, &root);
    }
    let mut block = [0; BLOCK_BYTES];
    superblock.encode(crc, &mut block);
    for mirror in superblock.mirrors().into_iter().rev() {
        write(mirror, &block);
    }
}
