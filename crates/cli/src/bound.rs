//! What the kernel has bound to the volume of a record, at present. A record says what was done once; since then the loop or nbd
//! device number, or the mount point, may have been taken by someone else. So only what is proved to be ours is undone.
//!
//! - A loop device: its file is in our FUSE directory; or, if that is no longer mounted, it has the sequence number that the
//!   kernel gave to our binding.
//! - An nbd device: it is connected by the process that connected it for us, or by an `nbd-client` of our socket.
//! - A ublk device: it carries the volume's mark.

use crate::host;
use crate::state::State;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vellum_frontend::ublk;

/// How long the last user of a device may take to close it.
const LEAVING: Duration = Duration::from_secs(10);
/// From linux/loop.h.
const LOOP_CLR_FD: libc::Ioctl = 0x4C01;

/// The mark of a volume's ublk device: the first digits of the volume's UUID.
pub fn mark(uuid: &str) -> ublk::Mark {
    let digits = uuid.chars().filter_map(|c| c.to_digit(16)).take(16);
    ublk::Mark(digits.fold(0, |mark, digit| mark << 4 | u64::from(digit)))
}

/// The block devices that are bound to the volume with this UUID.
pub fn devices(id: &str, state: &State) -> Vec<PathBuf> {
    match state.via.as_str() {
        "ublk" => ublk::find(mark(id)),
        "nbd" => {
            let recorded = state.device.iter();
            recorded.filter(|d| is_our_nbd(state, d)).cloned().collect()
        }
        _ => host::block_devices()
            .filter(|device| is_our_loop(state, device))
            .collect(),
    }
}

/// The loop devices on this file.
pub fn to_file(file: &Path) -> impl Iterator<Item = PathBuf> {
    let is_on_it = move |device: &PathBuf| {
        let backing = read(device, "loop/backing_file");
        backing.is_some_and(|backing| Path::new(backing.trim_end_matches(" (deleted)")) == file)
    };
    host::block_devices().filter(is_on_it)
}

/// The name of the snapshot or clone that this device of an attached volume shows, unless it is the volume itself.
pub fn view(device: &Path) -> Option<String> {
    let file = read(device, "loop/backing_file")?;
    let (_, name) = file.rsplit_once("/disk@")?;
    Some(name.trim_end_matches(" (deleted)").to_owned())
}

/// True if a device takes no writes.
pub fn is_read_only(device: &Path) -> bool {
    read(device, "ro").as_deref() == Some("1")
}

/// The size of a device.
pub fn bytes(device: &Path) -> Option<u64> {
    let sectors: u64 = read(device, "size")?.parse().ok()?;
    Some(sectors * 512)
}

/// Where a device is mounted, the innermost last.
pub fn mounts_of(device: &Path) -> Vec<PathBuf> {
    let mounts = host::mounts().into_iter();
    let found = mounts.filter(|mounted| mounted.is_of(device));
    found.map(|mounted| mounted.target).collect()
}

/// Where these are mounted, the innermost last.
pub fn mounts(id: &str, state: &State) -> Vec<PathBuf> {
    let mut devices = devices(id, state);
    // A ublk device disappears with its server, even from under a mount. The kernel then no longer lists it, but does not reuse
    // its number while the mount exists. So the mount is ours, and has to go.
    let gone = |device: &&PathBuf| state.via == "ublk" && number(device).is_none();
    devices.extend(state.device.iter().filter(gone).cloned());
    let ours = |m: &host::Mounted| devices.iter().any(|device| m.is_of(device));
    let found = host::mounts().into_iter().filter(ours);
    found.map(|m| m.target).collect()
}

/// True if this machine's root file system is on it.
pub fn has_root(id: &str, state: &State) -> bool {
    mounts(id, state).iter().any(|dir| dir == Path::new("/"))
}

/// The kernel's number for what is bound to a device now. Another binding has another number.
pub fn number(device: &Path) -> Option<u64> {
    let attribute = match device.file_name()?.to_str()?.starts_with("nbd") {
        true => "pid",
        false => "diskseq",
    };
    read(device, attribute)?.parse().ok()
}

