//! Recovery: from the newest map checkpoint, chunk after chunk in sequence order, to the first hole.
//!
//! Recovery reads through [`Source`] and changes nothing on the medium, so it can be cut short anywhere and begun again. It trusts
//! nothing without a checksum. If no later header reports a chunk as durable, recovery verifies the chunk's data too (promise 3: a chunk
//! is there as a whole or not at all).

mod durable;
mod error;
mod find;
mod found;
mod headers;
mod hole;
mod open_segments;
mod replay;
pub mod rescue;
mod source;

pub use error::RecoveryError;
pub use find::find_superblock;
pub use found::{Recovered, Replayed};
pub use source::{Source, Unreadable};

use crate::format::Crc;
use crate::format::areas::Layout;
use crate::state::Paging;

/// Recovers a volume up to the end of its log.
///
/// # Errors
/// When something durable is damaged; nothing is lost silently.
pub fn recover(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
) -> Result<Recovered, RecoveryError> {
    recover_within(source, medium_blocks, crc, None)
}

/// The same, with the map's memory bounded from the start. If `paging` allows it, a volume whose map exceeds the bound is not counted:
/// a census has to follow ([`State::is_in_census`](crate::state::State::is_in_census)).
///
/// # Errors
/// As for [`recover`].
pub fn recover_within(
    source: &mut dyn Source,
    medium_blocks: u64,
    crc: Crc,
    paging: Option<Paging>,
) -> Result<Recovered, RecoveryError> {
    let (superblock, mirror_lost) = find_superblock(source, medium_blocks, crc)?;
    if superblock.layout() != Layout::Log {
        return Err(RecoveryError::NotALog(superblock.layout().name()));
    }
    let root = find::find_root(source, &superblock, crc)?;
    let mut replay = replay::Replay::new(source, superblock, crc, root.header, root.slots)?;
    replay.free = root.free;
    replay.replayed.mirror_lost = mirror_lost;
    replay.replayed.from_copies = root.is_alone.into();
    replay.page(paging);
    replay.begin_map()?;
    replay.walk_open_segments();
    replay.learn_what_was_durable();
    while replay.step()? {}
    replay.look_past_the_hole(root.newer_lost)?;
    let mut recovered = replay.finish()?;
    recovered.has_passed_over = root.newer_lost;
    Ok(recovered)
}
