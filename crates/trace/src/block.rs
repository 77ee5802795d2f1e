//! The known facts about one block that was written.

use crate::error::Problem;

/// The content of a block, without its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Content {
    /// The recorder did not look.
    #[default]
    Unknown,
    /// Zeros.
    Zero,
    /// Content with this digest: a hash under a key that is not in the trace.
    Digest(u64),
}

/// What the block is to the file system on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Not known.
    #[default]
    Unknown,
    /// In a file system, but none of the kinds below.
    Other,
    /// In a journal: a block of the journal's own.
    Journal,
    /// The superblock or a backup of it.
    Superblock,
    /// Group descriptors, or a backup of them.
    GroupDescriptors,
    /// A bitmap of used blocks.
    BlockBitmap,
    /// A bitmap of used inodes.
    InodeBitmap,
    /// Inodes.
    InodeTable,
    /// In a journal: a copy of another block.
    Copy,
}

impl Class {
    /// All of them, by their numbers in a trace.
    pub const ALL: [Self; 9] = [
        Self::Unknown,
        Self::Other,
        Self::Journal,
        Self::Superblock,
        Self::GroupDescriptors,
        Self::BlockBitmap,
        Self::InodeBitmap,
        Self::InodeTable,
        Self::Copy,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Other => "other",
            Self::Journal => "journal",
            Self::Superblock => "superblock",
            Self::GroupDescriptors => "group descriptors",
            Self::BlockBitmap => "block bitmap",
            Self::InodeBitmap => "inode bitmap",
            Self::InodeTable => "inode table",
            Self::Copy => "journaled",
        }
    }

    fn from_number(number: u8) -> Self {
        // A later recorder may know more classes.
        let found = Self::ALL.get(usize::from(number));
        found.copied().unwrap_or(Self::Unknown)
    }
}

/// One block of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Its content.
    pub content: Content,
    /// Bytes that it can be stored in. 4096: it does not get smaller. None: not tried.
    pub packed: Option<u16>,
    /// Bytes that it can be stored in as a difference from its previous content. None: not known.
    pub delta: Option<u16>,
    /// What it is to the file system.
    pub class: Class,
}

const CONTENT: u8 = 3;
const HAS_PACKED: u8 = 1 << 2;
const HAS_DELTA: u8 = 1 << 3;
const SIZE_MAX: u16 = 4096;

impl Block {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, digest) = match self.content {
            Content::Unknown => (0, None),
            Content::Zero => (1, None),
            Content::Digest(digest) => (2, Some(digest)),
        };
        let flag = |size: Option<u16>, bit| if size.is_some() { bit } else { 0 };
        out.push(
            kind | flag(self.packed, HAS_PACKED)
                | flag(self.delta, HAS_DELTA)
                | (self.class as u8) << 4,
        );
        if let Some(digest) = digest {
            out.extend(digest.to_le_bytes());
        }
        for size in [self.packed, self.delta].into_iter().flatten() {
            out.extend(size.min(SIZE_MAX).to_le_bytes());
        }
    }

    pub(crate) fn decode(from: &mut &[u8]) -> Result<Self, Problem> {
        let [flags] = take(from)?;
        let content = match flags & CONTENT {
            0 => Content::Unknown,
            1 => Content::Zero,
            2 => Content::Digest(u64::from_le_bytes(take(from)?)),
            _ => return Err(Problem::Block { flags }),
        };
        let mut size = |bit: u8| match flags & bit {
            0 => Ok(None),
            _ => match u16::from_le_bytes(take(from)?) {
                size if size <= SIZE_MAX => Ok(Some(size)),
                size => Err(Problem::Size { size }),
            },
        };
        Ok(Self {
            content,
            packed: size(HAS_PACKED)?,
            delta: size(HAS_DELTA)?,
            class: Class::from_number(flags >> 4),
        })
    }
}

/// Takes the next bytes.
pub(crate) fn take<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], Problem> {
    let (taken, rest) = from.split_first_chunk().ok_or(Problem::EntryCut)?;
    *from = rest;
    Ok(*taken)
}
