//! An engine whose medium is instant and holds nothing, and an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use vellum_core::addr::{Buf, EffectId, Lba, Nanos, Pba, RequestId, Segment};
use vellum_core::engine::{Buffers, Engine, Options};
use vellum_core::format;
use vellum_core::format::geometry::{self, Params};
use vellum_core::format::summary;
use vellum_core::recovery::{Source, Unreadable, recover_within};
use vellum_core::seam::{
    Ack, Against, ChunkBlock, DedupPolicy, Digest, Effect, Hint, Input, Outcome, Packed, Payload,
    Region, Setting,
};
use vellum_core::state::{Nodes, Paging};

/// An allocator that counts its calls.
pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static HELD_BYTES: AtomicU64 = AtomicU64::new(0);

/// The number of allocations so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// The number of bytes allocated now.
#[allow(dead_code, reason = "a test's, and not the benchmark's")]
pub fn held_bytes() -> u64 {
    HELD_BYTES.load(Ordering::Relaxed)
}

/// The seconds that this process has had a core: other work on the machine does not count. Where the kernel does not report that,
/// the seconds since some moment.
pub fn cpu_seconds() -> f64 {
    let spent = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanos = spent.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanos.map_or_else(|| EPOCH.elapsed().as_secs_f64(), |nanos| nanos / 1e9)
}

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        HELD_BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        HELD_BYTES.fetch_add(new as u64, Ordering::Relaxed);
        HELD_BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(ptr, layout, new) }
    }
}

/// Client buffers: as many as the device has by default (64 MiB).
const BUFS: u32 = 16_384;
/// The collector's buffers.
const COLLECTOR_BUFS: u32 = 256;

/// The metadata of the medium, by address: what the engine writes, and where it reads evicted leaves from.
#[derive(Clone, Default)]
struct Metadata {
    blocks: Arc<Mutex<HashMap<u64, Vec<u8>>>>,
    /// How often the engine has read a block.
    reads: Arc<AtomicU64>,
}

impl Metadata {
    fn blocks(&self) -> MutexGuard<'_, HashMap<u64, Vec<u8>>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }
}

impl Nodes for Metadata {
    fn read(&self, at: Pba, block: &mut [u8; 4096]) -> bool {
        self.note_read();
        let blocks = self.blocks();
        let found = blocks.get(&at.0).filter(|bytes| bytes.len() == 4096);
        found.is_some_and(|bytes| {
            block.copy_from_slice(bytes);
            true
        })
    }
}

/// An engine over a medium that answers everything at once.
pub struct Idle {
    pub engine: Engine,
    pub logical_blocks: u64,
    pub usable_blocks: u32,
    /// The CRC of the contents of each block of the medium, and of each buffer.
    medium: Vec<u32>,
    bufs: Vec<u32>,
    free: Vec<u32>,
    queue: VecDeque<Effect>,
    header: Vec<u8>,
    written: Metadata,
    answered: bool,
    /// True if there are pages of parts, which are never read back.
    packs: bool,
    now: u64,
}

impl Idle {
    /// A volume of `logical_blocks` with `over_permille` thousandths more to work in.
    pub fn new(logical_blocks: u64, over_permille: u64) -> Self {
        Self::with_cached_sums(logical_blocks, over_permille, usize::MAX)
    }

    /// Like [`Idle::new`], with the checksums of at most so many segments in memory.
    pub fn with_cached_sums(logical_blocks: u64, over_permille: u64, most: usize) -> Self {
        Self::with(logical_blocks, over_permille, most, None)
    }

    /// Like [`Idle::new`], with bounds for the map that it never comes near.
    #[allow(dead_code, reason = "the benchmark's, and not a test's")]
    pub fn within_bounds(logical_blocks: u64, over_permille: u64) -> Self {
        let leaves = logical_blocks.div_ceil(1024) as usize * 5 / 4;
        Self::with_leaves(logical_blocks, over_permille, leaves)
    }

    /// Like [`Idle::new`], with so many leaves of the map in memory.
    #[allow(dead_code, reason = "a test's, and not the benchmark's")]
    pub fn with_leaves(logical_blocks: u64, over_permille: u64, leaves: usize) -> Self {
        Self::with(logical_blocks, over_permille, usize::MAX, Some(leaves))
    }

