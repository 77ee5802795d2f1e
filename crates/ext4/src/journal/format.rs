//! A checked journal, and how its blocks are read.

use crate::span::{Span, Uuid};

/// A block of a journal, counted from its start; for an external journal, from the start of its partition, as jbd2 does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalBlock(pub u32);

/// A transaction's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sequence(pub u32);

/// The features of a journal. A journal that was never used has none: the kernel sets them when it mounts the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalFeatures {
    /// `s_feature_compat`
    pub compatible: u32,
    /// `s_feature_incompat`
    pub incompatible: u32,
}

impl JournalFeatures {
    /// Revoke, 64bit, async commit, checksums v2 and v3, fast commit.
    pub(super) const INCOMPATIBLE: u32 = 0x3F;

    /// Commit blocks have a checksum of the transaction's data (v1).
    #[must_use]
    pub fn checksum_v1(self) -> bool {
        self.compatible & 1 != 0
    }

    /// There are revoke blocks, or were.
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

/// Everything needed to read a journal's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalFormat {
    /// Bytes in a block.
    pub block_bytes: u32,
    /// The first block of the log.
    pub first: JournalBlock,
    /// The block after its last, where the log wraps. The fast-commit area follows, if there is one.
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

    /// The block so many after `block`, which is in the log.
    pub(crate) fn after_some(&self, block: JournalBlock, blocks: u32) -> JournalBlock {
        let (first, log) = (
            u64::from(self.first.0),
            u64::from(self.end.0 - self.first.0),
        );
        let within = u64::from(block.0.saturating_sub(self.first.0)) + u64::from(blocks);
        JournalBlock((first + within % log.max(1)) as u32)
    }

    pub(crate) fn has_block_checksums(&self) -> bool {
        self.features.checksum_v2() || self.features.checksum_v3()
    }
}

/// Whether everything is aligned to the device's blocks of 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// It is: each block of the journal and of its file system begins at a multiple of 4096 bytes.
    Aligned,
    /// It is not, for this reason. A copy in the journal is not a whole block, or shares one.
    Unaligned(Unaligned),
}

/// What is not aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unaligned {
    /// The file system's blocks are smaller.
    BlockSize(u32),
    /// The file system's partition is not aligned.
    Partition(Span),
    /// The external journal's partition is not aligned.
    JournalPartition(Span),
}

/// A checked journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Its ranges on the volume, in the journal's order.
    pub extents: Vec<Span>,
    /// How to read its blocks; `first` and `end` of the log exist.
    pub format: JournalFormat,
    /// Its log was empty when it was found.
    pub is_empty: bool,
    /// `s_maxlen`: its length in blocks, superblock and fast-commit area included.
    pub blocks: u32,
    /// The length of the fast-commit area at its end.
    pub fast_commit_blocks: u32,
    /// Its own UUID.
    pub uuid: Uuid,
    /// The block of its superblock.
    pub superblock: JournalBlock,
    /// True if it has a partition, or a volume, of its own.
    pub is_external: bool,
    /// Whether it can be used in blocks of 4096 bytes.
    pub alignment: Alignment,
}
