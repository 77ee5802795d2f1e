//! From the journal's inode to its blocks.

mod extents;
mod indirect;

use crate::aside::{Part, StoodAside};
use crate::inode::Inode;
use crate::limits::EXTENTS;
use crate::source::Reader;
use crate::span::{FsBlock, Span};
use crate::superblock::Superblock;
use crate::watch::{Watches, read_watched};

/// Blocks that follow each other on the disk and in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub first: FsBlock,
    pub blocks: u64,
}

/// The blocks of the file from its start, as far as they are known: without a hole, within the file system.
struct Runs<'a> {
    sb: &'a Superblock,
    inode: &'a Inode,
    runs: Vec<Run>,
    mapped: u64,
}

impl Runs<'_> {
    fn is_complete(&self) -> bool {
        self.mapped >= self.inode.blocks
    }

    /// Adds the file's next blocks; those behind its end do not count.
    fn push(&mut self, part: Part, at: u64, first: u64, blocks: u64) -> Result<(), StoodAside> {
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
        if self.runs.len() > EXTENTS {
            return Err(StoodAside::Limit {
                what: "the number of the journal's extents",
                limit: EXTENTS as u64,
            });
        }
        Ok(())
    }
}

/// Where the file's blocks are, in the file's order. Watches the blocks that say so.
pub(crate) fn map(
    sb: &Superblock,
    inode: &Inode,
    reader: &mut Reader<'_>,
    watches: &mut Watches,
) -> Result<Vec<Run>, StoodAside> {
    let mut runs = Runs {
        sb,
        inode,
        runs: Vec::new(),
        mapped: 0,
    };
    if inode.has_extents {
        extents::walk(&mut runs, reader, watches)?;
    } else {
        indirect::walk(&mut runs, reader, watches)?;
    }
    let fault = |field, found| StoodAside::Field {
        part: Part::JournalInode,
        at: inode.at,
        field,
        found,
    };
    if !runs.is_complete() {
        return Err(fault("i_size", inode.blocks * u64::from(sb.block_bytes)));
    }
    let mut sorted = runs.runs.clone();
    sorted.sort_unstable();
    if let Some(pair) = sorted
        .windows(2)
        .find(|pair| pair[0].first.0 + pair[0].blocks > pair[1].first.0)
    {
        return Err(fault("i_block", pair[1].first.0));
    }
    Ok(runs.runs)
}

/// Reads and watches one whole block of the file system.
fn read_block(
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
