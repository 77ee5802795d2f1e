//! The cost of snapshots for writes, and how long snapshots take.
//!
//! `cargo run --release -p vellum-device --example snapshots -- [MiB of the volume] [snapshots]`
//!
//! Random writes of 4 KiB, one after the other, on a medium in memory: without snapshots, then each for the first time since a
//! snapshot, then with so many snapshots, and to a clone. The contents are new, and do not get smaller when encoded.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vellum_core::addr::Lba;
use vellum_device::block::{BlockDevice, BlockError, Op, Request, answer_to};
use vellum_device::frames::Quota;
use vellum_device::pack::{Compression, Level};
use vellum_device::policy::{Deltas, Policy};
use vellum_device::{CreateOptions, OpenOptions, Volume};
use vellum_medium::{Medium, MemoryMedium};

fn write(volume: &dyn BlockDevice, lba: u64, random: u64) -> Result<(), BlockError> {
    let mut frames = volume.frames().take(Quota::Write, 1)?;
    let mut state = random;
    for word in frames.block_mut(0).as_chunks_mut::<8>().0 {
        state = next(state);
        *word = state.to_le_bytes();
    }
    let op = Op::Write { fua: false };
    let mut asked = vec![Request::new(op, Lba(lba), 1, frames)];
    answer_to(|replies| volume.submit(&mut asked, replies)).map(drop)
}

fn next(mut random: u64) -> u64 {
    random ^= random << 13;
    random ^= random >> 7;
    random ^ random << 17
}

/// Writes so many blocks, in an order that visits each once.
fn write_all(volume: &dyn BlockDevice, count: u64, seed: u64) -> Result<(), BlockError> {
    let blocks = volume.blocks();
    // It is odd, and the volume's blocks are a power of two, so each is written once.
    let step = (seed | 1).wrapping_mul(0x9e37_79b9) | 1;
    let mut random = seed | 1;
    (0..count).try_for_each(|number| {
        random = next(random);
        write(volume, number.wrapping_mul(step) % blocks, random)
    })
}

fn measure(name: &str, volume: &Volume, count: u64, seed: u64) -> Result<(), BlockError> {
    measure_on(volume, name, volume, count, seed)
}

/// The same for writes to a clone of the volume's.
fn measure_on(
    device: &dyn BlockDevice,
    name: &str,
    volume: &Volume,
    count: u64,
    seed: u64,
) -> Result<(), BlockError> {
    let before = volume.stats().medium.written_bytes;
    let began = Instant::now();
    write_all(device, count, seed)?;
    let micros = began.elapsed().as_secs_f64() * 1e6 / count as f64;
    let written = volume.stats().medium.written_bytes - before;
    let bytes = written as f64 / count as f64;
    println!("{name:<44} {micros:>7.2} us a write {bytes:>8.0} bytes to the medium");
    Ok(())
}

/// How long each snapshot took while two threads write.
fn take_under_load(volume: &Volume, snapshots: u64) -> Result<Vec<Duration>, Box<dyn Error>> {
    let ends = AtomicBool::new(false);
    let mut took: Vec<Duration> = Vec::new();
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        for thread in 0..2 {
            let ends = &ends;
            scope.spawn(move || {
                let mut seed = 7 + 2 * thread;
                while !ends.load(Ordering::Relaxed) {
                    seed += 10;
                    if let Err(error) = write_all(volume, 64, seed) {
                        eprintln!("{error}");
                    }
                }
            });
        }
        for number in 1..snapshots {
            let began = Instant::now();
            volume.take_snapshot(&format!("s{number}"), number)?;
            took.push(began.elapsed());
        }
        ends.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    Ok(took)
}

/// Measures how long clones take, and what writing to one costs.
fn clones(volume: &Volume, count: u64) -> Result<(), Box<dyn Error>> {
    let mut took = Vec::new();
    for number in 0..16 {
        let began = Instant::now();
        volume.clone_snapshot("first", &format!("c{number}"), 1)?;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    println!(
        "a clone: half took at most {:.1?}, all at most {:.1?}",
        took[7], took[15]
    );
    if let Some(clone) = volume.clone_at("c0")? {
        measure_on(
            &clone,
            "a clone, each for the first time",
            volume,
            count,
            11,
        )?;
        measure_on(&clone, "again", volume, count, 11)?;
    }
    measure("the volume beside it, again", volume, count, 9)?;
    for number in 0..16 {
        volume.delete_snapshot(&format!("c{number}"))?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mib: u64 = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let snapshots: u64 = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let logical = (mib << 8).next_power_of_two();
    // As much as snapshots may keep, and some: how much is written beside the snapshots depends on how fast these are.
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(22 * logical));
    let (logical_blocks, history) = (Some(logical), 1900);
    let options = CreateOptions {
        logical_blocks,
        history,
        ..CreateOptions::default()
    };
    Volume::create(&*medium, &options)?;
    let policy = Policy {
        compression: Compression::Zstd(Level::new(1).ok_or("a level")?),
        deltas: Deltas::Packed,
        ..Policy::default()
    };
    let volume = Volume::open(
        medium,
        &OpenOptions {
            policy,
            ..OpenOptions::default()
        },
    )?;
    write_all(&volume, logical, 1)?;
    let count = logical / 8;
    measure("no snapshot", &volume, count, 3)?;
    volume.take_snapshot("first", 0)?;
    measure(
        "each for the first time since a snapshot",
        &volume,
        count,
        5,
    )?;
    measure("again", &volume, count, 5)?;
    let mut took = take_under_load(&volume, snapshots)?;
    took.sort_unstable();
    let (half, most) = (took[took.len() / 2], took[took.len() - 1]);
    println!("a snapshot, under load: half took at most {half:.1?}, all at most {most:.1?}");
    let name = format!("among {snapshots} snapshots, each for the first time");
    measure(&name, &volume, count, 9)?;
    measure("again", &volume, count, 9)?;
    clones(&volume, count)?;
    delete(&volume, &["first".into()])?;
    let left: Vec<String> = volume
        .snapshots()?
        .into_iter()
        .map(|one| one.name)
        .collect();
    delete(&volume, &left)?;
    volume.stop()?;
    Ok(())
}

/// How fast deleting snapshots, one after the other, gives back what they keep.
fn delete(volume: &Volume, names: &[String]) -> Result<(), Box<dyn Error>> {
    let (before, _) = volume.snapshot_room()?;
    let began = Instant::now();
    names
        .iter()
        .try_for_each(|name| volume.delete_snapshot(name))?;
    let took = began.elapsed();
    let blocks = before - volume.snapshot_room()?.0;
    let rate = blocks as f64 * 4096.0 / took.as_secs_f64() / f64::from(1 << 30);
    let (count, each) = (names.len(), took / names.len().max(1) as u32);
    println!(
        "{count} snapshots with {blocks} kept blocks are deleted: {each:.1?} each, {rate:.2} GiB a second"
    );
    Ok(())
}
