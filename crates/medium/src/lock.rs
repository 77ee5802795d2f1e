//! Each volume has at most one server: an advisory lock on the medium itself ensures this.
//!
//! The lock is on the same open file description that does the I/O. This is deliberate: if a server is killed, the
//! kernel releases the lock only when the last of its I/O in flight has ended. So no write of the old server can land
//! after a new server has the lock.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for a lock without a living holder: the kernel may still be ending the I/O of a killed server, or udev may be
/// examining a new block device.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// How long a holder must be seen alive: a process that was killed looks alive for a moment.
const LIVING: Duration = Duration::from_millis(150);

const PAUSE: Duration = Duration::from_millis(10);

/// The process that holds a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

/// Why a volume could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("{} {}", path.display(), InUse { holder: holder.as_ref(), path })]
    Held {
        /// The volume.
        path: PathBuf,
        /// The holder, if it can be seen from here.
        holder: Option<Holder>,
    },
    /// A block device is claimed by the kernel or by another process.
    #[error(
        "{} is busy: it is mounted, part of another device (see `lsblk`), or served by another `vellum`; \
         release it there first", path.display()
    )]
    Claimed {
        /// The device.
        path: PathBuf,
    },
    /// A server of files has lent it to a client, and does not get it back.
    #[error(
        "{} is lent to a client by a server of files (NFS, Samba): close it there, or try again",
        path.display()
    )]
    Lent {
        /// The file.
        path: PathBuf,
    },
    /// A file under a loop device cannot be locked.
    #[error("{} is a loop device: {under}", path.display())]
    Below {
        /// The loop device.
        path: PathBuf,
        /// The error for the file under it.
        under: Box<LockError>,
    },
    /// The file system does not support locks.
    #[error("cannot lock {}: {source}", path.display())]
    Failed {
        /// The volume.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

struct InUse<'a> {
    holder: Option<&'a Holder>,
    path: &'a Path,
}

impl fmt::Display for InUse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.holder {
            Some(Holder { pid, name }) if name == "vellum" => write!(
                f,
                "is already served by `vellum`, process {pid}: use that one, or stop it first (`vellum \
                 detach` if it is attached, and else `kill {pid}`)"
            ),
            Some(Holder { pid, name }) => {
                write!(f, "is in use by `{name}`, process {pid}: stop it first")
            }
            None => write!(
                f,
                "is already served by another `vellum` that cannot be seen from here: look with `fuser {}`, \
                 in other containers, and on other hosts if the file is on a network",
                self.path.display()
            ),
        }
    }
}

/// Locks `file` until its last reference is closed: against everyone, or (`shared`) against servers only.
pub(crate) fn take(file: &File, path: &Path, shared: bool) -> Result<(), LockError> {
    let how = if shared { libc::LOCK_SH } else { libc::LOCK_EX } | libc::LOCK_NB;
    let start = Instant::now();
    loop {
        // SAFETY: a system call on a descriptor that is open.
        if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        match source.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EWOULDBLOCK) => {
                let holder = file.metadata().ok().and_then(|inode| holder_of(&inode));
                // A living process other than udev will not let go soon.
                let stays = holder.as_ref().is_some_and(|h| !h.name.contains("udev"));
                if start.elapsed() >= if stays { LIVING } else { PATIENCE } {
                    return Err(LockError::Held {
                        path: path.to_owned(),
                        holder,
                    });
                }
                std::thread::sleep(PAUSE);
            }
            _ => {
                return Err(LockError::Failed {
                    path: path.to_owned(),
                    source,
                });
            }
        }
    }
}

/// Retries opening a block device while it is claimed by a process that may be about to release it, and a file while a server of files
/// has lent it: the first try has called it back. Returns any other error of `open` as it is.
///
/// # Errors
/// When it is still claimed or lent after three seconds.
pub fn claim(
    path: &Path,
    open: impl Fn() -> io::Result<File>,
) -> Result<io::Result<File>, LockError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match open() {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN)) => {
                if Instant::now() >= deadline {
                    let path = path.to_owned();
                    return Err(match e.raw_os_error() {
                        Some(libc::EBUSY) => LockError::Claimed { path },
                        _ => LockError::Lent { path },
                    });
                }
                std::thread::sleep(PAUSE);
            }
            other => return Ok(other),
        }
    }
}

