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
        is_no_room(&self.source)
    }
}

pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
