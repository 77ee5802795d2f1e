//! Unix sockets whose files only their owner may use, or a group as well, in folders that others may write to.
//!
//! Whoever may write to the folder may put something else at a path between two of our calls. So no call here changes what
//! is at a path after a look at it.

use std::ffi::CString;
use std::fs::Metadata;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Listens at a path where nothing is. Only the owner may connect, from the first moment on.
///
/// # Errors
/// `InvalidInput` for a path of no byte, or more than 107; `AddrInUse` if something is there.
pub fn listen(path: &Path) -> io::Result<OwnedFd> {
    let fd = bound(&address(path)?)?;
    // SAFETY: a system call on a descriptor that we own.
    done(unsafe { libc::listen(fd.as_raw_fd(), 128) })?;
    Ok(fd)
}

/// As [`listen`]; the members of this group may connect too, if one is given. The file is at the path when it is as it shall be,
/// and not before.
///
/// # Errors
/// As [`listen`]; `PermissionDenied` for a group that we may not give files to.
pub fn listen_for(path: &Path, group: Option<u32>) -> io::Result<OwnedFd> {
    let Some(group) = group else {
        return listen(path);
    };
    address(path)?;
    let folder = Private::beside(path)?;
    let fd = bound(&address(&folder.inside())?)?;
    // In a folder that is only ours nobody puts another file under a name.
    let (at, name) = (folder.fd.as_raw_fd(), Private::NAME.as_ptr());
    // SAFETY: an open folder, a name that lives during the call.
    done(unsafe { libc::fchownat(at, name, u32::MAX, group, libc::AT_SYMLINK_NOFOLLOW) })?;
    // SAFETY: as above.
    done(unsafe { libc::fchmodat(at, name, 0o660, 0) })?;
    // SAFETY: a system call on a descriptor that we own.
    done(unsafe { libc::listen(fd.as_raw_fd(), 128) })?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: as above; it refuses a path where something is.
    match done(unsafe { libc::linkat(at, name, libc::AT_FDCWD, to.as_ptr(), 0) }) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(io::ErrorKind::AddrInUse.into()),
        linked => linked.map(|()| fd),
    }
}

/// A socket that is bound to where nothing is, and only ours.
fn bound(address: &libc::sockaddr_un) -> io::Result<OwnedFd> {
    let fd = socket(0)?;
    // Linux gives the file the mode that the socket has when it is bound (unix(7)): a chmod of the path could be of another file.
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

/// A new folder that only we may use, open: whatever is done to its name, what is done in it is done in that one. It goes, with
/// the socket's first name in it, when it is dropped.
struct Private {
    path: CString,
    fd: OwnedFd,
}

impl Private {
    const NAME: &std::ffi::CStr = c"socket";

    fn beside(path: &Path) -> io::Result<Self> {
        let template = [path.as_os_str().as_bytes(), b".XXXXXX"].concat();
        let path = CString::new(template)?.into_raw();
        // SAFETY: mkdtemp writes into the last six bytes of our string, and no other.
        let made = unsafe { libc::mkdtemp(path) };
        let error = io::Error::last_os_error();
        // SAFETY: it is from `into_raw`, and has no more zeros than before.
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
        // SAFETY: a new descriptor that nobody else has.
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

    /// The socket's first name, which leads into the folder that is open, also when that has another name by now. It is
    /// short, however long the folder's is.
    fn inside(&self) -> PathBuf {
        let (fd, name) = (self.fd.as_raw_fd(), Self::NAME.to_string_lossy());
        PathBuf::from(format!("/proc/self/fd/{fd}/{name}"))
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: an open folder, names that live during the calls. What is not ours is not empty, or no folder.
        unsafe {
            libc::unlinkat(self.fd.as_raw_fd(), Self::NAME.as_ptr(), 0);
            libc::rmdir(self.path.as_ptr());
        }
    }
}

/// Whether somebody listens there. It does not wait: who listens and accepts nobody would keep us.
///
/// # Errors
/// As [`listen`]; else why the system did not connect: nobody listens, or we may not ask.
pub fn is_answered(path: &Path) -> io::Result<bool> {
    let address = address(path)?;
    let fd = socket(libc::SOCK_NONBLOCK)?;
    // SAFETY: the address lives during the call, and its size is right.
    let connected = done(unsafe {
        libc::connect(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as u32,
        )
    });
    match connected {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        // Its queue is full, and so on: it is somebody's.
        Err(_) => Ok(true),
    }
}

/// Removes the file of a dead server that was `seen` at the path. False: another server has replaced it since. That one's file stays.
///
/// # Errors
/// What the system refused.
pub fn remove(path: &Path, seen: &Metadata) -> io::Result<bool> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    // Taken out of the others' way first: what has been moved is what we look at and remove.
    std::fs::rename(path, &aside)?;
    let moved = std::fs::symlink_metadata(&aside)?;
    let is_dead = (moved.dev(), moved.ino()) == (seen.dev(), seen.ino());
    let back = match is_dead {
        true => Ok(()),
        // If a third one has come to the path meanwhile, the one that we moved can no longer be reached there.
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
    // SAFETY: a new descriptor that nobody else has.
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

    #[test]
    fn nobody_else_may_connect_whatever_the_mask_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _socket = listen(&path).unwrap();
        let mode = path.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(is_answered(&path).unwrap());
        assert_eq!(listen(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_group_may_connect_whatever_the_mask_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // SAFETY: no preconditions.
        let (uid, own) = unsafe { (libc::geteuid(), libc::getegid()) };
        let group = if uid == 0 { 65533 } else { own };
        let _socket = listen_for(&path, Some(group)).unwrap();
        let found = path.symlink_metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (uid, group));
        assert_eq!(found.mode() & 0o777, 0o660);
        assert!(is_answered(&path).unwrap());
        let again = listen_for(&path, Some(group)).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        let names = std::fs::read_dir(folder.path()).unwrap();
        assert_eq!(names.count(), 1, "something is left behind");
        // A long folder's name is no matter, only that of the path.
        let long = folder.path().join("a".repeat(150));
        let long = listen_for(&long, Some(group)).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn the_victim_of_a_swapped_link_keeps_its_mode() {
        // SAFETY: no preconditions.
        let own = unsafe { libc::getegid() };
        a_victim_keeps_its_mode(None);
        a_victim_keeps_its_mode(Some(own));
    }

    /// An enemy swaps a name between a socket and a link to his victim, as fast as he can.
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
                    // Also of the folder that the socket is made in.
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
                let _ = listen_for(&path, group);
                let _ = std::fs::remove_file(&path);
            }
            over.store(true, Ordering::Relaxed);
        });
        let mode = victim.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn what_has_replaced_a_dead_servers_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        drop(UnixListener::bind(&path).unwrap());
        let seen = path.symlink_metadata().unwrap();
        assert!(!is_answered(&path).unwrap());
        // Kept by another name, so that its number is not given again.
        std::fs::rename(&path, folder.path().join("dead")).unwrap();
        let _fresh = listen(&path).unwrap();
        assert!(!remove(&path, &seen).unwrap());
        assert!(is_answered(&path).unwrap());
        std::fs::rename(folder.path().join("dead"), &path).unwrap();
        assert!(remove(&path, &seen).unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
