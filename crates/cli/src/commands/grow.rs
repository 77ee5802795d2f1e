//! `vellum grow`: a volume has room for more.

use crate::claim::claim;
use crate::grow::Asked;
use crate::keys::Key;
use crate::outcome::out;
use crate::peek;
use crate::size::Size;
use anyhow::{Context, Result};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::grow_at_rest;

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    vellum grow disk.vellum --size 20G     a file: it is made as long as that needs\n  \
    vellum grow /dev/vg/disk               a block device that has been enlarged: all of it\n\n\
The file system on it is made larger by its own tool, when it is attached again: `resize2fs` for an ext4.")]
pub struct Args {
    /// The volume; no server may have it open.
    volume: PathBuf,
    /// What clients shall see of it; on a block device, all that it has room for, if not given.
    #[arg(long)]
    size: Option<Size>,
    /// What it shall take of its medium; as much as the size needs, if not given. More room for a thin volume without a new size.
    #[arg(long)]
    medium_size: Option<Size>,
    #[command(flatten)]
    key: Key,
}

/// Grows it.
pub fn run(args: &Args) -> Result<()> {
    let shown = args.volume.display();
    let (superblock, _) = peek::superblock_of(&args.volume, &args.key)?;
    let is_device = std::fs::metadata(&args.volume)
        .with_context(|| format!("cannot find {shown}"))?
        .file_type()
        .is_block_device();
    let asked = Asked {
        size: args.size,
        medium_size: args.medium_size,
    };
    let size = asked.of(&superblock, is_device)?;
    let claimed = claim(&args.volume, false, &args.key)?;
    let medium = Arc::from(claimed.medium);
    let grown = grow_at_rest(&medium, size).with_context(|| shown.to_string())?;
    let bytes = |blocks: u64| Size(blocks * BLOCK_BYTES as u64);
    writeln!(
        out(),
        "{shown}: {} before, {} now, on {} of its medium",
        bytes(superblock.logical_blocks()),
        bytes(grown.logical_blocks()),
        bytes(grown.medium_blocks())
    )?;
    Ok(())
}
