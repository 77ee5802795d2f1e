//! The directory and its files.

use super::export::FuseExport;
use super::found::{File, Found};
use super::reply::{Answer, Pending, errno};
use super::turnstile::Turnstile;
use crate::extents::extents;
use crate::finder::Finder;
use crate::unaligned::{ByteDevice, ZERO_BYTES_MAX, is_aligned};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, Request as From,
    TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockDevice, Op, Request};
use vellum_device::frames::{Frames, Quota};

const ROOT: u64 = 1;
/// The inode of the first file; the others follow.
pub(super) const FIRST: u64 = 2;
/// Names and sizes never change while mounted.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);
/// How long a found name stays valid: another file may soon have that name.
const FOUND: Duration = Duration::from_secs(1);
/// The largest read or write of one request; the kernel splits longer ones.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Outstanding asynchronous requests that the kernel may have.
const BACKGROUND_MAX: u16 = 256;
/// Slow requests that may wait for their thread.
const SLOW_QUEUE_MAX: usize = 64;

/// A request for the thread that is allowed to wait.
type Job = Box<dyn FnOnce() + Send>;

/// The file system.
pub struct Files {
    files: Vec<Arc<File>>,
    /// The files that are not listed.
    pub found: Arc<Found>,
    made: SystemTime,
    slow: mpsc::SyncSender<Job>,
    turnstile: Arc<Turnstile>,
}

impl Files {
    pub fn new(
        exports: Vec<FuseExport>,
        finder: Option<Finder>,
        turnstile: Arc<Turnstile>,
    ) -> io::Result<Self> {
        let (slow, jobs) = mpsc::sync_channel::<Job>(SLOW_QUEUE_MAX);
        // It ends when the session drops `slow`.
        std::thread::Builder::new()
            .name("fuse-slow".into())
            .spawn(move || jobs.iter().for_each(|job| job()))?;
        let files = exports
            .into_iter()
            .map(|e| {
                Arc::new(File {
                    name: e.name,
                    bytes: e.device,
                })
            })
            .collect();
        let made = SystemTime::now();
        Ok(Self {
            files,
            found: Arc::new(Found::new(finder, made)),
            made,
            slow,
            turnstile,
        })
    }

    fn file(&self, ino: INodeNo) -> Result<Arc<File>, Errno> {
        if ino.0 == ROOT {
            return Err(Errno::EISDIR);
        }
        let index = ino.0.checked_sub(FIRST).ok_or(Errno::ENOENT)? as usize;
        match self.files.get(index) {
            Some(file) => Ok(Arc::clone(file)),
            // From an earlier server: the kernel then looks the name up again.
            None => self.found.file(ino).ok_or(Errno::ESTALE),
        }
    }

    /// The inode of a name, and for how long that is valid.
    fn named(&self, name: &str) -> Option<(INodeNo, Duration)> {
        if let Some(index) = self.files.iter().position(|file| file.name == name) {
            return Some((INodeNo(FIRST + index as u64), FOR_EVER));
        }
        Some((self.found.named(name)?, FOUND))
    }

    fn attr(&self, ino: INodeNo) -> Result<FileAttr, Errno> {
        let (size, kind, perm) = if ino.0 == ROOT {
            (0, FileType::Directory, 0o500)
        } else {
            let bytes = &self.file(ino)?.bytes;
            (
                bytes.bytes(),
                FileType::RegularFile,
                if bytes.device().read_only() {
                    0o400
                } else {
                    0o600
                },
            )
        };
        // SAFETY: these two have no preconditions.
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        Ok(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            crtime: self.made,
            kind,
            perm,
            nlink: if ino.0 == ROOT { 2 } else { 1 },
            uid,
            gid,
            rdev: 0,
            blksize: BLOCK_BYTES as u32,
            flags: 0,
        })
    }

    fn later(&self, job: Job) {
        let unanswered = self.turnstile.unanswered();
        // The receiver lives as long as we do. If it did not, dropping the job would answer EIO.
        let _ = self.slow.send(Box::new(move || {
            job();
            drop(unanswered);
        }));
    }

    fn submit(
        &self,
        bytes: &ByteDevice,
        op: Op,
        lba: u64,
        blocks: u64,
        frames: Frames,
        answer: Answer,
    ) {
        bytes.submit(
            &mut vec![Request::new(op, Lba(lba), blocks, frames)],
            &Pending::replies(answer, self.turnstile.unanswered()),
        );
    }

    fn zero(&self, ino: INodeNo, offset: u64, len: u64, discard: bool, reply: ReplyEmpty) {
        let file = match self.file(ino) {
            Ok(file) => file,
            Err(e) => return reply.error(e),
        };
        if file.bytes.device().read_only() {
            return reply.error(Errno::EROFS);
        }
        // The size stays: nothing past the end has contents to lose.
        let size = file.bytes.bytes();
        let len = len.min(size.saturating_sub(offset));
        if len == 0 {
            return reply.ok();
        }
        if is_aligned(offset, len) && len <= ZERO_BYTES_MAX {
            let op = if discard {
                Op::Discard { fua: false }
            } else {
                Op::WriteZeroes { fua: false }
            };
            let (lba, blocks) = (offset / BLOCK_BYTES as u64, len / BLOCK_BYTES as u64);
            return self.submit(
                &file.bytes,
                op,
                lba,
                blocks,
                Frames::default(),
                Answer::Empty(reply),
            );
        }
        let bytes = file.bytes.clone();
        self.later(Box::new(move || {
            match bytes.zero(offset, len, discard, false) {
                Ok(()) => reply.ok(),
                Err(e) => reply.error(errno(&e)),
            }
        }));
    }

    fn sync(&self, ino: INodeNo, reply: ReplyEmpty) {
        match self.file(ino) {
            Ok(file) => self.submit(
                &file.bytes,
                Op::Flush,
                0,
                0,
                Frames::default(),
                Answer::Empty(reply),
            ),
            Err(e) => reply.error(e),
        }
    }
}

