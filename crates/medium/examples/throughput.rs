//! How fast a medium is: `cargo run --release -p vellum-medium --example throughput -- FOLDER`.
//!
//! A sanity check of the ways of doing I/O against each other and against what `fio` says of the disk,
//! not a benchmark of the device.
#![allow(clippy::unwrap_used, reason = "an example")]

use std::time::{Duration, Instant};
use vellum_core::addr::{BLOCK_BYTES, Pba};
use vellum_medium::fault::Rng;
use vellum_medium::{Engine, FileMedium, Io, Kind, Medium, MemoryMedium, Prealloc, Tuning};

const MEDIUM_BLOCKS: u64 = 128 << 10;
const TIME: Duration = Duration::from_secs(1);

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let path = std::path::Path::new(&folder).join("vellum-throughput");
    let bytes = MEDIUM_BLOCKS * BLOCK_BYTES as u64;
    println!(
        "{:<12}{:>14}{:>14}{:>14}{:>14}{:>14}",
        "", "write 4K q32", "read 4K q32", "write 1M q8", "durable 4K q1", "sync q1"
    );
    show("memory", &MemoryMedium::new(MEDIUM_BLOCKS));
    for engine in [Engine::Uring, Engine::Threads] {
        let tuning = Tuning {
            engine,
            ..Tuning::default()
        };
        match FileMedium::create_tuned(&path, bytes, Prealloc::Full, &tuning) {
            Ok(medium) => show(medium.engine(), &medium),
            Err(e) => println!("{e}"),
        }
        let _ = std::fs::remove_file(&path);
    }
}

fn show(name: &str, medium: &dyn Medium) {
    let plain = Kind::Write { durable: false };
    let mib = |ops: f64| format!("{ops:.0} MiB/s");
    let iops = |ops: f64| format!("{ops:.0}/s");
    // First, so that everything after it is an overwrite.
    let sequential = mib(rate(medium, plain, 256, 8));
    println!(
        "{name:<12}{:>14}{:>14}{sequential:>14}{:>14}{:>14}",
        iops(rate(medium, plain, 1, 32)),
        iops(rate(medium, Kind::Read, 1, 32)),
        iops(rate(medium, Kind::Write { durable: true }, 1, 1)),
        iops(rate(medium, Kind::Sync, 0, 1)),
    );
}

/// Operations a second at this depth: random if of one block, else sequential.
fn rate(medium: &dyn Medium, kind: Kind, blocks: usize, depth: usize) -> f64 {
    let bytes = blocks * BLOCK_BYTES;
    let layout = std::alloc::Layout::from_size_align((bytes * depth).max(1), BLOCK_BYTES).unwrap();
    // SAFETY: of a size that is not zero; freed below, when no operation has it any more.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    let mut rng = Rng::new(1);
    let mut next = 0;
    let mut place = || {
        if blocks == 1 {
            return Pba(rng.below(MEDIUM_BLOCKS));
        }
        next = (next + blocks as u64) % (MEDIUM_BLOCKS - blocks as u64);
        Pba(next)
    };
    let mut ios: Vec<_> = (0..depth)
        .map(|token| Io::new(token as u64, kind, Pba(0)))
        .collect();
    let (mut done, mut count, mut flying) = (Vec::new(), 0u64, 0);
    let start = Instant::now();
    loop {
        let more = start.elapsed() < TIME;
        if !more && flying == 0 {
            break;
        }
        if more {
            for io in &mut ios {
                io.reset(io.token, kind, place());
                if bytes > 0 {
                    // SAFETY: each token has its own part of the memory, which outlives the loop.
                    unsafe { io.push(memory.add(io.token as usize * bytes), bytes) };
                }
            }
            flying += ios.len();
            medium.submit(&mut ios);
        }
        medium.wait(&mut done, None);
        for one in done.drain(..) {
            one.result.unwrap();
            flying -= 1;
            count += 1;
            ios.push(one.io);
        }
    }
    // SAFETY: as allocated.
    unsafe { std::alloc::dealloc(memory, layout) };
    count as f64 / start.elapsed().as_secs_f64()
}
