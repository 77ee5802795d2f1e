//! The device that clients use while it is recorded.

use crate::describe::Describer;
use crate::queue::Queue;
use crate::state::{Counts, OnEvent, State};
use crate::thread::Thread;
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, BlockError, Extent, Op, Replies, Request};
use vellum_device::frames::FramePool;
use vellum_trace::limits::{DISK_BLOCKS_MAX, REQUEST_BLOCKS_MAX};
use vellum_trace::{Header, Sizes, TraceError, Writer};

/// Why a recording cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be created. An existing file is not overwritten.
    #[error("cannot make the trace {path}")]
    Create {
        /// Its path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Its first bytes cannot be written.
    #[error("cannot write the trace {path}: {source}")]
    Write {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: TraceError,
    },
    /// No key can be drawn, or no thread started.
    #[error("cannot begin to record")]
    System(#[source] std::io::Error),
    /// The disk is larger than a trace can describe.
    #[error("a disk of {blocks} blocks is too large to be recorded")]
    TooLarge {
        /// Its blocks.
        blocks: u64,
    },
}

/// Records the requests to a device; see the crate.
pub struct Recorder {
    device: Arc<dyn BlockDevice>,
    began: Instant,
    queue: Arc<Queue>,
    counts: Arc<Counts>,
    path: PathBuf,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Recorder {
    /// Begins to record the requests to a device into a new file, with the sizes that blocks have in this encoding.
    /// Calls `on_event` when recording ends early.
    ///
    /// # Errors
    /// When it cannot begin.
    pub fn start(
        device: Arc<dyn BlockDevice>,
        path: &Path,
        sizes: Sizes,
        on_event: OnEvent,
    ) -> Result<Arc<Self>, RecordError> {
        let blocks = device.blocks();
        if blocks > DISK_BLOCKS_MAX {
            return Err(RecordError::TooLarge { blocks });
        }
        let (key, id) = (draw::<32>(), draw::<16>());
        let (key, id) = (
            key.map_err(RecordError::System)?,
            id.map_err(RecordError::System)?,
        );
        let create = |source| RecordError::Create {
            path: path.into(),
            source,
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(create)?;
        let header = Header {
            id,
            blocks,
            began: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_nanos() as u64),
            sizes,
        };
        let again = file.try_clone().map_err(create)?;
        let writer = Writer::new(file, &header).map_err(|source| RecordError::Write {
            path: path.into(),
            source,
        })?;
        let (queue, counts) = (Arc::new(Queue::default()), Arc::new(Counts::default()));
        let thread = Thread {
            device: Arc::clone(&device),
            queue: Arc::clone(&queue),
            counts: Arc::clone(&counts),
            writer,
            file: again,
            describer: Describer::new(key, sizes),
            on_event,
        };
        let thread = std::thread::Builder::new()
            .name("record".into())
            .spawn(move || thread.run())
            .map_err(RecordError::System)?;
        Ok(Arc::new(Self {
            device,
            began: Instant::now(),
            queue,
            counts,
            path: path.into(),
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// The state of the recording.
    pub fn state(&self) -> State {
        self.counts.state(self.path.clone())
    }

    /// Records the requests that wait and ends the trace. The device goes on unrecorded.
    pub fn stop(&self) -> State {
        self.queue.end();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        self.state()
    }

    /// True if a device accepts the request. The others are refused by the device, and not recorded.
    fn is_sound(&self, request: &Request) -> bool {
        let end = request.lba.0.checked_add(request.blocks);
        let within = end.is_some_and(|end| end <= self.device.blocks());
        match request.op {
            Op::Flush => true,
            Op::Read | Op::Write { .. } => {
                within && (1..=REQUEST_BLOCKS_MAX).contains(&request.blocks)
            }
            Op::Discard { .. } | Op::WriteZeroes { .. } => within && request.blocks > 0,
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop();
    }
}

impl BlockDevice for Recorder {
    fn blocks(&self) -> u64 {
        self.device.blocks()
    }

    fn read_only(&self) -> bool {
        self.device.read_only()
    }

    fn frames(&self) -> &Arc<FramePool> {
        self.device.frames()
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        let at = self.began.elapsed().as_nanos() as u64;
        for request in requests.iter().filter(|request| self.is_sound(request)) {
            let refused = self.device.read_only() && !matches!(request.op, Op::Read | Op::Flush);
            if !refused {
                self.queue.add(at, request, &self.counts);
            }
        }
        self.device.submit(requests, replies);
    }

    fn refused(&self, lba: Lba, blocks: u64, why: &BlockError) {
        self.device.refused(lba, blocks, why);
    }

    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        self.device.extents(lba, blocks, max)
    }
}

fn draw<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
