//! Metadata that is allocated dynamically: directories, nodes of extent trees, indirect blocks, attribute blocks.
//!
//! It is found by walking the inodes, so the result is true for one moment only. It is a hint: the checksums of inodes and nodes are not
//! verified, and the result may be used only to guess where small changes are likely. The work is bounded over all walks ([`Allowance`]),
//! however tangled the trees are: each node costs a read, and must be less deep than its parent.

use crate::allowance::Allowance;
use crate::aside::{Part, StoodAside};
use crate::group;
use crate::inode::{self, Sketch};
use crate::limits::{DYNAMIC_SPANS, EXTENT_DEPTH};
use crate::scan::FileSystem;
use crate::source::{Reader, Source};
use crate::span::{FsBlock, Span};
use crate::superblock::Superblock;
use crate::tree::{ENTRY, EXTENT_MAGIC, extent_blocks, numbers, roots};
use crate::watch::Watches;
use std::collections::VecDeque;

/// The contents of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DynamicKind {
    /// The blocks of a directory.
    Directory,
    /// A node of an extent tree.
    ExtentNode,
    /// Block numbers, as in ext3.
    IndirectBlock,
    /// Extended attributes.
    Attributes,
}

/// A range of metadata, and the inode that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicSpan {
    /// Its contents.
    pub kind: DynamicKind,
    /// The inode's number.
    pub inode: u32,
    /// The range.
    pub span: Span,
}

/// Walks the inodes of a file system. It reads each block of the inode tables once and holds one at a time, so a caller can pause
/// and continue. A damaged inode is reported and skipped.
#[derive(Debug)]
pub struct Dynamic<'a> {
    sb: &'a Superblock,
    volume_bytes: u64,
    allowance: &'a mut Allowance,
    group: u64,
    table: Option<Table>,
    ready: VecDeque<DynamicSpan>,
    is_over: bool,
}

impl<'a> Dynamic<'a> {
    /// Starts a walk on a volume of `volume_blocks` blocks of 4096 bytes. `None` if the superblock is not trusted.
    #[must_use]
    pub fn new(
        found: &'a FileSystem,
        volume_blocks: u64,
        allowance: &'a mut Allowance,
    ) -> Option<Self> {
        Some(Self {
            sb: found.superblock.as_ref()?,
            volume_bytes: volume_blocks.saturating_mul(4096),
            allowance,
            group: 0,
            table: None,
            ready: VecDeque::new(),
            is_over: false,
        })
    }

    /// The next range. `None` at the end, or when the walks have used up their budget, which is reported once.
    pub fn next(&mut self, source: &mut dyn Source) -> Option<Result<DynamicSpan, StoodAside>> {
        while !self.is_over {
            if let Some(ready) = self.ready.pop_front() {
                return Some(Ok(ready));
            }
            let left = self.allowance.inodes;
            let mut reader = Reader::with_budget(source, self.volume_bytes, left);
            let step = self.step(&mut reader);
            self.allowance.inodes = reader.budget();
            match step {
                Ok(true) => {}
                Ok(false) => self.is_over = true,
                Err(aside) => {
                    self.is_over = matches!(
                        aside,
                        StoodAside::Limit {
                            what: "reading",
                            ..
                        }
                    );
                    return Some(Err(aside));
                }
            }
        }
        None
    }

    /// Examines inodes up to the next one that leads somewhere, or enters the next group. Returns false at the end.
    fn step(&mut self, reader: &mut Reader<'_>) -> Result<bool, StoodAside> {
        let sb = self.sb;
        let Some(table) = &mut self.table else {
            if self.group >= sb.groups() {
                return Ok(false);
            }
            let group = self.group;
            self.group += 1;
            let found = group::read(sb, group, reader, &mut Watches::default())?;
            let count = found.inodes.min(sb.inodes_per_group);
            self.table = (count > 0).then_some(Table {
                first: group * u64::from(sb.inodes_per_group) + 1,
                span: found.inode_table,
                count,
                next: 0,
                block: Vec::new(),
            });
            return Ok(true);
        };
        let inode_bytes = usize::from(sb.inode_bytes);
        let per_block = sb.block_bytes / u32::from(sb.inode_bytes);
        loop {
            let index = table.next;
            if index >= table.count {
                self.table = None;
                return Ok(true);
            }
            table.next += 1;
            let within = (index % per_block) as usize * inode_bytes;
            let at = table.span.start + u64::from(index) * inode_bytes as u64;
            if within == 0 {
                table.block.clear();
                match reader.read(at, sb.block_bytes as usize) {
                    Ok(block) => table.block = block,
                    Err(aside) => {
                        table.next = (index + per_block).min(table.count);
                        return Err(aside);
                    }
                }
            }
            let Some(sketch) = table
                .block
                .get(within..within + inode_bytes)
                .and_then(inode::sketch)
            else {
                continue;
            };
            let mut walk = Walk {
                sb,
                inode: (table.first + u64::from(index)) as u32,
                at,
                is_directory: sketch.is_directory,
                out: &mut self.ready,
                told: 0,
            };
            walk.inode(&sketch, reader)?;
            if !self.ready.is_empty() {
                return Ok(true);
            }
        }
    }
}

