//! Gives back the end of a volume's medium: empties the segments there, says in the superblock where the volume ends, and cuts the
//! medium off.
//!
//! Clients do not use the volume meanwhile. A crash leaves the volume as it was, or shorter ([`vellum_core::shorten`] says why). A medium
//! that is longer than its volume is an ordinary one; the same call cuts it off.

use crate::digest::crc32c;
use crate::options::{OpenError, OpenOptions, StopError};
use crate::resize;
use crate::source::MediumSource;
use crate::start;
use crate::volume::Volume;
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::Pba;
use vellum_core::format::geometry::GeometryError;
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::{RecoveryError, find_superblock};
use vellum_core::shorten::{Shortening, fitting};
use vellum_core::size::Size;
use vellum_core::vacate::Leaving;
use vellum_medium::{Medium, MediumError};

/// The volume is opened so often at most. The collector may first need the last segments itself, so that a second try empties them.
const TRIES: usize = 6;

/// How often a caller is told how much is left.
const TELLS: Duration = Duration::from_millis(20);

/// Why a medium did not become shorter. Unless the medium failed at the very end, the volume is as large as it was.
#[derive(Debug, thiserror::Error)]
pub enum ShortenError {
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
    Shorten(#[from] vellum_core::shorten::ShortenError),
    /// Some blocks cannot be moved.
    #[error(
        "{} of data at the end of the medium cannot be moved, because they cannot be read: \
         `vellum check` names them",
        Size::of_blocks(*.0)
    )]
    Stuck(u64),
    /// The file system that the medium is a file of is full.
    #[error(
        "there is no room for what has to be moved: make room where the volume's file is, and try again"
    )]
    NoRoom,
    /// The medium failed.
    #[error(transparent)]
    Medium(#[from] MediumError),
}

impl From<GeometryError> for ShortenError {
    fn from(error: GeometryError) -> Self {
        Self::Shorten(error.into())
    }
}

/// A volume whose medium is shorter.
#[derive(Clone, Debug)]
pub struct Shortened {
    /// Its superblock.
    pub superblock: Superblock,
    /// True if the medium was cut off; else what is behind the volume's end is free for other uses.
    pub is_cut: bool,
}

/// Makes a volume that is not open end after `medium_blocks` of its medium, and cuts the medium off there if that is possible. Calls
/// `left` now and then with how many blocks of data are still to be moved.
///
/// # Errors
/// When there is not enough room in these blocks, when something cannot be moved, when the volume is not whole, or when its medium fails.
pub fn shorten_at_rest(
    medium: &Arc<dyn Medium>,
    medium_blocks: u64,
    left: &mut dyn FnMut(u64),
) -> Result<Shortened, ShortenError> {
    let found = find_superblock(&mut MediumSource::new(medium), medium.blocks(), crc32c)?;
    let superblock = match found.0 {
        // An earlier try has not come to cutting it off.
        volume if volume.medium_blocks() == medium_blocks => match volume.unknown_to_write() {
            None => volume,
            Some(error) => return Err(RecoveryError::Superblock { at: Pba(0), error }.into()),
        },
        volume => {
            fitting(&volume, medium_blocks, 0)?;
            empty_and_shorten(medium, medium_blocks, left)?
        }
    };
    // If the first mirror is lost one day, what is in the last block says where the other one is.
    start::sign(&**medium, &superblock)?;
    let is_cut = medium.shorten(medium_blocks)?;
    Ok(Shortened { superblock, is_cut })
}

fn empty_and_shorten(
    medium: &Arc<dyn Medium>,
    medium_blocks: u64,
    left: &mut dyn FnMut(u64),
) -> Result<Superblock, ShortenError> {
    use vellum_core::shorten::ShortenError::{HeadIn, Holds, Named};
    Volume::open(Arc::clone(medium), &resize::options())?.stop()?;
    let mut before = u64::MAX;
    for _ in 0..TRIES {
        let found = resize::stopped::<ShortenError>(&**medium)?;
        let live = found.state.live().total();
        let end = fitting(&found.superblock, medium_blocks, live)?.segment_count();
        match Shortening::new(found, medium_blocks) {
            Ok(ready) => {
                return resize::write(&**medium, |source, crc, write| {
                    ready.write(source, crc, write)?;
                    Ok(ready.finish())
                });
            }
            Err(Holds(_) | HeadIn(_) | Named) => {}
            Err(error) => return Err(error.into()),
        }
        move_heads(&**medium, end)?;
        let now = empty(medium, end, left)?;
        if now > 0 && now == before {
            return Err(ShortenError::Stuck(now));
        }
        before = now;
    }
    Err(ShortenError::Stuck(before))
}

/// Lets the log go on in segments before `end`.
fn move_heads(medium: &dyn Medium, end: u32) -> Result<(), ShortenError> {
    let found = resize::stopped::<ShortenError>(medium)?;
    let Some(leaving) = Leaving::new(&found, end)? else {
        return Ok(());
    };
    let mut source = MediumSource::new(medium);
    let stages = leaving.writes(&mut source, crc32c);
    for writes in stages.map_err(|error| resize::unreadable::<ShortenError>(&mut source, error))? {
        for (at, bytes) in writes {
            medium.write(at, &bytes)?;
        }
        medium.sync()?;
    }
    Ok(())
}

/// Has the collector empty the segments from `end` on. Returns how many blocks are still there.
fn empty(
    medium: &Arc<dyn Medium>,
    end: u32,
    tell: &mut dyn FnMut(u64),
) -> Result<u64, ShortenError> {
    let options = OpenOptions {
        segments_end: Some(end),
        ..resize::options()
    };
    let volume = Volume::open(Arc::clone(medium), &options)?;
    let left = loop {
        let (left, is_moving, is_full) = {
            let inner = volume.shared.inner.lock();
            let (left, is_moving) = inner.core.left_behind();
            let is_sound = inner.core.stats().poisoned == 0 && !inner.has_broken_down();
            (left, is_moving && is_sound, inner.full)
        };
        if is_full {
            return Err(ShortenError::NoRoom);
        }
        if !is_moving {
            break left;
        }
        tell(left);
        std::thread::sleep(TELLS);
    };
    volume.stop()?;
    Ok(left)
}
