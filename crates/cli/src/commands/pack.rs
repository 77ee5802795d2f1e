//! `vellum pack`: packs a volume's metadata, without its data, for a bug report.

use crate::archive::{self, size};
use crate::keys::Key;
use crate::opened;
use crate::outcome::{damage, out, usage};
use crate::properties;
use crate::signals::Stop;
use crate::size::Size;
use anyhow::{Context, Result};
use std::io::Write;
use std::path::PathBuf;
use vellum_core::recovery::find_superblock;
use vellum_device::archive::{Head, Kind, pack};
use vellum_device::{MediumSource, crc32c};
use vellum_medium::Medium;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    vellum pack disk.vellum disk.pack        for a bug report\n  \
    vellum restore disk.pack look.vellum     what somebody who looks into it does; then\n  \
    vellum dump look.vellum map              or `vellum check look.vellum`\n\n\
A pack has no block of data, no words of your own, and nothing of the secret that tells contents.\n\
It tells the volume's UUID and size, which blocks are in use, their order in the log, how many bytes\n\
packed ones take, and a checksum of each: which blocks are equal. The guide says more.\n\
Exit code 3: something is damaged or cannot be read; the pack has the rest.")]
pub struct Args {
    /// The volume; no server may have it open. It is only read.
    volume: PathBuf,
    /// The archive, a new file; `-` is standard output.
    archive: PathBuf,
    /// What the pack holds, as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    key: Key,
}

/// Packs the metadata.
pub fn run(args: &Args) -> Result<()> {
    let is_stream = archive::is_stream(&args.archive);
    if is_stream && args.json {
        return Err(usage("--json: standard output has the archive"));
    }
    let stop = Stop::on_signals(false)?;
    let medium = opened::open(&args.volume, true, &args.key)?;
    let name = || args.volume.display().to_string();
    let found = find_superblock(&mut MediumSource::new(&medium), medium.blocks(), crc32c);
    let (superblock, _) = found.with_context(name)?;
    let head = Head {
        kind: Kind::Pack,
        uuid: superblock.uuid(),
        life: superblock.life().0,
        medium_blocks: superblock.medium_blocks(),
    };
    let properties = properties::without_names(&superblock);
    let (totals, bytes) = archive::write(&args.archive, &mut |out| {
        let stopped = || stop.asked();
        Ok(pack(
            &medium,
            &superblock,
            properties.clone(),
            &head,
            out,
            &stopped,
        )?
        .1)
    })?;
    match (bytes, args.json) {
        (Some(bytes), true) => {
            let mut report = archive::as_json(&head, &totals);
            report["archive_bytes"] = bytes.into();
            writeln!(out(), "{report:#}")?;
        }
        (Some(bytes), false) => writeln!(
            out(),
            "{}: {} of what leads to data in {}, which has {}",
            name(),
            size(totals.blocks),
            args.archive.display(),
            Size(bytes)
        )?,
        (None, _) => {}
    }
    match totals.missing {
        0 => Ok(()),
        missing => Err(damage(format!(
            "{missing} block(s) of {} are damaged or cannot be read, and the pack is without them",
            name()
        ))),
    }
}
