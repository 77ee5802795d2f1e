//! What it takes to give a volume at rest another size.

use crate::digest::crc32c;
use crate::options::OpenOptions;
use crate::source::MediumSource;
use crate::start;
use vellum_core::addr::Pba;
use vellum_core::format::Crc;
use vellum_core::format::geometry::GeometryError;
use vellum_core::format::superblock::Superblock;
use vellum_core::layout::{self, Recovered};
use vellum_core::recovery::{self, RecoveryError, Source, Unreadable};
use vellum_medium::{Medium, MediumError};

/// How it is opened and stopped before. That puts everything in the log into a map checkpoint, and mends what is damaged.
pub(crate) fn options() -> OpenOptions {
    OpenOptions {
        // There may be no room for the rest of it.
        receiving: true,
        ..OpenOptions::default()
    }
}

/// Reads a log that was stopped cleanly. Tables keep their size.
pub(crate) fn stopped<E: From<RecoveryError> + From<GeometryError>>(
    medium: &dyn Medium,
) -> Result<recovery::Recovered, E> {
    match layout::recover(&mut MediumSource::new(medium), medium.blocks(), crc32c)? {
        Recovered::Log(recovered) => Ok(*recovered),
        Recovered::Tables(tables) => {
            Err(GeometryError::Fixed(tables.superblock.layout().name()).into())
        }
    }
}

/// Writes what leads to the data, by `lead`, and then the superblock.
pub(crate) fn write<E: From<RecoveryError> + From<MediumError>>(
    medium: &dyn Medium,
    lead: impl FnOnce(
        &mut dyn Source,
        Crc,
        &mut dyn FnMut(Pba, &[u8]),
    ) -> Result<Superblock, Unreadable>,
) -> Result<Superblock, E> {
    let mut source = MediumSource::new(medium);
    let mut written = Ok(());
    let read = lead(&mut source, crc32c, &mut |at, bytes| {
        if written.is_ok() {
            written = medium.write(at, bytes);
        }
    });
    written?;
    let superblock = read.map_err(|error| unreadable::<E>(&mut source, error))?;
    medium.sync()?;
    let [first, last] = superblock.mirrors();
    start::write(medium, &superblock, &[last, first])?;
    Ok(superblock)
}

/// Why something was unreadable.
pub(crate) fn unreadable<E: From<RecoveryError> + From<MediumError>>(
    source: &mut MediumSource<'_>,
    error: Unreadable,
) -> E {
    match source.take_error() {
        Some(error) => error.into(),
        None => RecoveryError::Unreadable(error).into(),
    }
}
