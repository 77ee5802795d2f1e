//! What mke2fs put at fixed places: superblocks, group descriptors, bitmaps, inode tables.

use crate::allowance::Allowance;
use crate::aside::StoodAside;
use crate::group;
use crate::scan::FileSystem;
use crate::source::{Reader, Source};
use crate::span::{FsBlock, Span};
use crate::superblock::Superblock;
use std::collections::VecDeque;

/// What lies in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetadataKind {
    /// The superblock's block, or that of a backup.
    Superblock,
    /// Group descriptors, or a backup of them, and the room that is kept for more.
    GroupDescriptors,
    /// Which blocks of a group are used.
    BlockBitmap,
    /// Which inodes of a group are used.
    InodeBitmap,
    /// A group's inodes.
    InodeTable,
}

/// A range of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataSpan {
    /// What lies there.
    pub kind: MetadataKind,
    /// The group that it belongs to.
    pub group: u64,
    /// Where.
    pub span: Span,
    /// Whether it was ever written: of a group that was never used, bitmaps and inodes need not have been.
    pub is_written: bool,
}

/// Walks the groups of a file system. It reads each block of descriptors once and holds one, so that a caller
/// can stop and go on; a group whose descriptor does not hold is told and passed over. A file system that has more
/// groups than are left to be walked is not walked at all, and one whose descriptors are too much to read ends there:
/// that is told once, and last.
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
    /// Of a file system on a volume of `volume_blocks` blocks of 4096 bytes; none if its superblock is not to
    /// be trusted.
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

    /// The next range; none at the end.
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

    /// The same of what the superblock alone tells: it and the group descriptors, with their backups. Nothing is read.
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

    /// Goes on to the next group.
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

    /// The superblock and the descriptors that the group holds, by `ext4_bg_has_super` and `ext4_bg_num_gdb`.
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
