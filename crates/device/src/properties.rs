//! Changes a volume's properties durably: after a crash the volume has either the old or the new ones.

use crate::block::{BlockError, Op, Request};
use crate::digest::crc32c;
use crate::frames::Frames;
use crate::source::MediumSource;
use crate::start;
use crate::volume::Volume;
use vellum_core::addr::Lba;
use vellum_core::format::properties::Properties;
use vellum_core::format::superblock::Superblock;
use vellum_core::recovery::{RecoveryError, find_superblock};
use vellum_core::seam::{Input, PropertiesChange};
use vellum_medium::{Medium, MediumError};

/// Why properties of a volume at rest were not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError<E> {
    /// The change is refused.
    #[error("{0}")]
    Refused(E),
    /// The medium holds no whole volume.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The medium failed.
    #[error(transparent)]
    Medium(#[from] MediumError),
}

/// Changes the properties of a volume that is not open: `change` returns the new ones.
///
/// # Errors
/// When the change is refused, there is no volume, or its medium fails.
pub fn change_at_rest<E>(
    medium: &dyn Medium,
    change: impl FnOnce(&Superblock) -> Result<Properties, E>,
) -> Result<Superblock, ChangeError<E>> {
    let found = find_superblock(&mut MediumSource::new(medium), medium.blocks(), crc32c);
    let (found, mirror_lost) = found?;
    let mut superblock = found.clone();
    if let Some(error) = superblock.unknown_to_write() {
        let at = superblock.mirrors()[0];
        return Err(RecoveryError::Superblock { at, error }.into());
    }
    let properties = change(&superblock).map_err(ChangeError::Refused)?;
    superblock.set_properties(properties);
    start::replace(medium, &found, mirror_lost, &superblock)?;
    Ok(superblock)
}

impl Volume {
    /// What the user has chosen.
    #[must_use]
    pub fn properties(&self) -> Properties {
        let inner = self.shared.inner.lock();
        inner.core.superblock().properties().clone()
    }

    /// Stores these properties, and returns when they are durable.
    ///
    /// # Errors
    /// When the volume is read-only or ends, or its medium fails: then it is not known whether the medium has the old or the new
    /// ones.
    pub fn set_properties(&self, properties: &Properties) -> Result<(), BlockError> {
        self.change(PropertiesChange::All(properties))
    }

    /// Stores that the volume has clones, and returns when that is durable.
    pub(crate) fn note_clones(&self) -> Result<(), BlockError> {
        self.change(PropertiesChange::HasClones)
    }

    fn change(&self, change: PropertiesChange<'_>) -> Result<(), BlockError> {
        if self.read_only {
            return Err(BlockError::ReadOnly);
        }
        let request = Request::new(Op::Flush, Lba(0), 0, Frames::default());
        let set = self.shared.call(request, |now, inner, pending, batch| {
            let id = inner.requests.insert(pending);
            inner.feed(now, Input::Properties { id, change }, batch);
        });
        set.map(drop)
    }

    /// The superblock that it was opened with.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }
}
