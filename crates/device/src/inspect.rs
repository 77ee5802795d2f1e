//! Looks at a volume at rest, for tools and tests: nothing is changed.

use crate::digest::crc32c;
use crate::limits::{CHECK_LEAVES, COLLECTOR_FRAMES_MIN, READ_FRAMES_MIN, WRITE_FRAMES_MIN};
use crate::options::{OpenError, OpenOptions};
use crate::snapshots::Wrong;
use crate::source::MediumSource;
use crate::volume::Volume;
use std::sync::Arc;
use vellum_core::check::{Options, Problem, Report, check};
use vellum_core::recovery::{Recovered, RecoveryError, recover};
use vellum_medium::Medium;

/// Checks every invariant of the volume on `medium`, and what its snapshots are and keep; it must not be written meanwhile.
///
/// # Errors
/// When the system has no memory or no thread for it.
pub fn check_volume(medium: &Arc<dyn Medium>, options: Options) -> Result<Report, OpenError> {
    let mut report = check_medium(&**medium, options);
    if report.has_snapshots {
        check_snapshots(open_to_check(medium), &mut report)?;
    }
    Ok(report)
}

/// Opens the volume to read the list of its snapshots, and rows. They are stored as any other blocks, perhaps in parts of pages. So they
/// are read through a volume, of which little is in memory. Nothing is written to it.
///
/// # Errors
/// As for [`Volume::open`].
pub fn open_to_check(medium: &Arc<dyn Medium>) -> Result<Volume, OpenError> {
    let options = OpenOptions {
        read_only: true,
        write_frames: WRITE_FRAMES_MIN,
        read_frames: READ_FRAMES_MIN,
        collector_frames: COLLECTOR_FRAMES_MIN,
        map_leaves: Some(CHECK_LEAVES),
        // They are read by the check itself, which tells all that is wrong with them.
        without_snapshots: true,
        ..OpenOptions::default()
    };
    Volume::open(Arc::clone(medium), &options)
}

fn check_snapshots(
    opened: Result<Volume, OpenError>,
    report: &mut Report,
) -> Result<(), OpenError> {
    match opened {
        // It is told already what is damaged, and without that all may be wrong.
        Ok(volume) if volume.damage().is_some() => {}
        Ok(volume) => {
            volume.check_snapshots(&mut |wrong| {
                let told = wrong.to_string();
                report.add(match wrong {
                    Wrong::LeftRows { .. } => Problem::LeftRows(told),
                    _ => Problem::Snapshots(told),
                });
            });
        }
        // This says nothing about the volume.
        Err(error @ OpenError::System { .. }) => return Err(error),
        Err(error) => {
            let told = format!("the list of snapshots cannot be read: {error}");
            report.add(Problem::Snapshots(told));
        }
    }
    Ok(())
}

/// Checks every invariant of the volume on `medium`, but not its snapshots; it must not be written meanwhile.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_memory_is_no_damage() {
        let mut report = Report::default();
        let refused = OpenError::System {
            what: "memory",
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        assert!(check_snapshots(Err(refused), &mut report).is_err());
        assert_eq!(report.worst(), None);
    }
}
