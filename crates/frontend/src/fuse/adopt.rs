//! A session on a connection that the kernel opened with another process.
//!
//! The library starts each session with the kernel's first message, FUSE_INIT, which arrives only once in the life of a
//! connection. So we send it one ourselves, over a socket; then the connection replaces the socket under the descriptor number
//! that the library knows. What was agreed with the kernel at the start stays in force.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// From linux/fuse.h.
const FUSE_INIT: u32 = 26;
const VERSION: (u32, u32) = (7, 31);
/// The kernel's own default.
const READ_AHEAD_BYTES: u32 = 128 << 10;
pub const HEADER_BYTES: usize = 40;
const INIT_BYTES: usize = 64;

/// The number of /dev/fuse, from linux/major.h and linux/miscdevice.h.
const DEVICE: (u32, u32) = (10, 229);

/// A session that serves `files` on a connection already in use.
pub fn session<F: fuser::Filesystem>(
    files: F,
    connection: &OwnedFd,
    config: fuser::Config,
) -> io::Result<fuser::Session<F>> {
    let about = std::fs::File::from(connection.try_clone()?).metadata()?;
    if (libc::major(about.rdev()), libc::minor(about.rdev())) != DEVICE {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "what was handed over is no connection of FUSE",
        ));
    }
    let (theirs, ours) = pair()?;
    std::fs::File::from(ours.try_clone()?).write_all(&init())?;
    let session = fuser::Session::from_fd(files, theirs, fuser::SessionACL::Owner, config)?;
    let number = session.as_fd().as_raw_fd();
    // SAFETY: both are open. The holder of the socket's number now has the connection, and nothing else uses it yet.
    match unsafe { libc::dup3(connection.as_raw_fd(), number, libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(session),
    }
}

/// Two sockets that preserve message boundaries, as the kernel's device does.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: room for two numbers, which are ours alone on success.
    unsafe {
        match libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) {
            0 => Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// FUSE_INIT as sent by a kernel that supports everything and accepts whatever it is offered.
pub fn init() -> Vec<u8> {
    let length = (HEADER_BYTES + INIT_BYTES) as u32;
    let mut message: Vec<u8> = [length, FUSE_INIT, 1].map(u32::to_ne_bytes).concat();
    message.resize(HEADER_BYTES, 0);
    let words = [VERSION.0, VERSION.1, READ_AHEAD_BYTES, u32::MAX >> 1];
    message.extend(words.map(u32::to_ne_bytes).concat());
    message.resize(length as usize, 0);
    message
}
