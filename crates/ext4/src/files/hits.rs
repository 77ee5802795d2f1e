//! The blocks that a search looks for, and the roles that it finds for them.

use crate::limits::FILES_HITS;
use crate::metadata::MetadataKind;
use crate::span::Span;

pub(super) const PAGE: u64 = crate::limits::PAGE_BYTES as u64;

/// The role of a block in the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// Placed by mke2fs, for a group of blocks.
    Fixed(MetadataKind, u64),
    /// Contents of a file, from this byte of the file on. A directory's blocks are its contents.
    Content(u32, u64),
    /// Records where an inode's blocks are.
    Tree(u32),
    /// Extended attributes of an inode; of one of them, if several inodes share the block.
    Attributes(u32),
}

impl Use {
    /// The inode that it belongs to, if any.
    #[must_use]
    pub fn inode(self) -> Option<u32> {
        match self {
            Self::Fixed(..) => None,
            Self::Content(inode, _) | Self::Tree(inode) | Self::Attributes(inode) => Some(inode),
        }
    }
}

/// A block of the volume and its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hit {
    /// The block of 4096 bytes, counted from the volume's start.
    pub block: u64,
    /// Its role.
    pub is: Use,
}

/// The results so far.
pub(super) struct Hits<'a> {
    pub wanted: &'a [u64],
    pub found: Vec<Hit>,
    pub cut_short: bool,
}

impl Hits<'_> {
    /// Records the wanted blocks in a span. `what` receives the offset in the span and returns the role.
    pub fn look(&mut self, span: Span, what: impl Fn(u64) -> Use) {
        let first = self
            .wanted
            .partition_point(|block| (block + 1) * PAGE <= span.start);
        for &block in &self.wanted[first..] {
            if block * PAGE >= span.end() {
                return;
            }
            if self.found.len() == FILES_HITS {
                self.cut_short = true;
                return;
            }
            let is = what((block * PAGE).saturating_sub(span.start));
            self.found.push(Hit { block, is });
        }
    }
}
