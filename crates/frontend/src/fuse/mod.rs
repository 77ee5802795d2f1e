//! FUSE: one directory with one file a volume, for loop devices and for tools that want a file.
//!
//! Four threads read requests from the kernel. They wait for memory when the volume's buffers are full (that is the
//! back-pressure), and two of them wait for the medium: one for its reads, one for what it makes durable. An answer is sent from
//! the thread on which the device completes the request. Slow work has a thread of its own: the read-modify-write of unaligned
//! requests, and the search for data or holes.
//!
//! Files are opened for direct I/O. A loop device on top has its own page cache, and a second one below it would only delay
//! writes that the client believes are acknowledged by the volume.

mod adopt;
mod export;
mod files;
mod found;
mod mount;
mod reply;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod turnstile;

use crate::finder::Finder;
use crate::held::HeldFolder;
pub use export::FuseExport;
use mount::umount;
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use turnstile::Turnstile;

/// Threads that take requests from the kernel.
const DISPATCH_THREADS: usize = 4;

/// How long the requests read so far may take to be answered before a handover.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// How long the kernel may take to end an unused session.
const SESSION_PATIENCE: Duration = Duration::from_secs(3);

/// Why the directory could not be served.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The name of an export is not a valid file name.
    #[error("export name {0:?} cannot be a file name: use one without '/', up to 255 bytes")]
    Name(String),
    /// Two exports have the same name.
    #[error("two exports are called {0:?}: give each volume its own file name")]
    Twice(String),
    /// The directory is not empty.
    #[error(
        "{} is not empty, and a FUSE file system on it would hide what it holds: give an empty directory",
        dir.display()
    )]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// The mount failed.
    #[error("cannot mount a FUSE file system on {}: {source}", dir.display())]
    Mount {
        /// The directory.
        dir: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The unmount failed.
    #[error("cannot unmount {}: {source}", dir.display())]
    Unmount {
        /// The directory.
        dir: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The handover to another process failed.
    #[error("cannot hand {} over: {source}", dir.display())]
    HandOver {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is open that another process would not know.
    #[error("{0} is open: close it first")]
    InUse(String),
}

/// A mounted directory; unmounted when dropped.
#[derive(Debug)]
pub struct FuseServer {
    dir: PathBuf,
    /// `None` when it has ended.
    session: Mutex<Option<JoinHandle<io::Result<()>>>>,
    /// Another process goes on with the connection.
    handed_over: AtomicBool,
    kernel: fuser::Notifier,
    connection: OwnedFd,
    found: Arc<found::Found>,
    turnstile: Arc<Turnstile>,
}

/// Notifies the kernel that the size of a file has changed. The kernel asks for the size once, and then caches it for good.
#[derive(Clone, Debug)]
pub struct Resized {
    kernel: fuser::Notifier,
    file: fuser::INodeNo,
}

impl Resized {
    /// Makes the kernel ask again at the file's next use.
    ///
    /// # Errors
    /// If the kernel does not accept the notification.
    pub fn tell(&self) -> io::Result<()> {
        // No range: the cached bytes are correct.
        match self.kernel.inval_inode(self.file, -1, 0) {
            // The kernel has not cached it yet.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            told => told,
        }
    }
}

impl FuseServer {
    /// Like [`mount_finding`](Self::mount_finding), without a finder.
    ///
    /// # Errors
    /// As for `mount_finding`.
    pub fn mount(dir: &Path, exports: Vec<FuseExport>) -> Result<Self, FuseError> {
        Self::mount_finding(dir, exports, None)
    }

    /// Mounts `dir` with one file an export, and serves it on threads of its own. Files that `finder` finds by name can
    /// be opened, but are not listed.
    ///
    /// # Errors
    /// If a name is unusable, or the mount is refused.
    pub fn mount_finding(
        dir: &Path,
        exports: Vec<FuseExport>,
        finder: Option<Finder>,
    ) -> Result<Self, FuseError> {
        let failed = |source| FuseError::Mount {
            dir: dir.to_owned(),
            source,
        };
        check_names(&exports)?;
        // The kernel would mount on a file, too, and the files in it could not be opened.
        let held = HeldFolder::open(dir).map_err(failed)?;
        let dir_now = held.path().to_owned();
        if held.handle().read_dir().map_err(failed)?.next().is_some() {
            return Err(FuseError::NotEmpty { dir: dir_now });
        }
        let turnstile = Arc::new(Turnstile::default());
        let files = files::Files::new(exports, finder, Arc::clone(&turnstile)).map_err(failed)?;
        let found = Arc::clone(&files.found);
        let session = mount::session(files, &held, config()).map_err(failed)?;
        Self::run(dir_now, session, found, turnstile).map_err(failed)
    }

    /// Continues where another process has stopped. That process's [`hand_over`](Self::hand_over) returned the connection, and
    /// `dir` is still mounted. The exports must be the same, in the same order.
    ///
    /// # Errors
    /// If a name is unusable, or if that is not a FUSE connection.
    pub fn take_over(
        dir: &Path,
        exports: Vec<FuseExport>,
        finder: Option<Finder>,
        connection: &OwnedFd,
    ) -> Result<Self, FuseError> {
        let failed = |source| FuseError::HandOver {
            dir: dir.to_owned(),
            source,
        };
        check_names(&exports)?;
        let turnstile = Arc::new(Turnstile::default());
        let files = files::Files::new(exports, finder, Arc::clone(&turnstile)).map_err(failed)?;
        let found = Arc::clone(&files.found);
        let session = adopt::session(files, connection, config()).map_err(failed)?;
        Self::run(dir.to_owned(), session, found, turnstile).map_err(failed)
    }

    fn run(
        dir: PathBuf,
        session: fuser::Session<files::Files>,
        found: Arc<found::Found>,
        turnstile: Arc<Turnstile>,
    ) -> io::Result<Self> {
        let kernel = session.notifier();
        let connection = session.as_fd().try_clone_to_owned()?;
        let session = std::thread::Builder::new()
            .name("fuse".into())
            .spawn(|| session.run())?;
        let server = Self {
            dir,
            session: Mutex::new(Some(session)),
            handed_over: AtomicBool::new(false),
            kernel,
            connection,
            found,
            turnstile,
        };
        // Answered once every thread of the session has opened what it needs. After that the process may
        // give up its right to open files.
        ask_for_statistics(&server.dir)?;
        Ok(server)
    }

    /// Answers all requests read so far, and reads no more: the kernel keeps later ones. With the returned connection another
    /// process [continues](Self::take_over). This process must not touch the directory any more, and leaves it mounted.
    ///
    /// # Errors
    /// If a request is not answered in time, or if a file that was [found](Self::in_use) is open. Service then continues as before.
    pub fn hand_over(&self) -> Result<OwnedFd, FuseError> {
        let failed = |source| FuseError::HandOver {
            dir: self.dir.clone(),
            source,
        };
        let connection = self.connection.try_clone().map_err(failed)?;
        let dir = self.dir.clone();
        let ask = move || {
            // A dead mount fails at once, so do not spin.
            if ask_for_statistics(&dir).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let is_quiet = self.turnstile.close(DISPATCH_THREADS, ANSWER_PATIENCE, ask);
        if !is_quiet.map_err(failed)? {
            return Err(failed(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "there are requests that are not answered within {} s",
                    ANSWER_PATIENCE.as_secs()
                ),
            )));
        }
        if let Some(name) = self.in_use() {
            self.turnstile.open();
            return Err(FuseError::InUse(name));
        }
        self.handed_over.store(true, Ordering::SeqCst);
        Ok(connection)
    }

    /// Continues after a [`hand_over`](Self::hand_over) whose connection never left this process.
    pub fn go_on(&self) {
        self.handed_over.store(false, Ordering::SeqCst);
        self.turnstile.open();
    }

    /// The name of an open file that was found by name, if any. What was written to it exists in this process alone.
    #[must_use]
    pub fn in_use(&self) -> Option<String> {
        self.found.in_use()
    }

    /// For the time when export number `index` becomes larger.
    #[must_use]
    pub fn resized(&self, index: usize) -> Resized {
        Resized {
            kernel: self.kernel.clone(),
            file: fuser::INodeNo(files::FIRST + index as u64),
        }
    }

    /// The mounted directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts the directory. If a loop device or a process still holds a file in it, the directory is detached: it disappears
    /// now, and the kernel ends the session with the last user or with this process.
    ///
    /// # Errors
    /// If the kernel refuses. A directory that is no longer mounted is not an error.
    pub fn unmount(&self) -> Result<(), FuseError> {
        if self.handed_over.load(Ordering::SeqCst) {
            return Ok(());
        }
        let Some(session) = self.session.lock().take() else {
            return Ok(());
        };
        if session.is_finished() {
            let _ = session.join();
            // By an error of its own, and not because somebody has unmounted it.
            if is_connected(&self.connection) {
                let _ = umount(&self.dir, libc::MNT_DETACH);
            }
            return Ok(());
        }
        match umount(&self.dir, 0) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                match umount(&self.dir, libc::MNT_DETACH) {
                    Ok(()) => Ok(()),
                    Err(source) => Err(FuseError::Unmount {
                        dir: self.dir.clone(),
                        source,
                    }),
                }
            }
            // EINVAL: it is no longer mounted.
            Err(e) if e.raw_os_error() != Some(libc::EINVAL) => Err(FuseError::Unmount {
                dir: self.dir.clone(),
                source: e,
            }),
            _ => {
                end_of(session);
                Ok(())
            }
        }
    }
}

