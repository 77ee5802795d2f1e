//! Looks at a volume at rest, for tools and tests: nothing is changed.

use crate::digest::crc32c;
use crate::source::MediumSource;
use vellum_core::check::{Options, Report, check};
use vellum_core::recovery::{Recovered, RecoveryError, recover};
use vellum_medium::Medium;

/// Checks every invariant of the volume on `medium`; it must not be written meanwhile.
#[must_use]
pub fn check_medium(medium: &dyn Medium, options: Options) -> Report {
    check(
        &mut MediumSource::new(medium),
        medium.blocks(),
        options,
        crc32c,
    )
}

/// Recovers the volume on `medium` in its present state.
///
/// # Errors
/// When it is not a whole volume.
pub fn recover_medium(medium: &dyn Medium) -> Result<Recovered, RecoveryError> {
    recover(&mut MediumSource::new(medium), medium.blocks(), crc32c)
}
