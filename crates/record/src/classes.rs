//! What blocks are to the file systems on the device. Reads the file systems at the beginning, and again when one
//! changes.

use crate::client::Client;
use crate::limits::{LOOK_LATEST, LOOK_QUIET, RANGES};
use crate::logs::Logs;
use std::time::Instant;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::block::BlockDevice;
use vellum_ext4::{Allowance, Metadata, MetadataKind, MetadataSpan, Scan, Span, scan};
use vellum_trace::limits::JOURNALS_MAX;
use vellum_trace::{Class, Committed, Journal};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The classes of blocks; see the module.
#[derive(Default)]
pub(crate) struct Classes {
    scan: Scan,
    /// Sorted and disjoint: the first block, the one after the last, and the class.
    ranges: Vec<(u64, u64, Class)>,
    /// File systems: the first block, and the one after the last.
    homes: Vec<(u64, u64)>,
    journals: Vec<Journal>,
    /// Finds complete transactions of the journals.
    logs: Logs,
    /// When the first and the last change arrived that were not looked at yet.
    due: Option<(Instant, Instant)>,
}

/// The blocks that a span touches.
fn blocks(span: Span) -> (u64, u64) {
    (span.start / BLOCK, span.end().div_ceil(BLOCK))
}

impl Classes {
    /// Reads the file systems of the device. True if the journals are not the same as before.
    pub fn look(&mut self, device: &dyn BlockDevice) -> bool {
        let size = device.blocks();
        let mut client = Client::new(device);
        self.due = None;
        self.scan = scan(&mut client, size);
        self.logs.look(&self.scan);
        let mut ranges = Vec::new();
        let mut journals = Vec::new();
        self.homes.clear();
        let mut allowance = Allowance::default();
        for found in &self.scan.file_systems {
            self.homes.push(blocks(found.home));
            for extent in found.journal.iter().flat_map(|journal| &journal.extents) {
                let (first, after) = blocks(*extent);
                ranges.push((first, after, Class::Journal));
                journals.push(Journal {
                    lba: first,
                    blocks: after - first,
                });
            }
            let Some(mut metadata) = Metadata::new(found, size, &mut allowance) else {
                continue;
            };
            while let Some(next) = metadata.next(&mut client) {
                let Ok(MetadataSpan { kind, span, .. }) = next else {
                    continue;
                };
                let class = match kind {
                    MetadataKind::Superblock => Class::Superblock,
                    MetadataKind::GroupDescriptors => Class::GroupDescriptors,
                    MetadataKind::BlockBitmap => Class::BlockBitmap,
                    MetadataKind::InodeBitmap => Class::InodeBitmap,
                    MetadataKind::InodeTable => Class::InodeTable,
                };
                let (first, after) = blocks(span);
                ranges.push((first, after, class));
                if ranges.len() >= RANGES {
                    break;
                }
            }
        }
        journals.retain(|journal| journal.lba + journal.blocks <= size);
        journals.truncate(JOURNALS_MAX);
        self.ranges = apart(ranges);
        let others = journals != self.journals;
        self.journals = journals;
        others
    }

    /// Where the journals are.
    pub fn journals(&self) -> &[Journal] {
        &self.journals
    }

    /// The class of a block.
    pub fn of(&self, lba: u64) -> Class {
        let behind = self.ranges.partition_point(|(first, ..)| *first <= lba);
        let before = behind.checked_sub(1).map(|at| self.ranges[at]);
        if let Some((_, after, class)) = before
            && lba < after
        {
            return class;
        }
        let within = |(first, after): &(u64, u64)| *first <= lba && lba < *after;
        match self.homes.iter().any(within) {
            true => Class::Other,
            false => Class::Unknown,
        }
    }

    /// Notes a written block: it may change what was found.
    pub fn written(&mut self, lba: u64, block: &[u8]) {
        if self.scan.touched(lba * BLOCK, block) {
            self.change();
        }
    }

    /// The blocks of journals' transactions that a write completes. None while a change waits to be looked at.
    pub fn committed(&mut self, first: u64, blocks: &[[u8; BLOCK_BYTES]]) -> Vec<Committed> {
        let mut committed = Vec::new();
        for (lba, block) in (first..).zip(blocks) {
            self.logs.written(lba, block, &mut committed);
        }
        if self.due.is_some() {
            committed.clear();
        }
        committed
    }

    /// Notes that something was written that was not looked at.
    pub fn missed(&mut self) {
        self.logs.forget();
    }

    /// Notes that blocks were discarded, or written with contents that were not looked at.
    pub fn covered(&mut self, lba: u64, blocks: u64) {
        if self.scan.overlaps(Span::new(lba * BLOCK, blocks * BLOCK)) {
            self.change();
        }
    }

    fn change(&mut self) {
        self.logs.forget();
        let now = Instant::now();
        let first = self.due.map_or(now, |(first, _)| first);
        self.due = Some((first, now));
    }

    /// True if it is time to look again.
    pub fn is_due(&self) -> bool {
        self.due.is_some_and(|(first, last)| {
            last.elapsed() >= LOOK_QUIET || first.elapsed() >= LOOK_LATEST
        })
    }
}

/// Sorts ranges and makes them disjoint: where two overlap, the first one keeps the overlap.
fn apart(mut ranges: Vec<(u64, u64, Class)>) -> Vec<(u64, u64, Class)> {
    ranges.sort_unstable();
    let mut end = 0;
    ranges.retain_mut(|(first, after, _)| {
        *first = end.max(*first);
        let stays = *first < *after;
        end = end.max(*after);
        stays
    });
    ranges
}

#[cfg(test)]
mod tests;