    fn with(logical_blocks: u64, over_permille: u64, most: usize, leaves: Option<usize>) -> Self {
        let plan = |medium_blocks| {
            let params = Params {
                medium_blocks,
                logical_blocks: Some(logical_blocks),
                over_provisioning: 70,
                segment_blocks: Some(1024),
                uuid: [1; 16],
                secret: [2; 32],
                sums: format::SumKind::default(),
            };
            geometry::plan(&params).unwrap_or_else(|e| panic!("{e}"))
        };
        // The smallest medium with the requested capacity.
        let wanted = logical_blocks * (1000 + over_permille) / 1000;
        let mut medium_blocks = wanted;
        while plan(medium_blocks).capacity_blocks() < wanted {
            medium_blocks += 1024;
        }
        let superblock = plan(medium_blocks);
        let mut written = HashMap::new();
        format::blank(&superblock, crc32c::crc32c, &mut |at, bytes| {
            written.extend(
                bytes
                    .chunks_exact(4096)
                    .enumerate()
                    .map(|(i, b)| (at.0 + i as u64, b.to_vec())),
            );
        });
        let source = &mut Fresh(written);
        let written = Metadata::default();
        let paging = leaves.map(|leaves| Paging::new(Arc::new(written.clone()), leaves));
        let mut recovered = recover_within(source, medium_blocks, crc32c::crc32c, paging)
            .unwrap_or_else(|e| panic!("{e}"));
        recovered.superblock.begin_life(recovered.log_end());
        let buffers = Buffers {
            first: Buf(BUFS),
            count: COLLECTOR_BUFS,
        };
        let options = Options {
            cached_sums: most.min(superblock.segment_count() as usize + 8),
            ..Options::default()
        };
        Self {
            engine: Engine::new(recovered, buffers, options, crc32c::crc32c),
            logical_blocks,
            usable_blocks: superblock.usable_blocks(),
            medium: vec![0; medium_blocks as usize],
            bufs: vec![0; (BUFS + COLLECTOR_BUFS) as usize],
            free: (0..BUFS).collect(),
            queue: VecDeque::with_capacity(4096),
            header: vec![0; 4096],
            written,
            answered: false,
            packs: false,
            now: 1,
        }
    }

    /// Writes one block, unlike any other.
    pub fn write(&mut self, lba: u64) {
        let content = (lba as u32).wrapping_mul(0x9e37_79b9) ^ self.now as u32;
        self.write_content(lba, content);
    }

    /// Reads a block.
    #[allow(dead_code, reason = "the benchmark's, and not a test's")]
    pub fn read(&mut self, lba: u64) {
        let (id, lba) = (RequestId(0), Lba(lba));
        self.answered = false;
        self.now += 400;
        self.engine
            .handle(Nanos(self.now), Input::Read { id, lba, blocks: 1 });
        self.run();
        assert!(self.answered, "a read of {lba} is answered at once");
    }

    /// Deduplicates from now on.
    pub fn deduplicate(&mut self, policy: DedupPolicy) {
        self.engine
            .handle(Nanos(self.now), Input::Set(Setting::Dedup { policy }));
    }

    /// Announces where journals are from now on.
    #[allow(dead_code, reason = "a test's, and not the benchmark's")]
    pub fn journals(&mut self, regions: &[Region]) {
        self.engine
            .handle(Nanos(self.now), Input::Hint(Hint::Journals { regions }));
    }

    /// Gives the engine any other input.
    #[allow(dead_code, reason = "a test's, and not the benchmark's")]
    pub fn give(&mut self, input: Input<'_>) {
        self.engine.handle(Nanos(self.now), input);
        self.run();
    }

    /// How often the engine has read a block of metadata.
    #[allow(dead_code, reason = "a test's, and not the benchmark's")]
    pub fn metadata_reads(&self) -> u64 {
        self.written.reads.load(Ordering::Relaxed)
    }

    /// The memory that the medium's metadata takes here.
    #[allow(dead_code, reason = "a test's, and not the benchmark's")]
    pub fn metadata_bytes(&self) -> u64 {
        let entry = size_of::<(u64, Vec<u8>)>() + 1;
        let written = self.written.blocks();
        let blocks: usize = written.values().map(Vec::capacity).sum();
        (blocks + entry * written.capacity() * 8 / 7) as u64
    }

    /// Gives the engine the segments' tags, as after a restart.
    #[allow(dead_code, reason = "a test's, and not the benchmark's")]
    pub fn learn(&mut self) {
        let superblock = self.engine.superblock().clone();
        let usable = superblock.usable_blocks();
        for segment in (0..superblock.segment_count()).map(Segment) {
            let at = superblock.segment_start(segment);
            let known = self.engine.unsummarised(segment).map(<[_]>::to_vec);
            let written = self.written.clone();
            let written = written.blocks();
            let summary = written.get(&(at.0 + u64::from(usable)));
            let tags = known.or_else(|| {
                let (signature, count) = (superblock.signature(), usable as usize);
                summary::decode(&signature, segment, count, summary?, crc32c::crc32c).ok()
            });
            let tags = &tags.unwrap_or_default();
            self.engine
                .handle(Nanos(self.now), Input::Hint(Hint::Contents { at, tags }));
        }
    }

