//! Where the block bitmaps are, and which blocks no bitmap may mark as free.

use super::bits::{BITS, Bits};
use super::not_followed::NotFollowed;
use crate::allowance::Allowance;
use crate::aside::StoodAside;
use crate::journal::{Alignment, Journal};
use crate::metadata::{Metadata, MetadataKind};
use crate::scan::FileSystem;
use crate::source::Source;
use crate::span::Span;
use core::ops::Range;
use std::collections::HashMap;

/// The only block size that is followed: the device's own.
pub(super) const BLOCK: u64 = 4096;

/// The groups of a file system, as needed to follow it.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The range of the volume that the file system uses, in bytes.
    pub home: Span,
    blocks: u64,
    blocks_per_group: u64,
    /// The group whose bitmap is in each block.
    bitmaps: HashMap<u64, u64>,
    /// The block with each group's bitmap.
    bitmap_blocks: Vec<u64>,
    /// Blocks used by mke2fs or the journal, in order, with gaps between them.
    fixed: Vec<Range<u64>>,
}

impl Places {
    pub fn new(
        found: &FileSystem,
        source: &mut dyn Source,
        volume_blocks: u64,
        allowance: &mut Allowance,
    ) -> Result<Self, NotFollowed> {
        let sb = found.superblock.as_ref().ok_or(NotFollowed::NoSuperblock)?;
        let journal = found.journal.as_ref().map_err(|_| NotFollowed::NoJournal)?;
        check_kind(found, journal)?;
        let blocks_per_group = u64::from(sb.blocks_per_group);
        if blocks_per_group > BITS {
            return Err(NotFollowed::NoSuperblock);
        }
        let mut places = Self {
            home: found.home,
            blocks: sb.blocks,
            blocks_per_group,
            bitmaps: HashMap::new(),
            bitmap_blocks: Vec::new(),
            fixed: Vec::new(),
        };
        let mut metadata =
            Metadata::new(found, volume_blocks, allowance).ok_or(NotFollowed::NoSuperblock)?;
        places.add_metadata(&mut metadata, source)?;
        places.add_journal(&journal.extents)?;
        places.merge();
        Ok(places)
    }

    /// Adds the groups' bitmaps and tables. No two bitmaps may be in one block.
    fn add_metadata(
        &mut self,
        metadata: &mut Metadata,
        source: &mut dyn Source,
    ) -> Result<(), NotFollowed> {
        let mut is_twice = false;
        while let Some(next) = metadata.next(source) {
            // A group that cannot be read would simply keep its blocks. But then the places of its tables are unknown, and they
            // may be among another group's blocks, so the file system is not followed.
            let found = next.map_err(|aside| match aside {
                StoodAside::Limit { .. } => NotFollowed::TooLarge,
                _ => NotFollowed::Descriptors,
            })?;
            let block = (found.span.start - self.home.start) / BLOCK;
            self.fixed.push(block..block + found.span.bytes / BLOCK);
            if found.kind == MetadataKind::BlockBitmap {
                self.bitmap_blocks.push(block);
                is_twice |= self.bitmaps.insert(block, found.group).is_some();
            }
        }
        if is_twice {
            return Err(NotFollowed::Descriptors);
        }
        Ok(())
    }

    /// Adds the journal's blocks. No bitmap may be among them.
    fn add_journal(&mut self, extents: &[Span]) -> Result<(), NotFollowed> {
        for extent in extents {
            let first = (extent.start - self.home.start) / BLOCK;
            let mut run = first..first + extent.bytes / BLOCK;
            self.fixed.push(run.clone());
            let has_bitmap = if run.end - run.start < self.bitmaps.len() as u64 {
                run.any(|block| self.bitmaps.contains_key(&block))
            } else {
                self.bitmaps.keys().any(|block| run.contains(block))
            };
            if has_bitmap {
                return Err(NotFollowed::Descriptors);
            }
        }
        Ok(())
    }

    fn merge(&mut self) {
        self.fixed.sort_unstable_by_key(|run| run.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for run in self.fixed.drain(..) {
            match merged.last_mut() {
                Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                _ => merged.push(run),
            }
        }
        self.fixed = merged;
    }

    /// The block at a byte of the volume, if it is in the file system.
    pub fn block_at(&self, offset: u64) -> Option<u64> {
        let within = offset.checked_sub(self.home.start)?;
        (within < self.home.bytes).then_some(within / BLOCK)
    }

    pub fn bitmap_of(&self, block: u64) -> Option<u64> {
        self.bitmaps.get(&block).copied()
    }

    /// The group of a block, and its index there.
    pub fn group_of(&self, block: u64) -> (u64, u64) {
        (block / self.blocks_per_group, block % self.blocks_per_group)
    }

    /// Blocks in a full group.
    pub fn group_len(&self) -> u64 {
        self.blocks_per_group
    }

    /// True if the bitmap of a group is in a run of blocks.
    pub fn bitmap_is_in(&self, group: u64, run: &Range<u64>) -> bool {
        self.bitmap_blocks
            .get(group as usize)
            .is_some_and(|block| run.contains(block))
    }

    fn blocks_in(&self, group: u64) -> Range<u64> {
        let first = group * self.blocks_per_group;
        first..(first + self.blocks_per_group).min(self.blocks)
    }

    /// The range of the volume for a run of a group's blocks.
    pub fn span(&self, group: u64, run: Range<u64>) -> Span {
        let first = group * self.blocks_per_group + run.start;
        Span::new(
            self.home.start + first * BLOCK,
            (run.end - run.start) * BLOCK,
        )
    }

    /// The blocks that a bitmap marks as free. `None` if it cannot be this group's, because it marks as free what mke2fs has put
    /// there, or what is past the group's end.
    pub fn free(&self, group: u64, used: &Bits) -> Option<Bits> {
        let all = self.blocks_in(group);
        let count = all.end.saturating_sub(all.start);
        if !used.has_all(count..BITS) {
            return None;
        }
        let near = self.fixed.partition_point(|run| run.end <= all.start);
        for run in &self.fixed[near..] {
            if run.start >= all.end {
                break;
            }
            let from = run.start.max(all.start) - all.start;
            if !used.has_all(from..run.end.min(all.end) - all.start) {
                return None;
            }
        }
        Some(used.others())
    }
}

/// Refuses a file system whose bitmaps do not say what is free, or that is not in use.
fn check_kind(found: &FileSystem, journal: &Journal) -> Result<(), NotFollowed> {
    let features = found.features;
    if u64::from(found.block_bytes) != BLOCK || journal.alignment != Alignment::Aligned {
        return Err(NotFollowed::Unaligned);
    }
    if journal.is_external {
        return Err(NotFollowed::ExternalJournal);
    }
    if features.bigalloc() {
        return Err(NotFollowed::Bigalloc);
    }
    if features.fast_commit() || journal.format.features.fast_commit() {
        return Err(NotFollowed::FastCommit);
    }
    if !features.needs_recovery() {
        return Err(NotFollowed::NotMounted);
    }
    Ok(())
}
