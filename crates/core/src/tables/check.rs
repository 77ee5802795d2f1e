//! The check of tables: every invariant of a volume at rest, held against the medium; nothing is changed.
//!
//! 1. Both superblocks are whole and equal; every sector of every table is whole, and in its place.
//! 2. Every link leads to a data block.
//! 3. No count is lower than what leads to its block. A higher one is what a crash may leave.
//! 4. Every live block has the checksum that its links have (with `data`).

use super::recover::recover;
use crate::addr::{BLOCK_BYTES, Lba};
use crate::check::{Options, Problem, Report};
use crate::format::{Crc, FormatError};
use crate::recovery::Source;
use alloc::{vec, vec::Vec};

/// Blocks of one read of data.
const READ_BLOCKS: usize = 64;

/// Checks a volume of tables.
pub fn check(
    source: &mut dyn Source,
    medium_blocks: u64,
    options: Options,
    crc: Crc,
    report: &mut Report,
) {
    let recovered = match recover(source, medium_blocks, crc) {
        Ok(recovered) => recovered,
        Err(error) => return report.add(Problem::Unopenable(error)),
    };
    report.superblock = Some(recovered.superblock.clone());
    report.replayed = recovered.replayed;
    crate::check::check_mirrors(source, &recovered.superblock, crc, report);
    for &(at, count, links) in &recovered.too_low {
        report.add(Problem::CountTooLow { at, count, links });
    }
    if recovered.leaks > 0 {
        report.add(Problem::CountsTooHigh {
            blocks: recovered.leaks,
        });
    }
    report.shared_pages = recovered.found.shared_pages;
    let mut links: Vec<_> = recovered.links().collect();
    report.mapped_blocks = links.len() as u64;
    if !options.data {
        return;
    }
    // In the medium's order, so that reads are long.
    links.sort_unstable_by_key(|(_, at, _)| *at);
    let mut bytes = vec![0; READ_BLOCKS * BLOCK_BYTES];
    for run in links.chunk_by(|a, b| b.1.0 <= a.1.0 + 1) {
        for part in run.chunks(READ_BLOCKS) {
            let first = part[0].1;
            let blocks = (part[part.len() - 1].1.0 - first.0 + 1) as usize;
            let whole = source
                .read(first, &mut bytes[..blocks * BLOCK_BYTES])
                .is_ok();
            for &(lba, at, expected) in part {
                let lba = Lba(lba.into());
                let from = (at.0 - first.0) as usize * BLOCK_BYTES;
                let block = &mut bytes[from..from + BLOCK_BYTES];
                if !whole && let Err(error) = source.read(at, block) {
                    report.add(Problem::DataUnreadable { lba, error });
                    continue;
                }
                report.verified_blocks += 1;
                let found = crc(block);
                if found != expected {
                    let error = FormatError::Checksum {
                        what: "data block",
                        found,
                        expected,
                    };
                    report.add(Problem::Data { lba, at, error });
                }
            }
        }
    }
}