/// The living process that holds a lock on the volume at this path, if it can be seen.
pub fn holder(path: &Path) -> Option<Holder> {
    // It is not opened: a pipe would keep us waiting.
    holder_of(&path.metadata().ok()?)
}

/// The same, of this file.
fn holder_of(inode: &Metadata) -> Option<Holder> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = parse_locks(&locks, inode.dev(), inode.ino())?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let name = parse_living(&stat, &status)?;
    Some(Holder { pid, name })
}

/// The name of a process that is not exiting, from its `stat` and `status`.
fn parse_living(stat: &str, status: &str) -> Option<String> {
    // "pid (name) state ppid pgrp session tty tpgid flags ..."; the name may contain anything.
    let (head, tail) = stat.rsplit_once(") ")?;
    let name = head.split_once('(')?.1.to_owned();
    let mut words = tail.split_whitespace();
    let dead = matches!(words.next(), None | Some("Z" | "X"));
    let exiting = words.nth(5)?.parse::<u32>().ok()? & PF_EXITING != 0;
    let killed = status
        .lines()
        .filter_map(|l| {
            l.strip_prefix("SigPnd:")
                .or_else(|| l.strip_prefix("ShdPnd:"))
        })
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & 1 << (libc::SIGKILL - 1) != 0);
    (!dead && !exiting && !killed).then_some(name)
}

/// The kernel's flag for a process that is exiting.
const PF_EXITING: u32 = 4;

/// Finds the process that holds a lock on an inode: "1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF".
fn parse_locks(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let exact = format!(
        "{:02x}:{:02x}:{inode}",
        libc::major(device),
        libc::minor(device)
    );
    let any_device = format!(":{inode}");
    let mut guess = None;
    for line in locks.lines() {
        let mut words = line.split_whitespace();
        if words.nth(1) != Some("FLOCK") {
            continue;
        }
        let (Some(pid), Some(place)) = (words.nth(2), words.next()) else {
            continue;
        };
        let Some(pid) = pid.parse().ok().filter(|&pid| pid != 0) else {
            continue;
        };
        if place == exact {
            return Some(pid);
        }
        if place.ends_with(&any_device) {
            guess = Some(pid); // some file systems (btrfs) number their devices differently here
        }
    }
    guess
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_locks_is_parsed() {
        let table = "1: POSIX  ADVISORY  WRITE 11 fe:01:5678 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 0 fe:01:5678 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 12 fe:01:5678 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 00:2b:5678 0 EOF\n\
                     4: FLOCK  ADVISORY  READ 14 fe:01:5678 0 EOF\nrubbish\n5: FLOCK\n";
        let dev = libc::makedev(0xfe, 1);
        assert_eq!(parse_locks(table, dev, 5678), Some(14));
        assert_eq!(parse_locks(table, libc::makedev(8, 0), 5678), Some(14));
        assert_eq!(parse_locks(table, dev, 678), None);
        assert_eq!(parse_locks("", dev, 1), None);
    }

    #[test]
    fn a_process_that_ends_is_not_living() {
        let stat = |state, flags| format!("12 (a (b) c) {state} 1 12 12 0 -1 {flags} 0 0");
        let status = "Name:\tx\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n";
        let name = Some("a (b) c".to_owned());
        assert_eq!(parse_living(&stat("S", 4_194_560), status), name);
        assert_eq!(parse_living(&stat("Z", 0), status), None);
        assert_eq!(parse_living(&stat("D", 4_194_564), status), None);
        let killed = status.replace("ShdPnd:\t0000000000000000", "ShdPnd:\t0000000000000100");
        assert_eq!(parse_living(&stat("S", 0), &killed), None);
        assert_eq!(parse_living("", ""), None);
    }

    #[test]
    fn messages_say_who_and_what_to_do() {
        let held = |holder| {
            LockError::Held {
                path: "/v".into(),
                holder,
            }
            .to_string()
        };
        let vellum = held(Some(Holder {
            pid: 7,
            name: "vellum".into(),
        }));
        assert!(
            vellum.starts_with("/v is already served by `vellum`, process 7"),
            "{vellum}"
        );
        assert!(
            held(Some(Holder {
                pid: 7,
                name: "dd".into()
            }))
            .contains("`dd`, process 7")
        );
        assert!(held(None).contains("fuser /v"));
    }
}
