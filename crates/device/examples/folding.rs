//! What folding costs over a long load, and what it saves: blocks that reach the medium, and pages in use, if sparse pages are
//! folded never, whenever so many blocks were written, or when less than a fifth is free (as `fold=on` does, but without waiting
//! for quiet). The medium is memory, and the results are counts, so the machine may be busy.
//!
//! `cargo run --release -p vellum-device --example folding -- [MiB of the medium] [times that the volume is written]`

use parking_lot::{Condvar, Mutex};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, BlockError, Op, Replies, Request};
use vellum_device::frames::{Frames, Quota};
use vellum_device::pack::Compression;
use vellum_device::policy::Policy;
use vellum_device::{CreateOptions, Haste, OpenOptions, Sought, Volume};
use vellum_medium::{Medium, MemoryMedium};

/// The most unanswered writes.
const DEPTH: usize = 32;

/// Counts answers.
#[derive(Default)]
struct Count {
    unanswered: Mutex<usize>,
    failed: Mutex<Option<String>>,
    some: Condvar,
}

impl Replies for Count {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        if let Err(error) = result {
            *self.failed.lock() = Some(format!("{:?} of {}: {error}", request.op, request.lba));
        }
        *self.unanswered.lock() -= 1;
    }

    fn flush(&self) {
        self.some.notify_one();
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Chooses the next block to write, of so many.
type Load = fn(&mut Random, u64) -> u64;

fn uniform(random: &mut Random, blocks: u64) -> u64 {
    random.below(blocks)
}

/// The least of three random numbers, spread over the volume.
fn skewed(random: &mut Random, blocks: u64) -> u64 {
    let least = (0..3).map(|_| random.below(blocks)).min().unwrap_or(0);
    least * 1_000_003 % blocks
}

/// Nine of ten writes go to a tenth of the blocks, spread over the volume.
fn hot_and_cold(random: &mut Random, blocks: u64) -> u64 {
    let of = match random.below(10) {
        0 => blocks / 10 + random.below(blocks * 9 / 10),
        _ => random.below(blocks / 10),
    };
    of * 1_000_003 % blocks
}

struct Writer<'a> {
    volume: &'a Volume,
    random: Random,
    count: Arc<Count>,
    replies: Arc<dyn Replies>,
}

impl<'a> Writer<'a> {
    fn new(volume: &'a Volume) -> Self {
        let count = Arc::new(Count::default());
        Self {
            volume,
            random: Random(0x5851_f42d_4c95_7f2d),
            replies: count.clone(),
            count,
        }
    }

    /// Writes a block with 256 to 2048 bytes of noise, and zeros after them: as a part it takes 1.1 KiB on average, like a source
    /// tree's.
    fn write(&mut self, lba: u64) -> Result<(), Box<dyn Error>> {
        let mut frames = self.volume.frames().take(Quota::Write, 1)?;
        let block = frames.block_mut(0);
        block.fill(0);
        let noise = 8 * (32 + self.random.below(225)) as usize;
        for word in block[..noise].chunks_exact_mut(8) {
            word.copy_from_slice(&self.random.next().to_le_bytes());
        }
        self.submit(Op::Write { fua: false }, lba, 1, frames)
    }

    fn submit(&self, op: Op, lba: u64, blocks: u64, frames: Frames) -> Result<(), Box<dyn Error>> {
        let request = Request::new(op, Lba(lba), blocks, frames);
        *self.count.unanswered.lock() += 1;
        self.volume.submit(&mut vec![request], &self.replies);
        self.wait(DEPTH)
    }

    /// Waits until fewer than so many are unanswered.
    fn wait(&self, depth: usize) -> Result<(), Box<dyn Error>> {
        let mut unanswered = self.count.unanswered.lock();
        while *unanswered >= depth {
            self.count.some.wait(&mut unanswered);
        }
        match self.count.failed.lock().take() {
            None => Ok(()),
            Some(error) => Err(error.into()),
        }
    }

    fn flush(&self) -> Result<(), Box<dyn Error>> {
        self.submit(Op::Flush, 0, 0, Frames::default())?;
        self.wait(1)
    }
}

/// The results of a run.
struct Told {
    /// For each block that was written: blocks that reached the medium, those of them that were folded, and those that the
    /// collector moved.
    written: f64,
    folded: f64,
    moved: f64,
    /// Pages in use for each block of the volume.
    pages: f64,
}

