//! The subject of a dump: a volume as recovery finds it, or what is certain about it if recovery refuses.

use anyhow::{Context, Result};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use vellum_core::layout::{Recovered, recover, rescue};
use vellum_core::recovery::RecoveryError;
use vellum_core::recovery::rescue::{LbaSet, Loss, Trust};
use vellum_device::{MediumSource, crc32c};
use vellum_medium::Medium;

/// The subject of a dump; see the module.
pub struct DumpSubject {
    pub recovered: Recovered,
    damage: Option<(RecoveryError, Loss)>,
}

/// Reads the volume's metadata.
pub fn find(path: &Path, medium: &dyn Medium) -> Result<DumpSubject> {
    let mut source = MediumSource::new(medium);
    let blocks = medium.blocks();
    let error = match recover(&mut source, blocks, crc32c) {
        Ok(recovered) => match recovered.unread() {
            Some(unread) => unread.into(),
            None => {
                return Ok(DumpSubject {
                    recovered,
                    damage: None,
                });
            }
        },
        Err(error) => error,
    };
    let rest = rescue(&mut source, blocks, crc32c, Trust::Certain);
    let (recovered, loss) = rest.with_context(|| path.display().to_string())?;
    Ok(DumpSubject {
        recovered,
        damage: Some((error, loss)),
    })
}

impl DumpSubject {
    /// Reports what is damaged, and which of these blocks are lost because of it.
    pub fn tell(&self, range: &Range<u64>, out: &mut dyn Write) -> Result<()> {
        let Some((error, loss)) = &self.damage else {
            return Ok(());
        };
        let others = loss.damage.iter().filter(|other| *other != error);
        for finding in std::iter::once(error).chain(others) {
            writeln!(out, "damaged: {finding}")?;
        }
        if loss.more_damage > 0 {
            writeln!(out, "damaged: {} more", loss.more_damage)?;
        }
        runs(&loss.lost, range, "lost", out)
    }
}

/// A line for each run of these LBAs.
pub fn runs(set: &LbaSet, range: &Range<u64>, what: &str, out: &mut dyn Write) -> Result<()> {
    let mut from = range.start;
    while let Some((lba, blocks)) = set.next_run(from..range.end) {
        writeln!(out, "{lba:>12} {blocks:>10}  {what}")?;
        from = lba.0 + blocks;
    }
    Ok(())
}
