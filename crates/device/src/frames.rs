//! Frames: the aligned 4 KiB buffers that all blocks travel in, from the socket to the medium.
//!
//! Two quotas of one mapping, for writes and for reads, so that a buffer full of writes that wait for the medium cannot keep
//! reads from being served. Allocation blocks when a quota is empty: that is the back-pressure that a client feels. Frames for
//! writes remember what was written from them, until they are used again (`kept.rs`).
//!
//! A volume whose medium is full, or that is poisoned, takes no writes. It keeps the frames that it could not write, because reads still
//! need them, so no frame for writes may become free for a long time. Then a request for such frames is refused with the reason; it does
//! not wait.

use crate::error::BlockError;
use crate::kept::Kept;
use crate::limits::READ_FRAMES_MIN;
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_core::addr::{BLOCK_BYTES, Buf, Pba};
use vellum_core::limits::CHUNK_DATA_BLOCKS;

/// Which quota of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// For writes: the volume's volatile write cache.
    Write,
    /// For reads in flight.
    Read,
    /// For what the volume itself writes to keep snapshots: clients that wait for it may hold all frames of `Write`.
    Own,
    /// For what the volume itself reads: clients that wait for it, for example while a volume grows, may hold all frames of `Read`.
    OwnRead,
}

/// Frames of [`Quota::Own`]: enough for an open chunk, and for one on its way to the medium.
const OWN_FRAMES: u32 = 2 * CHUNK_DATA_BLOCKS as u32;

/// Frames of [`Quota::OwnRead`]: the volume's own reads need no more.
const OWN_READ_FRAMES: u32 = READ_FRAMES_MIN;

/// The pool.
pub struct FramePool {
    base: *mut u8,
    total: usize,
    /// As much memory again for each write frame: room for its block in fewer bytes.
    sides: *mut u8,
    writes: u32,
    reads: u32,
    free: [Mutex<Free>; 4],
    freed: [Condvar; 4],
    /// Writes that got no frames. Writes that snapshots have no room for are counted elsewhere.
    pub(crate) refused: AtomicU64,
}

/// The free frames of a quota.
struct Free {
    /// Those that keep no block. The last to arrive is used first, because a processor may have it cached.
    empty: Vec<u32>,
    kept: Kept,
    /// Waiting allocations, the first to arrive in front.
    waiting: VecDeque<u64>,
    /// The last number given to a waiting allocation.
    ticket: u64,
    /// Why frames may stay away for long, if they may.
    refusal: Option<BlockError>,
    /// Whether allocations go on waiting in spite of a refusal.
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

