//! Byte ranges on a device of whole blocks: read-modify-write for the edges of a 512-byte client's requests.
//!
//! An edge is read, changed and written back, with two consequences. First, it waits, so front ends call it on a thread that may
//! wait. Second, the write-back would undo any whole-block change, from any client, that arrives after the read. So a volume's
//! front ends share one [`ByteDevice`], and all changes go through it:
//!
//! * An edge has exclusive use of its block: it waits for another edge of that block, enters the block into a list, and leaves
//!   when its write is answered.
//! * Whole-block changes share the list while they are being submitted, and wait for edges in their range. The device starts
//!   requests in order, so an edge's read, submitted after its entry, sees every change submitted before.
//!
//! This cannot deadlock: an edge takes its memory before it enters, so a request that waits for it never holds what it needs.

use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::{Arc, Weak};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockDevice, BlockError, Op, Replies, Request, answer_to};
use vellum_device::frames::{Frames, Quota};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The most blocks in one of our requests. The pool bounds it as well.
const SPAN_BLOCKS_MAX: u64 = 64;
/// The most bytes that one request discards or zeroes, as in a request of a kernel: a layout may need memory for each block.
pub const ZERO_BYTES_MAX: u64 = 4 << 30;

/// True if a byte range is whole blocks.
#[must_use]
pub fn is_aligned(offset: u64, len: u64) -> bool {
    offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK)
}

/// A device addressed in bytes. All clones share it.
#[derive(Clone)]
pub struct ByteDevice(Arc<Gated>);

struct Gated {
    device: Arc<dyn BlockDevice>,
    /// Blocks of the edges in progress: at most as many as there are threads for edges.
    edges: RwLock<Vec<u64>>,
    /// Signalled when an edge has left.
    left: Condvar,
    leaving: Mutex<()>,
}

/// A [`ByteDevice`] that may be gone: it keeps nothing open.
#[derive(Clone, Debug)]
pub struct WeakByteDevice(Weak<Gated>);

impl WeakByteDevice {
    /// The device, if somebody still uses it.
    #[must_use]
    pub fn upgrade(&self) -> Option<ByteDevice> {
        self.0.upgrade().map(ByteDevice)
    }
}

impl From<Arc<dyn BlockDevice>> for ByteDevice {
    fn from(device: Arc<dyn BlockDevice>) -> Self {
        Self(Arc::new(Gated {
            device,
            edges: RwLock::default(),
            left: Condvar::new(),
            leaving: Mutex::new(()),
        }))
    }
}

impl<D: BlockDevice + 'static> From<Arc<D>> for ByteDevice {
    fn from(device: Arc<D>) -> Self {
        Self::from(device as Arc<dyn BlockDevice>)
    }
}

impl std::fmt::Debug for ByteDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByteDevice")
            .field("blocks", &self.device().blocks())
            .finish_non_exhaustive()
    }
}

/// A piece of a byte range: a part of one block, or a run of whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    Whole { lba: u64, blocks: u64 },
    Edge { lba: u64, from: usize, to: usize },
}

