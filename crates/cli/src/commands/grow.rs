//! `vellum grow`: makes a volume larger, even while it is served.

use crate::claim::claim;
use crate::grow::GrowRequest;
use crate::keys::Key;
use crate::outcome::{out, tell};
use crate::size::Size;
use crate::{control, host, peek, resize, state, whose};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::superblock::Superblock;
use vellum_device::info::hex_uuid;
use vellum_device::{NewSize, grow_at_rest};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How long a server may take.
const SERVER_PATIENCE: Duration = Duration::from_secs(600);

/// Arguments.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    vellum grow disk.vellum --size 20G         a file: it is made as long as that needs\n  \
    vellum grow disk.vellum --size 20G --fs    and the file system on it\n  \
    vellum grow /dev/vg/disk --fs              a block device that has been enlarged: all of it\n\n\
While it is served, requests wait until it is done. Attached over a loop device, it is larger at once; \
over ublk or nbd, from the next attach on.")]
pub struct Args {
    /// The volume; if it is being served, its server does it.
    volume: PathBuf,
    /// What clients shall see of it; on a block device, all that it has room for, if not given.
    #[arg(long)]
    size: Option<Size>,
    /// What it shall take of its medium; as much as the size needs, if not given. More room for a thin volume without a new size.
    #[arg(long)]
    medium_size: Option<Size>,
    /// Then make the file system on it as large, by its own tool: ext4 always; XFS and btrfs while they are mounted. Also without a
    /// size, when the volume is as large as it shall be.
    #[arg(long)]
    fs: bool,
    #[command(flatten)]
    key: Key,
}

/// Grows the volume.
pub fn run(args: &Args) -> Result<()> {
    let shown = args.volume.display();
    let (superblock, _) = peek::superblock_of(&args.volume, &args.key)?;
    let is_device = std::fs::metadata(&args.volume)
        .with_context(|| format!("cannot find {shown}"))?
        .file_type()
        .is_block_device();
    let served = whose::find_server(&args.volume)?;
    let mut bytes = superblock.logical_blocks() * BLOCK;
    if !is_large_enough(args, &superblock, is_device)? {
        let asked = GrowRequest {
            size: args.size,
            medium_size: args.medium_size,
        };
        let size = asked.of(&superblock, is_device)?;
        let before = bytes;
        bytes = match &served {
            Some((socket, volume)) => on_line(socket, volume, size)?,
            None => at_rest(args, size)?,
        };
        let (grown, _) = peek::superblock_of(&args.volume, &args.key)?;
        let [medium, now] = [&superblock, &grown].map(|it| it.medium_blocks() * BLOCK);
        match bytes == before {
            true => writeln!(
                out(),
                "{shown}: its medium: {}; clients see {} as before",
                change(medium, now),
                Size(bytes)
            )?,
            false => writeln!(
                out(),
                "{shown}: {}; its medium: {}",
                change(before, bytes),
                change(medium, now)
            )?,
        }
    }
    match served {
        Some(_) => device_of(&hex_uuid(&superblock.uuid()), bytes, args),
        None if args.fs => file_system_at_rest(args),
        None => Ok(()),
    }
}

/// Words for a growth. Rounded sizes could be the same if it is small.
fn change(before: u64, now: u64) -> String {
    let (growth, before, now) = (now.saturating_sub(before), Size(before), Size(now));
    match growth < now.0 / 16 {
        true => format!("{before:#} before, {now:#} now"),
        false => format!("{before} before, {now} now"),
    }
}

/// True if only the file system must grow: the volume already has the requested size, usually from an earlier try.
fn is_large_enough(args: &Args, volume: &Superblock, is_device: bool) -> Result<bool> {
    Ok(match (args.fs && args.medium_size.is_none(), args.size) {
        (false, _) => false,
        (true, Some(size)) => size.0 == volume.logical_blocks() * BLOCK,
        (true, None) if is_device => peek::blocks_of(&args.volume)? == volume.medium_blocks(),
        (true, None) => true,
    })
}

/// Grows an unserved volume. Returns what clients then see, in bytes.
fn at_rest(args: &Args, size: NewSize) -> Result<u64> {
    let claimed = claim(&args.volume, false, &args.key)?;
    let grown = grow_at_rest(&Arc::from(claimed.medium), size);
    let grown = grown.with_context(|| args.volume.display().to_string())?;
    Ok(grown.logical_blocks() * BLOCK)
}

fn on_line(socket: &Path, volume: &Path, size: NewSize) -> Result<u64> {
    let request = json!({
        "command": "grow",
        "volume": volume.to_string_lossy(),
        "medium_blocks": size.medium_blocks,
        "logical_blocks": size.logical_blocks,
    });
    let answer = control::request_within(socket, &request, SERVER_PATIENCE)?;
    let bytes = answer["grown"]["logical_bytes"].as_u64();
    bytes.context("the server does not say how large it is")
}

/// Grows the block device, if it is attached, and the file system on it.
fn device_of(uuid: &str, bytes: u64, args: &Args) -> Result<()> {
    let records = state::records()?;
    let attached = records.iter().find(|(id, _)| id == uuid);
    let Some((state, device)) = attached.and_then(|(_, s)| Some((s, s.device.as_ref()?))) else {
        return match args.fs {
            true => bail!(
                "it is served, and not attached here: its file system is made larger where it is \
                 mounted, by its own tool"
            ),
            false => Ok(()),
        };
    };
    if !resize::device(state, bytes)? {
        tell(format_args!(
            "{}: the kernel learns of the new size at the next attach",
            device.display()
        ));
        return match args.fs {
            true => {
                bail!("so its file system cannot grow yet: detach, and give the same command again")
            }
            false => Ok(()),
        };
    }
    if args.fs {
        file_system(device, &args.volume)?;
    }
    Ok(())
}

fn file_system(device: &Path, volume: &Path) -> Result<()> {
    let kind = resize::file_system(device, volume)?;
    writeln!(
        out(),
        "{}: its {kind} is as large as the volume",
        volume.display()
    )?;
    Ok(())
}

/// Grows the file system on an unserved volume, which is attached for that.
fn file_system_at_rest(args: &Args) -> Result<()> {
    let program = std::env::current_exe().context("cannot find the vellum program itself")?;
    let program = program.to_string_lossy();
    let volume = args.volume.to_string_lossy();
    let mut attach = host::command(&program);
    attach.arg("attach").arg(&args.volume);
    if let Some(file) = args.key.lasting_file()? {
        attach.arg("--key-file").arg(file);
    }
    let device = host::finished(&mut attach, None)?;
    let done = file_system(Path::new(device.trim()), &args.volume);
    host::run(&program, &["detach", &volume])?;
    done
}
