//! Frames: the aligned 4 KiB buffers that all blocks travel in, from the socket to the medium.
//!
//! Two shares of one mapping, for writes and for reads, so that a buffer full of writes that wait for
//! the medium cannot keep reads from being served. Allocation blocks when a share is empty: that is the
//! back-pressure which a client feels. Frames for writes remember what was written from them, until they are
//! used again (`kept.rs`).
//!
//! While a volume takes no writes (its medium is full, or it is poisoned) it keeps the frames that it could not write,
//! for readers, and the share for writes may be empty for long: who wants some is told why, not kept waiting.

use crate::block::BlockError;
use crate::kept::Kept;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_core::addr::{BLOCK_BYTES, Buf, Pba};
use vellum_core::limits::CHUNK_DATA_BLOCKS;

/// Which share of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// For writes: the volume's volatile write cache.
    Write,
    /// For reads in flight.
    Read,
    /// For what the volume itself writes to keep snapshots: clients that wait for it hold all others, maybe.
    Own,
}

/// Frames of [`Share::Own`]: what an open chunk can hold, which waits for more, and as much on its way to the medium.
const OWN_FRAMES: u32 = 2 * CHUNK_DATA_BLOCKS as u32;

/// The pool.
pub struct FramePool {
    base: *mut u8,
    total: usize,
    /// Of each frame for writes as much again, for the block in fewer bytes.
    sides: *mut u8,
    writes: u32,
    reads: u32,
    free: [Mutex<Free>; 3],
    freed: [Condvar; 3],
    /// Writes that got none. Whoever keeps what is written over counts by itself.
    pub(crate) refused: AtomicU64,
}

/// The frames of a share that nobody holds.
struct Free {
    /// Those that are nothing else; the last to come goes first, as a processor may have it cached.
    empty: Vec<u32>,
    kept: Kept,
    /// Who waits for some, the first to come in front.
    waiting: VecDeque<u64>,
    /// The last number given to one who waits.
    ticket: u64,
    /// Why no more may come back for long.
    refusal: Option<BlockError>,
    /// Whether who waits goes on waiting, whatever is refused.
    patient: bool,
}

impl Free {
    fn new(first: u32, count: u32, kept: Kept) -> Self {
        Self {
            empty: (first..first + count).rev().collect(),
            kept,
            waiting: VecDeque::new(),
            ticket: 0,
            refusal: None,
            patient: false,
        }
    }

    fn len(&self) -> usize {
        self.empty.len() + self.kept.len()
    }

    /// Takes `count` frames, of which there are as many.
    fn take(&mut self, count: usize) -> SmallVec<[u32; 4]> {
        let keep = self.empty.len().saturating_sub(count);
        let mut ids: SmallVec<[u32; 4]> = self.empty.drain(keep..).rev().collect();
        while ids.len() < count
            && let Some(id) = self.kept.take()
        {
            ids.push(id);
        }
        ids
    }
}

// SAFETY: the mapping lives as long as the pool; a frame's bytes are reached only through `Frames`, which
// owns its numbers, or through the volume, which owns those that the core was given.
unsafe impl Send for FramePool {}
// SAFETY: as above; the free lists are behind mutexes.
unsafe impl Sync for FramePool {}

impl std::fmt::Debug for FramePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FramePool")
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

impl FramePool {
    /// A pool of `writes + reads` frames, with `extra` more at the end that are never handed out
    /// (the collector's and the metadata's). Memory is touched only when used.
    ///
    /// # Errors
    /// When the system has no address space for it.
    pub fn new(writes: u32, reads: u32, extra: u32) -> std::io::Result<Arc<Self>> {
        let writable = writes + OWN_FRAMES;
        let total = (writable + reads + extra) as usize;
        let base = map_memory(total * BLOCK_BYTES)?;
        let sides = match map_memory(writable as usize * BLOCK_BYTES) {
            Ok(sides) => sides,
            Err(error) => {
                // SAFETY: the mapping just made, which nobody has seen.
                unsafe { libc::munmap(base.cast(), total * BLOCK_BYTES) };
                return Err(error);
            }
        };
        Ok(Arc::new(Self {
            base,
            total,
            sides,
            writes,
            reads,
            free: [
                Mutex::new(Free::new(0, writes, Kept::new(writes))),
                Mutex::new(Free::new(writable, reads, Kept::new(0))),
                Mutex::new(Free::new(writes, OWN_FRAMES, Kept::new(0))),
            ],
            freed: [Condvar::new(), Condvar::new(), Condvar::new()],
            refused: AtomicU64::new(0),
        }))
    }

