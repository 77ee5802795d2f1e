//! An open file or block device, and I/O on it by system calls.

use crate::below::Under;
use crate::bounce::Bounce;
use crate::error::{MediumError, is_no_room};
use crate::io::{Done, Io, Kind, Piece, check_bytes};
use crate::past;
use crate::transfer::{Next, Progress, window};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_core::addr::{BLOCK_BYTES, Pba};

/// How blocks are given back on a discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiscardBy {
    /// They are not: a discard does nothing.
    Nothing,
    /// By a hole in a sparse file.
    Hole,
    /// By `BLKDISCARD` of a block device.
    Ioctl,
}

/// Not in libc. Its neighbours are, with the right direction bits for the architecture.
const BLKDISCARD: libc::Ioctl = libc::BLKSSZGET + 0xf;

/// Bytes in the buffer for memory of any alignment.
const BOUNCE_BYTES: usize = 1 << 20;

/// An open file or block device.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) file: File,
    /// The files under a loop device, locked for as long as it is.
    pub(crate) below: Vec<Under>,
    pub(crate) name: String,
    /// Atomic because it may become longer or shorter.
    pub(crate) blocks: AtomicU64,
    /// True if reads and writes really bypass the page cache, whatever was requested.
    pub(crate) direct: bool,
    pub(crate) writable: bool,
    pub(crate) discard: DiscardBy,
}