/// The first byte at or after `offset` that is data, or that is a hole.
fn seek(device: &dyn BlockDevice, offset: u64, data: bool) -> Option<u64> {
    let mut lba = offset / BLOCK_BYTES as u64;
    let told = |lba, blocks, max| device.extents(lba, blocks, max);
    for extent in extents(Lba(lba), Lba(device.blocks()), told) {
        if extent.mapped == data {
            return Some((lba * BLOCK_BYTES as u64).max(offset));
        }
        lba += extent.blocks;
    }
    None
}

impl Filesystem for Files {
    fn init(&mut self, _from: &From, config: &mut KernelConfig) -> io::Result<()> {
        // Each of these is an optimisation that an older kernel may lack.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_write(TRANSFER_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _from: &From, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turnstile.turn();
        let name = name.to_str().filter(|_| parent.0 == ROOT);
        let found = name.and_then(|name| self.named(name));
        match found.map(|(ino, valid)| (self.attr(ino), valid)) {
            Some((Ok(attr), valid)) => reply.entry(&valid, &attr, Generation(0)),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _from: &From, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.turnstile.turn();
        match self.attr(ino) {
            Ok(attr) => reply.attr(&FOR_EVER, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn setattr(
        &self,
        _from: &From,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _turn = self.turnstile.turn();
        match self.attr(ino) {
            // A volume's size is fixed: opening a disk with O_TRUNC must not truncate it.
            Ok(attr) if size.is_some_and(|s| s != attr.size) => reply.error(Errno::EPERM),
            Ok(attr) => reply.attr(&FOR_EVER, &attr),
            Err(e) => reply.error(e),
        }
    }

    fn open(&self, _from: &From, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turnstile.turn();
        match self.file(ino) {
            Ok(file)
                if file.bytes.device().read_only() && flags.acc_mode() != OpenAccMode::O_RDONLY =>
            {
                reply.error(Errno::EROFS);
            }
            Ok(_) if self.found.open(ino) => {
                reply.opened(
                    FileHandle(0),
                    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
                );
            }
            // The kernel looks the name up again.
            Ok(_) => reply.error(Errno::ESTALE),
            Err(e) => reply.error(e),
        }
    }

    fn release(
        &self,
        _from: &From,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turnstile.turn();
        self.found.closed(ino);
        reply.ok();
    }

    fn read(
        &self,
        _from: &From,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _turn = self.turnstile.turn();
        let file = match self.file(ino) {
            Ok(file) => file,
            Err(e) => return reply.error(e),
        };
        let len =
            u64::from(size.min(TRANSFER_BYTES_MAX)).min(file.bytes.bytes().saturating_sub(offset));
        let blocks = len / BLOCK_BYTES as u64;
        let pool = file.bytes.device().frames();
        if len == 0 {
            reply.data(&[]);
        } else if is_aligned(offset, len) && blocks as usize <= pool.capacity(Quota::Read) {
            let frames = match pool.take(Quota::Read, blocks as usize) {
                Ok(frames) => frames,
                Err(e) => return reply.error(errno(&e)),
            };
            let answer = Answer::Data(reply, len as usize);
            self.submit(
                &file.bytes,
                Op::Read,
                offset / BLOCK_BYTES as u64,
                blocks,
                frames,
                answer,
            );
        } else {
            let bytes = file.bytes.clone();
            self.later(Box::new(move || {
                let mut data = vec![0; len as usize];
                match bytes.read(offset, &mut data) {
                    Ok(()) => reply.data(&data),
                    Err(e) => reply.error(errno(&e)),
                }
            }));
        }
    }

    fn write(
        &self,
        _from: &From,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.turnstile.turn();
        let file = match self.file(ino) {
            Ok(file) => file,
            Err(e) => return reply.error(e),
        };
        if file.bytes.device().read_only() {
            return reply.error(Errno::EROFS);
        }
        let len = (data.len() as u64).min(file.bytes.bytes().saturating_sub(offset));
        if len == 0 {
            return if data.is_empty() {
                reply.written(0)
            } else {
                reply.error(Errno::EFBIG)
            };
        }
        let data = &data[..len as usize];
        // The kernel sends no fsync after such a write to a file with direct I/O. O_SYNC includes this bit.
        let fua = flags.0 & libc::O_DSYNC != 0;
        let blocks = data.len() / BLOCK_BYTES;
        let pool = file.bytes.device().frames();
        if is_aligned(offset, len) && blocks <= pool.capacity(Quota::Write) {
            let lba = offset / BLOCK_BYTES as u64;
            let mut frames = match pool.take(Quota::Write, blocks) {
                Ok(frames) => frames,
                Err(e) => {
                    file.bytes.device().refused(Lba(lba), blocks as u64, &e);
                    return reply.error(errno(&e));
                }
            };
            for (i, block) in data.chunks_exact(BLOCK_BYTES).enumerate() {
                frames.block_mut(i).copy_from_slice(block);
            }
            let (op, answer) = (Op::Write { fua }, Answer::Written(reply, len as u32));
            self.submit(&file.bytes, op, lba, blocks as u64, frames, answer);
        } else {
            let (bytes, data) = (file.bytes.clone(), data.to_vec());
            self.later(Box::new(move || match bytes.write(offset, &data, fua) {
                Ok(()) => reply.written(data.len() as u32),
                Err(e) => reply.error(errno(&e)),
            }));
        }
    }

    fn flush(
        &self,
        _from: &From,
        ino: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turnstile.turn();
        self.sync(ino, reply);
    }

    fn fsync(
        &self,
        _from: &From,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turnstile.turn();
        self.sync(ino, reply);
    }

    fn fallocate(
        &self,
        _from: &From,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turnstile.turn();
        let end = offset.saturating_add(length);
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            libc::FALLOC_FL_PUNCH_HOLE => self.zero(ino, offset, length, true, reply),
            libc::FALLOC_FL_ZERO_RANGE => self.zero(ino, offset, length, false, reply),
            // Space is allocated when data arrives, so within the size there is nothing to do.
            0 => match self.file(ino) {
                Ok(file) if end <= file.bytes.bytes() => reply.ok(),
                Ok(_) => reply.error(Errno::EFBIG),
                Err(e) => reply.error(e),
            },
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn lseek(
        &self,
        _from: &From,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.turnstile.turn();
        let file = match self.file(ino) {
            Ok(file) => file,
            Err(e) => return reply.error(e),
        };
        let size = file.bytes.bytes();
        let Some(offset) = u64::try_from(offset).ok().filter(|&o| o < size) else {
            return reply.error(Errno::ENXIO);
        };
        let wanted = match whence {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return reply.error(Errno::EINVAL),
        };
        let bytes = file.bytes.clone();
        // In the worst case this examines the whole map.
        self.later(Box::new(move || {
            match seek(&**bytes.device(), offset, wanted) {
                Some(found) => reply.offset(found as i64),
                None if wanted => reply.error(Errno::ENXIO),
                // There is always a hole at the end.
                None => reply.offset(size as i64),
            }
        }));
    }

    fn readdir(
        &self,
        _from: &From,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let _turn = self.turnstile.turn();
        if ino.0 != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let dots = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
        ]
        .into_iter();
        let files = self
            .files
            .iter()
            .enumerate()
            .map(|(i, f)| (FIRST + i as u64, FileType::RegularFile, &*f.name));
        for (i, (ino, kind, name)) in dots.chain(files).enumerate().skip(offset as usize) {
            if reply.add(INodeNo(ino), i as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _from: &From, _ino: INodeNo, reply: ReplyStatfs) {
        let _turn = self.turnstile.turn();
        let blocks = self.files.iter().map(|f| f.bytes.device().blocks()).sum();
        reply.statfs(
            blocks,
            0,
            0,
            self.files.len() as u64,
            0,
            BLOCK_BYTES as u32,
            255,
            BLOCK_BYTES as u32,
        );
    }
}