fn fold(volume: &Volume) -> Result<(), Box<dyn Error>> {
    let over = || {
        let progress = volume.sweep_progress(Sought::SparsePages);
        progress.ended + progress.halted
    };
    let before = over();
    volume.sweep(Sought::SparsePages, Haste::Now)?;
    while over() == before {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// When sparse pages are folded.
#[derive(Clone, Copy)]
enum When {
    Never,
    /// Whenever this many times the volume was written.
    Each(f64),
    /// When less than a fifth is free, checked whenever an eighth was written.
    BelowAFifth,
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::Each(times) => write!(f, "each {times} of the volume"),
            Self::BelowAFifth => f.write_str("below a fifth"),
        }
    }
}

impl When {
    fn is_now(self, volume: &Volume, written: u64) -> bool {
        let step = match self {
            Self::Never => return false,
            Self::Each(times) => times,
            Self::BelowAFifth => 0.125,
        };
        let is_step = written.is_multiple_of((volume.blocks() as f64 * step) as u64);
        let is_wanted = || {
            let room = volume.stats().room;
            (room.capacity_bytes - room.used_bytes) * 5 < room.capacity_bytes
        };
        is_step && (!matches!(self, Self::BelowAFifth) || is_wanted())
    }
}

/// Runs a load; `percent`: the volume's size as a share of what the medium has room for.
fn run(
    load: Load,
    blocks: u64,
    percent: u64,
    times: u64,
    when: When,
) -> Result<Told, Box<dyn Error>> {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(blocks));
    Volume::create(&*medium, &CreateOptions::default())?;
    let room = Volume::open(Arc::clone(&medium), &OpenOptions::default())?.blocks();
    let create = CreateOptions {
        logical_blocks: Some(room * percent / 100),
        force: true,
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &create)?;
    let options = OpenOptions {
        policy: Policy {
            compression: Compression::Lz4,
            zero: false,
            sweep_blocks: 0,
            ..Policy::default()
        },
        ..OpenOptions::default()
    };
    let volume = Volume::open(medium, &options)?;
    let volume_blocks = volume.blocks();
    let mut writer = Writer::new(&volume);
    for lba in 0..volume_blocks {
        writer.write(lba)?;
    }
    let (warm_up, writes) = (volume_blocks * times / 2, volume_blocks * times);
    let mut at_first = volume.stats();
    let mut pages = Vec::new();
    for n in 0..warm_up + writes {
        if n == warm_up {
            writer.flush()?;
            at_first = volume.stats();
        }
        if when.is_now(&volume, n) {
            writer.flush()?;
            fold(&volume)?;
        }
        if n >= warm_up && n % (volume_blocks / 8) == 0 {
            pages.push(volume.stats().core["live_blocks"] as f64 / volume_blocks as f64);
        }
        let lba = load(&mut writer.random, volume_blocks);
        writer.write(lba)?;
    }
    writer.flush()?;
    let last = volume.stats();
    let grown = |name: &str| (last.core[name] - at_first.core[name]) as f64 / writes as f64;
    let written = last.medium.written_bytes - at_first.medium.written_bytes;
    let moved = last.medium.by_cause.moved_bytes - at_first.medium.by_cause.moved_bytes;
    let blocks_a_write = |bytes: u64| bytes as f64 / 4096.0 / writes as f64;
    let told = Told {
        written: blocks_a_write(written),
        folded: grown("folded_blocks"),
        moved: blocks_a_write(moved),
        pages: pages.iter().sum::<f64>() / pages.len() as f64,
    };
    volume.stop()?;
    Ok(told)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mebibytes: u64 = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let times: u64 = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let loads: [(&str, Load); 3] = [
        ("uniform", uniform),
        ("skewed", skewed),
        ("hot and cold", hot_and_cold),
    ];
    let rules = [
        When::Never,
        When::BelowAFifth,
        When::Each(1.0),
        When::Each(0.25),
    ];
    println!(
        "| load | volume, of the room | folded | pages in use for each block | written for each | of that \
         anew | and moved |"
    );
    println!("| --- | ---: | --- | ---: | ---: | ---: | ---: |");
    for (name, load) in loads {
        for percent in [100, 150] {
            for when in rules {
                print!("| {name} | {percent}% | {when} | ");
                match run(load, mebibytes << 8, percent, times, when) {
                    Ok(told) => println!(
                        "{:.2} | {:.2} | {:.2} | {:.2} |",
                        told.pages, told.written, told.folded, told.moved
                    ),
                    Err(error) => println!("{error} | | | |"),
                }
            }
        }
    }
    Ok(())
}
