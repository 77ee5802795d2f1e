//! Another end of a log: clients see fewer blocks of it, or again as many as they ever did.
//!
//! Nothing on the medium moves. The superblock says where the volume ends for clients, and its next life begins with that. So a
//! crash leaves the old end or the new one, and both are right: what lies between them holds no data.
//!
//! The caller also has to know that no snapshot and no clone has data there. The map does not tell whose a kept block is: only rows
//! do, and these are data.

use crate::addr::{BLOCK_BYTES, Lba};
use crate::format::geometry::GeometryError;
use crate::format::shrunk::ended_at;
use crate::format::superblock::Superblock;
use crate::recovery::Recovered;
use crate::size::Size;

/// Why a volume did not get another end. It is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShrinkError {
    /// Its geometry does not allow it.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The log has entries after the map checkpoint.
    #[error("the volume was not stopped in order: attach and detach it once, and try again")]
    NotStopped,
    /// There is data behind the new end.
    #[error(transparent)]
    Holds(#[from] Behind),
}

/// Data behind the new end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} of data lie behind that end, the first of it at byte {}: shrink what is on the volume first. \
     Where that is done, attach the volume and give up what was left there: \
     `blkdiscard -f --offset {} DEVICE`",
    Size::of_blocks(*.blocks),
    bytes(*.first),
    bytes(*.end)
)]
pub struct Behind {
    /// The new end.
    pub end: Lba,
    /// The first such block.
    pub first: Lba,
    /// How many there are.
    pub blocks: u64,
}

fn bytes(lba: Lba) -> u64 {
    lba.0.saturating_mul(BLOCK_BYTES as u64)
}

/// Returns the superblock of a volume that was stopped cleanly, with another end and in a new life. The caller writes it to both
/// mirrors, one after the other.
///
/// # Errors
/// When the volume cannot have that end, when data lies behind it, or when it was not stopped cleanly.
pub fn end_at(recovered: &Recovered, blocks: u64) -> Result<Superblock, ShrinkError> {
    let mut next = ended_at(&recovered.superblock, blocks)?;
    if !recovered.was_stopped() {
        return Err(ShrinkError::NotStopped);
    }
    let (end, last) = (Lba(blocks), Lba(next.addressed_blocks()));
    if let Some((first, blocks)) = recovered.state.map().stored_in(end, last) {
        return Err(Behind { end, first, blocks }.into());
    }
    next.begin_life(recovered.log_end());
    next.mark_root(recovered.root.generation);
    Ok(next)
}
