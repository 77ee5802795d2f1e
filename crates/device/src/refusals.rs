//! The core's refusals, as clients see them.

use crate::block::BlockError;
use vellum_core::addr::Pba;
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

/// What is told when copies have restored metadata.
pub(crate) fn restored(blocks: u64) -> String {
    format!(
        "{blocks} block(s) of metadata are damaged: copies told what they were, nothing is lost"
    )
}

/// What to do about a map that is found to be damaged while the volume is open.
pub(crate) fn map_is_damaged(at: Pba) -> String {
    format!(
        "physical block {at} says where data is; it is damaged, and no copy restores it. \
         So nothing more is written. `vellum serve --read-only` serves what is whole, and \
         `vellum rescue` copies it to a new volume"
    )
}
