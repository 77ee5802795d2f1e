//! Unix sockets whose files only their owner may use, in folders that others may write to.
//!
//! Whoever may write to the folder may put something else at a path between two of our calls. So no call here changes what
//! is at a path after a look at it.

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
    let address = address(path)?;
    let fd = socket(0)?;
    // Linux gives the file the mode that the socket has when it is bound (unix(7)): a chmod of the path could be of another file.
    // SAFETY: a system call on a descriptor that we own.
    done(unsafe { libc::fchmod(fd.as_raw_fd(), 0o600) })?;
    // SAFETY: the address lives during the call, and its size is right.
    done(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as u32,
        )
    })?;
    // SAFETY: a system call on a descriptor that we own.
    done(unsafe { libc::listen(fd.as_raw_fd(), 128) })?;
    Ok(fd)
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

    /// An enemy swaps a name between a socket and a link to his victim, as fast as he can.
    #[test]
    fn the_victim_of_a_swapped_link_keeps_its_mode() {
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
                    let _ = std::fs::remove_file(&path);
                }
            });
            for _ in 0..2000 {
                let _ = listen(&path);
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
