//! Unix sockets that only their owner, or also a group, may use, in folders that others may write to.
//!
//! Anyone who may write to the folder can replace the file at a path between two of our calls. So no call here modifies a path on
//! the strength of an earlier look at it.

use std::ffi::CString;
use std::fs::Metadata;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Listens at an unused path. Only the owner may connect, and the members of a group if one is given. The file appears at the
/// path only when its owner and mode are final and it is listened to: nobody takes it for that of a dead server.
///
/// # Errors
/// `InvalidInput` for an empty path, or one of more than 107 bytes; `AddrInUse` if something exists there; `PermissionDenied` for
/// a group that we may not give files to.
pub fn listen(path: &Path, group: Option<u32>) -> io::Result<OwnedFd> {
    address(path)?;
    let folder = Private::beside(path)?;
    let fd = bound(&address(&folder.inside())?)?;
    // In a folder that only we may use, no one else can replace a file.
    let (at, name) = (folder.fd.as_raw_fd(), Private::NAME.as_ptr());
    if let Some(group) = group {
        // SAFETY: an open folder, and a name that lives during the call.
        done(unsafe { libc::fchownat(at, name, u32::MAX, group, libc::AT_SYMLINK_NOFOLLOW) })?;
        // SAFETY: as above.
        done(unsafe { libc::fchmodat(at, name, 0o660, 0) })?;
    }
    // SAFETY: a system call on a descriptor that we own.
    done(unsafe { libc::listen(fd.as_raw_fd(), 128) })?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: an open folder, and names that live during the call. It refuses a path that exists.
    match done(unsafe { libc::linkat(at, name, libc::AT_FDCWD, to.as_ptr(), 0) }) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(io::ErrorKind::AddrInUse.into()),
        linked => linked.map(|()| fd),
    }
}

/// A socket bound at an unused path, with mode 0600.
fn bound(address: &libc::sockaddr_un) -> io::Result<OwnedFd> {
    let fd = socket(0)?;
    // Linux gives the file the mode that the socket has when it is bound (unix(7)). A chmod of the path could affect another file.
    // SAFETY: a system call on a descriptor that we own.
    done(unsafe { libc::fchmod(fd.as_raw_fd(), 0o600) })?;
    // SAFETY: the address lives during the call, and its size is right.
    done(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            std::ptr::from_ref(address).cast(),
            size_of_val(address) as u32,
        )
    })?;
    Ok(fd)
}

/// A new folder that only we may use, held open: whatever happens to its name, our operations stay in this folder. When dropped,
/// it is removed together with the socket's first name in it.
struct Private {
    path: CString,
    fd: OwnedFd,
}

impl Private {
    const NAME: &std::ffi::CStr = c"socket";

    fn beside(path: &Path) -> io::Result<Self> {
        let template = [path.as_os_str().as_bytes(), b".XXXXXX"].concat();
        let path = CString::new(template)?.into_raw();
        // SAFETY: mkdtemp writes only into the last six bytes of our string.
        let made = unsafe { libc::mkdtemp(path) };
        let error = io::Error::last_os_error();
        // SAFETY: it is from `into_raw`, and has no additional zeros.
        let path = unsafe { CString::from_raw(path) };
        if made.is_null() {
            return Err(error);
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the path lives during the call, and the result is checked.
        let fd = unsafe { libc::open(path.as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let folder = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let found = folder.metadata()?;
        // SAFETY: no preconditions.
        let is_ours = found.uid() == unsafe { libc::geteuid() } && found.mode() & 0o077 == 0;
        if !is_ours {
            return Err(io::Error::other("somebody else changes this folder"));
        }
        let fd = folder.into();
        Ok(Self { path, fd })
    }

    /// The socket's first name, as a path through the open folder. It stays valid if the folder is renamed, and it is short
    /// however long the folder's path is.
    fn inside(&self) -> PathBuf {
        let (fd, name) = (self.fd.as_raw_fd(), Self::NAME.to_string_lossy());
        PathBuf::from(format!("/proc/self/fd/{fd}/{name}"))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: an open folder, and names that live during the calls. If another folder has taken our name, it is not
        // empty, or it is not a folder.
        unsafe {
            libc::unlinkat(self.fd.as_raw_fd(), Self::NAME.as_ptr(), 0);
            libc::rmdir(self.path.as_ptr());
        }
    }
}

/// Connects to a server. Waits no longer than this for one whose queue is full, because it is stopped or hangs.
///
/// # Errors
/// As [`listen`]; `WouldBlock` after that time; otherwise why the connection failed.
pub fn connect(path: &Path, patience: Duration) -> io::Result<OwnedFd> {
    let address = address(path)?;
    let fd = socket(0)?;
    // No time at all would mean to wait for ever.
    let patience = libc::timeval {
        tv_sec: patience.as_secs() as _,
        tv_usec: patience.subsec_micros().max(1).into(),
    };
    // SAFETY: the time lives during the call, and its size is right.
    done(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDTIMEO,
            (&raw const patience).cast(),
            size_of_val(&patience) as u32,
        )
    })?;
    connected(&fd, &address).map(|()| fd)
}

/// True if a server listens there. Does not block: a server that listens but never accepts could otherwise hold us up.
///
/// # Errors
/// As [`listen`]; otherwise why the connection failed: no server listens, or we may not connect.
pub fn is_answered(path: &Path) -> io::Result<bool> {
    let address = address(path)?;
    let fd = socket(libc::SOCK_NONBLOCK)?;
    match connected(&fd, &address) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        // Its queue is full, or the like: a server owns it.
        Err(_) => Ok(true),
    }
}

