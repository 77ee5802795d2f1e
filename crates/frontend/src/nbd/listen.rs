//! Where a server listens.

use super::tls::{TlsError, TlsFiles};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another server may take to find its place in the same folder: what it does under the lock is a few system calls.
const FOLDER_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked whether it has.
const FOLDER_LOOKS: Duration = Duration::from_millis(10);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket that only its owner may use.
    Unix(PathBuf),
    /// TCP.
    Tcp {
        /// Address and port; port 0 picks one.
        addr: SocketAddr,
        /// How it is protected.
        tls: Protection,
    },
}

/// How TCP is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    /// TLS is required of every client.
    Tls(TlsFiles),
    /// Anybody who reaches the port reads and writes everything. Only when asked for by name.
    InsecureTcp,
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody listens.
    #[error("{}: another server listens on this socket", .0.display())]
    InUse(PathBuf),
    /// Somebody holds the lock under which servers look for stale sockets.
    #[error("{}: another process keeps this folder locked (flock): end it, or put the socket elsewhere", .0.display())]
    FolderLocked(PathBuf),
    /// Not replaced.
    #[error("{}: exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// A unix socket's path is short.
    #[error("{}: a unix socket's path has at most 107 bytes", .0.display())]
    PathTooLong(PathBuf),
    /// The system refused.
    #[error("cannot listen on {place}: {error}")]
    Io {
        /// Where.
        place: String,
        /// Why.
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

/// A listening socket; the file of a unix one goes with it.
#[derive(Debug)]
pub struct Listener {
    pub(super) fd: OwnedFd,
    /// The file and its identity, so that another server's file is never removed.
    file: Option<(PathBuf, u64, u64)>,
    pub(super) address: Option<SocketAddr>,
}

impl Listener {
    pub(super) fn bind(listen: &Listen) -> Result<Self, BindError> {
        match listen {
            Listen::Unix(path) => unix(path, FOLDER_PATIENCE),
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
        // SAFETY: no address is asked for; the result is checked.
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
        // SAFETY: a new descriptor that nobody else has.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if self.address.is_some() {
            option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
            // A peer that lost power does not hold its connection for ever.
            option(&fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
            option(&fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 60);
        } else {
            // Room for a large read, so that its sender seldom waits.
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

fn unix(path: &Path, patience: Duration) -> Result<Listener, BindError> {
    let refused = |e| BindError::io(path.display(), e);
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() {
        return Err(BindError::PathTooLong(path.to_owned()));
    }
    let name = CString::new(bytes).map_err(|e| refused(e.into()))?;
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    // Two servers that find the same stale file do not replace each other's fresh one.
    let _turn = lock_folder(path, patience)?;
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(refused(e)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        Ok(_) => match connect(&address) {
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(refused)?
            }
            _ => return Err(BindError::InUse(path.to_owned())),
        },
    }
    // By hand, for the file must be private before anybody can connect: std's bind listens at once.
    let fd = socket(0).map_err(refused)?;
    let check = |result: i32| {
        if result == 0 {
            Ok(())
        } else {
            Err(refused(io::Error::last_os_error()))
        }
    };
    // SAFETY: the address lives during the call, and its size is right.
    check(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as u32,
        )
    })?;
    // SAFETY: a path that ends with NUL.
    check(unsafe { libc::chmod(name.as_ptr(), 0o600) })?;
    // SAFETY: a system call on a descriptor that we own.
    check(unsafe { libc::listen(fd.as_raw_fd(), 128) })?;
    let found = std::fs::symlink_metadata(path).map_err(refused)?;
    Ok(Listener {
        fd,
        file: Some((path.to_owned(), found.dev(), found.ino())),
        address: None,
    })
}

fn socket(flags: i32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags;
    // SAFETY: the result is checked.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether somebody listens; without waiting, as one who listens and accepts nobody would have us do.
fn connect(address: &libc::sockaddr_un) -> io::Result<()> {
    let fd = socket(libc::SOCK_NONBLOCK)?;
    // SAFETY: the address lives during the call, and its size is right.
    let result = unsafe {
        libc::connect(
            fd.as_raw_fd(),
            std::ptr::from_ref(address).cast(),
            size_of_val(address) as u32,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A lock on the socket's folder, if the file system has such.
fn lock_folder(path: &Path, patience: Duration) -> Result<Option<File>, BindError> {
    let name = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let folder = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(name);
    let Ok(folder) = folder else {
        return Ok(None);
    };
    let deadline = Instant::now() + patience;
    // SAFETY: a system call on a descriptor that we own.
    while unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        match io::Error::last_os_error().kind() {
            io::ErrorKind::WouldBlock if Instant::now() < deadline => {
                std::thread::sleep(FOLDER_LOOKS);
            }
            io::ErrorKind::WouldBlock => return Err(BindError::FolderLocked(name.to_owned())),
            io::ErrorKind::Interrupted => {}
            _ => return Ok(None),
        }
    }
    Ok(Some(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_folder_that_stays_locked_is_an_error_and_one_that_is_let_go_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let holder = lock_folder(&path, Duration::ZERO).unwrap().unwrap();
        match unix(&path, Duration::from_millis(30)) {
            Err(BindError::FolderLocked(named)) => assert_eq!(named, folder.path()),
            other => panic!("{other:?}"),
        }
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| unix(&path, Duration::from_secs(60)).map(drop));
            std::thread::sleep(Duration::from_millis(30));
            assert!(!waits.is_finished());
            drop(holder);
            waits.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_server_that_accepts_nobody_is_in_use_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: a system call on a descriptor that we own: one may wait to be accepted, and no more.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        for _ in 0..4 {
            let bound = unix(&path, Duration::ZERO);
            assert!(matches!(bound, Err(BindError::InUse(_))), "{bound:?}");
        }
    }
}
