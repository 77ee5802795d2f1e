//! A plain file as a device, with counters: the baseline that a volume is compared with over the same chain.
//!
//! It stands for a bare drive without a translation layer: every block goes to its own address, and a flush is a sync of the
//! file. It uses direct I/O, as the volume's medium does, so that both are charged for what they write.

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockDevice, BlockError, Extent, Op, Replies, Request};
use vellum_device::frames::{FramePool, Frames};
use vellum_device::stats::VolumeStats;

/// Threads that do the file's I/O.
const WORKERS: usize = 4;
/// Frames of each share.
const FRAMES: u32 = 8192;

/// The start of a commit block of an ext4's journal. The journal's place is not known here, so other data that look like a commit block are
/// counted too.
const COMMIT: [u8; 8] = [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 2];

/// Zeros written at once, aligned for direct I/O.
const ZEROS_BYTES: usize = 64 << 10;
#[repr(align(4096))]
struct Zeros([u8; ZEROS_BYTES]);

type Job = (Request, Arc<dyn Replies>);

/// Counters of the traffic.
#[derive(Default)]
struct Counts {
    written: AtomicU64,
    read: AtomicU64,
    flushes: AtomicU64,
    syncs: AtomicU64,
    commits: AtomicU64,
}

struct OpenFile {
    file: File,
    /// The files below it if it is a loop device, locked.
    _below: Vec<vellum_medium::below::Under>,
    counts: Counts,
}

/// A file as a device.
pub struct RawFile {
    shared: Arc<OpenFile>,
    blocks: u64,
    frames: Arc<FramePool>,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

impl RawFile {
    /// Makes a file and fills it with zeros, so that all its space is allocated.
    pub fn create(path: &Path, bytes: u64) -> Result<()> {
        let mut file =
            File::create_new(path).with_context(|| format!("cannot make {}", path.display()))?;
        std::io::copy(&mut std::io::repeat(0).take(bytes), &mut file)
            .and_then(|_| file.sync_all())
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Opens a file, without direct I/O if its file system lacks it.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        // The kernel refuses a block device that is mounted or in use.
        let device = std::fs::metadata(path).is_ok_and(|file| file.file_type().is_block_device());
        let exclusive = if device { libc::O_EXCL } else { 0 };
        let open = |flags| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(flags | exclusive)
                .open(path)
        };
        let file = open(libc::O_DIRECT)
            .or_else(|e| {
                if e.raw_os_error() == Some(libc::EINVAL) {
                    open(0)
                } else {
                    Err(e)
                }
            })
            .with_context(|| format!("cannot open {}", path.display()))?;
        if file.try_lock().is_err() {
            bail!("{} is served by somebody else already", path.display());
        }
        let below = vellum_medium::below::take(&file, path, false)?;
        // The length of a block device is its end.
        let bytes = (&file).seek(SeekFrom::End(0))?;
        let blocks = bytes / BLOCK_BYTES as u64;
        if blocks == 0 {
            bail!(
                "{} has not one block of {BLOCK_BYTES} bytes",
                path.display()
            );
        }
        let shared = Arc::new(OpenFile {
            file,
            _below: below,
            counts: Counts::default(),
        });
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let worker = || {
            let (shared, queue) = (Arc::clone(&shared), Arc::clone(&queue));
            std::thread::Builder::new()
                .name("raw".into())
                .spawn(move || {
                    loop {
                        let job = queue.lock().recv();
                        let Ok((mut request, replies)) = job else {
                            return;
                        };
                        let result = shared.run(&mut request);
                        replies.complete(request, result);
                        replies.flush();
                    }
                })
        };
        let workers = (0..WORKERS)
            .map(|_| worker())
            .collect::<std::io::Result<Vec<_>>>()?;
        let frames = FramePool::new(FRAMES, FRAMES, 0)?;
        Ok(Arc::new(Self {
            shared,
            blocks,
            frames,
            jobs: Mutex::new(Some(jobs)),
            workers: Mutex::new(workers),
        }))
    }

