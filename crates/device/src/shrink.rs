//! Gives a volume another end: its clients see fewer blocks, or again as many as before it shrank.
//!
//! The volume is at rest meanwhile. Only its superblock changes, so a crash leaves the old end or the new one
//! ([`vellum_core::shrink`] says why both are right).

use crate::digest::crc32c;
use crate::options::{OpenError, StopError};
use crate::resize;
use crate::snapshots::{kept, stored};
use crate::source::MediumSource;
use crate::start;
use crate::volume::Volume;
use std::sync::Arc;
use vellum_core::format::geometry::GeometryError;
use vellum_core::format::history::Name;
use vellum_core::format::shrunk::ended_at;
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::{RecoveryError, find_superblock};
use vellum_core::shrink::end_at;
use vellum_core::size::Size;
use vellum_medium::{Medium, MediumError};

/// How many names an error lists.
const NAMES_MAX: usize = 4;

/// Why a volume did not shrink. Unless its medium failed while the superblock was written, the volume is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ShrinkError {
    /// The medium holds no whole volume.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It could not be stopped cleanly.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// Its geometry, or what is behind the new end, does not allow it.
    #[error(transparent)]
    Shrink(#[from] vellum_core::shrink::ShrinkError),
    /// Snapshots or clones have data behind the new end.
    #[error(
        "snapshots or clones keep {} behind that end: {}. Delete these first (`vellum delete`). If an older \
         snapshot needs some of these blocks, it keeps them from then on",
        Size::of_blocks(*.blocks),
        listed(.names)
    )]
    Kept {
        /// Those that keep something there, the oldest first.
        names: Vec<Name>,
        /// How many blocks they keep there.
        blocks: u64,
    },
    /// A snapshot or a clone of it is open, and belongs to the volume at its old size.
    #[error(
        "its snapshot or clone `{0}` is in use, and it shrinks when none is: detach that first"
    )]
    InUse(Name),
    /// Some request always waited for another one.
    #[error(
        "requests of its clients wait for others, and it shrinks when none does: try again when it \
         is less busy"
    )]
    Busy,
    /// The volume is served read-only.
    #[error("the volume is served read-only: end that server, and try again")]
    ReadOnly,
    /// Its medium had no room for the last write, and a stop would wait for some.
    #[error(
        "no room on its file system or device for what was written: free some there, and give the same \
         command again"
    )]
    NoRoom,
    /// The medium failed.
    #[error(transparent)]
    Medium(#[from] MediumError),
}

fn listed(names: &[Name]) -> String {
    let first: Vec<String> = names
        .iter()
        .take(NAMES_MAX)
        .map(|name| format!("`{name}`"))
        .collect();
    match names.len().saturating_sub(NAMES_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

impl From<GeometryError> for ShrinkError {
    fn from(error: GeometryError) -> Self {
        Self::Shrink(error.into())
    }
}

/// Shrinks a volume that is not open: its clients see `blocks` of it from then on. Or lets them see more again, up to what they saw
/// before it shrank.
///
/// # Errors
/// When the volume, a snapshot or a clone has data behind that end, when it cannot have that size, when it is not whole, or when
/// its medium fails.
pub fn shrink_at_rest(medium: &Arc<dyn Medium>, blocks: u64) -> Result<Superblock, ShrinkError> {
    let found = find_superblock(&mut MediumSource::new(medium), medium.blocks(), crc32c)?;
    ended_at(&found.0, blocks)?;
    let volume = Volume::open(Arc::clone(medium), &resize::options())?;
    let may_end = may_end(&volume, blocks);
    volume.stop()?;
    may_end?;
    end_stopped(&**medium, blocks)
}

/// Checks that nothing lies behind a new end of an open volume.
pub(crate) fn may_end(volume: &Volume, blocks: u64) -> Result<(), ShrinkError> {
    if let Some(behind) = stored(&volume.shared, blocks) {
        return Err(ShrinkError::Shrink(behind.into()));
    }
    match kept(&volume.shared, blocks) {
        Some(kept) => Err(ShrinkError::Kept {
            names: kept.names,
            blocks: kept.blocks,
        }),
        None => Ok(()),
    }
}

/// Gives a volume that was stopped cleanly another end. Snapshots keep nothing behind it: the caller has checked that.
pub(crate) fn end_stopped(medium: &dyn Medium, blocks: u64) -> Result<Superblock, ShrinkError> {
    let recovered = resize::stopped::<ShrinkError>(medium)?;
    let superblock = end_at(&recovered, blocks)?;
    let mirror_lost = recovered.replayed.mirror_lost;
    start::replace(medium, &recovered.superblock, mirror_lost, &superblock)?;
    Ok(superblock)
}