    /// The largest number of frames one allocation may ask of a share.
    #[must_use]
    pub fn capacity(&self, share: Share) -> usize {
        match share {
            Share::Write => self.writes as usize,
            Share::Read => self.reads as usize,
            Share::Own => OWN_FRAMES as usize,
        }
    }

    /// Numbers below this one are frames for writes.
    pub(crate) fn writable(&self) -> u32 {
        self.writes + OWN_FRAMES
    }

    /// The first of the frames that are never handed out.
    pub(crate) fn first_extra(&self) -> Buf {
        Buf(self.writable() + self.reads)
    }

    /// Why frames for writes that are not there may not come back for long, if so.
    pub fn refuse_writes(&self, refusal: Option<BlockError>) {
        for share in [Share::Write, Share::Own] {
            self.free[share as usize]
                .lock()
                .refusal
                .clone_from(&refusal);
            self.freed[share as usize].notify_all();
        }
    }

    /// While another volume takes the place of the one that has these frames: who waits for some goes on waiting, whatever the one
    /// that stops refuses. What it refused is not the next one's.
    pub(crate) fn await_next(&self, awaited: bool) {
        let mut free = self.free[Share::Write as usize].lock();
        free.patient = awaited;
        if !awaited {
            free.refusal = None;
        }
    }

    /// How many frames of a share are free now.
    #[must_use]
    pub fn available(&self, share: Share) -> usize {
        self.free[share as usize].lock().len()
    }

    /// Takes `count` frames of a share, waiting until there are as many; who came first is served first.
    ///
    /// # Errors
    /// When there are not, and the volume takes no writes: why. Those for reads come back in any case.
    ///
    /// # Panics
    /// When the share has not so many frames at all: it would wait for ever.
    pub fn take(self: &Arc<Self>, share: Share, count: usize) -> Result<Frames, BlockError> {
        assert!(
            count <= self.capacity(share),
            "{count} frames of {}",
            self.capacity(share)
        );
        let (free, freed) = (&self.free[share as usize], &self.freed[share as usize]);
        let mut free = free.lock();
        if free.waiting.is_empty() && free.len() >= count {
            return Ok(self.frames(free.take(count)));
        }
        free.ticket += 1;
        let mine = free.ticket;
        free.waiting.push_back(mine);
        let taken = loop {
            if free.waiting.front() == Some(&mine) && free.len() >= count {
                break Ok(self.frames(free.take(count)));
            }
            if let Some(refusal) = free.refusal.as_ref().filter(|_| !free.patient) {
                self.refused
                    .fetch_add(u64::from(share == Share::Write), Relaxed);
                break Err(refusal.clone());
            }
            freed.wait(&mut free);
        };
        free.waiting.retain(|&waiting| waiting != mine);
        let next = !free.waiting.is_empty() && free.len() > 0;
        drop(free);
        if next {
            freed.notify_all();
        }
        taken
    }

    /// Takes `count` frames if there are as many now, and nobody waits for them.
    #[must_use]
    pub fn try_take(self: &Arc<Self>, share: Share, count: usize) -> Option<Frames> {
        let mut free = self.free[share as usize].lock();
        (free.waiting.is_empty() && free.len() >= count).then(|| self.frames(free.take(count)))
    }

    fn frames(self: &Arc<Self>, ids: SmallVec<[u32; 4]>) -> Frames {
        Frames {
            ids,
            pool: Some(Arc::clone(self)),
        }
    }

