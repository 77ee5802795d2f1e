//! A client of a volume for tests: submits, waits, compares.
#![allow(dead_code, reason = "each test binary uses its part")]

use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vellum_core::addr::{BLOCK_BYTES, Lba, Pba};
use vellum_core::format::SumKind;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::{FIELDS, Superblock};
use vellum_core::recovery::rescue::Trust;
use vellum_device::block::{BlockDevice, BlockError, Op, Replies, Request};
use vellum_device::frames::Quota;
use vellum_device::pack::Compression;
use vellum_device::policy::Policy;
use vellum_device::stats::VolumeStats;
use vellum_device::{CreateOptions, OpenOptions, Volume, crc32c};
use vellum_medium::Medium;

pub type Answer = Result<Request, BlockError>;

#[derive(Default)]
pub struct Sink {
    answers: Mutex<HashMap<u64, Answer>>,
    came: Condvar,
    submissions: AtomicU64,
}

impl Replies for Sink {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        let old = self
            .answers
            .lock()
            .insert(request.tag, result.map(|()| request));
        assert!(old.is_none(), "answered twice");
    }

    fn flush(&self) {
        self.came.notify_all();
    }

    /// Every other time, so that each test covers both ways.
    fn lends_thread(&self) -> bool {
        self.submissions.fetch_add(1, Ordering::Relaxed) % 2 == 1
    }
}

impl Sink {
    /// True if an answer is there that nobody has waited for.
    pub fn has(&self, tag: u64) -> bool {
        self.answers.lock().contains_key(&tag)
    }

    pub fn wait(&self, tag: u64) -> Answer {
        let mut answers = self.answers.lock();
        loop {
            if let Some(answer) = answers.remove(&tag) {
                return answer;
            }
            let late = self
                .came
                .wait_for(&mut answers, Duration::from_secs(30))
                .timed_out();
            assert!(!late, "request {tag} was not answered in 30 s");
        }
    }
}

/// One connection.
pub struct Client<D = Volume> {
    pub volume: Arc<D>,
    pub sink: Arc<Sink>,
    replies: Arc<dyn Replies>,
    next: u64,
}

impl<D: BlockDevice> Client<D> {
    pub fn new(volume: &Arc<D>) -> Self {
        let sink = Arc::new(Sink::default());
        let replies: Arc<dyn Replies> = sink.clone();
        Self {
            volume: Arc::clone(volume),
            sink,
            replies,
            next: 0,
        }
    }

    pub fn request(&mut self, op: Op, lba: u64, blocks: u64) -> Request {
        self.try_request(op, lba, blocks).unwrap()
    }

    /// Fails if there is no memory for it, and will be none soon.
    pub fn try_request(&mut self, op: Op, lba: u64, blocks: u64) -> Result<Request, BlockError> {
        self.next += 1;
        let quota = match op {
            Op::Read => Some(Quota::Read),
            Op::Write { .. } => Some(Quota::Write),
            _ => None,
        };
        let take = |quota| self.volume.frames().take(quota, blocks as usize);
        let frames = quota.map(take).transpose()?.unwrap_or_default();
        Ok(Request {
            tag: self.next,
            op,
            lba: Lba(lba),
            blocks,
            frames,
        })
    }

    pub fn write_request(&mut self, lba: u64, fills: &[u64], fua: bool) -> Request {
        self.try_write_request(lba, fills, fua).unwrap()
    }

    fn try_write_request(
        &mut self,
        lba: u64,
        fills: &[u64],
        fua: bool,
    ) -> Result<Request, BlockError> {
        let mut request = self.try_request(Op::Write { fua }, lba, fills.len() as u64)?;
        for (index, &fill) in fills.iter().enumerate() {
            request
                .frames
                .block_mut(index)
                .copy_from_slice(&block_of(fill));
        }
        Ok(request)
    }

    pub fn submit(&self, mut requests: Vec<Request>) -> Vec<u64> {
        let tags = requests.iter().map(|request| request.tag).collect();
        self.volume.submit(&mut requests, &self.replies);
        assert!(requests.is_empty());
        tags
    }

    pub fn call(&mut self, request: Request) -> Answer {
        let tag = request.tag;
        self.submit(vec![request]);
        self.sink.wait(tag)
    }

    pub fn write(&mut self, lba: u64, fills: &[u64]) -> Result<(), BlockError> {
        let request = self.try_write_request(lba, fills, false)?;
        self.call(request).map(drop)
    }

