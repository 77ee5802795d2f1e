//! Measures how fast a volume takes requests if the medium is memory: the cost of everything but I/O and transport.
//!
//! `cargo run --release -p vellum-device --example submit -- [threads] [batch] [million writes] [memory|FILE] [only]`
//! (`only`: the measurements whose names contain that)

use parking_lot::{Condvar, Mutex};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, BlockError, Op, Replies, Request};
use vellum_device::frames::{Frames, Quota};
use vellum_device::{CreateOptions, OpenOptions, Volume};
use vellum_medium::{FileMedium, Medium, MemoryMedium, Prealloc};

/// Counts answers; the submitter keeps at most `depth` requests unanswered.
#[derive(Default)]
struct Count {
    unanswered: Mutex<usize>,
    some: Condvar,
}

impl Replies for Count {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        if let Err(error) = result {
            eprintln!("{:?} of {}: {error}", request.op, request.lba);
        }
        *self.unanswered.lock() -= 1;
    }

    fn flush(&self) {
        self.some.notify_one();
    }
}

#[derive(Clone, Copy)]
struct Load {
    op: Op,
    requests: u64,
    batch: usize,
    depth: usize,
    blocks: usize,
}

fn run(volume: &Volume, seed: u64, load: Load) -> Result<(), BlockError> {
    let count = Arc::new(Count::default());
    let replies: Arc<dyn Replies> = count.clone();
    let mut batch = Vec::new();
    let mut random = seed.wrapping_mul(2).wrapping_add(1);
    let (mut submitted, size) = (0, volume.blocks() / load.blocks as u64);
    while submitted < load.requests {
        for _ in 0..load.batch {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut frames = match load.op {
                Op::Read => volume.frames().take(Quota::Read, load.blocks)?,
                Op::Write { .. } => volume.frames().take(Quota::Write, load.blocks)?,
                _ => Frames::default(),
            };
            if matches!(load.op, Op::Write { .. }) {
                for index in 0..load.blocks {
                    // Unique data, as it arrives from a socket: every byte is new.
                    let block = frames.block_mut(index);
                    block.fill(random as u8);
                    block[..8].copy_from_slice(&(random + index as u64).to_le_bytes());
                }
            }
            let (lba, blocks) = (Lba(random % size * load.blocks as u64), load.blocks as u64);
            batch.push(Request {
                tag: submitted,
                op: load.op,
                lba,
                blocks,
                frames,
            });
            submitted += 1;
        }
        *count.unanswered.lock() += batch.len();
        volume.submit(&mut batch, &replies);
        let mut unanswered = count.unanswered.lock();
        while *unanswered + load.batch > load.depth {
            count.some.wait(&mut unanswered);
        }
    }
    let mut unanswered = count.unanswered.lock();
    while *unanswered > 0 {
        count.some.wait(&mut unanswered);
    }
    Ok(())
}

fn measure(name: &str, volume: &Volume, threads: u64, load: Load) {
    let began = Instant::now();
    let each = Load {
        requests: load.requests / threads,
        ..load
    };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                if let Err(error) = run(volume, thread + 1, each) {
                    eprintln!("{name}: {error}");
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let rate = load.requests as f64 / seconds;
    println!(
        "{name:<34} {rate:>10.0} ops/s {:>8.0} MB/s  {:>6.2} us/op",
        rate * load.blocks as f64 * 4096e-6,
        1e6 / rate
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let threads: u64 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let batch: usize = arguments.next().map_or(Ok(16), |text| text.parse())?;
    let millions: f64 = arguments.next().map_or(Ok(1.0), |text| text.parse())?;
    let place = arguments.next().unwrap_or_else(|| "memory".to_owned());
    let only = arguments.next().unwrap_or_default();
    let volume = new_volume(&place)?;
    let loads = loads((millions * 1e6) as u64, batch);
    for (name, load) in loads.iter().filter(|(name, _)| name.contains(&only)) {
        measure(name, &volume, threads, *load);
    }
    let stats = volume.stats();
    println!(
        "write amplification {:.3}, stopping",
        stats.write_amplification.unwrap_or(0.0)
    );
    volume.stop()?;
    drop(volume);
    if place != "memory" {
        std::fs::remove_file(place)?;
    }
    Ok(())
}

/// A volume of four times the write buffer, on a medium of four times the volume.
fn new_volume(place: &str) -> Result<Volume, Box<dyn Error>> {
    let blocks: u64 = 512 << 8;
    let medium: Arc<dyn Medium> = if place == "memory" {
        Arc::new(MemoryMedium::new(blocks))
    } else {
        Arc::new(FileMedium::create(place, blocks * 4096, Prealloc::Full)?)
    };
    Volume::create(
        &*medium,
        &CreateOptions {
            logical_blocks: Some(blocks / 4),
            ..CreateOptions::default()
        },
    )?;
    Ok(Volume::open(medium, &OpenOptions::default())?)
}

/// What is measured, in its order, and its names.
fn loads(requests: u64, batch: usize) -> [(String, Load); 6] {
    let random = Load {
        op: Op::Write { fua: false },
        requests,
        batch,
        depth: batch.max(32),
        blocks: 1,
    };
    let sequential = Load {
        requests: requests / 16,
        batch: 1,
        depth: 8,
        blocks: 32,
        ..random
    };
    let random_read = Load {
        op: Op::Read,
        ..random
    };
    let durable = Load {
        op: Op::Write { fua: true },
        batch: 1,
        depth: 1,
        requests: requests / 16,
        ..random
    };
    [
        ("128 KiB write, depth 8".to_owned(), sequential),
        (format!("4 KiB random write, {batch} at once"), random),
        (
            "4 KiB random write, 1 at once".to_owned(),
            Load {
                batch: 1,
                depth: 1,
                ..random
            },
        ),
        (format!("4 KiB random read, {batch} at once"), random_read),
        (
            "4 KiB random read, 1 at once".to_owned(),
            Load {
                batch: 1,
                depth: 1,
                requests: requests / 8,
                ..random_read
            },
        ),
        ("4 KiB durable write, 1 at once".to_owned(), durable),
    ]
}
