//! The structures that file systems keep copies of on purpose: superblocks and group descriptors. Sharing one page among all
//! copies would be a single point of failure (OrderMergeDedup §3.5), so these are never deduplicated.
//!
//! Only the superblock says where they are. A file system may have more of them than this keeps, or more groups than it walks. Then no
//! block of that file system is shared. The volume reports that; it loses savings and nothing else.

use crate::limits::CRITICAL_RANGES;
use crate::ranges::{Range, blocks_of, join};
use vellum_core::addr::Lba;
use vellum_core::seam::Hint;
use vellum_ext4::{Allowance, FileSystem, Metadata, Scan, may_be_descriptors};

/// True if a block looks like one that a file system keeps copies of. Most such blocks are written before the superblock that says
/// where they are. The caller must lose nothing if some other block is mistaken for one.
#[inline]
#[must_use]
pub fn may_be_critical(block: &[u8]) -> bool {
    may_be_descriptors(block)
}

/// The ranges of critical structures; see the module.
#[derive(Debug, Default)]
pub struct Critical {
    /// In order, with gaps between them, as the core requires.
    ranges: Vec<(Lba, u64)>,
    /// For each file system of the scan, why nothing of it is shared.
    pub(crate) asides: Vec<Option<String>>,
}

impl Critical {
    /// Collects the ranges from a scan of a volume with this many blocks.
    #[must_use]
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

    /// The hint for the core.
    #[must_use]
    pub fn hint(&self) -> Hint<'_> {
        let ranges = &self.ranges;
        Hint::Critical { ranges }
    }
}

/// The superblocks and descriptors of a file system, in at most `room` ranges; or why they are not known.
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
