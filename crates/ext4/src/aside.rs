//! Why a file system is not trusted.

use crate::span::Span;
use crate::unreadable::Unreadable;
use core::fmt;

/// A structure on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The MBR, or an extended partition's.
    Mbr,
    /// A GPT header.
    GptHeader,
    /// The GPT's entries.
    GptEntries,
    /// The file system's superblock.
    Superblock,
    /// A group descriptor.
    GroupDescriptor,
    /// The journal's inode.
    JournalInode,
    /// A node of the journal's extent tree.
    ExtentNode,
    /// A block of block numbers of the journal.
    IndirectBlock,
    /// The journal's own superblock.
    JournalSuperblock,
    /// Any inode.
    Inode,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mbr => "MBR",
            Self::GptHeader => "GPT header",
            Self::GptEntries => "GPT entries",
            Self::Superblock => "superblock",
            Self::GroupDescriptor => "group descriptor",
            Self::JournalInode => "journal inode",
            Self::ExtentNode => "extent node",
            Self::IndirectBlock => "indirect block",
            Self::JournalSuperblock => "journal superblock",
            Self::Inode => "inode",
        })
    }
}

/// Why a file system's journal is not used: the structure and the field at fault, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoodAside {
    /// A field has an impossible value.
    #[error("{part} at byte {at}: {field} is {found:#x}; e2fsck would tell more")]
    Field {
        /// The structure with the field.
        part: Part,
        /// The byte of the volume where the structure begins.
        at: u64,
        /// The kernel's name of the field.
        field: &'static str,
        /// The value found.
        found: u64,
    },
    /// A checksum does not match.
    #[error("{part} at byte {at}: its checksum is wrong; it is being written, or damaged")]
    Checksum {
        /// The structure it covers.
        part: Part,
        /// The byte of the volume where the structure begins.
        at: u64,
    },
    /// A feature that this crate does not know, or that no kernel has.
    #[error("{part} at byte {at}: unknown or unsupported features {bits:#x} in {field}")]
    Unsupported {
        /// The structure with the field.
        part: Part,
        /// The byte of the volume where the structure begins.
        at: u64,
        /// The kernel's name of the field.
        field: &'static str,
        /// The bits in question.
        bits: u32,
    },
    /// Two things overlap.
    #[error("{what} at bytes {span} lies over another; wipe the one that is no longer used")]
    Overlap {
        /// What overlaps.
        what: &'static str,
        /// Its range.
        span: Span,
    },
    /// The superblock's copy of the journal inode's block list differs from the inode.
    #[error("superblock at byte {at}: s_jnl_blocks is not the journal inode's i_block; run e2fsck")]
    BackupDisagrees {
        /// The byte of the volume where the superblock begins.
        at: u64,
    },
    /// Two devices claim to be one journal, or two file systems to own one.
    #[error("the journal {uuid} is there more than once, or has more than one owner")]
    Ambiguous {
        /// The journal's UUID.
        uuid: crate::span::Uuid,
    },
    /// Finding out would cost too much.
    #[error("{what} exceeds the limit of {limit}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// The limit ([`limits`](crate::limits)).
        limit: u64,
    },
    /// The bytes cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl StoodAside {
    /// True if it was not read, so that nothing is known to be wrong with it.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        matches!(self, Self::Limit { .. } | Self::Unreadable(_))
    }

    /// A field has an impossible value.
    pub(crate) fn field(part: Part, at: u64, field: &'static str, found: impl Into<u64>) -> Self {
        Self::Field {
            part,
            at,
            field,
            found: found.into(),
        }
    }
}
