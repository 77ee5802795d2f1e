//! Byte ranges on a device of whole blocks: read-modify-write for the edges of a 512-byte client's requests.
//!
//! An edge is read, changed and written back, with two consequences. It blocks, so front ends call it on a
//! thread that may wait. And a whole-block write that comes between the read and the write-back would be
//! undone by it, so whole-block requests go through the same gate: they share it while they are being
//! submitted, an edge has it to itself. The device starts requests in order, therefore an edge's read sees
//! every write that was submitted before.

use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockDevice, BlockError, Op, Replies, Request};
use vellum_device::frames::{Frames, Share};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The most blocks that one request of ours carries; also bounded by the pool.
const SPAN_BLOCKS_MAX: u64 = 64;

/// Whether a byte range is whole blocks.
#[must_use]
pub fn is_aligned(offset: u64, len: u64) -> bool {
    offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK)
}

/// A device, seen in bytes.
pub struct ByteDevice {
    device: Arc<dyn BlockDevice>,
    gate: RwLock<()>,
}

impl std::fmt::Debug for ByteDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByteDevice")
            .field("blocks", &self.device.blocks())
            .finish_non_exhaustive()
    }
}

/// A piece of a byte range that lies in one block, or a run of whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    Whole { lba: u64, blocks: u64 },
    Edge { lba: u64, from: usize, to: usize },
}

/// Cuts a byte range at block borders, in order.
fn spans(offset: u64, len: u64) -> impl Iterator<Item = Span> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (lba, from) = (at / BLOCK, at % BLOCK);
        if from == 0 && end - at >= BLOCK {
            let blocks = (end - at) / BLOCK;
            at += blocks * BLOCK;
            return Some(Span::Whole { lba, blocks });
        }
        let to = (end - lba * BLOCK).min(BLOCK);
        at = lba * BLOCK + to;
        Some(Span::Edge {
            lba,
            from: from as usize,
            to: to as usize,
        })
    })
}

