//! What the blocks of a volume are to its file systems, as the last scan has it: a hint, for counters and for whether a
//! content is worth an entry of the index. Nothing depends on its being right.

use crate::limits::METADATA_RANGES;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::seam::{Class, Digest};
use vellum_ext4::{Dynamic, Metadata, Scan, Source, Span};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// What jbd2 begins its own blocks with, in the byte order of [`Digest::first`].
pub(crate) const JBD2_MAGIC: u32 = 0xC03B_3998u32.swap_bytes();

/// Blocks of metadata, outside of journals.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    /// First block and the one after the last; in order, none touching another.
    metadata: Vec<(u64, u64)>,
}

impl Classes {
    /// Walks what mke2fs has put at fixed places, and the inodes as well if `follow` says so: that reads all inode
    /// tables. `stop`: ends it early, with what there is.
    pub fn new(
        scan: &Scan,
        source: &mut dyn Source,
        blocks: u64,
        follow: bool,
        stop: &AtomicBool,
    ) -> Self {
        let mut metadata = Vec::new();
        let mut add = |span: Span| {
            metadata.push((span.start / BLOCK, span.end().div_ceil(BLOCK)));
            if metadata.len() >= 2 * METADATA_RANGES {
                join(&mut metadata);
            }
            metadata.len() < METADATA_RANGES && !stop.load(Ordering::Relaxed)
        };
        for found in &scan.file_systems {
            if let Some(mut fixed) = Metadata::new(found, blocks) {
                while let Some(next) = fixed.next(source) {
                    if next.is_ok_and(|next| !add(next.span)) {
                        break;
                    }
                }
            }
            if let Some(mut dynamic) = Dynamic::new(found, blocks).filter(|_| follow) {
                while let Some(next) = dynamic.next(source) {
                    if next.is_ok_and(|next| !add(next.span)) {
                        break;
                    }
                }
            }
        }
        join(&mut metadata);
        metadata.truncate(METADATA_RANGES);
        Self { metadata }
    }

    pub fn is_metadata(&self, block: u64) -> bool {
        let near = self.metadata.partition_point(|(_, after)| *after <= block);
        self.metadata
            .get(near)
            .is_some_and(|(first, _)| *first <= block)
    }

    /// What a block is that is written; `in_journal`: whether it is in one.
    pub fn of(&self, block: u64, digest: &Digest, in_journal: bool) -> Class {
        match in_journal {
            true if digest.first == JBD2_MAGIC => Class::Journal,
            true => Class::Copy,
            false if self.is_metadata(block) => Class::Metadata,
            false => Class::Data,
        }
    }
}

fn join(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let touches = next.0 <= last.1;
        if touches {
            last.1 = last.1.max(next.1);
        }
        touches
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_found() {
        let mut ranges = vec![(7, 9), (1, 3), (3, 4), (8, 12), (20, 21)];
        join(&mut ranges);
        assert_eq!(ranges, [(1, 4), (7, 12), (20, 21)]);
        let classes = Classes { metadata: ranges };
        let found: Vec<u64> = (0..25)
            .filter(|block| classes.is_metadata(*block))
            .collect();
        assert_eq!(found, [1, 2, 3, 7, 8, 9, 10, 11, 20]);
        let plain = Digest::default();
        let own = Digest {
            first: JBD2_MAGIC,
            ..plain
        };
        assert_eq!(classes.of(8, &own, true), Class::Journal);
        assert_eq!(classes.of(8, &plain, true), Class::Copy);
        assert_eq!(classes.of(8, &own, false), Class::Metadata);
        assert_eq!(classes.of(5, &own, false), Class::Data);
    }
}
