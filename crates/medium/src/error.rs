//! What went wrong, where.

use std::io;

/// Why a medium could not do it.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of {what} at byte {offset}: {source}")]
pub struct MediumError {
    /// What was tried.
    pub operation: &'static str,
    /// The medium's name.
    pub what: String,
    /// Where.
    pub offset: u64,
    /// What the system said.
    pub source: io::Error,
}

impl MediumError {
    /// Whether room may come back (ENOSPC, EDQUOT), so that trying again makes sense.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }
}
