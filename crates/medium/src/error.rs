//! Errors of a medium.

use std::io;
use vellum_core::addr::{BLOCK_BYTES, Pba};

/// An operation of a medium failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of {what} at byte {offset}: {source}")]
pub struct MediumError {
    /// The operation.
    pub operation: &'static str,
    /// The medium's name.
    pub what: String,
    /// The offset in bytes.
    pub offset: u64,
    /// The system's error.
    pub source: io::Error,
}

impl MediumError {
    /// The failure of an operation of a medium of this name, at a block.
    #[must_use]
    pub fn at(operation: &'static str, what: &str, block: Pba, source: io::Error) -> Self {
        Self {
            operation,
            what: what.to_owned(),
            // The block may be one that no medium has.
            offset: block.0.saturating_mul(BLOCK_BYTES as u64),
            source,
        }
    }

    /// True if there is no room now (ENOSPC, EDQUOT), so that trying again later makes sense.
    #[must_use]
    pub fn is_full(&self) -> bool {
        is_no_room(&self.source)
    }
}

pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