/// The inode table being walked.
#[derive(Debug)]
struct Table {
    /// Its first inode.
    first: u64,
    span: Span,
    /// How many inodes to examine.
    count: u32,
    next: u32,
    /// The block with the next inode.
    block: Vec<u8>,
}

/// The walk of one inode.
struct Walk<'a> {
    sb: &'a Superblock,
    inode: u32,
    at: u64,
    is_directory: bool,
    out: &'a mut VecDeque<DynamicSpan>,
    told: usize,
}

impl Walk<'_> {
    fn tell(&mut self, kind: DynamicKind, block: u64, count: u64) -> Result<Span, StoodAside> {
        let blame = fault(Part::Inode, self.at, "block", block);
        let span = self.sb.blocks_at(FsBlock(block), count).ok_or(blame)?;
        if self.told == DYNAMIC_SPANS {
            return Err(StoodAside::Limit {
                what: "the number of an inode's blocks of metadata",
                limit: DYNAMIC_SPANS as u64,
            });
        }
        self.told += 1;
        let inode = self.inode;
        self.out.push_back(DynamicSpan { kind, inode, span });
        Ok(span)
    }

    fn inode(&mut self, sketch: &Sketch, reader: &mut Reader<'_>) -> Result<(), StoodAside> {
        if sketch.attributes != 0 {
            self.tell(DynamicKind::Attributes, sketch.attributes, 1)?;
        }
        let Some(root) = &sketch.root else {
            return Ok(());
        };
        if sketch.has_extents {
            let at = self.at;
            let (_, _, depth) = Self::header(root, at)?;
            if depth > EXTENT_DEPTH {
                return Err(fault(Part::Inode, at, "eh_depth", depth.into()));
            }
            return self.extents(root, at, depth, reader);
        }
        for (depth, block) in roots(root) {
            self.indirect(block, depth, reader)?;
        }
        Ok(())
    }

    /// The number of entries, the most entries, and the depth of a node.
    fn header(bytes: &[u8], at: u64) -> Result<(u16, u16, u16), StoodAside> {
        let field = |at: usize| {
            bytes
                .get(at..at + 2)
                .map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
        };
        let (magic, entries, most, depth) = (field(0), field(2), field(4), field(6));
        if magic != EXTENT_MAGIC {
            return Err(fault(Part::ExtentNode, at, "eh_magic", magic.into()));
        }
        if entries > most || usize::from(most) > (bytes.len() - ENTRY) / ENTRY {
            return Err(fault(Part::ExtentNode, at, "eh_entries", entries.into()));
        }
        Ok((entries, most, depth))
    }

    fn extents(
        &mut self,
        bytes: &[u8],
        at: u64,
        depth: u16,
        reader: &mut Reader<'_>,
    ) -> Result<(), StoodAside> {
        let (entries, _, own) = Self::header(bytes, at)?;
        if own != depth {
            return Err(fault(Part::ExtentNode, at, "eh_depth", own.into()));
        }
        let entries = bytes[ENTRY..]
            .chunks_exact(ENTRY)
            .take(usize::from(entries));
        for entry in entries {
            let half = |at: usize| u64::from(u16::from_le_bytes([entry[at], entry[at + 1]]));
            if depth > 0 {
                let block = half(8) << 32 | half(6) << 16 | half(4);
                let span = self.tell(DynamicKind::ExtentNode, block, 1)?;
                let bytes = reader.read(span.start, span.bytes as usize)?;
                self.extents(&bytes, span.start, depth - 1, reader)?;
            } else if self.is_directory {
                let length = extent_blocks(half(4) as u16);
                let block = half(6) << 32 | half(10) << 16 | half(8);
                if length > 0 {
                    self.tell(DynamicKind::Directory, block, length.into())?;
                }
            }
        }
        Ok(())
    }

    fn indirect(
        &mut self,
        block: u64,
        depth: usize,
        reader: &mut Reader<'_>,
    ) -> Result<(), StoodAside> {
        if block == 0 {
            return Ok(());
        }
        if depth == 0 {
            if self.is_directory {
                self.tell(DynamicKind::Directory, block, 1)?;
            }
            return Ok(());
        }
        let span = self.tell(DynamicKind::IndirectBlock, block, 1)?;
        // Blocks below the last level are data.
        if depth > 1 || self.is_directory {
            let bytes = reader.read(span.start, span.bytes as usize)?;
            for block in numbers(&bytes) {
                self.indirect(block, depth - 1, reader)?;
            }
        }
        Ok(())
    }
}

fn fault(part: Part, at: u64, field: &'static str, found: u64) -> StoodAside {
    StoodAside::field(part, at, field, found)
}
