//! What mke2fs put at fixed places: superblocks, group descriptors, bitmaps, inode tables.

use crate::allowance::Allowance;
use crate::aside::StoodAside;
use crate::group;
use crate::scan::FileSystem;
use crate::source::{Reader, Source};
use crate::span::{FsBlock, Span};
use crate::superblock::Superblock;
use std::collections::VecDeque;

/// The contents of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetadataKind {
    /// The block of the superblock or of a backup.
    Superblock,
    /// Group descriptors or a backup of them, and the space reserved for more.
    GroupDescriptors,
    /// The bitmap of used blocks in a group.
    BlockBitmap,
    /// The bitmap of used inodes in a group.
    InodeBitmap,
    /// A group's inodes.
    InodeTable,
}

/// A range of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataSpan {
    /// Its contents.
    pub kind: MetadataKind,
    /// The group that it belongs to.
    pub group: u64,
    /// The range.
    pub span: Span,
    /// True if it was ever written. In a group that was never used, bitmaps and inodes may be unwritten.
    pub is_written: bool,
}

/// Walks the groups of a file system. It reads each block of descriptors once and holds one at a time, so a caller can pause and
/// continue. A group with a bad descriptor is reported and skipped. A file system with more groups than the budget allows is not
/// walked at all. If its descriptors are too much to read, the walk ends there, which is reported once, as the last result.
#[derive(Debug)]
pub struct Metadata<'a> {
    sb: &'a Superblock,
    volume_bytes: u64,
    allowance: &'a mut Allowance,
    refused: Option<StoodAside>,
    group: u64,
    ready: VecDeque<MetadataSpan>,
    descriptors: Option<(FsBlock, Span, Vec<u8>)>,
}

impl<'a> Metadata<'a> {
    /// Starts a walk on a volume of `volume_blocks` blocks of 4096 bytes. `None` if the superblock is not trusted.
    #[must_use]
    pub fn new(
        found: &'a FileSystem,
        volume_blocks: u64,
        allowance: &'a mut Allowance,
    ) -> Option<Self> {
        let sb = found.superblock.as_ref()?;
        Some(Self {
            sb,
            volume_bytes: volume_blocks.saturating_mul(4096),
            refused: allowance.take_groups(sb.groups()).err(),
            allowance,
            group: 0,
            ready: VecDeque::new(),
            descriptors: None,
        })
    }

    /// How many groups there are.
    #[must_use]
    pub fn groups(&self) -> u64 {
        self.sb.groups()
    }

    /// The next range; `None` at the end.
    pub fn next(&mut self, source: &mut dyn Source) -> Option<Result<MetadataSpan, StoodAside>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(Ok(ready));
            }
            let described = self
                .enter()?
                .and_then(|group| self.described(group, source));
            if let Err(aside) = described {
                if matches!(aside, StoodAside::Limit { .. }) {
                    self.group = self.sb.groups();
                    self.ready.clear();
                }
                return Some(Err(aside));
            }
        }
    }

    /// Like `next`, but only for what the superblock alone determines: superblocks, group descriptors and their backups. Reads nothing.
    pub fn next_backup(&mut self) -> Option<Result<MetadataSpan, StoodAside>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(Ok(ready));
            }
            if let Err(aside) = self.enter()? {
                return Some(Err(aside));
            }
        }
    }

    /// Advances to the next group.
    fn enter(&mut self) -> Option<Result<u64, StoodAside>> {
        if let Some(refused) = self.refused.take() {
            self.group = self.sb.groups();
            return Some(Err(refused));
        }
        let group = self.group;
        if group >= self.sb.groups() {
            return None;
        }
        self.group += 1;
        self.fixed(group);
        Some(Ok(group))
    }

    fn push(&mut self, kind: MetadataKind, group: u64, span: Span) {
        self.push_if(true, kind, group, span);
    }

    fn push_if(&mut self, is_written: bool, kind: MetadataKind, group: u64, span: Span) {
        self.ready.push_back(MetadataSpan {
            kind,
            group,
            span,
            is_written,
        });
    }

    /// The superblock and the descriptors in a group, by `ext4_bg_has_super` and `ext4_bg_num_gdb`.
    fn fixed(&mut self, group: u64) {
        let sb = self.sb;
        let has_super = sb.group_has_super(group);
        let mut block = match group {
            0 => sb.own_block(),
            _ => sb.first_block_of(group),
        };
        if has_super {
            if let Some(span) = sb.blocks_at(FsBlock(block), 1) {
                self.push(MetadataKind::Superblock, group, span);
            }
            block += 1;
        }
        let per_block = sb.descriptors_per_block();
        let of_groups = sb.groups().div_ceil(per_block);
        let meta = group / per_block;
        let first_meta = match sb.name.features.meta_bg() {
            true => u64::from(sb.first_meta_group),
            false => u64::MAX,
        };
        let count = if meta < first_meta {
            let reserved = u64::from(sb.reserved_descriptor_blocks);
            u64::from(has_super) * (of_groups.min(first_meta) + reserved)
        } else {
            u64::from(matches!(group % per_block, 0 | 1) || group % per_block == per_block - 1)
        };
        if count > 0
            && let Some(span) = sb.blocks_at(FsBlock(block), count)
        {
            self.push(MetadataKind::GroupDescriptors, group, span);
        }
    }

    fn described(&mut self, group: u64, source: &mut dyn Source) -> Result<(), StoodAside> {
        let sb = self.sb;
        let (block, offset) = group::place(sb, group);
        let length = usize::from(sb.descriptor_bytes);
        if self
            .descriptors
            .as_ref()
            .is_none_or(|(held, ..)| *held != block)
        {
            self.descriptors = None;
            let span = group::span(sb, block)?;
            let left = self.allowance.descriptors;
            let mut reader = Reader::with_budget(source, self.volume_bytes, left);
            let bytes = reader.read(span.start, span.bytes as usize);
            self.allowance.descriptors = reader.budget();
            self.descriptors = Some((block, span, bytes?));
        }
        let Some((_, span, bytes)) = &self.descriptors else {
            return Ok(());
        };
        let at = span.start + offset as u64;
        let bytes = bytes.get(offset..offset + length).unwrap_or_default();
        let found = group::parse(sb, group, at, bytes)?;
        let (blocks, inodes) = (found.has_block_bitmap, found.inodes > 0);
        self.push_if(blocks, MetadataKind::BlockBitmap, group, found.block_bitmap);
        self.push_if(inodes, MetadataKind::InodeBitmap, group, found.inode_bitmap);
        self.push_if(inodes, MetadataKind::InodeTable, group, found.inode_table);
        Ok(())
    }
}
