//! The thread that describes requests and writes the trace.

use crate::classes::Classes;
use crate::describe::Describer;
use crate::limits::{FLUSH_AFTER, LOOK_QUIET, QUEUE_BYTES_BUSY, ROOM_BYTES};
use crate::logs::JBD2_MAGIC;
use crate::queue::{Job, Next, Queue};
use crate::state::{Counts, OnEvent, count};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::block::{BlockDevice, Op};
use vellum_trace::{Class, Entry, Op as TracedOp, Request, TraceError, Writer};

/// Niceness of this thread.
const NICE: i32 = 10;

/// What the thread needs.
pub(crate) struct Thread {
    pub device: Arc<dyn BlockDevice>,
    pub queue: Arc<Queue>,
    pub counts: Arc<Counts>,
    pub writer: Writer<File>,
    pub file: File,
    pub describer: Describer,
    pub on_event: OnEvent,
}

/// Why recording ended early.
enum Trouble {
    Trace(TraceError),
    NoRoom,
}

impl From<TraceError> for Trouble {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

impl Thread {
    pub fn run(mut self) {
        give_way();
        let result = self.record();
        let counts = Arc::clone(&self.counts);
        let why = match result {
            Ok(()) => {
                let finished = self.writer.finish();
                let synced = finished.and_then(|file| {
                    let failed = |source| TraceError::Io { offset: 0, source };
                    file.sync_all().map_err(failed)?;
                    // The last frames are written only now.
                    let bytes = file.metadata().map_err(failed)?.len();
                    counts.bytes.store(bytes, Ordering::Relaxed);
                    Ok(())
                });
                match synced {
                    Ok(()) => return,
                    Err(error) => error.to_string(),
                }
            }
            Err(Trouble::Trace(error)) => error.to_string(),
            Err(Trouble::NoRoom) => {
                let least = ROOM_BYTES >> 20;
                format!("less than {least} MiB are left on its disk")
            }
        };
        self.queue.abandon();
        (self.on_event)(&format!(
            "recording has ended: {why}. The volume goes on; what is recorded can be read"
        ));
        *counts.ended.lock() = Some(why);
    }

    /// Records until the queue ends.
    fn record(&mut self) -> Result<(), Trouble> {
        let mut classes = Classes::default();
        classes.look(&*self.device);
        let journals = |classes: &Classes| Entry::Journals(classes.journals().to_vec());
        self.push(&journals(&classes))?;
        let mut flushed = Instant::now();
        loop {
            match self.queue.next(LOOK_QUIET) {
                Next::Job(job, behind) => self.job(&job, behind, &mut classes)?,
                Next::Nothing => {}
                Next::End(lost) => {
                    if lost > 0 {
                        self.push(&Entry::Lost(lost))?;
                    }
                    return Ok(());
                }
            }
            if classes.is_due() && classes.look(&*self.device) {
                self.push(&journals(&classes))?;
            }
            if flushed.elapsed() >= FLUSH_AFTER {
                flushed = Instant::now();
                self.writer.flush()?;
                if room(&self.file).is_some_and(|room| room < ROOM_BYTES) {
                    return Err(Trouble::NoRoom);
                }
            }
            let bytes = self.writer.bytes();
            self.counts.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    fn push(&mut self, entry: &Entry) -> Result<(), Trouble> {
        Ok(self.writer.push(entry)?)
    }

    fn job(&mut self, job: &Job, behind: usize, classes: &mut Classes) -> Result<(), Trouble> {
        if job.lost > 0 {
            classes.missed();
            self.push(&Entry::Lost(job.lost))?;
        }
        let writes = matches!(job.op, Op::Write { .. });
        let sizes = behind < QUEUE_BYTES_BUSY;
        if writes && !sizes {
            count(&self.counts.without_sizes);
        }
        let (blocks, _) = job.bytes.as_chunks::<BLOCK_BYTES>();
        let mut contents = Vec::with_capacity(blocks.len());
        for (lba, block) in (job.lba..).zip(blocks) {
            let class = match classes.of(lba) {
                Class::Journal if !block.starts_with(&JBD2_MAGIC) => Class::Copy,
                class => class,
            };
            contents.push(self.describer.describe(lba, block, class, sizes));
            classes.written(lba, block);
        }
        let committed = classes.committed(job.lba, blocks);
        if writes && blocks.is_empty() {
            classes.missed();
        }
        if !matches!(job.op, Op::Read | Op::Flush) && blocks.is_empty() {
            classes.covered(job.lba, job.blocks);
            // A discard may be as long as the disk, but no more than this many versions are kept.
            let lbas = job.lba..job.lba + job.blocks.min(crate::limits::VERSIONS as u64);
            lbas.for_each(|lba| self.describer.forget(lba));
        }
        count(&self.counts.requests);
        self.push(&Entry::Request(Request {
            at: job.at,
            op: match job.op {
                Op::Read => TracedOp::Read,
                Op::Write { fua } => TracedOp::Write { fua },
                Op::Flush => TracedOp::Flush,
                Op::Discard { fua } => TracedOp::Discard { fua },
                Op::WriteZeroes { fua } => TracedOp::WriteZeroes { fua },
            },
            lba: job.lba,
            blocks: match job.op {
                Op::Flush => 0,
                _ => job.blocks,
            },
            contents,
            committed,
        }))
    }
}

/// Lets the threads that serve requests run first where processors are short.
fn give_way() {
    // SAFETY: no pointers; 0 is the calling thread. If it is refused, the thread goes on as it is.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Bytes that the file's file system still has for this user; none if it does not say.
fn room(file: &File) -> Option<u64> {
    // SAFETY: a zeroed struct is a valid one to be filled, and the descriptor is open.
    let (answer, stats) = unsafe {
        let mut stats: libc::statvfs = std::mem::zeroed();
        (libc::fstatvfs(file.as_raw_fd(), &raw mut stats), stats)
    };
    (answer == 0).then(|| stats.f_bavail.saturating_mul(stats.f_frsize))
}