impl ByteDevice {
    /// Wraps a device. All of a volume's clients must share one, or their edges may undo each other's writes.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            gate: RwLock::new(()),
        }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.device.blocks() * BLOCK
    }

    /// Submits whole-block requests, past no edge that is being rewritten.
    pub fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        let _shared = self.gate.read();
        self.device.submit(requests, replies);
    }

    /// Reads any byte range; waits for it.
    ///
    /// # Errors
    /// What the device says.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        let mut done = 0;
        for span in spans(offset, bytes.len() as u64) {
            match span {
                Span::Edge { lba, from, to } => {
                    let frames = self.read_blocks(lba, 1)?;
                    let n = to - from;
                    bytes[done..done + n].copy_from_slice(&frames.block(0)[from..to]);
                    done += n;
                }
                Span::Whole { lba, blocks } => {
                    for (lba, blocks) in self.pieces(lba, blocks, Share::Read) {
                        let frames = self.read_blocks(lba, blocks)?;
                        for i in 0..frames.len() {
                            bytes[done..done + BLOCK_BYTES].copy_from_slice(frames.block(i));
                            done += BLOCK_BYTES;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes any byte range; waits for it. With `fua`, it is durable then.
    ///
    /// # Errors
    /// What the device says; blocks before the failing one may have been written.
    pub fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), BlockError> {
        let mut rest = bytes;
        for span in spans(offset, bytes.len() as u64) {
            match span {
                Span::Edge { lba, from, to } => {
                    let (piece, left) = rest.split_at(to - from);
                    rest = left;
                    self.change(lba, fua, |block| block[from..to].copy_from_slice(piece))?;
                }
                Span::Whole { lba, blocks } => {
                    for (lba, blocks) in self.pieces(lba, blocks, Share::Write) {
                        let mut frames = self.device.frames().take(Share::Write, blocks as usize);
                        for i in 0..frames.len() {
                            let (piece, left) = rest.split_at(BLOCK_BYTES);
                            rest = left;
                            frames.block_mut(i).copy_from_slice(piece);
                        }
                        self.whole(Op::Write { fua }, lba, blocks, frames)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes any byte range read as zeros; waits for it. Whole blocks give up their space (`discard`) or
    /// become zero entries; edges are written.
    ///
    /// # Errors
    /// What the device says; a part of the range may have been zeroed.
    pub fn zero(&self, offset: u64, len: u64, discard: bool, fua: bool) -> Result<(), BlockError> {
        let whole = if discard {
            Op::Discard { fua }
        } else {
            Op::WriteZeroes { fua }
        };
        spans(offset, len).try_for_each(|span| match span {
            Span::Edge { lba, from, to } => self.change(lba, fua, |block| block[from..to].fill(0)),
            Span::Whole { lba, blocks } => {
                self.whole(whole, lba, blocks, Frames::default()).map(drop)
            }
        })
    }

    /// Makes everything acknowledged before durable; waits for it.
    ///
    /// # Errors
    /// What the device says.
    pub fn flush(&self) -> Result<(), BlockError> {
        self.whole(Op::Flush, 0, 0, Frames::default()).map(drop)
    }

    fn pieces(
        &self,
        lba: u64,
        blocks: u64,
        share: Share,
    ) -> impl Iterator<Item = (u64, u64)> + use<> {
        let most = (self.device.frames().capacity(share) as u64).clamp(1, SPAN_BLOCKS_MAX);
        (0..blocks)
            .step_by(most as usize)
            .map(move |at| (lba + at, most.min(blocks - at)))
    }

    fn read_blocks(&self, lba: u64, blocks: u64) -> Result<Frames, BlockError> {
        let frames = self.device.frames().take(Share::Read, blocks as usize);
        wait(Op::Read, lba, blocks, frames, |requests, replies| {
            self.device.submit(requests, replies)
        })
    }

    fn whole(&self, op: Op, lba: u64, blocks: u64, frames: Frames) -> Result<Frames, BlockError> {
        wait(op, lba, blocks, frames, |requests, replies| {
            self.submit(requests, replies)
        })
    }

    fn change(
        &self,
        lba: u64,
        fua: bool,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), BlockError> {
        // Memory first, then the gate: who waits at the gate may hold the memory that we would wait for.
        let pool = self.device.frames();
        let (old, mut new) = (pool.take(Share::Read, 1), pool.take(Share::Write, 1));
        let _alone = self.gate.write();
        let submit = |requests: &mut Vec<_>, replies: &_| self.device.submit(requests, replies);
        let old = wait(Op::Read, lba, 1, old, submit)?;
        new.block_mut(0).copy_from_slice(old.block(0));
        change(new.block_mut(0));
        wait(Op::Write { fua }, lba, 1, new, submit).map(drop)
    }
}

/// Submits one request and waits for its answer.
fn wait(
    op: Op,
    lba: u64,
    blocks: u64,
    frames: Frames,
    submit: impl FnOnce(&mut Vec<Request>, &Arc<dyn Replies>),
) -> Result<Frames, BlockError> {
    let waiter = Arc::new(Waiter::default());
    let replies: Arc<dyn Replies> = waiter.clone();
    submit(
        &mut vec![Request {
            tag: 0,
            op,
            lba: Lba(lba),
            blocks,
            frames,
        }],
        &replies,
    );
    let mut slot = waiter.slot.lock();
    loop {
        match slot.take() {
            Some((request, result)) => return result.map(|()| request.frames),
            None => waiter.answered.wait(&mut slot),
        }
    }
}

/// Someone who waits for one answer.
#[derive(Default)]
struct Waiter {
    slot: Mutex<Option<(Request, Result<(), BlockError>)>>,
    answered: Condvar,
}

impl Replies for Waiter {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        *self.slot.lock() = Some((request, result));
        self.answered.notify_one();
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_block_borders() {
        let cut = |offset, len| spans(offset, len).collect::<Vec<_>>();
        assert_eq!(cut(0, 0), []);
        assert_eq!(cut(8192, 8192), [Span::Whole { lba: 2, blocks: 2 }]);
        assert_eq!(
            cut(512, 512),
            [Span::Edge {
                lba: 0,
                from: 512,
                to: 1024
            }]
        );
        assert_eq!(
            cut(3584, 512 + 4096 + 10),
            [
                Span::Edge {
                    lba: 0,
                    from: 3584,
                    to: 4096
                },
                Span::Whole { lba: 1, blocks: 1 },
                Span::Edge {
                    lba: 2,
                    from: 0,
                    to: 10
                }
            ]
        );
    }
}