    pub fn read(&mut self, lba: u64, blocks: u64) -> Result<Vec<u64>, BlockError> {
        let request = self.request(Op::Read, lba, blocks);
        self.call(request).map(|request| fills(&request))
    }

    pub fn flush(&mut self) -> Result<(), BlockError> {
        let request = self.request(Op::Flush, 0, 0);
        self.call(request).map(drop)
    }

    pub fn discard(&mut self, lba: u64, blocks: u64) -> Result<(), BlockError> {
        let request = self.request(Op::Discard { fua: false }, lba, blocks);
        self.call(request).map(drop)
    }
}

/// The upper half of a number whose block differs in a few bytes from others of its family.
const ALIKE: u64 = 0xa11c_e000 << 32;

/// The number of a block that is like all others of its family: a short delta if it replaces one of them.
pub fn alike(family: u64, number: u64) -> u64 {
    ALIKE | (family & 0xfff) << 32 | number & 0xffff_ffff
}

/// A block identified by one number; all zeros for 0. How much of it does not repeat depends on the number.
pub fn block_of(fill: u64) -> [u8; BLOCK_BYTES] {
    let family = fill >> 32;
    let seed = match family << 32 & !(0xfff << 32) {
        ALIKE => family,
        _ => fill,
    };
    let mut block = [0; BLOCK_BYTES];
    let mut word = seed;
    let random = [512, 4, 30, 100, 200, 300, 340][seed as usize % 7];
    for bytes in block.chunks_exact_mut(8).take(random) {
        bytes.copy_from_slice(&word.to_le_bytes());
        word = if fill == 0 {
            0
        } else {
            word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1)
        };
    }
    block[..8].copy_from_slice(&fill.to_le_bytes());
    block
}

/// The number that identifies a block; panics on a mixture.
pub fn fill_of(block: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&block[..8]);
    let fill = u64::from_le_bytes(first);
    assert!(block == block_of(fill), "a block is whole");
    fill
}

pub fn fills(request: &Request) -> Vec<u64> {
    (0..request.frames.len())
        .map(|index| fill_of(request.frames.block(index)))
        .collect()
}

pub fn small() -> OpenOptions {
    OpenOptions {
        write_frames: vellum_device::limits::WRITE_FRAMES_MIN,
        read_frames: vellum_device::limits::READ_FRAMES_MIN,
        collector_frames: vellum_device::limits::COLLECTOR_FRAMES_MIN,
        ..OpenOptions::default()
    }
}

pub fn create(medium: &dyn Medium) {
    create_as(medium, Layout::Log);
}

pub fn create_as(medium: &dyn Medium, layout: Layout) {
    let options = CreateOptions {
        segment_blocks: (layout == Layout::Log).then_some(64),
        force: true,
        layout,
        ..CreateOptions::default()
    };
    Volume::create(medium, &options).unwrap();
}

/// A volume whose snapshots can keep so many thousandths of what clients see.
pub fn create_keeping(medium: &dyn Medium, logical_blocks: u64, history: u32) {
    let options = CreateOptions {
        segment_blocks: Some(64),
        logical_blocks: Some(logical_blocks),
        history,
        ..CreateOptions::default()
    };
    Volume::create(medium, &options).unwrap();
}

/// Gives a new volume's superblock other values, as if an older version had made it.
pub fn set_superblock(medium: &dyn Medium, values: &[(&str, u64)]) {
    let mut block = [0; BLOCK_BYTES];
    for mirror in superblock_of(medium).mirrors() {
        medium.read(mirror, &mut block).unwrap();
        let place = |name: &str| {
            let field = FIELDS.iter().find(|field| field.name == name).unwrap();
            field.offset..field.offset + field.size
        };
        for (name, value) in values {
            let field = &mut block[place(name)];
            field.copy_from_slice(&value.to_le_bytes()[..field.len()]);
        }
        let hole = place("crc");
        let around = [&block[..hole.start], &block[hole.end..]];
        let sums = around.map(|bytes| crc32c(bytes).to_le_bytes());
        let sum = crc32c(&sums.concat());
        block[hole].copy_from_slice(&sum.to_le_bytes());
        medium.write(mirror, &block).unwrap();
    }
}

pub fn superblock_of(medium: &dyn Medium) -> Superblock {
    let mut block = [0; BLOCK_BYTES];
    medium.read(Pba(0), &mut block).unwrap();
    Superblock::decode(&block, medium.blocks(), crc32c).unwrap()
}

