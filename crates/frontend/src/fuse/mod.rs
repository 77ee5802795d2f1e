//! FUSE: one directory with one file a volume, for loop devices and for tools that want a file.
//!
//! Four threads read requests from the kernel; they wait for memory when the volume's buffers are full (that
//! is the back-pressure), and two of them for the medium: one for what it reads, one for what it makes durable. Answers are sent from whatever thread the device completes
//! a request on. What has to wait or takes long, the read-modify-write of unaligned requests and the search
//! for data or holes, has a thread of its own.
//!
//! Files are opened for direct I/O: a loop device on top has its own page cache, and a second one below it
//! would only delay writes that the client believes are acknowledged by the volume.

mod adopt;
mod files;
mod found;
mod gate;
mod reply;

use crate::finder::Finder;
use crate::unaligned::ByteDevice;
use gate::Gate;
use parking_lot::Mutex;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads that take requests from the kernel.
const DISPATCH_THREADS: usize = 4;

/// How long requests that were read may take to be answered, when somebody else shall go on.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// How long the kernel may take to end a session that nobody uses any more.
const SESSION_PATIENCE: Duration = Duration::from_secs(3);

/// A volume to be shown as a file.
pub struct FuseExport {
    /// The file's name.
    pub name: String,
    /// The volume: a clone of what its other front ends have.
    pub device: ByteDevice,
}

