//! The parts that all structures share: fields, checksums, and the version.

use super::error::FormatError;

/// CRC32C (Castagnoli) of some bytes: a pure function that the runtime provides, because it can use the CPU's instruction.
pub type Crc = fn(&[u8]) -> u32;

/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 2;

/// Checks that a structure's version is one that this program reads.
pub(super) fn is_known(what: &'static str, version: u32) -> Result<(), FormatError> {
    let known = VERSION;
    match version <= known {
        true => Ok(()),
        false => Err(FormatError::Version {
            what,
            version,
            known,
        }),
    }
}

/// A field of an on-disk structure, for the docs and the tools.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its offset in the structure.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// What it means.
    pub doc: &'static str,
}

/// Declares an on-disk structure: unaligned, little endian, with a table of its fields.
macro_rules! on_disk {
    ($(#[doc = $struct_doc:literal])* $name:ident {
        $($(#[doc = $doc:literal])* $field:ident: $type:ty,)*
    }) => {
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

/// Computes the checksum of `bytes` except the four bytes at `hole`, where the checksum itself is stored.
pub(crate) fn checksum_around(bytes: &[u8], hole: usize, crc: Crc) -> u32 {
    // A checksum of the two parts' checksums, because a `Crc` cannot continue from a previous result.
    let mut parts = [0; 8];
    parts[..4].copy_from_slice(&crc(&bytes[..hole]).to_le_bytes());
    parts[4..].copy_from_slice(&crc(&bytes[hole + 4..]).to_le_bytes());
    crc(&parts)
}

/// Stores the checksum of `bytes` in the four bytes at `hole`.
pub(super) fn seal_around(bytes: &mut [u8], hole: usize, crc: Crc) {
    let sum = checksum_around(bytes, hole, crc);
    bytes[hole..hole + 4].copy_from_slice(&sum.to_le_bytes());
}
