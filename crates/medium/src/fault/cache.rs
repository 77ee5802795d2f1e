//! A drive's volatile write cache, and what a power cut leaves of it.

use super::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use vellum_core::addr::BLOCK_BYTES;

/// Bytes that a drive writes atomically.
pub const SECTOR_BYTES: usize = 512;

const SECTORS: usize = BLOCK_BYTES / SECTOR_BYTES;

/// Versions kept of one block: enough that an older one can win over a newer one at a cut.
const VERSIONS_MAX: usize = 4;

pub(super) type Block = [u8; BLOCK_BYTES];

/// Unsynced writes, newest last for each block.
#[derive(Debug, Default)]
pub(super) struct Cache {
    blocks: BTreeMap<u64, Vec<Version>>,
    writes: u64,
}

#[derive(Debug)]
struct Version {
    /// The write it belongs to, and the sector of that write it begins with.
    write: u64,
    sector: u32,
    bytes: Box<Block>,
}

/// What a power cut did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Unsynced writes.
    pub writes: u64,
    /// Writes that are completely on the medium.
    pub kept: u64,
    /// Writes of which nothing is on the medium.
    pub dropped: u64,
    /// Writes that were torn at a sector.
    pub torn: u64,
}

/// The fate of one write at a power cut.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Kept,
    Dropped,
    /// Cut off after this many sectors.
    Prefix(u32),
    /// Each sector is decided by itself, with this many chances in 256.
    Sectors(u32),
}

impl Cache {
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The newest version of a block, to be damaged.
    pub(super) fn newest_mut(&mut self, block: u64) -> Option<&mut Block> {
        self.blocks
            .get_mut(&block)
            .and_then(|v| v.last_mut())
            .map(|v| &mut *v.bytes)
    }

    /// Lays the cached writes over bytes read from the medium.
    pub(super) fn overlay(&self, at: u64, bytes: &mut [u8]) {
        let end = at + (bytes.len() / BLOCK_BYTES) as u64;
        for (block, versions) in self.blocks.range(at..end) {
            if let Some(newest) = versions.last() {
                let from = (block - at) as usize * BLOCK_BYTES;
                bytes[from..from + BLOCK_BYTES].copy_from_slice(&*newest.bytes);
            }
        }
    }

    /// Adds a write of whole blocks.
    pub(super) fn insert(&mut self, at: u64, bytes: &[u8]) {
        self.writes += 1;
        for (index, block) in bytes.chunks_exact(BLOCK_BYTES).enumerate() {
            let mut copy = Box::new([0; BLOCK_BYTES]);
            copy.copy_from_slice(block);
            let versions = self.blocks.entry(at + index as u64).or_default();
            if versions.len() == VERSIONS_MAX {
                versions.remove(0);
            }
            let sector = (index * SECTORS) as u32;
            versions.push(Version {
                write: self.writes,
                sector,
                bytes: copy,
            });
        }
    }

    /// Drops blocks.
    pub(super) fn forget(&mut self, blocks: Range<u64>) {
        let found: Vec<u64> = self.blocks.range(blocks).map(|(&block, _)| block).collect();
        for block in found {
            self.blocks.remove(&block);
        }
    }

    /// Removes some block, to be written back.
    pub(super) fn evict(&mut self, rng: &mut Rng) -> Option<(u64, Box<Block>)> {
        let (&first, _) = self.blocks.first_key_value()?;
        let (&last, _) = self.blocks.last_key_value()?;
        let from = first + rng.below(last - first + 1);
        let (&block, _) = self.blocks.range(from..).next()?;
        let newest = self.blocks.remove(&block)?.pop()?;
        Some((block, newest.bytes))
    }

    /// Removes the newest version of every block, in address order.
    pub(super) fn take_all(&mut self) -> Vec<(u64, Box<Block>)> {
        let blocks = std::mem::take(&mut self.blocks);
        blocks
            .into_iter()
            .filter_map(|(b, mut v)| Some((b, v.pop()?.bytes)))
            .collect()
    }

    /// Cuts the power. Calls `apply` for each block of which something reached the medium; it must lay the given sectors over
    /// the block's present contents.
    pub(super) fn cut(
        &mut self,
        rng: &mut Rng,
        mut apply: impl FnMut(u64, &[Option<&[u8]>]),
    ) -> CutReport {
        let writes: BTreeSet<u64> = self.blocks.values().flatten().map(|v| v.write).collect();
        let mut report = CutReport {
            writes: writes.len() as u64,
            ..CutReport::default()
        };
        // In 256ths. Cuts that lose almost nothing or almost everything are as revealing as those between.
        let keep = [0, 8, 128, 240, 255, 256][rng.below(6) as usize];
        let tear = [0, 16, 128][rng.below(3) as usize];
        let fates: BTreeMap<u64, Fate> = writes
            .into_iter()
            .map(|write| {
                let fate = if rng.chance(tear, 256) {
                    report.torn += 1;
                    if rng.chance(1, 2) {
                        Fate::Prefix(rng.below(64 * SECTORS as u64) as u32)
                    } else {
                        Fate::Sectors(rng.below(257) as u32)
                    }
                } else if rng.chance(keep, 256) {
                    report.kept += 1;
                    Fate::Kept
                } else {
                    report.dropped += 1;
                    Fate::Dropped
                };
                (write, fate)
            })
            .collect();
        for (block, versions) in std::mem::take(&mut self.blocks) {
            let mut sectors: [Option<&[u8]>; SECTORS] = [None; SECTORS];
            for (index, sector) in sectors.iter_mut().enumerate() {
                for version in &versions {
                    let survives = match fates.get(&version.write) {
                        Some(Fate::Kept) => true,
                        Some(Fate::Prefix(end)) => version.sector + (index as u32) < *end,
                        Some(Fate::Sectors(keep)) => rng.chance(*keep, 256),
                        Some(Fate::Dropped) | None => false,
                    };
                    // In any order; usually a newer write follows an older one.
                    if survives && (sector.is_none() || !rng.chance(1, 8)) {
                        let from = index * SECTOR_BYTES;
                        *sector = Some(&version.bytes[from..from + SECTOR_BYTES]);
                    }
                }
            }
            if sectors.iter().any(Option::is_some) {
                apply(block, &sectors);
            }
        }
        report
    }
}
