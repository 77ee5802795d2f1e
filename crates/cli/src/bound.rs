//! What the kernel has bound to the volume of a record, as it is now. A record says what was done once: the number of a loop or
//! nbd device, and a mount point, may be somebody else's since. So nothing is undone that does not prove to be ours.
//!
//! - A loop device: its file is in our FUSE directory; or, when that is not mounted any more, it has the sequence number that the
//!   kernel gave to our binding.
//! - An nbd device: it is connected by the process that connected it for us, or by an `nbd-client` of our socket.
//! - A ublk device: it bears the volume's mark.

use crate::host;
use crate::state::State;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vellum_frontend::ublk;

/// How long the last user of a device may take to leave it.
const LEAVING: Duration = Duration::from_secs(10);
/// From linux/loop.h.
const LOOP_CLR_FD: libc::Ioctl = 0x4C01;

/// What a volume's ublk device bears: the beginning of the volume's UUID.
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
        backing.is_some_and(|backing| Path::new(&backing) == file)
    };
    host::block_devices().filter(is_on_it)
}

/// Where these are mounted, innermost last.
pub fn mounts(id: &str, state: &State) -> Vec<PathBuf> {
    let mut devices = devices(id, state);
    // A ublk device goes with its server, also from under a mount. The kernel then knows it no more, but keeps its number
    // for as long as the mount is there: so the mount is ours, and has to go.
    let gone = |device: &&PathBuf| state.via == "ublk" && number(device).is_none();
    devices.extend(state.device.iter().filter(gone).cloned());
    let ours = |m: &host::Mounted| devices.contains(&m.source);
    let found = host::mounts().into_iter().filter(ours);
    found.map(|m| m.target).collect()
}

/// Whether the root file system of this machine is on it.
pub fn has_root(id: &str, state: &State) -> bool {
    mounts(id, state).iter().any(|dir| dir == Path::new("/"))
}

/// How the kernel numbers what is bound to a device now: another binding has another number.
pub fn number(device: &Path) -> Option<u64> {
    let attribute = match device.file_name()?.to_str()?.starts_with("nbd") {
        true => "pid",
        false => "diskseq",
    };
    read(device, attribute)?.parse().ok()
}

/// A line of what the kernel tells of a block device.
fn read(device: &Path, attribute: &str) -> Option<String> {
    let folder = Path::new("/sys/block").join(device.file_name()?);
    let text = std::fs::read_to_string(folder.join(attribute)).ok()?;
    Some(text.trim_end_matches('\n').to_owned())
}

fn is_our_loop(state: &State, device: &Path) -> bool {
    let Some(file) = read(device, "loop/backing_file") else {
        return false;
    };
    // A file of a file system that was detached is shown with this suffix, and without its directory.
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

/// Ends an NBD connection; the device is free when its last user has left.
pub fn disconnect(device: &Path) -> Result<()> {
    host::run("nbd-client", &["-d", &device.to_string_lossy()]).map(drop)
}

/// Unbinds what is bound to the volume, and waits until the last user of each has left. (ublk devices go with their server.)
pub fn unbind(id: &str, state: &State) -> Result<()> {
    for device in devices(id, state) {
        match state.via.as_str() {
            "ublk" => continue,
            "nbd" => disconnect(&device)?,
            _ => clear_loop(state, &device)?,
        }
        let is_left = || !devices(id, state).contains(&device);
        if !host::eventually(LEAVING, is_left) {
            bail!(
                "{} is still in use: see `fuser -vm {0}`, end what uses it, and detach again",
                device.display()
            );
        }
    }
    Ok(())
}

/// Lets a loop device go, now or with its last user.
fn clear_loop(state: &State, device: &Path) -> Result<()> {
    let open = File::open(device).with_context(|| format!("cannot open {}", device.display()))?;
    // What is open cannot be bound anew behind our back.
    if !is_our_loop(state, device) {
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