fn connected(fd: &OwnedFd, address: &libc::sockaddr_un) -> io::Result<()> {
    // SAFETY: the address lives during the call, and its size is right.
    done(unsafe {
        libc::connect(
            fd.as_raw_fd(),
            std::ptr::from_ref(address).cast(),
            size_of_val(address) as u32,
        )
    })
}

/// Removes the file of a dead server that was `seen` at the path. Returns false if another server has
/// replaced it since; that file stays.
///
/// # Errors
/// The system's error.
pub fn remove(path: &Path, seen: &Metadata) -> io::Result<bool> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    // Moved aside first, so that what is examined is what is removed.
    std::fs::rename(path, &aside)?;
    let moved = std::fs::symlink_metadata(&aside)?;
    let is_dead = (moved.dev(), moved.ino()) == (seen.dev(), seen.ino());
    let back = match is_dead {
        true => Ok(()),
        // If a third file has appeared at the path meanwhile, the one that we moved can no longer be reached there.
        false => std::fs::hard_link(&aside, path),
    };
    std::fs::remove_file(&aside)?;
    back.map(|()| is_dead)
}

fn address(path: &Path) -> io::Result<libc::sockaddr_un> {
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok(address)
}

fn socket(flags: i32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags;
    // SAFETY: the result is checked.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn done(result: i32) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn nobody_else_may_connect_whatever_the_mask_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _socket = listen(&path, None).unwrap();
        let mode = path.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(is_answered(&path).unwrap());
        let again = listen(&path, None).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_socket_file_is_never_seen_before_it_is_listened_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let removed = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let remover = scope.spawn(|| {
                for _ in 0..2000 {
                    let socket = listen(&path, None).unwrap();
                    removed.fetch_add(1, Ordering::SeqCst);
                    std::fs::remove_file(&path).unwrap();
                    drop(socket);
                }
            });
            while !remover.is_finished() {
                let before = removed.load(Ordering::SeqCst);
                let is_there = path.symlink_metadata().is_ok();
                let is_dead = matches!(is_answered(&path), Ok(false));
                // If it was there all the time.
                let is_same = is_there && before == removed.load(Ordering::SeqCst);
                assert!(!(is_dead && is_same), "it looks like that of a dead server");
            }
        });
    }

    #[test]
    fn connecting_to_a_full_server_does_not_wait_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _socket = listen(&path, None).unwrap();
        let connect = |_| connect(&path, Duration::from_millis(10));
        let queued: Result<Vec<_>, _> = (0..1000).map(connect).collect();
        let kind = queued.map(drop).map_err(|error| error.kind());
        assert_eq!(kind, Err(io::ErrorKind::WouldBlock));
        assert!(is_answered(&path).unwrap());
    }

    #[test]
    fn a_group_may_connect_whatever_the_mask_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // SAFETY: no preconditions.
        let (uid, own) = unsafe { (libc::geteuid(), libc::getegid()) };
        let group = if uid == 0 { 65533 } else { own };
        let _socket = listen(&path, Some(group)).unwrap();
        let found = path.symlink_metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (uid, group));
        assert_eq!(found.mode() & 0o777, 0o660);
        assert!(is_answered(&path).unwrap());
        let again = listen(&path, Some(group)).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        let names = std::fs::read_dir(folder.path()).unwrap();
        assert_eq!(names.count(), 1, "something is left behind");
        // Only the path's length is limited, not the folder's.
        let long = folder.path().join("a".repeat(150));
        let long = listen(&long, Some(group)).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn the_victim_of_a_swapped_link_keeps_its_mode() {
        // SAFETY: no preconditions.
        let own = unsafe { libc::getegid() };
        a_victim_keeps_its_mode(None);
        a_victim_keeps_its_mode(Some(own));
    }

    /// An attacker swaps a name between a socket and a link to a victim's file, as fast as possible.
    fn a_victim_keeps_its_mode(group: Option<u32>) {
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "").unwrap();
        std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("socket");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let link = folder.path().join("link");
                while !over.load(Ordering::Relaxed) {
                    let _ = std::os::unix::fs::symlink(&victim, &link);
                    let _ = std::fs::rename(&link, &path);
                    // Also the folder in which the socket is made.
                    for name in std::fs::read_dir(folder.path()).unwrap().flatten() {
                        if name.path() != victim && name.path() != link {
                            let _ = std::fs::rename(name.path(), folder.path().join("aside"));
                            let _ = std::os::unix::fs::symlink(&victim, name.path());
                            let _ = std::fs::remove_file(name.path());
                        }
                    }
                    let _ = std::fs::remove_dir(folder.path().join("aside"));
                    let _ = std::fs::remove_file(&path);
                }
            });
            for _ in 0..2000 {
                let _ = listen(&path, group);
                let _ = std::fs::remove_file(&path);
            }
            over.store(true, Ordering::Relaxed);
        });
        let mode = victim.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn the_file_that_replaced_a_dead_servers_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let seen = path.symlink_metadata().unwrap();
        assert!(!is_answered(&path).unwrap());
        // Kept under another name, so that its inode number is not reused.
        std::fs::rename(&path, folder.path().join("dead")).unwrap();
        let _fresh = listen(&path, None).unwrap();
        assert!(!remove(&path, &seen).unwrap());
        assert!(is_answered(&path).unwrap());
        std::fs::rename(folder.path().join("dead"), &path).unwrap();
        assert!(remove(&path, &seen).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