    /// Writes one block with the checksum `sum`; other contents have other checksums.
    pub fn write_content(&mut self, lba: u64, sum: u32) {
        self.write_as(lba, sum, None);
    }

    /// The same for a block that can be stored in so many bytes.
    #[allow(dead_code, reason = "a test's, and not the benchmark's")]
    pub fn write_in(&mut self, lba: u64, sum: u32, bytes: NonZeroU16) {
        let packed = Packed {
            len: bytes,
            encoding: 1,
            base: None,
            bucket: None,
        };
        self.packs = true;
        self.write_as(lba, sum, Some(packed));
    }

    fn write_as(&mut self, lba: u64, sum: u32, packed: Option<Packed>) {
        let Some(buf) = self.free.pop() else {
            panic!("the core keeps every buffer")
        };
        self.bufs[buf as usize] = sum;
        let digest = Digest {
            first: sum,
            sum,
            weak: u64::from(sum).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            zero: false,
            packed,
            ..Digest::default()
        };
        self.answered = false;
        self.now += 400;
        let blocks = [Payload {
            buf: Buf(buf),
            digest,
        }];
        self.engine.handle(
            Nanos(self.now),
            Input::Write {
                id: RequestId(0),
                lba: Lba(lba),
                blocks: &blocks,
                ack: Ack::Placed,
            },
        );
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
            let Some(effect) = self.queue.pop_front() else {
                return;
            };
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::WriteChunk { id, at, blocks, .. } => {
                // Parts are never read.
                let mut no_bytes = |_, _, _: &mut [u8]| {};
                for index in (0..blocks as usize - 1).filter(|_| self.packs) {
                    if self.engine.chunk_block(id, index) == ChunkBlock::Page {
                        self.engine
                            .encode_page(id, index, &mut self.header, &mut no_bytes);
                    }
                }
                self.engine
                    .encode_header(id, &mut self.header, &mut no_bytes);
                for (to, buf) in self.medium[at.0 as usize + 1..]
                    .iter_mut()
                    .zip(self.engine.chunk_bufs(id))
                {
                    *to = self.bufs[buf.0 as usize];
                }
                self.done(id, Outcome::Ok);
            }
            Effect::WriteMeta { id, at, blocks, .. } => {
                let mut bytes = self.written.blocks().remove(&at.0).unwrap_or_default();
                bytes.resize(blocks as usize * 4096, 0);
                self.engine.encode(id, &mut bytes);
                self.written.blocks().insert(at.0, bytes);
                self.done(id, Outcome::Ok);
            }
            Effect::ReadMeta { id, at, .. } => {
                self.written.note_read();
                let Some(bytes) = self.written.blocks().remove(&at.0) else {
                    panic!("nothing was written at {at}")
                };
                self.done(id, Outcome::Bytes(&bytes));
                self.written.blocks().insert(at.0, bytes);
            }
            Effect::Read { id, at, blocks, .. } => {
                let range = at.0 as usize..at.0 as usize + blocks as usize;
                let sums = Outcome::Sums(&self.medium[range]);
                self.engine
                    .handle(Nanos(self.now), Input::Done { id, outcome: sums });
            }
            Effect::CopyOut { .. } => {}
            Effect::Sync { id } | Effect::Erase { id, .. } => self.done(id, Outcome::Ok),
            Effect::Gather { id, at, blocks, to } => {
                let range = at.0 as usize..at.0 as usize + blocks as usize;
                self.bufs[to.0 as usize..][..blocks as usize]
                    .copy_from_slice(&self.medium[range.clone()]);
                self.now += 1;
                self.engine.handle(
                    Nanos(self.now),
                    Input::Done {
                        id,
                        outcome: Outcome::Sums(&self.medium[range]),
                    },
                );
            }
            Effect::Compare { id, buf, with } => {
                let other = match with {
                    Against::Buffer(other) => self.bufs[other.0 as usize],
                    Against::Medium(at) => self.medium[at.0 as usize],
                    Against::Part(..) => unreachable!("nothing is packed"),
                };
                let same = self.bufs[buf.0 as usize] == other;
                self.done(id, Outcome::Same(same));
            }
            Effect::Stopped => {}
            other => panic!("nobody asked for {other:?}"),
        }
    }

    fn done(&mut self, id: EffectId, outcome: Outcome<'_>) {
        self.engine
            .handle(Nanos(self.now), Input::Done { id, outcome });
    }
}

/// The few blocks of a new volume.
struct Fresh(HashMap<u64, Vec<u8>>);

impl Source for Fresh {
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable> {
        for (i, out) in bytes.chunks_exact_mut(4096).enumerate() {
            match self.0.get(&(at.0 + i as u64)) {
                Some(block) => out.copy_from_slice(block),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    fn drop_cache(&mut self) -> Result<(), Unreadable> {
        Ok(())
    }
}
