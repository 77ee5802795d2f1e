//! What lies on a volume that has grown learns of it: the block device, then its file system.

use crate::host;
use crate::state::State;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Makes the block device of an attached volume as large as the volume; false when its kernel learns that at the next attach alone.
pub fn device(state: &State) -> Result<bool> {
    let Some(device) = state.device.as_deref().filter(|_| state.via == "fuse") else {
        return Ok(false);
    };
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let file = format!("/sys/block/{name}/loop/backing_file");
    let file = std::fs::read_to_string(&file).with_context(|| file.clone())?;
    // The kernel was told that it does not know the file's size any more: it asks when the file is looked at.
    std::fs::metadata(file.trim_end()).with_context(|| file.trim_end().to_owned())?;
    let shown = device.to_string_lossy();
    host::run("losetup", &["--set-capacity", &shown])?;
    Ok(true)
}

/// Checks an ext4: `resize2fs` takes none that has not just been. 1 says that something small was put right.
fn checked(device: &str) -> Result<()> {
    let mut check = host::command("e2fsck");
    let done = check.args(["-f", "-p", device]).output();
    let done = done.context("cannot run e2fsck: is it installed?")?;
    match done.status.code() {
        Some(0 | 1) => Ok(()),
        _ => bail!(
            "e2fsck -f -p {device}: {}: {}",
            done.status,
            String::from_utf8_lossy(&done.stdout).trim()
        ),
    }
}

/// Makes the file system on a block device as large as that; its type.
pub fn file_system(device: &Path) -> Result<String> {
    let shown = device.to_string_lossy();
    let found = host::run("blkid", &["-p", "-o", "value", "-s", "TYPE", &shown]);
    let kind = found.map(|kind| kind.trim().to_owned()).unwrap_or_default();
    let mounts = host::mounts();
    let mount = mounts.iter().find(|mount| mount.source == device);
    let target = mount.map(|mount| mount.target.to_string_lossy());
    match (kind.as_str(), target) {
        ("ext2" | "ext3" | "ext4", None) => {
            checked(&shown)?;
            host::run("resize2fs", &[&shown])?;
        }
        ("ext2" | "ext3" | "ext4", Some(_)) => drop(host::run("resize2fs", &[&shown])?),
        ("xfs", Some(target)) => drop(host::run("xfs_growfs", &[&target])?),
        ("btrfs", Some(target)) => {
            host::run("btrfs", &["filesystem", "resize", "max", &target])?;
        }
        ("xfs" | "btrfs", None) => {
            bail!(
                "the {kind} on {shown} grows while it is mounted: mount it, and give the same command again"
            )
        }
        ("", _) => bail!("no file system is found on {shown}"),
        (kind, _) => bail!("the {kind} on {shown} is made larger by its own tool"),
    }
    Ok(kind)
}
