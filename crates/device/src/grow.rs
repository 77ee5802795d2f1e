//! Grows a volume: writes what leads to its data at the new end of its medium, and then the superblock.
//!
//! The volume is at rest meanwhile. A crash leaves it as it was, or grown ([`vellum_core::grow`] says why).

use crate::digest::crc32c;
use crate::error::Uncommitted;
use crate::options::{OpenError, OpenOptions, StopError};
use crate::resize;
use crate::shrink::{self, ShrinkError};
use crate::source::MediumSource;
use crate::start;
use crate::volume::Volume;
use std::sync::Arc;
use vellum_core::format::geometry::GeometryError;
use vellum_core::format::grown::grown;
use vellum_core::format::history::Name;
use vellum_core::format::superblock::Superblock;
use vellum_core::grow::Growth;
use vellum_core::recovery::{RecoveryError, find_superblock};
use vellum_medium::{Medium, MediumError};

/// Why a volume did not grow. Unless its medium failed while the superblock was written, the volume is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// The medium holds no whole volume.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// It could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It could not be stopped cleanly.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// Its geometry, or what it holds, does not allow it.
    #[error(transparent)]
    Grow(#[from] vellum_core::grow::GrowError),
    /// It has shrunk before, and did not get its old end again.
    #[error(transparent)]
    End(#[from] ShrinkError),
    /// A snapshot or a clone of it is open, and belongs to the volume at its old size.
    #[error(
        "its snapshot or clone `{0}` is in use, and it grows when none is: detach that, \
         or end what reads it, first"
    )]
    InUse(Name),
    /// A commit block waits for requests that are still to come.
    #[error(transparent)]
    Uncommitted(#[from] Uncommitted),
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

impl From<GeometryError> for GrowError {
    fn from(error: GeometryError) -> Self {
        Self::Grow(error.into())
    }
}

/// The new size of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewSize {
    /// Blocks of its medium, which is lengthened if need be; by default all that the medium has.
    pub medium_blocks: Option<u64>,
    /// Blocks that clients see; by default what over-provisioning leaves.
    pub logical_blocks: Option<u64>,
}

/// Grows a volume that is not open.
///
/// # Errors
/// When clients would see less, the medium cannot hold it or fails, or the volume is not whole.
pub fn grow_at_rest(medium: &Arc<dyn Medium>, size: NewSize) -> Result<Superblock, GrowError> {
    let found = find_superblock(&mut MediumSource::new(medium), medium.blocks(), crc32c);
    lengthen(&**medium, &found?.0, size)?;
    let options = OpenOptions {
        to_make_room: true,
        ..resize::options()
    };
    Volume::open(Arc::clone(medium), &options)?.stop()?;
    grow_stopped(&**medium, size.logical_blocks)
}

/// Makes a medium as long as the new volume needs it. What cannot be done is refused before that.
pub(crate) fn lengthen(
    medium: &dyn Medium,
    volume: &Superblock,
    size: NewSize,
) -> Result<(), GrowError> {
    // A block device that was enlarged reports its new size after this.
    medium.lengthen(medium.blocks())?;
    let blocks = medium.blocks().max(size.medium_blocks.unwrap_or(0));
    if size
        .medium_blocks
        .is_none_or(|asked| asked <= volume.medium_blocks())
        && only_end(volume, blocks, size.logical_blocks).is_some()
    {
        return Ok(());
    }
    grown(volume, blocks, size.logical_blocks)?;
    Ok(medium.lengthen(blocks)?)
}

/// The new size, if the volume only gets back blocks that it had before it shrank. That is so if the medium has the same size, or if the
/// medium is longer but too short for what a larger volume needs.
fn only_end(volume: &Superblock, medium_blocks: u64, logical: Option<u64>) -> Option<u64> {
    let old = volume.logical_blocks() + 1..=volume.addressed_blocks();
    let is_same = medium_blocks == volume.medium_blocks();
    let is_enough = || grown(volume, medium_blocks, logical).is_ok();
    logical.filter(|blocks| old.contains(blocks) && (is_same || !is_enough()))
}

/// Grows a volume that was stopped cleanly to all of its medium.
pub(crate) fn grow_stopped(
    medium: &dyn Medium,
    logical_blocks: Option<u64>,
) -> Result<Superblock, GrowError> {
    let recovered = resize::stopped::<GrowError>(medium)?;
    let volume = recovered.superblock.clone();
    if let Some(blocks) = only_end(&volume, medium.blocks(), logical_blocks) {
        return Ok(shrink::end_stopped(medium, blocks)?);
    }
    let growth = Growth::new(recovered, medium.blocks(), logical_blocks)?;
    // If growing is cut short, the medium is longer than the volume.
    start::sign(medium, &volume)?;
    resize::write(medium, |source, crc, write| {
        growth.write(source, crc, write)?;
        Ok(growth.finish())
    })
}
