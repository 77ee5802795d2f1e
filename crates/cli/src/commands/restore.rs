//! `vellum restore`: writes an archive into a new file or onto a block device.

use crate::archive::{self, size};
use crate::claim::may_be_lost;
use crate::outcome::{damage, out, usage};
use crate::signals::Stop;
use crate::{progress, replace};
use anyhow::{Context, Result, anyhow};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::FormatError;
use vellum_device::archive::{Head, Kind, Problem, Reader, Totals, restore};
use vellum_medium::{FileMedium, OpenError, OpenOptions, Prealloc};

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    vellum restore disk.vla disk.vellum\n  \
    ssh host 'cat disk.vla' | vellum restore - /dev/sdb --force\n\n\
The volume has the UUID and the secret of the one that was dumped: it is that volume, as it was. Both\n\
cannot be served at once. For a second volume with the same contents, use `vellum migrate`.\n\n\
A file has its name when all of it is there. A block device has no superblock until then.\n\
Exit code 3: the archive is whole, and was made without blocks that could not be read.")]
pub struct Args {
    /// The archive that `vellum dump --whole` or `vellum pack` made; `-` is standard input.
    archive: PathBuf,
    /// A new file, or a block device.
    target: PathBuf,
    /// Write over the file, or all that is on the block device.
    #[arg(long)]
    force: bool,
    /// What the archive holds, as JSON.
    #[arg(long)]
    json: bool,
}

type Archive = Reader<Box<dyn Read>>;

/// Restores the archive.
pub fn run(args: &Args) -> Result<()> {
    if archive::is_stream(&args.target) {
        return Err(usage(
            "a volume is not written to a pipe: name a file or a block device (./- for a file of this name)",
        ));
    }
    let stop = Stop::on_signals(false)?;
    let shown = args.archive.display();
    // Before anything is done to the target.
    let source = archive::open(&args.archive)?;
    let mut archive = Reader::new(source).map_err(|damaged| match damaged.problem {
        Problem::CutShort | Problem::Format(FormatError::Magic { .. }) => anyhow!(
            "{shown} is no archive that `vellum dump --whole` or `vellum pack` made, or is cut \
             short: {damaged}"
        ),
        _ => anyhow::Error::from(damaged).context(shown.to_string()),
    })?;
    let head = *archive.head();
    let bar = progress::of_bytes("restoring", size(head.medium_blocks).0);
    let mut report = |at| {
        bar.set_position(at * BLOCK_BYTES as u64);
        !stop.asked()
    };
    let there = std::fs::metadata(&args.target);
    refuse_itself(&args.archive, &args.target)?;
    let restored = match there.is_ok_and(|there| there.file_type().is_block_device()) {
        true => onto_device(args, &mut archive, &mut report),
        false => into_file(args, &mut archive, &mut report),
    };
    bar.finish_and_clear();
    tell(args, &head, &restored?)
}

/// With --force an archive would be replaced by what is in it.
fn refuse_itself(archive: &Path, target: &Path) -> Result<()> {
    let file = |path: &Path| Some(std::fs::metadata(path).ok()?).map(|it| (it.dev(), it.ino()));
    match file(archive).filter(|_| archive != Path::new("-")) {
        Some(one) if file(target) == Some(one) => Err(usage(format!(
            "{} is the archive itself: give another file for the volume",
            target.display()
        ))),
        _ => Ok(()),
    }
}

fn tell(args: &Args, head: &Head, totals: &Totals) -> Result<()> {
    let target = args.target.display();
    if args.json {
        writeln!(out(), "{:#}", archive::as_json(head, totals))?;
    } else {
        let what = match head.kind {
            Kind::Whole => "",
            Kind::Pack => {
                "; it is a pack: metadata for `vellum dump` and `vellum check`, without data"
            }
        };
        writeln!(
            out(),
            "{target}: {} of {} restored, sum {:016x}{what}",
            size(totals.blocks),
            size(head.medium_blocks),
            totals.sum
        )?;
    }
    match totals.missing {
        0 => Ok(()),
        missing => Err(damage(format!(
            "{missing} block(s) of {target} are zeros, because they are missing from the archive: \
             `vellum check` shows the consequences"
        ))),
    }
}

/// Restores onto a block device, which is not a volume until this is done.
fn onto_device(
    args: &Args,
    archive: &mut Archive,
    report: &mut dyn FnMut(u64) -> bool,
) -> Result<Totals> {
    let target = &args.target;
    if !args.force {
        return Err(usage(format!(
            "{} is a block device: --force writes over all that is on it",
            target.display()
        )));
    }
    let medium = FileMedium::open(target, OpenOptions::default())?;
    may_be_lost(target)?;
    restore(archive, &medium, false, report)
        .with_context(|| format!("{} is not wholly restored", target.display()))
}

/// Restores into a file made beside its place, which gets its name when it is complete.
fn into_file(
    args: &Args,
    archive: &mut Archive,
    report: &mut dyn FnMut(u64) -> bool,
) -> Result<Totals> {
    let target = &args.target;
    let _held = held(target, args.force)?;
    let bytes = size(archive.head().medium_blocks).0;
    let create = |path: &Path| {
        FileMedium::create_named(path, target, bytes, Prealloc::Sparse).map_err(io::Error::other)
    };
    let refused = || format!("{} is not restored", target.display());
    let made = replace::made_beside(target, create).with_context(refused)?;
    let totals = restore(archive, made.as_file(), true, report).with_context(refused)?;
    replace::name(made, target, args.force).with_context(refused)?;
    Ok(totals)
}

/// The existing file, if there is one and it may be replaced. It stays locked until it is, so that no server loses its volume.
pub fn held(target: &Path, force: bool) -> Result<Option<FileMedium>> {
    replace::has_folder(target)?;
    match target.symlink_metadata().is_ok() {
        _ if target.is_dir() => Err(OpenError::Directory {
            path: target.to_owned(),
        }
        .into()),
        true if force => replaceable(target),
        true => Err(OpenError::Exists {
            path: target.to_owned(),
        }
        .into()),
        false => Ok(None),
    }
}

/// The existing file, locked if possible, if it may be replaced.
pub fn replaceable(target: &Path) -> Result<Option<FileMedium>> {
    if !target.is_file() {
        return Err(usage(format!(
            "{} is neither a regular file nor a block device",
            target.display()
        )));
    }
    match FileMedium::open(target, OpenOptions::default()) {
        Err(error @ (OpenError::Locked(_) | OpenError::Permission { .. })) => Err(error.into()),
        // Too short to be a volume, for example.
        Err(_) => Ok(None),
        Ok(medium) => {
            may_be_lost(target)?;
            Ok(Some(medium))
        }
    }
}
