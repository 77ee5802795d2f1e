//! The core's refusals, as clients see them.

use crate::block::BlockError;
use vellum_core::seam::Refusal;

pub(crate) fn block_error(refusal: Refusal) -> BlockError {
    match refusal {
        Refusal::Full => BlockError::Full,
        Refusal::NoRoom => BlockError::NoRoom,
        Refusal::Unlinkable => BlockError::Unlinkable,
        // Nothing out of range arrives here: the volume has refused it before.
        _ => BlockError::Io(refusal.to_string()),
    }
}

/// The name under which a refusal is remembered.
pub(crate) fn kind(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::OutOfRange => "range",
        Refusal::Full => "full",
        Refusal::NoRoom => "no-room",
        Refusal::Corrupt(_) => "checksum",
        Refusal::Unreadable(_) => "unreadable",
        Refusal::Poisoned => "poisoned",
        Refusal::Unlinkable => "unlinkable",
    }
}
