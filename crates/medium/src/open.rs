//! Opens and makes files and block devices. Everything that can be wrong with one is detected here.

use crate::below;
use crate::lock::{self, LockError};
use crate::past;
use crate::target::{DiscardBy, Target};
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use vellum_core::addr::{BLOCK_BYTES, Pba};

/// The smallest medium, in blocks: a volume's fixed parts do not fit in less.
pub const MEDIUM_BLOCKS_MIN: u64 = 16;

/// How to open a medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Only reads, alongside others that only read, but never alongside a server.
    pub read_only: bool,
}

/// How I/O is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring if it works and `VELLUM_NO_URING` is not set, threads otherwise.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// A pool of threads.
    Threads,
}

/// Choices that are made automatically unless given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// How I/O is done.
    pub engine: Engine,
    /// Goes through the page cache even if direct I/O works.
    pub buffered: bool,
    /// Whether to discard. By default, block devices that support it and files with holes do.
    pub discard: Option<bool>,
}

/// How a new file gets its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prealloc {
    /// All at once: space cannot run out later, and discards are not sent.
    Full,
    /// As it is written; discards give space back.
    Sparse,
}

/// Why a medium could not be opened or made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "fields are named for what they are")]
pub enum OpenError {
    /// There is nothing there.
    #[error("{} does not exist: make it with `vellum create`", path.display())]
    NotFound { path: PathBuf },
    /// The folder for a new file is missing.
    #[error("the folder of {} does not exist: make it first", path.display())]
    NoFolder { path: PathBuf },
    /// It is a folder.
    #[error("{} is a directory: name a file or a block device", path.display())]
    Directory { path: PathBuf },
    /// It is a socket, a pipe or a character device.
    #[error("{} is neither a regular file nor a block device", path.display())]
    WrongKind { path: PathBuf },
    /// Access is not allowed.
    #[error("no permission to {operation} {}: check its owner and mode, and those of its \
             folders", path.display())]
    Permission {
        operation: &'static str,
        path: PathBuf,
    },
    /// The file system or device is read-only.
    #[error("{} is on a read-only file system or device: remount it to be written to (`vellum check` and \
             `serve --read-only` only read)", path.display())]
    ReadOnly { path: PathBuf },
    /// Its size is not whole blocks.
    #[error("the size of {}, {bytes} bytes, is not a multiple of {BLOCK_BYTES}: is it truncated, or no \
             volume?", path.display())]
    NotMultiple { path: PathBuf, bytes: u64 },
    /// It is too small to be a medium.
    #[error("{} is no volume: it has only {bytes} bytes", path.display())]
    TooSmall { path: PathBuf, bytes: u64 },
    /// It is more than the system can address, or than the device has.
    #[error("{} cannot have {bytes} bytes; at most {bytes_max}", path.display())]
    TooLarge {
        path: PathBuf,
        bytes: u64,
        bytes_max: u64,
    },
    /// This process may not make a file that long.
    #[error(
        "{} would have {bytes} bytes, and a file may have {limit} here: raise that limit \
         (`ulimit -f unlimited`), or give a smaller size",
        path.display()
    )]
    FileLimit {
        path: PathBuf,
        bytes: u64,
        limit: u64,
    },
    /// Its file system has no files that long.
    #[error(
        "the file system of {} has no files of {bytes} bytes: give a smaller size, or choose another \
         file system",
        path.display()
    )]
    FileTooLong { path: PathBuf, bytes: u64 },
    /// A file with that name exists.
    #[error("{} exists already: --force writes over it, or choose another name", path.display())]
    Exists { path: PathBuf },
    /// There is no room for a new file.
    #[error("no room for {bytes} bytes in {}: free some, or make it sparse", path.display())]
    NoSpace { path: PathBuf, bytes: u64 },
    /// The file system cannot preallocate space.
    #[error("the file system of {} cannot preallocate: make it sparse", path.display())]
    NoPrealloc { path: PathBuf },
    /// Another process holds it.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// Anything else.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl OpenError {
    /// The error of an operation on a path.
    #[must_use]
    pub fn of(operation: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT) if operation == "create" => Self::NoFolder { path },
            Some(libc::ENOENT) => Self::NotFound { path },
            Some(libc::EISDIR) => Self::Directory { path },
            Some(libc::EACCES | libc::EPERM) => Self::Permission { operation, path },
            Some(libc::EROFS) => Self::ReadOnly { path },
            Some(libc::EEXIST) => Self::Exists { path },
            _ => Self::Io {
                operation,
                path,
                source,
            },
        }
    }

    /// The same about another path: a file that is made under a name of its own is the user's file, which gets its name later.
    #[must_use]
    fn about(mut self, other: &Path) -> Self {
        match &mut self {
            Self::NotFound { path }
            | Self::NoFolder { path }
            | Self::Directory { path }
            | Self::WrongKind { path }
            | Self::Permission { path, .. }
            | Self::ReadOnly { path }
            | Self::NotMultiple { path, .. }
            | Self::TooSmall { path, .. }
            | Self::TooLarge { path, .. }
            | Self::FileLimit { path, .. }
            | Self::FileTooLong { path, .. }
            | Self::Exists { path }
            | Self::NoSpace { path, .. }
            | Self::NoPrealloc { path }
            | Self::Io { path, .. } => other.clone_into(path),
            // Whoever has it locked may be asked only by its own name.
            Self::Locked(_) => {}
        }
        self
    }
}

