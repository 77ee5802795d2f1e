//! What file systems have copies of on purpose: their superblocks and group descriptors. One page for all of them would be
//! one point of failure (OrderMergeDedup §3.5), so these are never shared by their content.
//!
//! The superblock alone says where they are. Of a file system that has them in more places than are kept, or more groups than
//! are walked, nothing is shared: that is told, and costs savings alone.

use crate::limits::CRITICAL_RANGES;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_ext4::{Allowance, FileSystem, Metadata, Scan, Span};

/// First block, and the one after the last.
pub(crate) type Range = (u64, u64);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Critical {
    /// In order, none touching another, as the core takes them.
    pub ranges: Vec<(Lba, u64)>,
    /// Of each file system of the scan: why nothing of it is shared.
    pub asides: Vec<Option<String>>,
}

impl Critical {
    pub fn new(scan: &Scan, volume_blocks: u64) -> Self {
        let mut allowance = Allowance::default();
        let mut ranges: Vec<Range> = Vec::new();
        let mut asides = Vec::new();
        for found in &scan.file_systems {
            let room = CRITICAL_RANGES.saturating_sub(ranges.len());
            asides.push(match backups(found, volume_blocks, &mut allowance, room) {
                Ok(own) => {
                    ranges.extend(own);
                    None
                }
                Err(aside) => {
                    ranges.push(blocks_of(found.home));
                    Some(aside)
                }
            });
        }
        join(&mut ranges);
        let ranges = ranges.into_iter();
        Self {
            ranges: ranges.map(|(at, end)| (Lba(at), end - at)).collect(),
            asides,
        }
    }
}

/// The superblocks and descriptors of a file system, in at most `room` ranges; or why not.
fn backups(
    found: &FileSystem,
    volume_blocks: u64,
    allowance: &mut Allowance,
    room: usize,
) -> Result<Vec<Range>, String> {
    let mut own: Vec<Range> = Vec::new();
    let Some(mut metadata) = Metadata::new(found, volume_blocks, allowance) else {
        return Ok(own);
    };
    while let Some(next) = metadata.next_backup() {
        let (at, end) = blocks_of(next.map_err(|aside| aside.to_string())?.span);
        match own.last_mut() {
            Some((_, last)) if at <= *last => *last = end.max(*last),
            _ => own.push((at, end)),
        }
        if own.len() > room {
            return Err(format!(
                "superblocks and group descriptors are in more than {CRITICAL_RANGES} places of the volume"
            ));
        }
    }
    Ok(own)
}

/// The blocks of the volume that a range is in.
pub(crate) fn blocks_of(span: Span) -> Range {
    let block = BLOCK_BYTES as u64;
    (span.start / block, span.end().div_ceil(block))
}

/// Puts ranges in order and makes one of those that touch.
pub(crate) fn join(ranges: &mut Vec<Range>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let touches = next.0 <= last.1;
        if touches {
            last.1 = last.1.max(next.1);
        }
        touches
    });
}