/// A line of a block device's attributes in sysfs.
fn read(device: &Path, attribute: &str) -> Option<String> {
    let folder = Path::new("/sys/block").join(device.file_name()?);
    let text = std::fs::read_to_string(folder.join(attribute)).ok()?;
    Some(text.trim_end_matches('\n').to_owned())
}

fn is_our_loop(state: &State, device: &Path) -> bool {
    let Some(file) = read(device, "loop/backing_file") else {
        return false;
    };
    // If the file system was detached, a file on it is shown with this suffix and without its directory.
    let file = Path::new(file.trim_end_matches(" (deleted)"));
    let in_ours = state
        .fuse
        .as_deref()
        .is_some_and(|dir| file.starts_with(dir));
    let same = state.device.as_deref() == Some(device) && is_numbered(state, device);
    in_ours || same
}

fn is_numbered(state: &State, device: &Path) -> bool {
    state.binding.is_some() && state.binding == number(device)
}

fn is_our_nbd(state: &State, device: &Path) -> bool {
    let Some(pid) = read(device, "pid") else {
        return false;
    };
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let socket = state
        .socket
        .as_deref()
        .map(|s| s.as_os_str().as_encoded_bytes());
    let names_it = socket.is_some_and(|socket| command.split(|&b| b == 0).any(|arg| arg == socket));
    is_numbered(state, device) || names_it
}

/// Ends an NBD connection. The device is free when its last user has closed it.
pub fn disconnect(device: &Path) -> Result<()> {
    host::run("nbd-client", &["-d", &device.to_string_lossy()]).map(drop)
}

/// Unbinds what is bound to the volume, and waits until the last user of each device has closed it. (ublk
/// devices end with their server.)
pub fn unbind(id: &str, state: &State) -> Result<()> {
    for device in devices(id, state) {
        if state.via != "fuse" {
            is_unused(&device)?;
        }
        match state.via.as_str() {
            "ublk" => continue,
            "nbd" => disconnect(&device)?,
            _ => clear_loop(&device, || is_our_loop(state, &device))?,
        }
        is_left(&device, || !devices(id, state).contains(&device))?;
    }
    Ok(())
}

/// Waits until the last user of a device has left it. Fails if that takes too long.
pub fn is_left(device: &Path, is_left: impl FnMut() -> bool) -> Result<()> {
    if !host::eventually(LEAVING, is_left) {
        bail!(
            "{} is still in use: see `fuser -vm {0}`, end what uses it, and detach again",
            device.display()
        );
    }
    Ok(())
}

/// Refuses while a file system, a swap area or the like is on a device or on one of its partitions, in any namespace of mounts. The
/// kernel does not keep such a device for them when its server or its connection ends.
fn is_unused(device: &Path) -> Result<()> {
    is_left(device, || !is_claimed(device))
}

/// True if a file system, a swap area or the like is on a device or on one of its partitions, in any namespace of mounts.
pub fn is_claimed(device: &Path) -> bool {
    let mut open = File::options();
    let claimed = open.read(true).custom_flags(libc::O_EXCL).open(device);
    claimed.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// Releases a loop device if it is ours, now or when its last user closes it.
pub fn clear_loop(device: &Path, is_ours: impl FnOnce() -> bool) -> Result<()> {
    let open = File::open(device).with_context(|| format!("cannot open {}", device.display()))?;
    // While the device is open it cannot be bound to something else in between.
    if !is_ours() {
        return Ok(());
    }
    // SAFETY: an open file; this command takes no argument.
    if unsafe { libc::ioctl(open.as_raw_fd(), LOOP_CLR_FD, 0) } == 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::ENXIO) => Ok(()),
        error => Err(error).with_context(|| format!("cannot unbind {}", device.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_number_alone_proves_nothing() {
        let state = State {
            via: "fuse".to_owned(),
            device: Some("/dev/loop0".into()),
            fuse: Some("/run/vellum/none.fuse".into()),
            binding: Some(u64::MAX),
            ..State::default()
        };
        assert!(devices("none", &state).is_empty());
    }
}