/// Opens an existing file or device: the one at this path, or the one that is held open.
pub(crate) fn existing(
    path: &Path,
    held: Option<&File>,
    options: OpenOptions,
    tuning: &Tuning,
) -> Result<Target, OpenError> {
    let failed = |e| OpenError::of("open", path, e);
    let again = held.map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    let at = again.as_deref().unwrap_or(path);
    // Checked before opening, because opening some devices does something. A pipe
    // that takes its place meanwhile must not keep us waiting.
    let kind = fs::metadata(at).map_err(failed)?;
    let block = is_block(path, &kind)?;
    let writable = !options.read_only;
    let exclusive = if block && writable { libc::O_EXCL } else { 0 };
    let flags = libc::O_NOCTTY | libc::O_NONBLOCK | exclusive;
    let open = || open_direct(at, tuning, |o| o.read(true).write(writable), flags);
    let file = lock::claim(path, open)?.map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let block = is_block(path, &meta)?;
    // Some kernels would not wait for reads either.
    clear(&file, libc::O_NONBLOCK).map_err(failed)?;
    lock::take(&file, path, options.read_only)?;
    if block && options.read_only {
        // No process may be writing through another node of it, or through a device above it; one that does has claimed it.
        lock::claim(path, || claimed(at))?.map_err(failed)?;
    }
    let below = below::take(&file, path, options.read_only)?;
    let bytes = size(&file, &meta, block).map_err(failed)?;
    let discards = if block {
        device_discards(&meta)
    } else {
        has_holes(&meta)
    };
    let mut target = finish(path, file, bytes, block, writable, discards, tuning)?;
    target.below = below;
    Ok(target)
}

/// Claims a block device until the result is dropped. Writes nothing.
fn claimed(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_EXCL)
        .open(path)
}

/// Makes a file that gets its name later. Errors name it by that.
pub(crate) fn new_named(
    path: &Path,
    later: &Path,
    bytes: u64,
    prealloc: Prealloc,
    tuning: &Tuning,
) -> Result<Target, OpenError> {
    let mut target = new(path, bytes, prealloc, tuning).map_err(|error| error.about(later))?;
    target.name = later.display().to_string();
    Ok(target)
}