    /// Takes `count` frames; that many must be free.
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

// SAFETY: the mapping lives as long as the pool; a frame's bytes are reached only through `Frames`, which owns its numbers, or
// through the volume, which owns those that the core was given.
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
    /// Makes a pool of `writes + reads` frames, with `extra` more at the end that are never handed out (the collector's and the
    /// metadata's). Memory is touched only when used.
    ///
    /// # Errors
    /// When the system has no address space for it.
    pub fn new(writes: u32, reads: u32, extra: u32) -> std::io::Result<Arc<Self>> {
        let writable = writes + OWN_FRAMES;
        let total = (writable + reads + OWN_READ_FRAMES + extra) as usize;
        let base = map_memory(total * BLOCK_BYTES)?;
        let sides = match map_memory(writable as usize * BLOCK_BYTES) {
            Ok(sides) => sides,
            Err(error) => {
                // SAFETY: the mapping was just made, and no one has seen it.
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
                Mutex::new(Free::new(writable + reads, OWN_READ_FRAMES, Kept::new(0))),
            ],
            freed: Default::default(),
            refused: AtomicU64::new(0),
        }))
    }

    /// The largest number of frames that one allocation may take from a quota.
    #[must_use]
    pub fn capacity(&self, quota: Quota) -> usize {
        match quota {
            Quota::Write => self.writes as usize,
            Quota::Read => self.reads as usize,
            Quota::Own => OWN_FRAMES as usize,
            Quota::OwnRead => OWN_READ_FRAMES as usize,
        }
    }

    /// How many frames for writes are in use: no more blocks than that are on their way to the medium, the volume's own included.
    pub(crate) fn being_written(&self) -> u64 {
        let taken = |quota| self.capacity(quota) - self.available(quota);
        (taken(Quota::Write) + taken(Quota::Own)) as u64
    }

    /// Numbers below this one are frames for writes.
    pub(crate) fn writable(&self) -> u32 {
        self.writes + OWN_FRAMES
    }

    /// The first of the frames that are never handed out.
    pub(crate) fn first_extra(&self) -> Buf {
        Buf(self.writable() + self.reads + OWN_READ_FRAMES)
    }

    /// Sets or clears the reason why missing frames for writes may not come back for long.
    pub fn refuse_writes(&self, refusal: Option<BlockError>) {
        for quota in [Quota::Write, Quota::Own] {
            self.free[quota as usize]
                .lock()
                .refusal
                .clone_from(&refusal);
            self.freed[quota as usize].notify_all();
        }
    }

    /// Set while another volume takes over the frames of one that stops: allocations then wait in spite of the old volume's
    /// refusal, because the next one may not refuse them.
    pub(crate) fn await_next(&self, awaited: bool) {
        for quota in [Quota::Write, Quota::Own] {
            let mut free = self.free[quota as usize].lock();
            // Only threads of the stopping volume wait for own frames, and the volume waits for those threads.
            free.patient = awaited && quota == Quota::Write;
            if !awaited {
                free.refusal = None;
            }
        }
    }

    /// The quota that a frame belongs to.
    fn quota_of(&self, id: u32) -> Quota {
        match id {
            _ if id < self.writes => Quota::Write,
            _ if id < self.writable() => Quota::Own,
            _ if id < self.writable() + self.reads => Quota::Read,
            _ => Quota::OwnRead,
        }
    }

    /// How many frames of a quota are free now.
    #[must_use]
    pub fn available(&self, quota: Quota) -> usize {
        self.free[quota as usize].lock().len()
    }

    /// Takes `count` frames of a quota, and waits until that many are free, in order of arrival.
    ///
    /// # Errors
    /// When they are not free and the volume takes no writes: the reason. Frames for reads come back in any case.
    ///
    /// # Panics
    /// When the quota does not have that many frames at all: it would wait for ever.
    pub fn take(self: &Arc<Self>, quota: Quota, count: usize) -> Result<Frames, BlockError> {
        assert!(
            count <= self.capacity(quota),
            "{count} frames of {}",
            self.capacity(quota)
        );
        let (free, freed) = (&self.free[quota as usize], &self.freed[quota as usize]);
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
                    .fetch_add(u64::from(quota == Quota::Write), Relaxed);
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

    /// Takes `count` frames if that many are free now, and no one waits for them.
    #[must_use]
    pub fn try_take(self: &Arc<Self>, quota: Quota, count: usize) -> Option<Frames> {
        let mut free = self.free[quota as usize].lock();
        (free.waiting.is_empty() && free.len() >= count).then(|| self.frames(free.take(count)))
    }

    fn frames(self: &Arc<Self>, ids: SmallVec<[u32; 4]>) -> Frames {
        Frames {
            ids,
            pool: Some(Arc::clone(self)),
        }
    }

    /// Gives frames back.
    ///
    /// It never holds the locks of two quotas: another thread may give frames of the same quotas back in another order.
    pub fn give_back(&self, ids: impl IntoIterator<Item = u32>) {
        let mut held: Option<(Quota, MutexGuard<'_, Free>)> = None;
        let mut gave = [false; 4];
        for id in ids {
            let quota = self.quota_of(id);
            if held.as_ref().is_none_or(|(of, _)| *of != quota) {
                drop(held.take());
            }
            let (_, free) = held.get_or_insert_with(|| (quota, self.free[quota as usize].lock()));
            gave[quota as usize] = true;
            if quota != Quota::Write || !free.kept.put(id) {
                free.empty.push(id);
            }
        }
        // Unlock before waking the waiters, because they would wake only to wait again.
        drop(held);
        for (freed, gave) in self.freed.iter().zip(gave) {
            if gave {
                freed.notify_all();
            }
        }
    }

    /// Notes that these frames have been written to these places, each a block or a part of the page there; their owner still
    /// holds them and will give them back unchanged. Called under the writer's lock, like the next two.
    pub(crate) fn remember(&self, from: impl Iterator<Item = (Buf, Pba, Option<u8>)>) {
        let mut free = self.free[Quota::Write as usize].lock();
        for (Buf(id), at, slot) in from {
            if id < self.writes {
                free.kept.add(id, at.0, slot);
            }
        }
    }

    /// Notes that what is on the medium there is about to change.
    pub(crate) fn forget(&self, at: Pba, blocks: u32) {
        let mut free = self.free[Quota::Write as usize].lock();
        let Free { empty, kept, .. } = &mut *free;
        kept.forget(at.0..at.0 + u64::from(blocks), empty);
    }

    /// True if the block at `at`, or its part `slot`, equals `as_of`; `None` if only a read can tell.
    pub(crate) fn is_same(&self, at: Pba, slot: Option<u8>, as_of: &[u8]) -> Option<bool> {
        let mut free = self.free[Quota::Write as usize].lock();
        let id = free.kept.find(at.0, slot)?;
        // SAFETY: nobody writes into a frame that has an entry; entries are removed under this lock.
        let bytes = unsafe { std::slice::from_raw_parts(self.ptr(Buf(id)), BLOCK_BYTES) };
        let same = bytes == as_of;
        if same {
            free.kept.served(id);
        }
        Some(same)
    }

    /// Returns where a frame's 4096 bytes are.
    #[must_use]
    pub fn ptr(&self, id: Buf) -> *mut u8 {
        assert!((id.0 as usize) < self.total, "frame {id} of {}", self.total);
        // SAFETY: within the mapping, by the assertion.
        unsafe { self.base.add(id.0 as usize * BLOCK_BYTES) }
    }
}

impl FramePool {
    /// Returns where the 4096 bytes beside a frame for writes are; they belong to the frame's owner.
    #[must_use]
    pub(crate) fn side(&self, id: Buf) -> *mut u8 {
        assert!(id.0 < self.writable(), "frame {id} is none for writes");
        // SAFETY: within the mapping, by the assertion.
        unsafe { self.sides.add(id.0 as usize * BLOCK_BYTES) }
    }
}

impl Drop for FramePool {
    fn drop(&mut self) {
        // SAFETY: the mappings made in `new`; no frame is held, because its holder would hold the pool.
        unsafe {
            libc::munmap(self.base.cast(), self.total * BLOCK_BYTES);
            libc::munmap(self.sides.cast(), self.writable() as usize * BLOCK_BYTES);
        }
    }
}

/// Private memory of the process, touched only when used.
fn map_memory(bytes: usize) -> std::io::Result<*mut u8> {
    // SAFETY: an anonymous private mapping; the result is checked. Zero bytes would be an error, so at least one is mapped.
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

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Their numbers, as the core knows them.
    pub fn bufs(&self) -> impl Iterator<Item = Buf> + '_ {
        self.ids.iter().map(|&id| Buf(id))
    }

    /// Gives the frames away without returning them to the pool: the caller owes `give_back` for their numbers.
    pub fn into_bufs(mut self) -> SmallVec<[u32; 4]> {
        std::mem::take(&mut self.ids)
    }

    /// Splits off and returns the frames from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        Self {
            ids: self.ids.drain(at..).collect(),
            pool: self.pool.clone(),
        }
    }

    /// Appends other frames to these.
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

    /// Returns where frame `index` is.
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
mod tests;
