//! The files under a loop device. A lock is on an inode, so without care a volume's file and a loop device over it could each
//! have a server. The server of the device therefore locks the file as well.

use crate::lock::{self, LockError};
use crate::past;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How many loop devices may be stacked.
const DEPTH_MAX: usize = 8;

/// From linux/loop.h.
const LOOP_GET_STATUS64: libc::Ioctl = 0x4C05;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Default)]
struct Status {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    rest: [u64; 24],
}

/// A file under a loop device.
#[derive(Debug)]
pub struct Under {
    file: File,
    name: PathBuf,
    /// The device covers the whole file, so no other device reads it.
    whole: bool,
    /// The device bypasses the page cache to read and write it.
    direct: bool,
}

impl Under {
    /// Like [`Medium::drop_cache`](crate::Medium::drop_cache): writes out what the device gave to the file's
    /// page cache, and drops it there.
    pub(crate) fn drop_cache(&self) -> io::Result<()> {
        if self.direct && past::tells_direct(&self.file) == Some(true) {
            return Ok(());
        }
        match past::drop_cache(&self.file) {
            // Other users have the other parts of the file, and their pages.
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && !self.whole => Ok(()),
            Err(e) => Err(io::Error::new(
                e.kind(),
                format!("{}, below it: {e}", self.name.display()),
            )),
            Ok(()) => Ok(()),
        }
    }
}

/// If `device` is a loop device, locks the files under it for as long as they are open: against everyone, or (`shared`) against
/// servers only. A device over a part of a file leaves the other parts to others.
///
/// # Errors
/// If one of them is in use.
pub fn take(device: &File, path: &Path, shared: bool) -> Result<Vec<Under>, LockError> {
    let mut held: Vec<Under> = Vec::new();
    let mut shared = shared;
    while held.len() < DEPTH_MAX {
        let above = held.last().map_or(device, |under| &under.file);
        let Some(under) = backing(above) else {
            break;
        };
        shared |= !under.whole;
        lock::take(&under.file, &under.name, shared).map_err(|under| LockError::Below {
            path: path.to_owned(),
            under: Box::new(under),
        })?;
        held.push(under);
    }
    Ok(held)
}

/// The file under a loop device. Also `None` if the file cannot be reached: deleted, or in a mount namespace that is not ours.
fn backing(device: &File) -> Option<Under> {
    let meta = device.metadata().ok()?;
    if !meta.file_type().is_block_device() {
        return None;
    }
    let (major, minor) = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
    let node = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let part = node.join("partition").exists();
    // The directory of a partition is inside its device's.
    let of = if part { "../loop" } else { "loop" };
    let name = fs::read_to_string(node.join(of).join("backing_file")).ok()?;
    let direct =
        fs::read_to_string(node.join(of).join("dio")).is_ok_and(|dio| dio.starts_with('1'));
    let name = PathBuf::from(name.strip_suffix('\n').unwrap_or(&name));
    let status = status(device).ok()?;
    // Checked before opening, because by now there may be a pipe with that name.
    let is_it = |meta: &fs::Metadata| (meta.dev(), meta.ino()) == (status.device, status.inode);
    if !is_it(&fs::metadata(&name).ok()?) {
        return None;
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK)
        .open(&name)
        .ok()?;
    let whole = !part && (status.offset, status.size_limit) == (0, 0);
    is_it(&file.metadata().ok()?).then_some(Under {
        file,
        name,
        whole,
        direct,
    })
}

fn status(device: &File) -> io::Result<Status> {
    let mut status = Status::default();
    // SAFETY: a system call on a descriptor that is open; `status` is as long as the kernel's, and outlives the call.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut status) } {
        0 => Ok(status),
        _ => Err(io::Error::last_os_error()),
    }
}

// The kernel writes all of its structure.
const _: () = assert!(size_of::<Status>() == 232);