/// Makes a file, or uses a block device.
pub(crate) fn new(
    path: &Path,
    bytes: u64,
    prealloc: Prealloc,
    tuning: &Tuning,
) -> Result<Target, OpenError> {
    match fs::metadata(path) {
        Ok(meta) if is_block(path, &meta)? => {
            let mut target = existing(path, None, OpenOptions::default(), tuning)?;
            if bytes > 0 {
                check_size(path, bytes, false)?;
                let bytes_max = target.blocks() * BLOCK_BYTES as u64;
                if bytes > bytes_max {
                    return Err(OpenError::TooLarge {
                        path: path.to_owned(),
                        bytes,
                        bytes_max,
                    });
                }
                target.blocks = (bytes / BLOCK_BYTES as u64).into();
            }
            return Ok(target);
        }
        Ok(_) => {
            return Err(OpenError::Exists {
                path: path.to_owned(),
            });
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(OpenError::of("create", path, e)),
    }
    check_size(path, bytes, false)?;
    let file = open_direct(
        path,
        tuning,
        |o| o.read(true).write(true).create_new(true).mode(0o600),
        0,
    )
    .map_err(|e| OpenError::of("create", path, e))?;
    let made = lock::take(&file, path, false)
        .map_err(OpenError::from)
        .and_then(|()| give_space(path, &file, bytes, prealloc))
        .and_then(|()| sync_entry(path, &file))
        .and_then(|()| {
            finish(
                path,
                file,
                bytes,
                false,
                true,
                prealloc == Prealloc::Sparse,
                tuning,
            )
        });
    if made.is_err() {
        // It is ours, because `create_new` made it.
        let _ = fs::remove_file(path);
    }
    made
}

fn finish(
    path: &Path,
    file: File,
    bytes: u64,
    block: bool,
    writable: bool,
    discards: bool,
    tuning: &Tuning,
) -> Result<Target, OpenError> {
    check_size(path, bytes, block)?;
    let discard = match (tuning.discard.unwrap_or(discards), block) {
        (false, _) => DiscardBy::Nothing,
        (true, false) => DiscardBy::Hole,
        (true, true) => DiscardBy::Ioctl,
    };
    let direct = flags_of(&file).is_ok_and(|flags| flags & libc::O_DIRECT != 0);
    let blocks = (bytes / BLOCK_BYTES as u64).into();
    let name = path.display().to_string();
    let mut target = Target {
        file,
        below: Vec::new(),
        name,
        blocks,
        direct,
        writable,
        discard,
    };
    let probe = || {
        target
            .read(last(&target), &mut [0; BLOCK_BYTES])
            .map_err(|e| e.source)
    };
    if direct && !(direct_works(&target) && past::is_direct(&target.file, probe)) {
        clear(&target.file, libc::O_DIRECT).map_err(|e| OpenError::of("open", path, e))?;
        target.direct = false;
    }
    Ok(target)
}

/// Opens with direct I/O, or through the page cache if direct I/O is refused.
fn open_direct(
    path: &Path,
    tuning: &Tuning,
    how: impl Fn(&mut fs::OpenOptions) -> &mut fs::OpenOptions,
    flags: i32,
) -> io::Result<File> {
    let open = |flags| how(fs::OpenOptions::new().custom_flags(flags)).open(path);
    if tuning.buffered {
        return open(flags);
    }
    match open(flags | libc::O_DIRECT) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            // A file that was made before the refusal is ours as well, and empty.
            match open(flags) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    fs::remove_file(path).and_then(|()| open(flags))
                }
                other => other,
            }
        }
        other => other,
    }
}

/// True if direct I/O works. Some file systems accept the flag but refuse the I/O, or need larger blocks than ours.
fn direct_works(target: &Target) -> bool {
    let mut bytes = vec![0; BLOCK_BYTES];
    match target.read(last(target), &mut bytes) {
        Err(e) => e.source.raw_os_error() != Some(libc::EINVAL),
        Ok(()) => true,
    }
}

fn last(target: &Target) -> Pba {
    Pba(target.blocks() - 1)
}

fn flags_of(file: &File) -> io::Result<i32> {
    // SAFETY: a system call on a descriptor that is open.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(flags)
    }
}

