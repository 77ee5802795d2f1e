//! `vellum shrink`: makes a volume smaller for its clients, even while it is served.

use crate::claim::claim;
use crate::commands::snapshot;
use crate::keys::Key;
use crate::outcome::{out, usage};
use crate::properties::{Run, Settings};
use crate::size::Size;
use crate::{bound, control, peek, resize, smaller, state, whose};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::shrunk::ended_at;
use vellum_core::format::superblock::Superblock;
use vellum_device::info::hex_uuid;
use vellum_device::{OpenOptions, Volume, shrink_at_rest};
use vellum_medium::Medium;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How long a server may take.
const SERVER_PATIENCE: Duration = Duration::from_secs(600);

/// Arguments.
#[derive(clap::Args)]
#[command(
    after_help = "What is on the volume has to be smaller already, and the rest discarded. \
For an ext4 that is not mounted, where `vellum attach` has printed DEVICE:\n  \
    e2fsck -f DEVICE && resize2fs DEVICE 5G\n  \
    blkdiscard -f --offset $((5 << 30)) DEVICE\n  \
    vellum detach disk.vellum\n  \
    vellum shrink disk.vellum --size 5G\n\n\
Nothing is cut off: it refuses while a file system, data, or a snapshot reaches behind the new end. \
The volume's file keeps its length and gives up the room of what is discarded. Attached over a loop device, \
the volume is smaller at once; over ublk or nbd, detach it first."
)]
pub struct Args {
    /// The volume; if it is being served, its server does it.
    volume: PathBuf,
    /// What clients shall see of it.
    #[arg(long)]
    size: Size,
    #[command(flatten)]
    key: Key,
}

/// Shrinks the volume.
pub fn run(args: &Args) -> Result<()> {
    let shown = args.volume.display();
    let (superblock, _) = peek::superblock_of(&args.volume, &args.key)?;
    let before = superblock.logical_blocks() * BLOCK;
    let blocks = asked(args, &superblock)?;
    // The volume has that size already, if an earlier try was cut short before the kernel knew.
    let bytes = match whose::find_server(&args.volume)? {
        None if args.size.0 == before => before,
        Some((socket, volume)) => on_line(&superblock, blocks, &socket, &volume)?,
        None => at_rest(args, blocks)?,
    };
    writeln!(
        out(),
        "{shown}: {:#} before, {:#} now",
        Size(before),
        Size(bytes)
    )?;
    Ok(())
}

/// The new size in blocks, if the volume can have it.
fn asked(args: &Args, volume: &Superblock) -> Result<u64> {
    let (Size(bytes), before) = (args.size, volume.logical_blocks() * BLOCK);
    if bytes == 0 || bytes % BLOCK != 0 {
        return Err(usage(format!(
            "--size {bytes}: it must be a multiple of {BLOCK} bytes, and not 0"
        )));
    }
    if bytes > before {
        return Err(usage(format!(
            "--size {}: the volume has {}, and `vellum grow` makes it larger",
            args.size.beside(Size(before)),
            Size(before).beside(args.size)
        )));
    }
    let next =
        ended_at(volume, bytes / BLOCK).with_context(|| args.volume.display().to_string())?;
    // Such as a journal that was named, and lies behind the new end: the volume could not be attached again.
    Settings::of(&next, next.properties(), &Run::default()).check(&next)?;
    Ok(bytes / BLOCK)
}

/// Shrinks an unserved volume. Returns what clients then see, in bytes.
fn at_rest(args: &Args, blocks: u64) -> Result<u64> {
    let shown = || args.volume.display().to_string();
    let claimed = claim(&args.volume, false, &args.key)?;
    let medium: Arc<dyn Medium> = Arc::from(claimed.medium);
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open(Arc::clone(&medium), &options).with_context(shown)?;
    let volume = Arc::new(volume);
    smaller::is_unmounted(&volume).with_context(shown)?;
    smaller::ends_before_size(&volume, args.size).with_context(shown)?;
    drop(volume);
    let shrunk = shrink_at_rest(&medium, blocks).with_context(shown)?;
    Ok(shrunk.logical_blocks() * BLOCK)
}

/// Has the kernel write what it holds of the volume: a file system may have grown, and only its log says so.
fn settle(uuid: &str, state: &state::State) -> Result<()> {
    let mounts = bound::mounts(uuid, state);
    drop(snapshot::frozen(&mounts)?);
    let Some(device) = &state.device else {
        return Ok(());
    };
    let shown = device.display();
    let written = File::open(device).and_then(|device| device.sync_all());
    written.with_context(|| format!("cannot write what is held of {shown}"))?;
    match mounts.is_empty() {
        true => smaller::is_device_unmounted(device).with_context(|| shown.to_string()),
        false => Ok(()),
    }
}

/// Has its server shrink it, and then the kernel's device.
fn on_line(superblock: &Superblock, blocks: u64, socket: &Path, volume: &Path) -> Result<u64> {
    let uuid = hex_uuid(&superblock.uuid());
    let records = state::records()?;
    let attached = records.iter().find(|(id, _)| *id == uuid);
    let attached = attached
        .map(|(_, state)| state)
        .filter(|state| state.device.is_some());
    if let Some(state) = attached
        && state.via != "fuse"
    {
        bail!(
            "{} is attached over {}, and its device keeps its size: detach it first",
            volume.display(),
            state.via
        );
    }
    if let Some(state) = attached {
        settle(&uuid, state)?;
    }
    let bytes = match blocks == superblock.logical_blocks() {
        true => blocks * BLOCK,
        false => {
            let request = json!({
                "command": "shrink",
                "volume": volume.to_string_lossy(),
                "logical_blocks": blocks,
            });
            let answer = control::request_within(socket, &request, SERVER_PATIENCE)?;
            let bytes = answer["shrunk"]["logical_bytes"].as_u64();
            bytes.context("the server does not say how large it is")?
        }
    };
    if let Some(state) = attached {
        resize::device(state, bytes)?;
    }
    Ok(bytes)
}
