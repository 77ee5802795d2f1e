//! One block of the log.

use super::format::{JournalFormat, Sequence};
use crate::checksum::crc32c_around;
use crate::span::FsBlock;
use core::ops::Range;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The start of every block that is not a copy. A copy that starts with it is *escaped*: its first four bytes are zero in the
/// journal, and its tag says so.
pub(super) const MAGIC: u32 = 0xC03B_3998;

/// The magic number in the byte order of the disk. A copy that starts with it is written with zeros in its place.
pub const OWN: [u8; 4] = MAGIC.to_be_bytes();

/// True if a block starts like a commit block.
#[must_use]
pub fn is_commit(block: &[u8]) -> bool {
    let kind = OWN.len()..OWN.len() + 4;
    block.starts_with(&OWN) && block.get(kind) == Some(&COMMIT.to_be_bytes())
}

const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK_V1: u32 = 3;
const SUPERBLOCK_V2: u32 = 4;
const REVOKE: u32 = 5;

const HEADER: usize = 12;
const UUID: usize = 16;
/// The checksum at the end of descriptor and revoke blocks.
const TAIL: usize = 4;
/// The checksum in a commit block.
const COMMIT_CHECKSUM: Range<usize> = 0x10..0x14;

const ESCAPED: u32 = 1;
const SAME_UUID: u32 = 2;
const DELETED: u32 = 4;
const LAST: u32 = 8;

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Header {
    magic: U32,
    kind: U32,
    sequence: U32,
}

/// A block of the log. With checksums v2 or v3, a block with a wrong checksum is `Other`.
#[derive(Clone, Copy, Debug)]
pub enum Block<'a> {
    /// Says what the blocks after it are copies of.
    Descriptor(Descriptor<'a>),
    /// The end of a transaction.
    Commit {
        /// The transaction.
        sequence: Sequence,
    },
    /// Blocks whose older copies must not be replayed.
    Revoke(Revoke<'a>),
    /// The journal's superblock.
    Superblock,
    /// A copy, or something else.
    Other,
}

/// A descriptor block.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// The transaction.
    pub sequence: Sequence,
    tags: &'a [u8],
    shape: Shape,
}

/// A revoke block.
#[derive(Clone, Copy, Debug)]
pub struct Revoke<'a> {
    /// The transaction.
    pub sequence: Sequence,
    blocks: &'a [u8],
    wide: bool,
}

/// A descriptor's entry for one copy. The copies follow it in the order of the tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The block that was copied.
    pub home: FsBlock,
    /// The copy's first four bytes, the magic, were replaced by zeros.
    pub is_escaped: bool,
    /// No UUID follows the tag.
    pub has_same_uuid: bool,
    /// The copy must be ignored.
    pub is_deleted: bool,
    /// It is the descriptor's last tag.
    pub is_last: bool,
    /// The copy's checksum, in a journal with checksums v3.
    pub sum: Option<u32>,
}

/// The layout of a tag.
#[derive(Clone, Copy, Debug)]
struct Shape {
    bytes: usize,
    v3: bool,
    wide: bool,
}

impl Shape {
    /// The kernel's `journal_tag_bytes`. Version 2 has two bytes more than it needs, an error that became part of the format.
    fn of(format: &JournalFormat) -> Self {
        let features = format.features;
        let wide = features.wide();
        let bytes = match (features.checksum_v3(), features.checksum_v2(), wide) {
            (true, _, _) => 16,
            (_, v2, wide) => 8 + 4 * usize::from(wide) + 2 * usize::from(v2),
        };
        Self {
            bytes,
            v3: features.checksum_v3(),
            wide,
        }
    }
}

impl<'a> Block<'a> {
    /// Parses a whole block of the log.
    #[must_use]
    pub fn parse(bytes: &'a [u8], format: &JournalFormat) -> Self {
        let Ok((header, _)) = Header::ref_from_prefix(bytes) else {
            return Self::Other;
        };
        if header.magic.get() != MAGIC || bytes.len() != format.block_bytes as usize {
            return Self::Other;
        }
        let sequence = Sequence(header.sequence.get());
        let checked = format.has_block_checksums();
        let end = bytes.len() - if checked { TAIL } else { 0 };
        let fits = |at: Range<usize>| !checked || checksum_fits(bytes, at, format.seed);
        match header.kind.get() {
            DESCRIPTOR if fits(end..bytes.len()) => Self::Descriptor(Descriptor {
                sequence,
                tags: &bytes[HEADER..end],
                shape: Shape::of(format),
            }),
            COMMIT if fits(COMMIT_CHECKSUM) => Self::Commit { sequence },
            REVOKE if fits(end..bytes.len()) => {
                // The count is in bytes and includes the header. A count that is too large is damage.
                let used = word(bytes, HEADER) as usize;
                let records = (HEADER + 4..=end).contains(&used);
                Self::Revoke(Revoke {
                    sequence,
                    blocks: if records {
                        &bytes[HEADER + 4..used]
                    } else {
                        &[]
                    },
                    wide: format.features.wide(),
                })
            }
            SUPERBLOCK_V1 | SUPERBLOCK_V2 => Self::Superblock,
            _ => Self::Other,
        }
    }
}

fn checksum_fits(bytes: &[u8], at: Range<usize>, seed: u32) -> bool {
    let found = word(bytes, at.start);
    crc32c_around(seed, bytes, at) == found
}

/// The number at `at`; zero if the block ends before it.
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<4>())
        .map_or(0, |b| u32::from_be_bytes(*b))
}

impl<'a> Descriptor<'a> {
    /// Its tags, at most as many as fit in the block.
    pub fn tags(&self) -> impl Iterator<Item = Tag> + use<'a> {
        let (mut rest, shape) = (self.tags, self.shape);
        core::iter::from_fn(move || {
            let (tag, after) = rest.split_at_checked(shape.bytes)?;
            let (flags, high) = match shape.v3 {
                true => (word(tag, 4), 8),
                false => (word(tag, 4) & 0xFFFF, 8),
            };
            let high = if shape.wide { word(tag, high) } else { 0 };
            let has_same_uuid = flags & SAME_UUID != 0;
            let is_last = flags & LAST != 0;
            rest = match (is_last, has_same_uuid) {
                (true, _) => &[],
                (_, true) => after,
                (_, false) => after.get(UUID..).unwrap_or_default(),
            };
            Some(Tag {
                home: FsBlock(u64::from(high) << 32 | u64::from(word(tag, 0))),
                is_escaped: flags & ESCAPED != 0,
                has_same_uuid,
                is_deleted: flags & DELETED != 0,
                is_last,
                sum: shape.v3.then(|| word(tag, 12)),
            })
        })
    }
}

impl<'a> Revoke<'a> {
    /// The revoked blocks, at most as many as fit in the block.
    pub fn blocks(&self) -> impl Iterator<Item = FsBlock> + use<'a> {
        let wide = self.wide;
        let bytes = if wide { 8 } else { 4 };
        self.blocks.chunks_exact(bytes).map(move |record| {
            FsBlock(match wide {
                true => u64::from(word(record, 0)) << 32 | u64::from(word(record, 4)),
                false => word(record, 0).into(),
            })
        })
    }
}
