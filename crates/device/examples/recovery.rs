//! Measures how long opening takes after a crash, against how much is mapped.
//!
//! `cargo run --release -p vellum-device --example recovery -- FILE [GiB mapped] [MiB of log since the last map
//! checkpoint] [blocks a flush] [cut: the power, and with it what was not flushed]`

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, BlockError, Op, Request, answer_to};
use vellum_device::frames::Quota;
use vellum_device::{CreateOptions, OpenOptions, Volume};
use vellum_medium::{FaultMedium, FileMedium, Medium, Plan, Prealloc};

struct Client<'a> {
    volume: &'a Volume,
}

impl<'a> Client<'a> {
    fn new(volume: &'a Volume) -> Self {
        Self { volume }
    }

    fn call(&self, op: Op, lba: u64, blocks: usize, fill: u64) -> Result<(), BlockError> {
        let frames = self.volume.frames();
        let mut frames = match op {
            Op::Read => frames.take(Quota::Read, blocks)?,
            Op::Write { .. } => frames.take(Quota::Write, blocks)?,
            _ => Default::default(),
        };
        for index in 0..frames.len() {
            frames.block_mut(index)[..8].copy_from_slice(&(fill + index as u64).to_le_bytes());
        }
        let mut asked = vec![Request::new(op, Lba(lba), blocks as u64, frames)];
        answer_to(|replies| self.volume.submit(&mut asked, replies)).map(drop)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("a file to make is needed")?;
    let gibibytes: u64 = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let log_mebibytes: u64 = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let blocks_per_flush: u64 = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let cut = arguments.next().is_some_and(|how| how == "cut");
    let mapped = gibibytes << 18;
    create(&path, mapped)?;
    let volume = open(&path)?;
    map_all(&volume, mapped)?;
    volume.stop()?;
    drop(volume);
    // Writes from here on are in a cache, which the cut drops except for a part, in any order.
    let base = FileMedium::open(&path, vellum_medium::OpenOptions::default())?;
    let faults = Arc::new(FaultMedium::new(Box::new(base), Plan::default()));
    let as_medium: Arc<dyn Medium> = faults.clone();
    let volume = Volume::open(as_medium, &OpenOptions::default())?;
    fill_log(&volume, log_mebibytes << 8, blocks_per_flush)?;
    if cut {
        println!("power cut: {:?}", faults.power_cut(1));
    }
    // As if the process were killed.
    drop(volume);
    drop(faults);
    drop_caches(&path)?;
    let began = Instant::now();
    let volume = open(&path)?;
    Client::new(&volume).call(Op::Read, 0, 1, 0)?;
    let first = began.elapsed();
    println!(
        "{gibibytes} GiB mapped: first read after {:.3} s; {:?}",
        first.as_secs_f64(),
        volume.stats().recovery
    );
    volume.stop()?;
    drop(volume);
    std::fs::remove_file(&path)?;
    Ok(())
}

fn create(path: &str, blocks: u64) -> Result<(), Box<dyn Error>> {
    let bytes = (blocks + blocks / 4 + (1 << 18)) * 4096;
    let medium = FileMedium::create(path, bytes, Prealloc::Sparse)?;
    Volume::create(
        &medium,
        &CreateOptions {
            logical_blocks: Some(blocks),
            ..CreateOptions::default()
        },
    )?;
    Ok(())
}

fn open(path: &str) -> Result<Volume, Box<dyn Error>> {
    let medium = FileMedium::open(path, vellum_medium::OpenOptions::default())?;
    Ok(Volume::open(Arc::new(medium), &OpenOptions::default())?)
}

/// Writes every block once.
fn map_all(volume: &Volume, blocks: u64) -> Result<(), BlockError> {
    let client = Client::new(volume);
    for lba in (0..blocks).step_by(256) {
        client.call(Op::Write { fua: false }, lba, 256, lba + 1)?;
    }
    client.call(Op::Flush, 0, 0, 0)
}

/// Writes so many blocks anywhere: they are in the log, and not in the map checkpoint.
fn fill_log(volume: &Volume, blocks: u64, blocks_per_flush: u64) -> Result<(), BlockError> {
    let client = Client::new(volume);
    let mut random = 1u64;
    for written in 0..blocks {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let lba = (random >> 20) % volume.blocks();
        client.call(Op::Write { fua: false }, lba, 1, random)?;
        if written % blocks_per_flush == blocks_per_flush - 1 {
            client.call(Op::Flush, 0, 0, 0)?;
        }
    }
    Ok(())
}

/// Drops what the kernel has cached of the file, which would help.
fn drop_caches(path: &str) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::open(path)?;
    file.sync_all()?;
    // SAFETY: a system call on a descriptor that is open.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}
