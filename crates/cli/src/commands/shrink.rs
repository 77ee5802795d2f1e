//! `vellum shrink`: makes a volume smaller for its clients, even while it is served; or gives back the end of its medium.

use crate::claim::claim;
use crate::commands::snapshot;
use crate::keys::Key;
use crate::outcome::{out, tell, usage};
use crate::properties::{Run, Settings};
use crate::size::Size;
use crate::{bound, control, peek, resize, smaller, state, whose};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::shrunk::ended_at;
use vellum_core::format::superblock::Superblock;
use vellum_core::shorten::fitting;
use vellum_device::info::hex_uuid;
use vellum_device::{OpenOptions, Volume, shorten_at_rest, shrink_at_rest};
use vellum_medium::Medium;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How long a server may take.
const SERVER_PATIENCE: Duration = Duration::from_secs(600);

/// How often it says how much is left to be moved.
const PROGRESS: Duration = Duration::from_secs(10);

/// Arguments.
#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("end").required(true).multiple(true),
    after_help = "What is on the volume has to be smaller already, and the rest discarded. \
For an ext4 that is not mounted, where `vellum attach` has printed DEVICE:\n  \
    e2fsck -f DEVICE && resize2fs DEVICE 5G\n  \
    blkdiscard -f --offset $((5 << 30)) DEVICE\n  \
    vellum detach disk.vellum\n  \
    vellum shrink disk.vellum --size 5G\n\
And its file, at once or later:\n  \
    vellum shrink disk.vellum --medium-size 6G\n\n\
No data is cut off: it refuses while a file system, data, or a snapshot reaches behind the new end. \
With --size alone the volume's file keeps its length and gives up the room of what is discarded. Attached \
over a loop device, the volume is smaller at once; over ublk or nbd, detach it first.\n\n\
With --medium-size, what is stored at the end of the file moves to where there is room, and the file is cut \
off. The end of a partition or a drive becomes free for other uses. If it is interrupted, give the same \
command again."
)]
pub struct Args {
    /// The volume; if it is being served, its server does it.
    volume: PathBuf,
    /// What clients shall see of it.
    #[arg(long, group = "end")]
    size: Option<Size>,
    /// What it shall keep of its file, partition or drive. Not while it is served.
    #[arg(long, group = "end")]
    medium_size: Option<Size>,
    #[command(flatten)]
    key: Key,
}

/// Shrinks the volume.
pub fn run(args: &Args) -> Result<()> {
    let (superblock, _) = peek::superblock_of(&args.volume, &args.key)?;
    let server = whose::find_server(&args.volume)?;
    let blocks = args.size.map(|size| asked(args, size, &superblock));
    let blocks = blocks.transpose()?;
    let medium = args
        .medium_size
        .map(|size| asked_medium(args, size, &superblock, blocks));
    let medium = medium.transpose()?;
    if medium.is_some() && server.is_some() {
        bail!(
            "{} is served, and its medium becomes shorter only while it is not: detach it first",
            args.volume.display()
        );
    }
    if let (Some(size), Some(blocks)) = (args.size, blocks) {
        make_smaller(args, size, blocks, &superblock, server)?;
    }
    match medium {
        Some(blocks) => shorten(args, blocks, superblock.medium_blocks()),
        None => Ok(()),
    }
}

/// Lets clients see less of it.
fn make_smaller(
    args: &Args,
    size: Size,
    blocks: u64,
    superblock: &Superblock,
    server: Option<(PathBuf, PathBuf)>,
) -> Result<()> {
    let before = superblock.logical_blocks() * BLOCK;
    // The volume has that size already, if an earlier try was cut short before the kernel knew.
    let bytes = match server {
        None if size.0 == before => before,
        Some((socket, volume)) => on_line(superblock, blocks, &socket, &volume)?,
        None => at_rest(args, size, blocks)?,
    };
    writeln!(
        out(),
        "{}: {:#} before, {:#} now",
        args.volume.display(),
        Size(before),
        Size(bytes)
    )?;
    Ok(())
}

fn blocks_of(size: Size, flag: &str) -> Result<u64> {
    match size.0 == 0 || !size.0.is_multiple_of(BLOCK) {
        true => Err(usage(format!(
            "--{flag} {}: it must be a multiple of {BLOCK} bytes, and not 0",
            size.0
        ))),
        false => Ok(size.0 / BLOCK),
    }
}

/// The new size in blocks, if the volume can have it.
fn asked(args: &Args, size: Size, volume: &Superblock) -> Result<u64> {
    let (blocks, before) = (blocks_of(size, "size")?, volume.logical_blocks());
    if blocks > before {
        return Err(usage(format!(
            "--size {}: the volume has {}, and `vellum grow` makes it larger",
            size.beside(Size(before * BLOCK)),
            Size(before * BLOCK).beside(size)
        )));
    }
    let next = ended_at(volume, blocks).with_context(|| args.volume.display().to_string())?;
    // Such as a journal that was named, and lies behind the new end: the volume could not be attached again.
    Settings::of(&next, next.properties(), &Run::default()).check(&next)?;
    Ok(blocks)
}

/// The new length of the medium in blocks, if the volume can have it as far as that is known before it is opened. `blocks`: what
/// clients will see.
fn asked_medium(args: &Args, size: Size, volume: &Superblock, blocks: Option<u64>) -> Result<u64> {
    let shown = || args.volume.display().to_string();
    let medium_blocks = blocks_of(size, "medium-size")?;
    // What an earlier try has done already is not done again.
    if medium_blocks != volume.medium_blocks() {
        let next = ended_at(volume, blocks.unwrap_or(volume.logical_blocks()));
        let next = next.with_context(shown)?;
        fitting(&next, medium_blocks, 0).with_context(shown)?;
    }
    Ok(medium_blocks)
}

/// Gives back the end of an unserved volume's medium.
fn shorten(args: &Args, blocks: u64, before: u64) -> Result<()> {
    let shown = args.volume.display();
    let claimed = claim(&args.volume, false, &args.key)?;
    let medium: Arc<dyn Medium> = Arc::from(claimed.medium);
    let mut told = Instant::now();
    let shortened = shorten_at_rest(&medium, blocks, &mut |left| {
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            tell(format_args!(
                "{shown}: {} are still to be moved",
                Size(left * BLOCK)
            ));
        }
    });
    let shortened = shortened.with_context(|| shown.to_string())?;
    let (was, is) = (Size(before * BLOCK), Size(blocks * BLOCK));
    writeln!(out(), "{shown}: its medium: {was:#} before, {is:#} now")?;
    if !shortened.is_cut {
        let rest = Size(medium.blocks().saturating_sub(blocks) * BLOCK);
        writeln!(out(), "{shown}: its last {rest:#} are free for other uses")?;
    }
    Ok(())
}

/// Shrinks an unserved volume. Returns what clients then see, in bytes.
fn at_rest(args: &Args, size: Size, blocks: u64) -> Result<u64> {
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
    smaller::ends_before_size(&volume, size).with_context(shown)?;
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
