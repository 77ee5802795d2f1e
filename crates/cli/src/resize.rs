//! Passes a volume's new size on: to the block device, then to its file system.

use crate::host;
use crate::state::State;
use anyhow::{Context, Result, bail};
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the kernel may take to notice a file's new size.
const SIZE_PATIENCE: Duration = Duration::from_secs(10);
const SIZE_EVERY: Duration = Duration::from_millis(5);
/// The kernel's unit for block devices.
const SECTOR_BYTES: u64 = 512;

/// Gives the block device of an attached volume the size of the volume, `bytes`. Returns false if its kernel learns the size
/// only at the next attach. Linux's nbd could be told through netlink, but it then waits for all requests; if the server dies
/// meanwhile, it waits forever (6.12, `nbd_genl_size_set`).
pub fn device(state: &State, bytes: u64) -> Result<bool> {
    let Some(device) = state.device.as_deref().filter(|_| state.via == "fuse") else {
        return Ok(false);
    };
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let file = format!("/sys/block/{name}/loop/backing_file");
    let file = std::fs::read_to_string(&file).with_context(|| file.clone())?;
    let began = Instant::now();
    while size_now(file.trim_end())? != bytes && began.elapsed() < SIZE_PATIENCE {
        std::thread::sleep(SIZE_EVERY);
    }
    let shown = device.to_string_lossy();
    host::run("losetup", &["--set-capacity", &shown])?;
    let size = format!("/sys/block/{name}/size");
    let sectors = std::fs::read_to_string(&size).with_context(|| size.clone())?;
    if sectors.trim().parse() != Ok(bytes / SECTOR_BYTES) {
        bail!(
            "{shown} does not have the volume's size yet: give the same command again (`grow` with --fs)"
        );
    }
    Ok(true)
}

/// The size that the kernel uses for a file, after it has asked the file's server. The kernel returns the server's
/// answer to the caller, but keeps its old size if a write ended meanwhile. It then reads nothing past that, and the
/// loop device returns I/O errors.
fn size_now(path: &str) -> Result<u64> {
    size_of(path, libc::AT_STATX_FORCE_SYNC)?;
    size_of(path, libc::AT_STATX_DONT_SYNC)
}

fn size_of(path: &str, whom: libc::c_int) -> Result<u64> {
    let file = CString::new(path).context("a path with a zero byte")?;
    let mut told = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: a terminated path, and room for the answer.
    let done = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            file.as_ptr(),
            whom,
            libc::STATX_SIZE,
            told.as_mut_ptr(),
        )
    };
    if done != 0 {
        return Err(std::io::Error::last_os_error()).with_context(|| path.to_owned());
    }
    // SAFETY: zeros are a valid value, and the kernel has filled in what it knows.
    Ok(unsafe { told.assume_init() }.stx_size)
}

/// Checks an ext4, because `resize2fs` requires a recent check. Exit code 1 means that something minor was repaired.
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

/// Makes the file system on a volume's block device as large as the device. Returns its type.
pub fn file_system(device: &Path, volume: &Path) -> Result<String> {
    let (shown, volume) = (device.to_string_lossy(), volume.display());
    let found = host::run("blkid", &["-p", "-o", "value", "-s", "TYPE", &shown]);
    let kind = found.map(|kind| kind.trim().to_owned()).unwrap_or_default();
    let mounts = host::mounts();
    let mount = mounts.iter().find(|mount| mount.is_of(device));
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
                "the {kind} on {volume} grows while it is mounted: mount it, and give the same command again"
            )
        }
        ("", _) => bail!("no file system is found on {volume}"),
        (kind, _) => bail!("the {kind} on {volume} is made larger by its own tool"),
    }
    Ok(kind)
}
