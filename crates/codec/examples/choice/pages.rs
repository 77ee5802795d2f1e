//! What a limit leaves: pages written by workload, when what is encoded in at most that many bytes shares pages.

use crate::samples::{Sample, Workload};
use vellum_codec::{Encoder, Level, Method};
use vellum_core::addr::BLOCK_BYTES;

const LIMITS: [usize; 8] = [0, 512, 1024, 1536, 2048, 2736, 3328, 3840];
/// The same, when what is encoded may go from one page into the next.
const SPANNING: [usize; 4] = [2048, 2736, 3328, 3840];
/// A fragment's own record: where it belongs, its length, its encoding, its checksum. Assumed.
const RECORD_BYTES: usize = 24;
/// What a chunk's header has room for, on top of its own. Assumed: the design's chunk has one header block.
const HEADER_BYTES: usize = 3072;

pub fn print(workloads: &[Workload]) -> anyhow::Result<()> {
    let zstd = Method::Zstd(Level::MIN);
    for (title, whole, delta) in [
        ("runs, deltas as runs", Method::Runs, Method::Runs),
        ("LZ4, no deltas", Method::Lz4, Method::Off),
        ("LZ4, deltas as runs", Method::Lz4, Method::Runs),
        ("LZ4, deltas as LZ4", Method::Lz4, Method::Lz4),
        ("zstd 1, deltas as zstd 1", zstd, zstd),
    ] {
        println!("\nPages for 100 blocks by limit, headers included: {title}\n");
        let limits = LIMITS.map(|limit| limit.to_string()).join(" | ");
        let spanning = SPANNING.map(|limit| format!("{limit}, across")).join(" | ");
        println!("| workload | blocks | {limits} | {spanning} |");
        let columns = LIMITS.len() + SPANNING.len();
        println!("| --- | ---{} |", " | ---".repeat(columns));
        let mut encoder = Encoder::new(whole, delta);
        for workload in workloads {
            let lengths: Vec<_> = workload
                .samples
                .iter()
                .map(|sample| (sample.batch, shortest(&mut encoder, sample)))
                .collect();
            print!("| {} | {}", workload.name, lengths.len());
            let within = LIMITS.map(|limit| pages(&lengths, limit));
            let across = SPANNING.map(|limit| pages_across(&lengths, limit));
            for pages in within.into_iter().chain(across) {
                let share = pages as f64 / lengths.len().max(1) as f64;
                print!(" | {:.1}", 100.0 * share);
            }
            println!(" |");
        }
    }
    Ok(())
}

/// The bytes of the better of both ways.
fn shortest(encoder: &mut Encoder, sample: &Sample) -> usize {
    let mut room = [0; BLOCK_BYTES];
    let delta = sample
        .base
        .as_ref()
        .and_then(|base| encoder.delta(&sample.block, base, &mut room));
    let limit = delta.map_or(BLOCK_BYTES, |found| found.length);
    // A small delta is taken as it is.
    if limit <= BLOCK_BYTES / 8 {
        return limit;
    }
    encoder
        .compress(&sample.block, &mut room[..limit])
        .map_or(limit, |found| found.length)
}

/// Pages of a log whose chunks end at each flush: a header, and pages that are filled first fit.
fn pages(lengths: &[(u32, usize)], limit: usize) -> usize {
    let mut pages = 0;
    for batch in lengths.chunk_by(|a, b| a.0 == b.0) {
        let mut rooms = vec![HEADER_BYTES];
        pages += 1;
        for &(_, length) in batch {
            let needed = length + RECORD_BYTES;
            if length > limit || needed > BLOCK_BYTES {
                pages += 1;
                continue;
            }
            // The last few pages are looked at, as a log that streams would.
            let first = rooms.len().saturating_sub(8);
            match rooms[first..].iter_mut().find(|room| **room >= needed) {
                Some(room) => *room -= needed,
                None => {
                    pages += 1;
                    rooms.push(BLOCK_BYTES - needed);
                }
            }
        }
    }
    pages
}

/// The same, with what is encoded end to end.
fn pages_across(lengths: &[(u32, usize)], limit: usize) -> usize {
    let mut pages = 0;
    for batch in lengths.chunk_by(|a, b| a.0 == b.0) {
        let mut bytes: usize = 0;
        pages += 1;
        for &(_, length) in batch {
            if length > limit {
                pages += 1;
            } else {
                bytes += length + RECORD_BYTES;
            }
        }
        pages += bytes.saturating_sub(HEADER_BYTES).div_ceil(BLOCK_BYTES);
    }
    pages
}