fn clear(file: &File, flag: i32) -> io::Result<()> {
    let flags = flags_of(file)? & !flag;
    // SAFETY: as above.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn is_block(path: &Path, meta: &Metadata) -> Result<bool, OpenError> {
    let (path, kind) = (path.to_owned(), meta.file_type());
    match () {
        () if kind.is_dir() => Err(OpenError::Directory { path }),
        () if kind.is_block_device() => Ok(true),
        () if kind.is_file() => Ok(false),
        () => Err(OpenError::WrongKind { path }),
    }
}

fn size(file: &File, meta: &Metadata, block: bool) -> io::Result<u64> {
    if block {
        // A device's inode has no size, but its end can be found.
        let mut file = file;
        file.seek(SeekFrom::End(0))
    } else {
        Ok(meta.len())
    }
}

fn check_size(path: &Path, bytes: u64, block: bool) -> Result<(), OpenError> {
    let path = path.to_owned();
    let bytes_max = i64::MAX.cast_unsigned() / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    match () {
        // A device may end anywhere; what is past its last whole block is not used.
        () if !block && !bytes.is_multiple_of(BLOCK_BYTES as u64) => {
            Err(OpenError::NotMultiple { path, bytes })
        }
        () if bytes < MEDIUM_BLOCKS_MIN * BLOCK_BYTES as u64 => {
            Err(OpenError::TooSmall { path, bytes })
        }
        () if bytes > bytes_max => Err(OpenError::TooLarge {
            path,
            bytes,
            bytes_max,
        }),
        () => Ok(()),
    }
}

/// True if a file lacks some of its space. A sparse volume always does, because its free segments are holes.
fn has_holes(meta: &Metadata) -> bool {
    meta.blocks().saturating_mul(512) < meta.len()
}

/// True if a block device can discard, according to sysfs.
fn device_discards(meta: &Metadata) -> bool {
    let device = meta.rdev();
    let base = format!(
        "/sys/dev/block/{}:{}",
        libc::major(device),
        libc::minor(device)
    );
    // A partition has no queue of its own.
    ["queue", "../queue"].iter().any(|queue| {
        fs::read_to_string(format!("{base}/{queue}/discard_max_bytes"))
            .is_ok_and(|max| max.trim().parse::<u64>().is_ok_and(|max| max > 0))
    })
}

fn give_space(path: &Path, file: &File, bytes: u64, prealloc: Prealloc) -> Result<(), OpenError> {
    let result = match prealloc {
        Prealloc::Sparse => file.set_len(bytes),
        Prealloc::Full => loop {
            // SAFETY: a system call on a descriptor that is open.
            let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes.cast_signed()) };
            let error = io::Error::last_os_error();
            match (result, error.raw_os_error()) {
                (0, _) => break Ok(()),
                (_, Some(libc::EINTR)) => {}
                _ => break Err(error),
            }
        },
    };
    let path_buf = path.to_owned();
    result.map_err(|e| match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => OpenError::NoSpace {
            path: path_buf,
            bytes,
        },
        Some(libc::EFBIG) => match file_limit().filter(|&limit| limit < bytes) {
            Some(limit) => OpenError::FileLimit {
                path: path_buf,
                bytes,
                limit,
            },
            None => OpenError::FileTooLong {
                path: path_buf,
                bytes,
            },
        },
        Some(libc::EOPNOTSUPP | libc::ENOSYS) if prealloc == Prealloc::Full => {
            OpenError::NoPrealloc { path: path_buf }
        }
        _ => OpenError::of("give space to", path, e),
    })
}

/// The most bytes that a file of this process may have, if there is a limit (`ulimit -f`).
fn file_limit() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for the result.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    (done == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// A new file survives a crash only if its folder is synced too.
fn sync_entry(path: &Path, file: &File) -> Result<(), OpenError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    file.sync_all()
        .and_then(|()| File::open(folder)?.sync_all())
        .map_err(|e| OpenError::of("sync", path, e))
}