    /// The traffic, in the form of a volume's statistics.
    pub fn stats(&self) -> VolumeStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.shared.counts;
        let (written, syncs) = (get(&counts.written), get(&counts.syncs));
        let mut stats = VolumeStats::default();
        stats.clients.write.bytes = written;
        stats.clients.read.bytes = get(&counts.read);
        stats.clients.flush.requests = get(&counts.flushes);
        (
            stats.medium.written_bytes,
            stats.medium.by_cause.data_bytes,
            stats.medium.syncs,
        ) = (written, written, syncs);
        stats.write_once.policy = "off".to_owned();
        stats.write_once.commits = get(&counts.commits);
        stats.write_amplification = (written > 0).then_some(1.0);
        stats
    }

    /// Stops it: finishes the submitted requests, and syncs the file.
    pub fn stop(&self) -> Result<()> {
        drop(self.jobs.lock().take());
        for worker in self.workers.lock().drain(..) {
            let _ = worker.join();
        }
        Ok(self.shared.file.sync_all()?)
    }
}

impl OpenFile {
    fn zero(&self, offset: u64, bytes: u64) -> std::io::Result<()> {
        let zeros = Zeros([0; ZEROS_BYTES]);
        let mut at = offset;
        while at < offset + bytes {
            let part = (offset + bytes - at).min(ZEROS_BYTES as u64);
            self.file.write_all_at(&zeros.0[..part as usize], at)?;
            at += part;
        }
        Ok(())
    }

    fn run(&self, request: &mut Request) -> Result<(), BlockError> {
        let offset = request.lba.0 * BLOCK_BYTES as u64;
        let bytes = request.blocks * BLOCK_BYTES as u64;
        let io = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::StorageFull => BlockError::Full,
            _ => BlockError::Io(format!("byte {offset} of the file: {e}")),
        };
        let durable = match request.op {
            Op::Read => {
                let mut at = offset;
                for (ptr, len) in request.frames.runs() {
                    // SAFETY: memory of the request's frames, which are ours alone.
                    let run = unsafe { std::slice::from_raw_parts_mut(ptr, len) };
                    self.file.read_exact_at(run, at).map_err(io)?;
                    at += len as u64;
                }
                self.counts.read.fetch_add(bytes, Ordering::Relaxed);
                false
            }
            Op::Write { fua } => {
                let mut at = offset;
                for (ptr, len) in request.frames.runs() {
                    // SAFETY: as above.
                    let run = unsafe { std::slice::from_raw_parts(ptr, len) };
                    self.file.write_all_at(run, at).map_err(io)?;
                    at += len as u64;
                }
                self.counts.written.fetch_add(bytes, Ordering::Relaxed);
                let commits = (0..request.frames.len())
                    .filter(|index| request.frames.block(*index).starts_with(&COMMIT));
                self.counts
                    .commits
                    .fetch_add(commits.count() as u64, Ordering::Relaxed);
                request.frames = Frames::default();
                fua
            }
            Op::Flush => {
                self.counts.flushes.fetch_add(1, Ordering::Relaxed);
                true
            }
            Op::Discard { fua } | Op::WriteZeroes { fua } => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                // SAFETY: a valid descriptor.
                let punched = unsafe {
                    libc::fallocate(self.file.as_raw_fd(), mode, offset as i64, bytes as i64)
                };
                if punched != 0 {
                    let error = std::io::Error::last_os_error();
                    match error.raw_os_error() {
                        // If it cannot be discarded, write zeros: it must read as zeros.
                        Some(libc::EOPNOTSUPP | libc::ENOSYS) => {
                            self.zero(offset, bytes).map_err(io)?
                        }
                        _ => return Err(io(error)),
                    }
                }
                fua
            }
        };
        if durable {
            self.counts.syncs.fetch_add(1, Ordering::Relaxed);
            self.file.sync_data().map_err(io)?;
        }
        Ok(())
    }
}

impl BlockDevice for RawFile {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read_only(&self) -> bool {
        false
    }

    fn frames(&self) -> &Arc<FramePool> {
        &self.frames
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        let jobs = self.jobs.lock();
        for request in requests.drain(..) {
            let end = request.lba.0.checked_add(request.blocks);
            if end.is_none_or(|end| end > self.blocks) {
                let error = BlockError::OutOfRange {
                    lba: request.lba.0,
                    blocks: request.blocks,
                    size: self.blocks,
                };
                replies.complete(request, Err(error));
                continue;
            }
            match &*jobs {
                Some(jobs) => {
                    if let Err(mpsc::SendError((request, replies))) =
                        jobs.send((request, Arc::clone(replies)))
                    {
                        replies.complete(request, Err(BlockError::Stopping));
                    }
                }
                None => replies.complete(request, Err(BlockError::Stopping)),
            }
        }
        replies.flush();
    }

    fn extents(&self, _lba: Lba, blocks: u64, _max: usize) -> Vec<Extent> {
        vec![Extent {
            blocks,
            mapped: true,
        }]
    }
}
