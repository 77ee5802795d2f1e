//! An engine whose medium is instant and holds nothing, and an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_core::addr::{Buf, EffectId, Lba, Nanos, RequestId};
use vellum_core::engine::{Buffers, Engine, Options};
use vellum_core::seam::{Digest, Effect, Input, Outcome, Payload};

/// Counts calls.
pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// How many allocations there were so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(ptr, layout, new) }
    }
}

/// Client buffers: as many as the device has by default (64 MiB).
const BUFS: u32 = 16_384;
/// The collector's.
const COLLECTOR_BUFS: u32 = 256;

/// An engine over a medium that answers everything at once.
pub struct Idle {
    pub engine: Engine,
    pub logical_blocks: u64,
    pub usable_blocks: u32,
    /// The CRC of what is in each block of the medium, and in each buffer.
    medium: Vec<u32>,
    bufs: Vec<u32>,
    free: Vec<u32>,
    queue: VecDeque<Effect>,
    header: Vec<u8>,
    answered: bool,
    now: u64,
}

impl Idle {
    /// Writes one block.
    pub fn write(&mut self, lba: u64) {
        let Some(buf) = self.free.pop() else { panic!("the core keeps every buffer") };
        let crc = (lba as u32).wrapping_mul(0x9e37_79b9) ^ self.now as u32;
        self.bufs[buf as usize] = crc;
        let digest = Digest { crc, weak: u64::from(crc), zero: false };
        self.answered = false;
        self.now += 400;
        let blocks = [Payload { buf: Buf(buf), digest }];
        self.engine.handle(Nanos(self.now), Input::Write { id: RequestId(0), lba: Lba(lba), blocks: &blocks, fua: false });
        self.run();
        assert!(self.answered, "an instant medium, and a write waits");
    }

    fn run(&mut self) {
        loop {
            while let Some(effect) = self.engine.poll_effect() {
                if let Effect::Release { buf } = effect {
                    self.free.push(buf.0);
                } else {
                    self.queue.push_back(effect);
                }
            }
            while let Some(reply) = self.engine.poll_reply() {
                assert!(reply.result.is_ok(), "{:?}", reply.result);
                self.answered = true;
            }
            let Some(effect) = self.queue.pop_front() else { return };
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::WriteChunk { id, at, .. } => {
                self.engine.encode(id, &mut self.header[..4096]);
                for (to, buf) in self.medium[at.0 as usize + 1..].iter_mut().zip(self.engine.chunk_bufs(id)) {
                    *to = self.bufs[buf.0 as usize];
                }
                self.done(id, Outcome::Ok);
            }
            Effect::WriteMeta { id, blocks, .. } => {
                let bytes = blocks as usize * 4096;
                if self.header.len() < bytes {
                    self.header.resize(bytes, 0);
                }
                self.engine.encode(id, &mut self.header[..bytes]);
                self.done(id, Outcome::Ok);
            }
            Effect::Sync { id } | Effect::Erase { id, .. } => self.done(id, Outcome::Ok),
            Effect::Gather { id, at, blocks, to } => {
                let range = at.0 as usize..at.0 as usize + blocks as usize;
                self.bufs[to.0 as usize..][..blocks as usize].copy_from_slice(&self.medium[range.clone()]);
                self.now += 1;
                self.engine.handle(Nanos(self.now), Input::Done { id, outcome: Outcome::Crcs(&self.medium[range]) });
            }
            other => panic!("nobody asked for {other:?}"),
        }
    }

    fn done(&mut self, id: EffectId, outcome: Outcome<'_>) {
        self.engine.handle(Nanos(self.now), Input::Done { id, outcome });
    }
}
