//! For tests and fuzzing only: a RAM disk, the simplest device for testing a front end, and a word for what was left out.

use parking_lot::Mutex;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockDevice, BlockError, Extent, Op, Replies, Request};
use vellum_device::frames::{FramePool, Frames, Quota};

/// Blocks per reply to an extents request: fewer than requested, as on a large volume.
const LOOK_BLOCKS: u64 = 5;

/// Says what was left out. Not with a macro: the test harness shows its output only if a test fails.
pub fn skipped(what: impl std::fmt::Display) {
    let mut stderr = std::io::stderr();
    let _ = writeln!(stderr, "SKIP: {what}");
}

/// A disk in memory. Blocks that were never written, or were discarded, take no memory.
#[derive(Debug)]
pub struct RamDisk {
    blocks: Mutex<Vec<Option<Box<[u8; BLOCK_BYTES]>>>>,
    size: u64,
    read_only: bool,
    pool: Arc<FramePool>,
    /// Fails every request that touches this block.
    pub bad: AtomicU64,
    /// Writes that would need more mapped blocks than this fail.
    pub room: AtomicU64,
    /// How often it was flushed, by FLUSH or FUA.
    pub flushes: AtomicU64,
    /// Writes that had to be durable when they were answered.
    pub durable_writes: AtomicU64,
    /// Blocks that were discarded, or zeroed by length.
    pub discarded: AtomicU64,
    /// Writes that a front end has refused: the first block, and how many.
    pub refused: Mutex<Vec<(u64, u64)>>,
}

impl RamDisk {
    /// A disk of that many blocks, and pools of that many frames.
    ///
    /// # Panics
    /// When there is no memory for the pool.
    #[must_use]
    #[expect(clippy::expect_used, reason = "for tests only")]
    pub fn new(size: u64, writes: u32, reads: u32) -> Self {
        Self {
            blocks: Mutex::new((0..size).map(|_| None).collect()),
            size,
            read_only: false,
            pool: FramePool::new(writes, reads, 0).expect("memory for the pool"),
            bad: AtomicU64::new(u64::MAX),
            room: AtomicU64::new(u64::MAX),
            flushes: AtomicU64::new(0),
            durable_writes: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
            refused: Mutex::default(),
        }
    }

    /// Takes all memory for writes, and refuses who asks for some, as a volume does whose medium is full.
    ///
    /// # Errors
    /// When it does so already.
    pub fn without_memory(&self) -> Result<Frames, BlockError> {
        self.pool.refuse_writes(Some(BlockError::Full));
        self.pool
            .take(Quota::Write, self.pool.capacity(Quota::Write))
    }

    /// True if all frames have been returned.
    #[must_use]
    pub fn all_frames_free(&self) -> bool {
        [Quota::Write, Quota::Read].iter().all(|&quota| {
            self.pool
                .try_take(quota, self.pool.capacity(quota))
                .is_some()
        })
    }

    fn serve(&self, request: &mut Request) -> Result<(), BlockError> {
        let (lba, count) = (request.lba.0, request.blocks);
        let fua = request.op == Op::Flush || request.op.is_fua();
        self.flushes.fetch_add(u64::from(fua), Ordering::Relaxed);
        let durable_write = request.op == Op::Write { fua: true };
        self.durable_writes
            .fetch_add(u64::from(durable_write), Ordering::Relaxed);
        if lba.checked_add(count).is_none_or(|end| end > self.size) {
            return Err(BlockError::OutOfRange {
                lba,
                blocks: count,
                size: self.size,
            });
        }
        let bad = self.bad.load(Ordering::Relaxed);
        if bad >= lba && bad - lba < count {
            return Err(BlockError::Io(format!("block {bad} is bad")));
        }
        let mut blocks = self.blocks.lock();
        if matches!(request.op, Op::Write { .. }) && self.room.load(Ordering::Relaxed) != u64::MAX {
            let mapped = blocks.iter().flatten().count() as u64;
            if mapped + count > self.room.load(Ordering::Relaxed) {
                return Err(BlockError::Full);
            }
        }
        for index in 0..count as usize {
            let block = &mut blocks[lba as usize + index];
            match request.op {
                Op::Read => match block {
                    Some(block) => request.frames.block_mut(index).copy_from_slice(&block[..]),
                    None => request.frames.block_mut(index).fill(0),
                },
                Op::Write { .. } => {
                    block
                        .get_or_insert_with(|| Box::new([0; BLOCK_BYTES]))
                        .copy_from_slice(request.frames.block(index));
                }
                _ => {
                    self.discarded.fetch_add(1, Ordering::Relaxed);
                    *block = None;
                }
            }
        }
        drop(blocks);
        if matches!(request.op, Op::Write { .. }) {
            request.frames = Frames::default();
        }
        Ok(())
    }
}

impl BlockDevice for RamDisk {
    fn blocks(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn frames(&self) -> &Arc<FramePool> {
        &self.pool
    }

    fn refused(&self, lba: Lba, blocks: u64, _: &BlockError) {
        self.refused.lock().push((lba.0, blocks));
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        for mut request in requests.drain(..) {
            let result = self.serve(&mut request);
            replies.complete(request, result);
        }
        replies.flush();
    }

    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        let map = self.blocks.lock();
        let mut extents: Vec<Extent> = Vec::new();
        for at in lba.0..(lba.0 + blocks.min(LOOK_BLOCKS)).min(self.size) {
            let mapped = map[at as usize].is_some();
            let full = extents.len() == max;
            match extents.last_mut() {
                Some(last) if last.mapped == mapped => last.blocks += 1,
                _ if full => break,
                _ => extents.push(Extent { blocks: 1, mapped }),
            }
        }
        extents
    }
}