/// Makes the volume like older ones, whose block sums are CRC32C.
pub fn with_crc_sums(medium: &dyn Medium) {
    // The second feature decides where tables lie.
    let superblock = superblock_of(medium);
    let editions = u64::from(superblock.has_editions());
    let copies = u64::from(superblock.parity_leaves() > 0);
    let open_summaries = u64::from(superblock.open_summary_blocks() > 0);
    let twins = u64::from(superblock.has_twins());
    let free = u64::from(superblock.tells_free_segments());
    let features = 2 * editions + 4 * copies + 8 * open_summaries + 32 * twins + 4096 * free;
    set_superblock(medium, &[("incompatible", features)]);
    assert_eq!(superblock_of(medium).sums(), SumKind::Crc32c);
}

pub fn open(medium: &Arc<dyn Medium>) -> Arc<Volume> {
    Arc::new(Volume::open(Arc::clone(medium), &small()).unwrap())
}

/// Opens what is left of a damaged volume.
pub fn open_read_only(medium: &Arc<dyn Medium>, trust: Trust) -> Arc<Volume> {
    let options = OpenOptions {
        read_only: true,
        trust,
        ..small()
    };
    Arc::new(Volume::open(Arc::clone(medium), &options).unwrap())
}

pub fn open_under(medium: &Arc<dyn Medium>, policy: Policy) -> Arc<Volume> {
    let options = OpenOptions { policy, ..small() };
    Arc::new(Volume::open(Arc::clone(medium), &options).unwrap())
}

/// Like [`open`], but stores blocks in fewer bytes if possible.
pub fn open_packing(medium: &Arc<dyn Medium>, compression: Compression) -> Arc<Volume> {
    let policy = Policy {
        compression,
        ..Policy::default()
    };
    open_under(medium, policy)
}

/// A generator good enough for tests.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// Checks that every invariant of the volume at rest holds, and every live block has its checksum.
pub fn assert_sound(medium: &dyn Medium) {
    let options = vellum_core::check::Options {
        data: true,
        ..Default::default()
    };
    let report = vellum_device::inspect::check_medium(medium, options);
    assert!(report.is_sound(), "{:?}", report.findings);
}

/// Stops a volume, which leaves its medium sound.
pub fn stop_sound(volume: &Volume, medium: &dyn Medium) {
    volume.stop().unwrap();
    assert_sound(medium);
}

/// The statistics of a volume once everything answered has taken effect.
pub fn settled(volume: &Volume) -> VolumeStats {
    let is_settled = |volume: &Volume| volume.stats().clients.in_flight == 0;
    wait_for(volume, "all has taken effect", is_settled);
    volume.stats()
}

/// Uses each frame for something else, so that nothing written is in memory.
pub fn forget(volume: &Volume) {
    assert!(forgets(volume), "the volume has stopped");
}

/// As [`forget`]. Returns false if the volume has stopped.
pub fn forgets(volume: &Volume) -> bool {
    let pool = volume.frames();
    let all = pool.take(Quota::Write, pool.capacity(Quota::Write));
    all.is_ok()
}

/// Polls until a condition holds.
pub fn wait_for(volume: &Volume, what: &str, mut holds: impl FnMut(&Volume) -> bool) {
    let start = Instant::now();
    while !holds(volume) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "not in time: {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The contents of all blocks of a device.
pub fn read_all<D: BlockDevice>(device: &Arc<D>) -> Vec<u64> {
    let mut client = Client::new(device);
    let blocks = device.blocks();
    let steps = (0..blocks).step_by(40);
    let reads = steps.map(|lba| client.read(lba, 40.min(blocks - lba)).unwrap());
    reads.collect::<Vec<_>>().concat()
}

/// What clients have written, and zeros elsewhere.
pub type Model = BTreeMap<u64, u64>;

pub fn holds<D: BlockDevice>(device: &Arc<D>, model: &Model) {
    for (lba, found) in (0..).zip(read_all(device)) {
        let expected = model.get(&lba).copied().unwrap_or(0);
        assert_eq!(found, expected, "LBA {lba}");
    }
}

/// Copies the bytes to a longer medium.
pub fn copy(from: &dyn Medium, to: &dyn Medium) {
    let mut block = [0; BLOCK_BYTES];
    for at in 0..from.blocks() {
        from.read(Pba(at), &mut block).unwrap();
        to.write(Pba(at), &block).unwrap();
    }
    to.sync().unwrap();
}
