//! Errors in decoding a structure.

use crate::size::Size;

/// Why bytes are not a valid structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes are shorter than the structure.
    #[error("{what}: {have} bytes where {need} are needed")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// The bytes are not this structure at all.
    #[error("{what}: no magic number")]
    Magic {
        /// The structure.
        what: &'static str,
    },
    /// The structure was written by a newer version.
    #[error("{what}: version {version} is newer than this program's {known}; use a newer vellum")]
    Version {
        /// The structure.
        what: &'static str,
        /// The version found.
        version: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// The structure is damaged.
    #[error("{what}: checksum {found:#010x} where {expected:#010x} was expected")]
    Checksum {
        /// The structure.
        what: &'static str,
        /// The checksum computed.
        found: u32,
        /// The checksum stored.
        expected: u32,
    },
    /// The structure belongs to another volume.
    #[error("{what}: belongs to another volume")]
    Foreign {
        /// The structure.
        what: &'static str,
    },
    /// The structure is whole and in its place, but older than a version that was durable.
    #[error(
        "{what}: edition {edition} of a block of which edition {known} was durable: the medium has lost a \
         write that it confirmed"
    )]
    Stale {
        /// The structure.
        what: &'static str,
        /// The edition found.
        edition: u32,
        /// The edition known to have been durable.
        known: u32,
    },
    /// A field has an impossible value.
    #[error("{what}: {field} is {value}, which cannot be")]
    Value {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// The value.
        value: u64,
    },
    /// The structure was made for a medium with more blocks.
    #[error(
        "{what}: of a medium of {:#}, and this one has {:#}: it was cut short, or is not all there. \
         To read the rest of a file, copy it, and lengthen the copy with `truncate -s {}`",
        Size::of_blocks(*.recorded),
        Size::of_blocks(*.have),
        .recorded.saturating_mul(crate::addr::BLOCK_BYTES as u64)
    )]
    CutShort {
        /// The structure.
        what: &'static str,
        /// Blocks of the medium according to the structure.
        recorded: u64,
        /// Blocks of the medium now.
        have: u64,
    },
    /// Only the first sector of a superblock is left: it says where everything is, but not what the user chose.
    #[error(
        "both superblocks are damaged, and properties are lost: the volume can be read \
         (`vellum serve --read-only`), and `vellum rescue` copies it into a new one"
    )]
    PropertiesTorn,
    /// The structure uses features that a program must know, and this one does not.
    #[error("{what}: uses features {bits:#x} that this program does not know; use a newer vellum")]
    Features {
        /// The structure.
        what: &'static str,
        /// The unknown bits.
        bits: u64,
    },
}

impl FormatError {
    /// True if the structure is intact, but needs a newer program.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::Features { .. })
    }
}

/// The largest sequence number, life and generation: half of what 64 bits hold, so that the next one always exists.
pub const NUMBER_MAX: u64 = u64::MAX >> 1;

/// Checks a field's value: fails unless `ok`.
pub(super) fn can_be(
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

/// Checks a computed checksum against the stored one.
pub(super) fn same_sum(what: &'static str, found: u32, expected: u32) -> Result<(), FormatError> {
    match found == expected {
        true => Ok(()),
        false => Err(FormatError::Checksum {
            what,
            found,
            expected,
        }),
    }
}

/// Checks that these fields are within [`NUMBER_MAX`].
pub(super) fn within_numbers(
    what: &'static str,
    fields: &[(&'static str, u64)],
) -> Result<(), FormatError> {
    match fields.iter().find(|(_, value)| *value > NUMBER_MAX) {
        None => Ok(()),
        Some(&(field, value)) => Err(FormatError::Value { what, field, value }),
    }
}