    /// Gives frames back.
    pub fn give_back(&self, ids: impl IntoIterator<Item = u32>) {
        let (mut writes, mut reads, mut own) = (None, None, None);
        for id in ids {
            if id < self.writes {
                let free = writes.get_or_insert_with(|| self.free[0].lock());
                if !free.kept.put(id) {
                    free.empty.push(id);
                }
            } else if id < self.writable() {
                let free = own.get_or_insert_with(|| self.free[2].lock());
                free.empty.push(id);
            } else {
                let free = reads.get_or_insert_with(|| self.free[1].lock());
                free.empty.push(id);
            }
        }
        // Unlocked before anyone is woken, or they would wake to wait again.
        let gave = [
            writes.take().is_some(),
            reads.take().is_some(),
            own.take().is_some(),
        ];
        for (freed, gave) in self.freed.iter().zip(gave) {
            if gave {
                freed.notify_all();
            }
        }
    }

    /// These frames have been written to these places, each a block or a part of the page there; their owner
    /// still holds them and will give them back unchanged. Under the lock of whoever writes, as all three of these.
    pub(crate) fn remember(&self, from: impl Iterator<Item = (Buf, Pba, Option<u8>)>) {
        let mut free = self.free[Share::Write as usize].lock();
        for (Buf(id), at, slot) in from {
            if id < self.writes {
                free.kept.add(id, at.0, slot);
            }
        }
    }

    /// What is on the medium there is about to change.
    pub(crate) fn forget(&self, at: Pba, blocks: u32) {
        let mut free = self.free[Share::Write as usize].lock();
        let Free { empty, kept, .. } = &mut *free;
        kept.forget(at.0..at.0 + u64::from(blocks), empty);
    }

    /// Whether the block at `at`, or in that part of it, is the same as that of a frame which the caller holds; `None` if that is not
    /// known without reading it.
    pub(crate) fn is_same(&self, at: Pba, slot: Option<u8>, as_of: &[u8]) -> Option<bool> {
        let mut free = self.free[Share::Write as usize].lock();
        let id = free.kept.find(at.0, slot)?;
        // SAFETY: nobody writes into a frame that has an entry, before its entry has left under this lock.
        let bytes = unsafe { std::slice::from_raw_parts(self.ptr(Buf(id)), BLOCK_BYTES) };
        let same = bytes == as_of;
        if same {
            free.kept.served(id);
        }
        Some(same)
    }

    /// Where a frame's 4096 bytes are.
    #[must_use]
    pub fn ptr(&self, id: Buf) -> *mut u8 {
        assert!((id.0 as usize) < self.total, "frame {id} of {}", self.total);
        // SAFETY: within the mapping, by the assertion.
        unsafe { self.base.add(id.0 as usize * BLOCK_BYTES) }
    }
}

impl FramePool {
    /// Where the 4096 bytes beside a frame for writes are: its owner's, as the frame is.
    #[must_use]
    pub(crate) fn side(&self, id: Buf) -> *mut u8 {
        assert!(id.0 < self.writable(), "frame {id} is none for writes");
        // SAFETY: within the mapping, by the assertion.
        unsafe { self.sides.add(id.0 as usize * BLOCK_BYTES) }
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        // SAFETY: the mappings made in `new`; nobody holds a frame, for that holds the pool.
        unsafe {
            libc::munmap(self.base.cast(), self.total * BLOCK_BYTES);
            libc::munmap(self.sides.cast(), self.writable() as usize * BLOCK_BYTES);
        }
    }
}

/// Memory of the process's own, touched only when used.
fn map_memory(bytes: usize) -> std::io::Result<*mut u8> {
    // SAFETY: an anonymous private mapping; the result is checked. No bytes would be an error: one then.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes.max(1),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    Ok(base.cast())
}

/// Some frames, owned; given back when dropped.
#[derive(Debug, Default)]
pub struct Frames {
    ids: SmallVec<[u32; 4]>,
    pool: Option<Arc<FramePool>>,
}

