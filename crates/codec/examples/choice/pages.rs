//! What a limit leaves: pages written by workload, when what is encoded in at most that many bytes shares pages.

use crate::samples::{Sample, Workload};
use vellum_codec::{Encoder, Level, Method};
use vellum_core::addr::BLOCK_BYTES;

/// Limits when a part lies in one page, as in the core.
const WITHIN: [usize; 5] = [512, 1024, 2048, 3072, 3840];
/// Limits when a part may go from one page into the next.
const ACROSS: [usize; 4] = [2048, 3072, 3584, 3840];
/// A part's record, as in `core/src/format/chunk.rs`.
const RECORD_BYTES: usize = 20;
/// What a chunk's header has room for (`HEADER_RESERVE` in `core/src/limits.rs`).
const HEADER_BYTES: usize = 3 << 10;
/// What a page has room for: all but its head.
const PAGE_BYTES: usize = BLOCK_BYTES - 8;
const CHUNK_BLOCKS: usize = 256;

pub fn print(workloads: &[Workload]) -> anyhow::Result<()> {
    let zstd = Method::Zstd(Level::DEFAULT);
    for (title, whole, delta) in [
        ("runs, deltas as runs", Method::Runs, Method::Runs),
        ("LZ4, no deltas", Method::Lz4, Method::Off),
        ("zstd, no deltas", zstd, Method::Off),
        ("LZ4, deltas as runs", Method::Lz4, Method::Runs),
        ("LZ4, deltas as LZ4", Method::Lz4, Method::Lz4),
        ("LZ4, deltas as zstd", Method::Lz4, zstd),
        ("zstd, deltas as zstd", zstd, zstd),
    ] {
        println!("\n## Pages for 100 blocks by limit, headers included: {title}\n");
        let within = WITHIN.map(|limit| limit.to_string()).join(" | ");
        let across = ACROSS.map(|limit| format!("{limit}, across")).join(" | ");
        println!("| workload | blocks | stored whole | {within} | {across} |");
        let columns = 2 + WITHIN.len() + ACROSS.len();
        println!("| --- | ---{} |", " | ---".repeat(columns - 1));
        let mut encoder = Encoder::new(whole, delta);
        let mut logs = vec![0.0; columns - 1];
        for workload in workloads {
            let lengths: Vec<_> = workload
                .samples
                .iter()
                .map(|sample| (sample.batch, shortest(&mut encoder, sample)))
                .collect();
            print!("| {} | {}", workload.name, lengths.len());
            let whole = [pages_within(&lengths, None)];
            let within = WITHIN.map(|limit| pages_within(&lengths, Some(limit)));
            let across = ACROSS.map(|limit| pages_across(&lengths, limit));
            let all = whole.into_iter().chain(within).chain(across);
            for (log, pages) in logs.iter_mut().zip(all) {
                let share = pages as f64 / lengths.len().max(1) as f64;
                *log += share.ln();
                print!(" | {:.1}", 100.0 * share);
            }
            println!(" |");
        }
        print!("| geometric mean |");
        for log in logs {
            print!(" | {:.1}", 100.0 * (log / workloads.len() as f64).exp());
        }
        println!(" |");
    }
    Ok(())
}

/// The bytes in which a sample is stored: against its base where it has one, else alone.
fn shortest(encoder: &mut Encoder, sample: &Sample) -> usize {
    let mut room = [0; BLOCK_BYTES];
    let delta = sample
        .base
        .as_ref()
        .and_then(|base| encoder.delta(&sample.block, base, &mut room));
    let limit = delta.map_or(BLOCK_BYTES, |found| found.length);
    encoder
        .compress(&sample.block, &mut room[..limit])
        .map_or(limit, |found| found.length)
}

/// The chunks of a log: they end at each flush, and when they are full.
fn chunks(lengths: &[(u32, usize)]) -> impl Iterator<Item = &[(u32, usize)]> {
    lengths
        .chunk_by(|a, b| a.0 == b.0)
        .flat_map(|batch| batch.chunks(CHUNK_BLOCKS))
}

/// Each chunk is a header and pages that are filled first fit.
fn pages_within(lengths: &[(u32, usize)], limit: Option<usize>) -> usize {
    let mut pages = 0;
    for chunk in chunks(lengths) {
        let mut rooms = vec![HEADER_BYTES];
        pages += 1;
        for &(_, length) in chunk {
            let needed = length + RECORD_BYTES;
            let is_part = limit.is_some_and(|limit| length <= limit);
            match rooms.iter_mut().find(|room| **room >= needed) {
                Some(room) if is_part => *room -= needed,
                _ => {
                    pages += 1;
                    if is_part {
                        rooms.push(PAGE_BYTES.saturating_sub(needed));
                    }
                }
            }
        }
    }
    pages
}

/// The same, with what is encoded end to end.
fn pages_across(lengths: &[(u32, usize)], limit: usize) -> usize {
    let mut pages = 0;
    for chunk in chunks(lengths) {
        let mut bytes: usize = 0;
        pages += 1;
        for &(_, length) in chunk {
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
