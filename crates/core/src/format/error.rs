//! Why bytes are not the structure that they should be.

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
        "{what}: edition {edition} of a block of which edition {known} was durable: the medium has lost a \
         write that it confirmed"
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
        "{what}: of a medium of {recorded} blocks, and this one has {have}: it was cut short, or is not \
         all there"
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

/// Sequence numbers, lives and generations reach this far, at most: half of what 64 bits hold, so that
/// the next one always exists.
pub const NUMBER_MAX: u64 = u64::MAX >> 1;

/// That a field says what can be.
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

/// That these fields are within [`NUMBER_MAX`].
pub(super) fn within_numbers(
    what: &'static str,
    fields: &[(&'static str, u64)],
) -> Result<(), FormatError> {
    match fields.iter().find(|(_, value)| *value > NUMBER_MAX) {
        None => Ok(()),
        Some(&(field, value)) => Err(FormatError::Value { what, field, value }),
    }
}
