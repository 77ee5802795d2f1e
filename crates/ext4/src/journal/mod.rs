//! The journal (jbd2): where it is, how its blocks are laid out, and what they are copies of.

mod block;
mod commits;
mod follow;
mod layout;
mod runs;
mod sums;
mod superblock;
mod transactions;

pub use block::{Block, Descriptor, Revoke, Tag};
pub use commits::{Commits, Mark, Verdict, begins_a_log};
pub use follow::{Followed, Follower};
pub use layout::Layout;
pub use sums::CopySum;
pub use superblock::Log;
pub(crate) use superblock::{BYTES as SUPERBLOCK_BYTES, Checked, check, watch};
pub use transactions::{Content, Copy, Head, Reader, Told, Transactions};

use crate::span::{Span, Uuid};

/// A block of a journal, counted from its start; for an external journal from its partition's start, as jbd2
/// does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalBlock(pub u32);

/// A transaction's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sequence(pub u32);

/// The features of a journal. A journal that was never used has none: the kernel sets them when it mounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalFeatures {
    /// `s_feature_compat`
    pub compatible: u32,
    /// `s_feature_incompat`
    pub incompatible: u32,
}

impl JournalFeatures {
    /// Revoke, 64bit, async commit, checksums v2 and v3, fast commit.
    const INCOMPATIBLE: u32 = 0x3F;

    /// Commit blocks have a checksum of the transaction's data (v1).
    #[must_use]
    pub fn checksum_v1(self) -> bool {
        self.compatible & 1 != 0
    }

    /// There are, or were, revoke blocks.
    #[must_use]
    pub fn revoke(self) -> bool {
        self.incompatible & 1 != 0
    }

    /// Home addresses have 64 bits.
    #[must_use]
    pub fn wide(self) -> bool {
        self.incompatible & 2 != 0
    }

    /// A commit block may be written before what it commits.
    #[must_use]
    pub fn async_commit(self) -> bool {
        self.incompatible & 4 != 0
    }

    /// All blocks have checksums; those of the copies have 16 bits.
    #[must_use]
    pub fn checksum_v2(self) -> bool {
        self.incompatible & 8 != 0
    }

    /// All blocks have checksums; those of the copies have 32 bits.
    #[must_use]
    pub fn checksum_v3(self) -> bool {
        self.incompatible & 0x10 != 0
    }

    /// The last blocks are the fast-commit area.
    #[must_use]
    pub fn fast_commit(self) -> bool {
        self.incompatible & 0x20 != 0
    }
}

/// All that is needed to read a journal's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalFormat {
    /// Bytes in a block.
    pub block_bytes: u32,
    /// The first block of the log.
    pub first: JournalBlock,
    /// The block after its last: there it wraps. The fast-commit area follows, if there is one.
    pub end: JournalBlock,
    /// Its features.
    pub features: JournalFeatures,
    /// Seed of the checksums v2 and v3.
    pub seed: u32,
}

impl JournalFormat {
    /// The block after `block` in the log.
    #[must_use]
    pub fn after(&self, block: JournalBlock) -> JournalBlock {
        match block.0.saturating_add(1) {
            next if next < self.end.0 => JournalBlock(next),
            _ => self.first,
        }
    }

    pub(crate) fn has_block_checksums(&self) -> bool {
        self.features.checksum_v2() || self.features.checksum_v3()
    }
}

/// Whether all fits the blocks of 4096 bytes that the device works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// It does: each block of the journal and of its file system begins at a multiple of 4096 bytes.
    Aligned,
    /// It does not, for this reason: a copy in the journal is no whole block, or not one alone.
    Unaligned(Unaligned),
}

/// What is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unaligned {
    /// The file system's blocks are smaller.
    BlockSize(u32),
    /// The file system's partition begins elsewhere.
    Partition(Span),
    /// The external journal's partition does.
    JournalPartition(Span),
}

/// A journal that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Its bytes, in the journal's order.
    pub extents: Vec<Span>,
    /// How to read its blocks; `first` and `end` of the log are there.
    pub format: JournalFormat,
    /// `s_maxlen`: its length in blocks, superblock and fast-commit area included.
    pub blocks: u32,
    /// The length of the fast-commit area, which lies at its end.
    pub fast_commit_blocks: u32,
    /// Its own UUID.
    pub uuid: Uuid,
    /// Where its superblock is.
    pub superblock: JournalBlock,
    /// Whether it is a partition, or a volume, of its own.
    pub is_external: bool,
    /// Whether it can be worked with in blocks of 4096 bytes.
    pub alignment: Alignment,
}