/// Cuts a byte range at block boundaries, in order.
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
    /// To find it again as long as somebody uses it.
    #[must_use]
    pub fn downgrade(&self) -> WeakByteDevice {
        WeakByteDevice(Arc::downgrade(&self.0))
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.0.device
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.device().blocks() * BLOCK
    }

    /// Submits whole-block requests. Waits while one of them changes the block of an edge in progress.
    pub fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        loop {
            let edges = self.0.edges.read();
            if !edges.iter().any(|&edge| is_in_the_way(requests, edge)) {
                // Under the lock of the list: the read of an edge that enters later is submitted after these requests.
                return self.device().submit(requests, replies);
            }
            drop(edges);
            self.0
                .wait_while(|edges| edges.iter().any(|&edge| is_in_the_way(requests, edge)));
        }
    }

    /// Reads any byte range, synchronously.
    ///
    /// # Errors
    /// The device's error.
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
                    for (lba, blocks) in self.pieces(lba, blocks, Quota::Read) {
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

    /// Writes any byte range, synchronously. With `fua`, it is durable on return.
    ///
    /// # Errors
    /// The device's error. Blocks before the failing one may have been written.
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
                    for (lba, blocks) in self.pieces(lba, blocks, Quota::Write) {
                        let pool = self.device().frames();
                        let taken = pool.take(Quota::Write, blocks as usize);
                        let refused = |why: &_| self.device().refused(Lba(lba), blocks, why);
                        let mut frames = taken.inspect_err(refused)?;
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

    /// Makes any byte range read as zeros, synchronously. Whole blocks give up their space (`discard`) or become
    /// zero entries; edges are written.
    ///
    /// # Errors
    /// The device's error. A part of the range may have been zeroed.
    pub fn zero(&self, offset: u64, len: u64, discard: bool, fua: bool) -> Result<(), BlockError> {
        let whole = if discard {
            Op::Discard { fua }
        } else {
            Op::WriteZeroes { fua }
        };
        spans(offset, len).try_for_each(|span| match span {
            Span::Edge { lba, from, to } => self.change(lba, fua, |block| block[from..to].fill(0)),
            Span::Whole { lba, blocks } => {
                let most = ZERO_BYTES_MAX / BLOCK_BYTES as u64;
                (0..blocks).step_by(most as usize).try_for_each(|at| {
                    let piece = most.min(blocks - at);
                    self.whole(whole, lba + at, piece, Frames::default())
                        .map(drop)
                })
            }
        })
    }

    /// Makes everything acknowledged before durable, synchronously.
    ///
    /// # Errors
    /// The device's error.
    pub fn flush(&self) -> Result<(), BlockError> {
        self.whole(Op::Flush, 0, 0, Frames::default()).map(drop)
    }

    fn pieces(
        &self,
        lba: u64,
        blocks: u64,
        quota: Quota,
    ) -> impl Iterator<Item = (u64, u64)> + use<> {
        let most = (self.device().frames().capacity(quota) as u64).clamp(1, SPAN_BLOCKS_MAX);
        (0..blocks)
            .step_by(most as usize)
            .map(move |at| (lba + at, most.min(blocks - at)))
    }

    fn read_blocks(&self, lba: u64, blocks: u64) -> Result<Frames, BlockError> {
        let frames = self.device().frames().take(Quota::Read, blocks as usize)?;
        wait(Op::Read, lba, blocks, frames, |requests, replies| {
            self.device().submit(requests, replies)
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
        // Memory first, then the turn, and always in this order of the quotas.
        let pool = self.device().frames();
        let refused = |why: &_| self.device().refused(Lba(lba), 1, why);
        let old = pool.take(Quota::Read, 1).inspect_err(refused)?;
        let mut new = pool.take(Quota::Write, 1).inspect_err(refused)?;
        let _turn = self.0.enter(lba);
        let submit = |requests: &mut Vec<_>, replies: &_| self.device().submit(requests, replies);
        let old = wait(Op::Read, lba, 1, old, submit).inspect_err(refused)?;
        new.block_mut(0).copy_from_slice(old.block(0));
        change(new.block_mut(0));
        wait(Op::Write { fua }, lba, 1, new, submit).map(drop)
    }
}

/// True if one of the requests changes this block.
fn is_in_the_way(requests: &[Request], block: u64) -> bool {
    requests.iter().any(|request| {
        !matches!(request.op, Op::Read | Op::Flush)
            && block.wrapping_sub(request.lba.0) < request.blocks
    })
}

impl Gated {
    /// Waits until no other edge uses this block, then enters it.
    fn enter(&self, block: u64) -> Turn<'_> {
        loop {
            let mut edges = self.edges.write();
            if !edges.contains(&block) {
                edges.push(block);
                return Turn { gated: self, block };
            }
            drop(edges);
            self.wait_while(|edges| edges.contains(&block));
        }
    }

    fn wait_while(&self, in_the_way: impl Fn(&[u64]) -> bool) {
        // Held from the check to the wait. An edge that leaves takes it before it signals, so no signal is missed.
        let mut leaving = self.leaving.lock();
        while in_the_way(&self.edges.read()) {
            self.left.wait(&mut leaving);
        }
    }
}

/// An edge in progress.
struct Turn<'a> {
    gated: &'a Gated,
    block: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gated.edges.write().retain(|&edge| edge != self.block);
        drop(self.gated.leaving.lock());
        self.gated.left.notify_all();
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
    let mut asked = vec![Request::new(op, Lba(lba), blocks, frames)];
    answer_to(|replies| submit(&mut asked, replies)).map(|request| request.frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::RamDisk;
    use std::time::Duration;

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

    #[test]
    fn a_part_of_a_block_that_cannot_be_read_is_a_refused_write() {
        let disk = Arc::new(RamDisk::new(8, 4, 4));
        let bytes = ByteDevice::from(Arc::clone(&disk));
        disk.bad.store(3, std::sync::atomic::Ordering::Relaxed);
        bytes.write(3 * 4096 + 512, &[1; 512], false).unwrap_err();
        assert_eq!(*disk.refused.lock(), [(3, 1)]);
    }

    fn write(lba: u64, blocks: u64) -> Vec<Request> {
        let op = Op::WriteZeroes { fua: false };
        vec![Request::new(op, Lba(lba), blocks, Frames::default())]
    }

    #[test]
    fn changes_of_an_edges_block_wait_for_it_and_no_others() {
        let bytes = ByteDevice::from(Arc::new(RamDisk::new(16, 8, 8)));
        let turn = bytes.0.enter(7);
        assert!(!is_in_the_way(&write(8, 8), 7) && !is_in_the_way(&write(0, 7), 7));
        assert!(is_in_the_way(&write(0, 8), 7) && is_in_the_way(&write(7, 1), 7));
        let submit = |mut requests| {
            let bytes = bytes.clone();
            move || answer_to(|replies| bytes.submit(&mut requests, replies)).is_ok()
        };
        assert!(submit(write(8, 2))());
        std::thread::scope(|scope| {
            let late = scope.spawn(submit(write(6, 2)));
            let second = bytes.clone();
            let edge = scope.spawn(move || drop(second.0.enter(7)));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!late.is_finished() && !edge.is_finished());
            drop(turn);
            assert!(late.join().unwrap());
        });
        assert!(bytes.0.edges.read().is_empty());
    }

    /// Two front ends, each with a clone. Every sector has one writer, and none may lose what it wrote.
    #[test]
    fn clones_do_not_undo_each_others_edges() {
        let first = ByteDevice::from(Arc::new(RamDisk::new(4, 32, 32)));
        std::thread::scope(|scope| {
            for owner in 0..8u8 {
                let bytes = first.clone();
                scope.spawn(move || {
                    let at = u64::from(owner) * 512;
                    for turn in 0..300u16 {
                        let mine = [owner ^ turn as u8; 512];
                        bytes.write(at, &mine, false).unwrap();
                        let mut read = [0; 512];
                        bytes.read(at, &mut read).unwrap();
                        assert!(read == mine, "owner {owner}, turn {turn}");
                    }
                });
            }
        });
    }
}