impl Target {
    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    /// Checks whether an operation can be tried at all.
    pub(crate) fn check(&self, io: &Io) -> io::Result<()> {
        if !self.writable && matches!(io.kind, Kind::Write { .. } | Kind::Discard { .. }) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it was opened read-only",
            ));
        }
        io.check(self.blocks())?;
        self.may_hide(io)
    }

    /// Carries out an operation now.
    pub(crate) fn perform(&self, io: &Io) -> io::Result<()> {
        self.check(io)?;
        match io.kind {
            Kind::Sync => self.retry(Kind::Sync, || self.fdatasync()),
            Kind::Discard { blocks } => self.retry(io.kind, || self.discard(io.at, blocks)),
            Kind::Read | Kind::Write { .. } => self.transfer(io.kind, io.at, io.pieces()),
        }
    }

    fn transfer(&self, kind: Kind, at: Pba, pieces: &[Piece]) -> io::Result<()> {
        let total = pieces.iter().map(|p| p.len).sum();
        let mut progress = Progress::default();
        let mut part = Vec::new();
        while progress.bytes < total {
            window(pieces, progress.bytes, &mut part);
            let result = self.vectored(kind, at.byte_offset() + progress.bytes as u64, &part);
            match progress.after(kind, total, result) {
                Next::Finished => break,
                Next::Again => {}
                Next::Failed(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// One call of preadv or pwritev2: the count, or the errno negated.
    fn vectored(&self, kind: Kind, offset: u64, pieces: &[Piece]) -> i32 {
        let (iov, count) = (
            pieces.as_ptr().cast::<libc::iovec>(),
            pieces.len() as libc::c_int,
        );
        let (fd, offset) = (self.fd(), offset.cast_signed());
        // SAFETY: pieces have the layout of iovecs, and the memory is ours until the Io is given back.
        let result = unsafe {
            match kind {
                Kind::Write { durable: true } => {
                    libc::pwritev2(fd, iov, count, offset, self.durable_flags())
                }
                Kind::Write { .. } => libc::pwritev(fd, iov, count, offset),
                _ => libc::preadv(fd, iov, count, offset),
            }
        };
        if result >= 0 {
            return i32::try_from(result).unwrap_or(i32::MAX);
        }
        let errno = errno();
        if kind == (Kind::Write { durable: true })
            && matches!(errno, libc::ENOSYS | libc::EOPNOTSUPP | libc::EAGAIN)
        {
            // The kernel lacks RWF_DSYNC, or the blocks are not allocated yet: write, then sync.
            let written = self.vectored(
                Kind::Write { durable: false },
                offset.cast_unsigned(),
                pieces,
            );
            let synced = if written > 0 { self.fdatasync() } else { 0 };
            return if synced < 0 { synced } else { written };
        }
        -errno
    }

    /// A write that allocates blocks excludes reads of the file until it ends, including its sync if that is part of the write.
    /// So with direct I/O `RWF_NOWAIT` refuses such a write, and its sync is done separately.
    fn durable_flags(&self) -> libc::c_int {
        match self.direct {
            true => libc::RWF_DSYNC | libc::RWF_NOWAIT,
            false => libc::RWF_DSYNC,
        }
    }

    fn fdatasync(&self) -> i32 {
        // SAFETY: a system call on an open descriptor.
        if unsafe { libc::fdatasync(self.fd()) } == 0 {
            0
        } else {
            -errno()
        }
    }

    fn discard(&self, at: Pba, blocks: u64) -> i32 {
        let (offset, len) = (at.byte_offset(), blocks * BLOCK_BYTES as u64);
        // SAFETY: system calls on an open descriptor; `range` outlives the call.
        let result = unsafe {
            match self.discard {
                _ if len == 0 => 0,
                DiscardBy::Nothing => 0,
                DiscardBy::Hole => {
                    libc::fallocate(self.fd(), HOLE, offset.cast_signed(), len.cast_signed())
                }
                DiscardBy::Ioctl => {
                    let range = [offset, len];
                    libc::ioctl(self.fd(), BLKDISCARD, range.as_ptr())
                }
            }
        };
        if result == 0 { 0 } else { -errno() }
    }

    fn retry(&self, kind: Kind, call: impl Fn() -> i32) -> io::Result<()> {
        let mut progress = Progress::default();
        loop {
            match progress.after(kind, 0, call()) {
                Next::Finished => return Ok(()),
                Next::Again => {}
                Next::Failed(e) => return Err(e),
            }
        }
    }

    /// Reads into memory of any alignment.
    pub(crate) fn read(&self, at: Pba, bytes: &mut [u8]) -> Result<(), MediumError> {
        self.read_inner(at, bytes)
            .map_err(|e| self.error("read", at, e))
    }

    fn read_inner(&self, at: Pba, bytes: &mut [u8]) -> io::Result<()> {
        check_bytes(at, bytes.len(), self.blocks())?;
        if !self.direct || is_aligned(bytes.as_ptr()) {
            let piece = Piece {
                ptr: bytes.as_mut_ptr(),
                len: bytes.len(),
            };
            return self.transfer(Kind::Read, at, &[piece]);
        }
        let mut bounce = Bounce::new(bytes.len().min(BOUNCE_BYTES));
        let mut at = at;
        for part in bytes.chunks_mut(BOUNCE_BYTES) {
            self.transfer(Kind::Read, at, &[bounce.piece(part.len())])?;
            part.copy_from_slice(&bounce.bytes()[..part.len()]);
            at = at.plus((part.len() / BLOCK_BYTES) as u64);
        }
        Ok(())
    }

    /// Writes from memory of any alignment.
    pub(crate) fn write(&self, at: Pba, bytes: &[u8]) -> Result<(), MediumError> {
        self.write_inner(at, bytes)
            .map_err(|e| self.error("write", at, e))
    }

    fn write_inner(&self, at: Pba, bytes: &[u8]) -> io::Result<()> {
        self.check(&Io::new(0, Kind::Write { durable: false }, at))?;
        check_bytes(at, bytes.len(), self.blocks())?;
        if at.plus((bytes.len() / BLOCK_BYTES) as u64).0 == self.blocks() {
            self.still_whole()?;
        }
        let kind = Kind::Write { durable: false };
        if !self.direct || is_aligned(bytes.as_ptr()) {
            // The memory is only read from, whatever the type says.
            let piece = Piece {
                ptr: bytes.as_ptr().cast_mut(),
                len: bytes.len(),
            };
            return self.transfer(kind, at, &[piece]);
        }
        let mut bounce = Bounce::new(bytes.len().min(BOUNCE_BYTES));
        let mut at = at;
        for part in bytes.chunks(BOUNCE_BYTES) {
            bounce.bytes()[..part.len()].copy_from_slice(part);
            self.transfer(kind, at, &[bounce.piece(part.len())])?;
            at = at.plus((part.len() / BLOCK_BYTES) as u64);
        }
        Ok(())
    }

    /// Makes every completed write durable.
    pub(crate) fn sync(&self) -> Result<(), MediumError> {
        self.retry(Kind::Sync, || self.fdatasync())
            .and_then(|()| self.still_whole())
            .map_err(|e| self.error("sync", Pba(0), e))
    }

    /// Makes reads return what is on the medium, past every known page cache: its own, and those of the files under it.
    pub(crate) fn drop_cache(&self) -> Result<(), MediumError> {
        let own = match self.direct {
            false => past::drop_cache(&self.file),
            // What a killed server wrote may be in the drive's cache alone, or lead to blocks that only the memory of the file
            // system below knows. What is written next must not be durable before it.
            true if self.writable => past::sync_now(&self.file),
            true => Ok(()),
        };
        own.and_then(|()| self.below.iter().try_for_each(Under::drop_cache))
            .map_err(|e| self.error("drop of the page cache", Pba(0), e))
    }

    /// Ends an operation.
    pub(crate) fn ended(&self, io: Box<Io>, result: io::Result<()>) -> Done {
        let kind = io.kind;
        let result = result.and_then(|()| self.may_promise(kind));
        io.done(&self.name, result.map_err(|e| self.not_of_before(kind, e)))
    }

    /// Linux reports what the page cache could not write once, to the next sync, and then forgets it. So "no room" may not belong
    /// to this operation, and retrying would hide that other data is lost.
    fn not_of_before(&self, kind: Kind, error: io::Error) -> io::Error {
        let error = self.not_of_the_end(error);
        let syncs = matches!(kind, Kind::Sync | Kind::Write { durable: true });
        match syncs && !self.direct && is_no_room(&error) {
            true => io::Error::other(format!("{error}, for this or for what was written before")),
            false => error,
        }
    }

    pub(crate) fn error(&self, operation: &'static str, at: Pba, source: io::Error) -> MediumError {
        MediumError::at(operation, &self.name, at, self.not_of_the_end(source))
    }
}

/// The flags that punch a hole in a file and keep its size.
pub(crate) const HOLE: libc::c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

fn is_aligned(ptr: *const u8) -> bool {
    (ptr as usize).is_multiple_of(BLOCK_BYTES)
}

fn errno() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enospc_of_a_sync_through_the_page_cache_is_not_retried() {
        let target = |direct| Target {
            file: File::open("/dev/null").unwrap(),
            below: Vec::new(),
            name: "test".to_owned(),
            blocks: 1.into(),
            direct,
            writable: true,
            discard: DiscardBy::Nothing,
        };
        let waited_for = |direct, kind| {
            let full = io::Error::from_raw_os_error(libc::ENOSPC);
            let done = target(direct).ended(Io::new(0, kind, Pba(0)), Err(full));
            done.result.unwrap_err().is_full()
        };
        let (plain, durable) = (false, true);
        assert!(waited_for(false, Kind::Write { durable: plain }));
        assert!(waited_for(true, Kind::Write { durable }));
        assert!(!waited_for(false, Kind::Write { durable }));
        assert!(!waited_for(false, Kind::Sync));
    }
}
