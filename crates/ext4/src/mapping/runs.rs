//! A file's blocks, as far as they are known.

use crate::aside::{Part, StoodAside};
use crate::inode::Inode;
use crate::source::Reader;
use crate::span::{FsBlock, Span};
use crate::superblock::Superblock;
use crate::watch::{Watches, read_watched};

/// Blocks that are contiguous on the disk and in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub first: FsBlock,
    pub blocks: u64,
}

/// The file's blocks from its start, as far as they are known: without holes, and inside the file system.
pub(super) struct Runs<'a> {
    pub sb: &'a Superblock,
    pub inode: &'a Inode,
    pub runs: Vec<Run>,
    pub mapped: u64,
    /// The most runs.
    pub most: usize,
}

impl Runs<'_> {
    pub fn is_complete(&self) -> bool {
        self.mapped >= self.inode.blocks
    }

    /// Adds the file's next blocks. Those past its end do not count.
    pub fn push(&mut self, part: Part, at: u64, first: u64, blocks: u64) -> Result<(), StoodAside> {
        let blocks = blocks.min(self.inode.blocks - self.mapped);
        if blocks == 0 {
            return Ok(());
        }
        if self.sb.blocks_at(FsBlock(first), blocks).is_none() {
            return Err(StoodAside::Field {
                part,
                at,
                field: "block",
                found: first,
            });
        }
        self.mapped += blocks;
        match self.runs.last_mut() {
            Some(last) if last.first.0 + last.blocks == first => last.blocks += blocks,
            _ => self.runs.push(Run {
                first: FsBlock(first),
                blocks,
            }),
        }
        if self.runs.len() > self.most {
            return Err(StoodAside::Limit {
                what: "the number of the journal's extents",
                limit: self.most as u64,
            });
        }
        Ok(())
    }
}

/// Reads and watches one whole block of the file system.
pub(super) fn read_block(
    sb: &Superblock,
    block: u64,
    blame: StoodAside,
    reader: &mut Reader<'_>,
    watches: &mut Watches,
) -> Result<(Span, Vec<u8>), StoodAside> {
    let span = sb.blocks_at(FsBlock(block), 1).ok_or(blame)?;
    let bytes = read_watched(reader, watches, span.start, span.bytes as usize)?;
    Ok((span, bytes))
}
