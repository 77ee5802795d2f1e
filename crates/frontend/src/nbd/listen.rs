//! Where a server listens.

use super::tls::{TlsError, TlsFiles};
use crate::owned_socket;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket that only its owner may use, or also a group ([`super::Options::socket_group`]).
    Unix(PathBuf),
    /// TCP.
    Tcp {
        /// Address and port; port 0 picks one.
        addr: SocketAddr,
        /// How the connection is protected.
        tls: Protection,
    },
}

/// The protection of TCP connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    /// TLS is required of every client.
    Tls(TlsFiles),
    /// Anyone who reaches the port can read and write everything. Only if requested explicitly.
    InsecureTcp,
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another server listens there.
    #[error("another server listens on the socket {}: give another path, or stop that server", .0.display())]
    InUse(PathBuf),
    /// The file there is not a socket, and is not replaced.
    #[error("{} exists, and is no socket: give another path for the socket", .0.display())]
    NotASocket(PathBuf),
    /// The path is too long for a unix socket.
    #[error("{}: a unix socket's path has at most 107 bytes: give a shorter one", .0.display())]
    PathTooLong(PathBuf),
    /// The folder for a unix socket is missing.
    #[error("the folder of the socket {} does not exist: make it first", .0.display())]
    NoFolder(PathBuf),
    /// The folder for a unix socket may not be written to.
    #[error("no permission to make the socket {}: check the owner and mode of its folders", .0.display())]
    Permission(PathBuf),
    /// The socket may not be given to the group.
    #[error("no permission to give the socket {} to that group: be a member of it, or root", .0.display())]
    Group(PathBuf),
    /// The system refused.
    #[error("cannot listen on {place}: {error}")]
    Io {
        /// The place.
        place: String,
        /// The reason.
        error: io::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl BindError {
    fn io(place: impl ToString, error: io::Error) -> Self {
        Self::Io {
            place: place.to_string(),
            error,
        }
    }
}

/// A listening socket. A unix socket's file is removed with it.
#[derive(Debug)]
pub struct Listener {
    pub(super) fd: OwnedFd,
    /// The file and its identity, so that another server's file is never removed.
    file: Option<(PathBuf, u64, u64)>,
    pub(super) address: Option<SocketAddr>,
}

impl Listener {
    pub(super) fn bind(listen: &Listen, group: Option<u32>) -> Result<Self, BindError> {
        match listen {
            Listen::Unix(path) => unix(path, group),
            Listen::Tcp { addr, .. } => {
                let refused = |e| BindError::io(addr, e);
                let listener = TcpListener::bind(addr).map_err(refused)?;
                let address = listener.local_addr().map_err(refused)?;
                Ok(Self {
                    fd: listener.into(),
                    file: None,
                    address: Some(address),
                })
            }
        }
    }

    pub(super) fn accept(&self) -> io::Result<OwnedFd> {
        let flags = libc::SOCK_CLOEXEC;
        // SAFETY: no address is requested; the result is checked.
        let fd = unsafe {
            libc::accept4(
                self.fd.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                flags,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if self.address.is_some() {
            option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
            // A peer that lost power does not hold its connection forever.
            option(&fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
            option(&fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 60);
        } else {
            // Room for a large read, so that its sender rarely waits.
            option(&fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 1 << 20);
        }
        Ok(fd)
    }
}

/// Sets an option that the connection can do without.
fn option(fd: &OwnedFd, level: i32, name: i32, value: i32) {
    // SAFETY: an int that lives during the call.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        );
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, device, inode)) = &self.file
            && std::fs::symlink_metadata(path)
                .is_ok_and(|m| m.dev() == *device && m.ino() == *inode)
        {
            // Best effort: a stale file is replaced by the next server.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn unix(path: &Path, group: Option<u32>) -> Result<Listener, BindError> {
    let refused = |e: io::Error| match e.kind() {
        io::ErrorKind::InvalidInput => BindError::PathTooLong(path.to_owned()),
        io::ErrorKind::AddrInUse => BindError::InUse(path.to_owned()),
        io::ErrorKind::NotFound => BindError::NoFolder(path.to_owned()),
        io::ErrorKind::PermissionDenied
            if group.is_some() && e.raw_os_error() == Some(libc::EPERM) =>
        {
            BindError::Group(path.to_owned())
        }
        io::ErrorKind::PermissionDenied => BindError::Permission(path.to_owned()),
        _ => BindError::io(path.display(), e),
    };
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(refused(e)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        Ok(found) => {
            let is_free = !owned_socket::is_answered(path).map_err(refused)?
                && owned_socket::remove(path, &found).map_err(refused)?;
            if !is_free {
                return Err(BindError::InUse(path.to_owned()));
            }
        }
    }
    let fd = owned_socket::listen(path, group).map_err(refused)?;
    let found = std::fs::symlink_metadata(path).map_err(refused)?;
    Ok(Listener {
        fd,
        file: Some((path.to_owned(), found.dev(), found.ino())),
        address: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Any user may lock a folder that they can read, `/run` for example.
    #[test]
    fn a_locked_folder_keeps_no_server_out() {
        let folder = tempfile::tempdir().unwrap();
        let locked = std::fs::File::open(folder.path()).unwrap();
        locked.lock().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let listener = unix(&path, None).unwrap();
        assert!(matches!(unix(&path, None), Err(BindError::InUse(_))));
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_server_that_accepts_nobody_is_in_use_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: a system call on a descriptor that we own; the backlog is one connection.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        for _ in 0..4 {
            let bound = unix(&path, None);
            assert!(matches!(bound, Err(BindError::InUse(_))), "{bound:?}");
        }
    }
}