/// Waits until the kernel has ended a session. The kernel does not end it while a process has a mount namespace that was copied
/// while the directory was mounted; then the session ends with that process, or with this one.
fn end_of(session: JoinHandle<io::Result<()>>) {
    let began = Instant::now();
    while !session.is_finished() && began.elapsed() < SESSION_PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    if session.is_finished() {
        let _ = session.join();
    }
}

impl Drop for FuseServer {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

fn check_names(exports: &[FuseExport]) -> Result<(), FuseError> {
    for (i, export) in exports.iter().enumerate() {
        let name = &export.name;
        if name.is_empty()
            || name.len() > 255
            || name.contains(['/', '\0'])
            || name == "."
            || name == ".."
        {
            return Err(FuseError::Name(name.clone()));
        }
        if exports[..i].iter().any(|other| other.name == *name) {
            return Err(FuseError::Twice(name.clone()));
        }
    }
    Ok(())
}

fn config() -> fuser::Config {
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        fuser::MountOption::FSName("vellum".into()),
        fuser::MountOption::Subtype("vellum".into()),
        fuser::MountOption::NoDev,
        fuser::MountOption::NoSuid,
        fuser::MountOption::NoExec,
        fuser::MountOption::NoAtime,
    ];
    config.n_threads = Some(DISPATCH_THREADS);
    config.clone_fd = true;
    config
}

/// Sends a request that the kernel never answers from a cache.
fn ask_for_statistics(dir: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: a valid C string that outlives the call, and room for the answer, which is plain numbers.
    let asked = unsafe {
        let mut answer = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &raw mut answer)
    };
    match asked {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// True if the kernel still has the other end.
fn is_connected(connection: &OwnedFd) -> bool {
    let mut ready = libc::pollfd {
        fd: connection.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one element, which lives during the call.
    unsafe { libc::poll(&raw mut ready, 1, 0) == 0 }
}
