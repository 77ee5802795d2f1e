//! Dumps all of a volume into an archive.

use crate::archive::{self, size};
use crate::keys::Key;
use crate::opened;
use crate::outcome::{damage, out, tell, usage};
use crate::progress;
use crate::signals::Stop;
use crate::size::Size;
use anyhow::{Result, bail};
use std::io::Write;
use std::path::Path;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::entry::MAX_PBA;
use vellum_core::format::FormatError;
use vellum_core::recovery::{RecoveryError, find_superblock};
use vellum_device::archive::{Head, Kind, dump};
use vellum_device::{MediumSource, crc32c};
use vellum_medium::Medium;

/// Writes the archive.
pub fn run(volume: &Path, to: &Path, json: bool, key: &Key) -> Result<()> {
    let is_stream = archive::is_stream(to);
    if is_stream && json {
        return Err(usage("--json: standard output has the archive"));
    }
    let stop = Stop::on_signals(false)?;
    let medium = opened::open(volume, true, key)?;
    let head = head_of(&medium)?;
    let bar = progress::of_bytes("dumping", size(head.medium_blocks).0);
    let mut report = |at| {
        bar.set_position(at * BLOCK_BYTES as u64);
        !stop.asked()
    };
    let written = archive::write(to, &mut |out| Ok(dump(&medium, &head, out, &mut report)?.1));
    bar.finish_and_clear();
    let (totals, bytes) = written?;
    let (volume, to) = (volume.display(), to.display());
    let told = format!(
        "{volume}: {} of {} in the archive, sum {:016x}",
        size(totals.blocks),
        size(head.medium_blocks),
        totals.sum
    );
    match (bytes, json) {
        (None, _) => tell(format_args!("{told}")),
        (Some(bytes), true) => {
            let mut report = archive::as_json(&head, &totals);
            report["archive_bytes"] = bytes.into();
            writeln!(out(), "{report:#}")?;
        }
        (Some(bytes), false) => writeln!(out(), "{told}; {to} has {}", Size(bytes))?,
    }
    match totals.missing {
        0 => Ok(()),
        missing => Err(damage(format!(
            "{missing} block(s) of {volume} could not be read, and the archive is without them"
        ))),
    }
}

/// What is dumped: as much as the volume has, or as much as one can have if no superblock says how much that is.
fn head_of(medium: &dyn Medium) -> Result<Head> {
    let all = medium.blocks();
    let found = find_superblock(&mut MediumSource::new(medium), all, crc32c);
    let error = match found {
        Ok((superblock, _)) => {
            return Ok(Head {
                kind: Kind::Whole,
                uuid: superblock.uuid(),
                life: superblock.life().0,
                medium_blocks: superblock.medium_blocks().min(all),
            });
        }
        Err(error) => error,
    };
    let name = medium.name();
    match &error {
        RecoveryError::NoSuperblock {
            first: FormatError::Magic { .. },
            last: FormatError::Magic { .. },
        } => bail!("{name}: {error}"),
        RecoveryError::Superblock { error: of, .. } if of.is_newer() => bail!("{name}: {error}"),
        _ if all > MAX_PBA => tell(format_args!(
            "{name}: {error}; the first {} of the medium are dumped, as no volume has more",
            Size((MAX_PBA + 1) * BLOCK_BYTES as u64)
        )),
        _ => tell(format_args!("{name}: {error}; all of the medium is dumped")),
    }
    Ok(Head {
        kind: Kind::Whole,
        uuid: [0; 16],
        life: 0,
        medium_blocks: all.min(MAX_PBA),
    })
}