/// Why the directory could not be served.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The name of an export does not make a file name.
    #[error("export name {0:?} cannot be a file name: use one without '/', up to 255 bytes")]
    Name(String),
    /// Two exports with one name.
    #[error("two exports are called {0:?}: give each volume its own file name")]
    Twice(String),
    /// The directory holds something.
    #[error(
        "{} is not empty, and a FUSE file system on it would hide what it holds: give an empty directory",
        dir.display()
    )]
    NotEmpty {
        /// Where.
        dir: PathBuf,
    },
    /// The mount failed.
    #[error("cannot mount a FUSE file system on {}: {source}", dir.display())]
    Mount {
        /// Where.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The unmount failed.
    #[error("cannot unmount {}: {source}", dir.display())]
    Unmount {
        /// Where.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process cannot go on with it.
    #[error("cannot hand {} over: {source}", dir.display())]
    HandOver {
        /// Where.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process would know nothing of it.
    #[error("{0} is open: close it first")]
    InUse(String),
}

/// A mounted directory; unmounted when dropped.
#[derive(Debug)]
pub struct FuseServer {
    dir: PathBuf,
    /// None when it has ended, or somebody else goes on with it.
    session: Mutex<Option<JoinHandle<io::Result<()>>>>,
    kernel: fuser::Notifier,
    connection: OwnedFd,
    found: Arc<found::Found>,
    gate: Arc<Gate>,
}

/// Tells the kernel of a file whose size has changed: it asks for that once, and goes by it for good.
#[derive(Clone, Debug)]
pub struct Resized {
    kernel: fuser::Notifier,
    file: fuser::INodeNo,
}

impl Resized {
    /// The kernel asks again when it is next looked at.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn tell(&self) -> io::Result<()> {
        // No place: what is cached of its bytes is right.
        match self.kernel.inval_inode(self.file, -1, 0) {
            // The kernel knows nothing of it yet.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            told => told,
        }
    }
}

impl FuseServer {
    /// As [`mount_finding`](Self::mount_finding), and nothing else is found.
    ///
    /// # Errors
    /// As for that.
    pub fn mount(dir: &Path, exports: Vec<FuseExport>) -> Result<Self, FuseError> {
        Self::mount_finding(dir, exports, None)
    }

    /// Mounts `dir` with one file an export, and serves it on threads of its own. What `finder` finds by a name can be opened, and
    /// is not listed.
    ///
    /// # Errors
    /// When a name is unusable, or the mount is refused.
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
        let dir_now = dir.canonicalize().map_err(failed)?;
        if !dir_now.is_dir() {
            // The kernel mounts it there all the same, and nobody can open what is in it.
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        if dir_now.read_dir().map_err(failed)?.next().is_some() {
            return Err(FuseError::NotEmpty { dir: dir_now });
        }
        let gate = Arc::new(Gate::default());
        let files = files::Files::new(exports, finder, Arc::clone(&gate)).map_err(failed)?;
        let found = Arc::clone(&files.found);
        let session = fuser::Session::new(files, &dir_now, &config()).map_err(failed)?;
        Self::run(dir_now, session, found, gate).map_err(failed)
    }

    /// Goes on where another process has stopped: its [`hand_over`](Self::hand_over) gave the connection, and `dir` is mounted. The
    /// exports are the same in the same order.
    ///
    /// # Errors
    /// When a name is unusable, or that is no connection of FUSE.
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
        let gate = Arc::new(Gate::default());
        let files = files::Files::new(exports, finder, Arc::clone(&gate)).map_err(failed)?;
        let found = Arc::clone(&files.found);
        let session = adopt::session(files, connection, config()).map_err(failed)?;
        Self::run(dir.to_owned(), session, found, gate).map_err(failed)
    }

    fn run(
        dir: PathBuf,
        session: fuser::Session<files::Files>,
        found: Arc<found::Found>,
        gate: Arc<Gate>,
    ) -> io::Result<Self> {
        let kernel = session.notifier();
        let connection = session.as_fd().try_clone_to_owned()?;
        let session = std::thread::Builder::new()
            .name("fuse".into())
            .spawn(|| session.run())?;
        let server = Self {
            dir,
            session: Mutex::new(Some(session)),
            kernel,
            connection,
            found,
            gate,
        };
        // Answered when every thread of the session has what it opens: from then on the process may give up to open files.
        ask_for_statistics(&server.dir)?;
        Ok(server)
    }

    /// Answers all that was read from the kernel, and reads nothing more: the kernel keeps what comes. With the connection that this
    /// gives, another process [goes on](Self::take_over); this one must not touch the directory any more, and leaves it as it is.
    ///
    /// # Errors
    /// When something is not answered in time, or a file that was [found](Self::in_use) is open: then all goes on as before.
    pub fn hand_over(&self) -> Result<OwnedFd, FuseError> {
        let failed = |source| FuseError::HandOver {
            dir: self.dir.clone(),
            source,
        };
        let connection = self.connection.try_clone().map_err(failed)?;
        let dir = self.dir.clone();
        let ask = move || {
            // A dead mount asks nobody, and is not asked again at once.
            if ask_for_statistics(&dir).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let is_quiet = self.gate.close(DISPATCH_THREADS, ANSWER_PATIENCE, ask);
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
            self.gate.open();
            return Err(FuseError::InUse(name));
        }
        *self.session.lock() = None;
        Ok(connection)
    }

    /// A file that is open, and was found by its name: what was written to it is in this process alone.
    #[must_use]
    pub fn in_use(&self) -> Option<String> {
        self.found.in_use()
    }

    /// For when export number `index` becomes larger.
    #[must_use]
    pub fn resized(&self, index: usize) -> Resized {
        Resized {
            kernel: self.kernel.clone(),
            file: fuser::INodeNo(files::FIRST + index as u64),
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts the directory. If a loop device or a process still holds a file in it, the directory is
    /// detached: it disappears now, and the kernel ends the session with the last user or with this process.
    ///
    /// # Errors
    /// When the kernel refuses; an unmounted directory is no error.
    pub fn unmount(&self) -> Result<(), FuseError> {
        let Some(session) = self.session.lock().take() else {
            return Ok(());
        };
        if session.is_finished() {
            let _ = session.join();
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
            // EINVAL: it is not mounted any more.
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

/// Waits until the kernel has ended a session. As long as a process elsewhere has a mount namespace that was copied while the directory
/// was mounted, it does not: then the session ends with that, or with this process.
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

/// A question that the kernel never answers by itself.
fn ask_for_statistics(dir: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: a valid C string that outlives the call, and a place for the answer, which is plain numbers.
    let asked = unsafe {
        let mut answer = std::mem::zeroed();
        libc::statvfs(path.as_ptr(), &raw mut answer)
    };
    match asked {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn umount(dir: &Path, flags: i32) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: a valid C string that outlives the call.
    match unsafe { libc::umount2(path.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