impl Frames {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Their numbers, as the core knows them.
    pub fn bufs(&self) -> impl Iterator<Item = Buf> + '_ {
        self.ids.iter().map(|&id| Buf(id))
    }

    /// Gives the frames away without returning them to the pool: whoever takes the numbers owes `give_back`.
    pub fn into_bufs(mut self) -> SmallVec<[u32; 4]> {
        std::mem::take(&mut self.ids)
    }

    /// Those from frame `at` on; the others are left.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        Self {
            ids: self.ids.drain(at..).collect(),
            pool: self.pool.clone(),
        }
    }

    /// Takes others in behind these.
    pub(crate) fn append(&mut self, others: Self) {
        self.pool = self.pool.take().or_else(|| others.pool.clone());
        self.ids.extend(others.into_bufs());
    }

    /// The bytes of frame `index`.
    #[must_use]
    pub fn block(&self, index: usize) -> &[u8] {
        // SAFETY: this frame is ours, and the pool outlives us.
        unsafe { std::slice::from_raw_parts(self.ptr(index), BLOCK_BYTES) }
    }

    /// The bytes of frame `index`, to change.
    #[must_use]
    pub fn block_mut(&mut self, index: usize) -> &mut [u8] {
        // SAFETY: as in `block`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(index), BLOCK_BYTES) }
    }

    /// The bytes as runs of memory: adjacent frames are joined. For vectored socket I/O.
    pub fn runs(&self) -> impl Iterator<Item = (*mut u8, usize)> + '_ {
        let mut index = 0;
        std::iter::from_fn(move || {
            let start = index;
            let ptr = self.ids.get(start).map(|_| self.ptr(start))?;
            index += 1;
            while index < self.ids.len() && self.ids[index] == self.ids[index - 1] + 1 {
                index += 1;
            }
            Some((ptr, (index - start) * BLOCK_BYTES))
        })
    }

    /// Frame `index`, and the bytes beside it, to change.
    pub(crate) fn with_side(&mut self, index: usize) -> (&[u8], &mut [u8]) {
        let (pool, id) = self.frame(index);
        let side = pool.side(id);
        // SAFETY: this frame is ours and so is what is beside it; the two lie apart, and the pool outlives us.
        unsafe {
            (
                std::slice::from_raw_parts(self.ptr(index), BLOCK_BYTES),
                std::slice::from_raw_parts_mut(side, BLOCK_BYTES),
            )
        }
    }

    /// Where frame `index` is.
    pub(crate) fn ptr(&self, index: usize) -> *mut u8 {
        let (pool, id) = self.frame(index);
        pool.ptr(id)
    }

    fn frame(&self, index: usize) -> (&FramePool, Buf) {
        let (Some(pool), Some(&id)) = (&self.pool, self.ids.get(index)) else {
            unreachable!("frame {index} of {}", self.ids.len());
        };
        (pool, Buf(id))
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.give_back(self.ids.drain(..));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_apart_and_frames_come_back() {
        let pool = FramePool::new(8, 4, 2).unwrap();
        assert_eq!(
            (pool.capacity(Share::Write), pool.capacity(Share::Read)),
            (8, 4)
        );
        let mut frames = pool.take(Share::Write, 8).unwrap();
        assert!(pool.try_take(Share::Write, 1).is_none());
        assert_eq!(pool.take(Share::Read, 4).unwrap().len(), 4);
        assert_eq!(
            frames.runs().map(|(_, len)| len).sum::<usize>(),
            8 * BLOCK_BYTES
        );
        frames.block_mut(7).fill(7);
        assert!(frames.block(7).iter().all(|&b| b == 7));
        let ids = frames.into_bufs();
        assert_eq!(pool.available(Share::Write), 0);
        pool.give_back(ids);
        assert_eq!(
            (pool.available(Share::Write), pool.available(Share::Read)),
            (8, 4)
        );
    }

    #[test]
    fn a_written_block_is_known_until_its_frame_is_needed() {
        let pool = FramePool::new(8, 1, 1).unwrap();
        let mut frames = pool.take(Share::Write, 4).unwrap();
        for index in 0..4 {
            frames.block_mut(index).fill(index as u8);
        }
        let block = |fill: u8| [fill; BLOCK_BYTES];
        // Not of the share: the collector's.
        let bufs: Vec<_> = frames.bufs().chain([Buf(9)]).collect();
        let places = (100..).map(|at| (Pba(at), None));
        pool.remember(
            bufs.into_iter()
                .zip(places)
                .map(|(buf, (at, slot))| (buf, at, slot)),
        );
        let known = |at, fill| pool.is_same(Pba(at), None, &block(fill));
        assert_eq!(known(100, 0), Some(true), "still held");
        drop(frames);
        assert_eq!(pool.available(Share::Write), 8);
        assert_eq!((known(101, 1), known(102, 1)), (Some(true), Some(false)));
        assert_eq!((known(104, 0), known(105, 0)), (None, None));
        pool.forget(Pba(102), 2);
        assert_eq!((known(102, 2), known(103, 3)), (None, None));
        assert_eq!(pool.available(Share::Write), 8);
        // Empty ones first.
        let others = pool.take(Share::Write, 6).unwrap();
        assert_eq!((known(100, 0), known(101, 1)), (Some(true), Some(true)));
        assert_eq!(pool.available(Share::Write), 2);
        let last = pool.try_take(Share::Write, 2).unwrap();
        assert_eq!((known(100, 0), known(101, 1)), (None, None));
        drop((others, last));
        assert_eq!(pool.available(Share::Write), 8);
    }

    #[test]
    #[should_panic(expected = "frame 0 of 0")]
    fn no_frames_have_no_bytes() {
        let _ = Frames::default().block(0);
    }

    #[test]
    fn a_taker_waits_until_there_are_enough() {
        let pool = FramePool::new(4, 4, 0).unwrap();
        let first = pool.take(Share::Read, 3).unwrap();
        let other = Arc::clone(&pool);
        let waiter = std::thread::spawn(move || other.take(Share::Read, 2).unwrap().len());
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(first);
        assert_eq!(waiter.join().unwrap(), 2);
    }

    #[test]
    fn who_came_first_is_served_first() {
        let pool = FramePool::new(4, 4, 0).unwrap();
        let mut held = vec![pool.take(Share::Write, 1).unwrap()];
        held.push(pool.take(Share::Write, 2).unwrap());
        let (taken, order) = std::sync::mpsc::channel();
        let takers: Vec<_> = [4, 1]
            .into_iter()
            .enumerate()
            .map(|(before, count)| {
                let (theirs, taken) = (Arc::clone(&pool), taken.clone());
                let taker = std::thread::spawn(move || {
                    let frames = theirs.take(Share::Write, count).unwrap();
                    taken.send(frames.len()).unwrap();
                });
                while pool.free[Share::Write as usize].lock().waiting.len() <= before {
                    std::thread::yield_now();
                }
                taker
            })
            .collect();
        // One is free, and not for those behind.
        assert!(order.try_recv().is_err());
        assert!(pool.try_take(Share::Write, 1).is_none());
        held.clear();
        assert_eq!((order.recv().unwrap(), order.recv().unwrap()), (4, 1));
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        assert_eq!(pool.available(Share::Write), 4);
    }

    #[test]
    fn who_waits_while_no_writes_are_taken_is_told_why() {
        let pool = FramePool::new(4, 4, 0).unwrap();
        let held = pool.take(Share::Write, 3).unwrap();
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let pool = Arc::clone(&pool);
                std::thread::spawn(move || pool.take(Share::Write, 2).map(drop))
            })
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(20));
        pool.refuse_writes(Some(BlockError::Full));
        for waiter in waiters {
            assert!(matches!(waiter.join().unwrap(), Err(BlockError::Full)));
        }
        assert!(pool.take(Share::Write, 2).is_err() && pool.refused.load(Relaxed) == 4);
        // What is there is given: a write may still find its answer from the volume itself.
        assert_eq!(pool.take(Share::Write, 1).unwrap().len(), 1);
        assert_eq!(pool.take(Share::Read, 4).unwrap().len(), 4);
        pool.refuse_writes(None);
        let other = Arc::clone(&pool);
        let waiter = std::thread::spawn(move || other.take(Share::Write, 4).map(drop));
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(held);
        waiter.join().unwrap().unwrap();
    }
}
