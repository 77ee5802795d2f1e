//! A RAM disk: the simplest device that a front end can be tested on.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockDevice, BlockError, Extent, Op, Replies, Request};
use vellum_device::frames::{FramePool, Frames};

/// Blocks in memory; `None` is unmapped.
pub struct Ram {
    data: Mutex<Vec<Option<Box<[u8; BLOCK_BYTES]>>>>,
    frames: Arc<FramePool>,
    /// How many flushes came.
    pub flushes: AtomicU64,
    /// How many blocks were discarded.
    pub discarded: AtomicU64,
}

impl Ram {
    pub fn new(blocks: usize) -> Arc<Self> {
        Arc::new(Self {
            data: Mutex::new((0..blocks).map(|_| None).collect()),
            frames: FramePool::new(1024, 1024, 0).unwrap(),
            flushes: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
        })
    }

    fn run(&self, request: &mut Request) -> Result<(), BlockError> {
        let mut data = self.data.lock();
        let size = data.len() as u64;
        let (from, to) = (request.lba.0, request.lba.0.saturating_add(request.blocks));
        if to > size {
            return Err(BlockError::OutOfRange {
                lba: from,
                blocks: request.blocks,
                size,
            });
        }
        let range = from as usize..to as usize;
        match request.op {
            Op::Read => {
                for (i, block) in data[range].iter().enumerate() {
                    match block {
                        Some(block) => request.frames.block_mut(i).copy_from_slice(&block[..]),
                        None => request.frames.block_mut(i).fill(0),
                    }
                }
            }
            Op::Write { .. } => {
                for (i, block) in data[range].iter_mut().enumerate() {
                    let mut bytes = Box::new([0; BLOCK_BYTES]);
                    bytes.copy_from_slice(request.frames.block(i));
                    *block = Some(bytes);
                }
                request.frames = Frames::default();
            }
            Op::Flush => {
                self.flushes.fetch_add(1, Ordering::Relaxed);
            }
            Op::Discard { .. } | Op::WriteZeroes { .. } => {
                self.discarded.fetch_add(request.blocks, Ordering::Relaxed);
                data[range].fill_with(|| None);
            }
        }
        Ok(())
    }
}

impl BlockDevice for Ram {
    fn blocks(&self) -> u64 {
        self.data.lock().len() as u64
    }
    fn read_only(&self) -> bool {
        false
    }
    fn frames(&self) -> &Arc<FramePool> {
        &self.frames
    }
    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        for mut request in requests.drain(..) {
            let result = self.run(&mut request);
            replies.complete(request, result);
        }
        replies.flush();
    }
    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        let data = self.data.lock();
        let mut extents: Vec<Extent> = Vec::new();
        for block in &data[lba.0 as usize..(lba.0 + blocks) as usize] {
            let mapped = block.is_some();
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
