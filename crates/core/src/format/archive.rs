//! An archive: the blocks of a medium as one stream, in a file or a pipe. A head, and frames: runs of blocks by rising addresses,
//! and an end that says how many there were. What is in none of them is zeros.
//!
//! Each sum begins with the one before it, and the first is the head's. So a frame that is missing, comes twice, or is
//! another archive's is found out where it is, and the last sum is one of the whole.

use super::{Field, FormatError, on_disk};
use crate::addr::{BLOCK_BYTES, Pba};
use crate::entry::MAX_PBA;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const HEAD: &str = "archive";
const FRAME: &str = "frame of the archive";
const MAGIC: [u8; 8] = *b"VELLUMAR";
const FRAME_MAGIC: [u8; 4] = *b"VLAF";
/// Its own: archives change apart from volumes.
const VERSION: u32 = 1;

/// Blocks of one run, at most.
pub const RUN_BLOCKS: u64 = 256;

/// Bytes of a head.
pub const HEAD_BYTES: usize = size_of::<RawHead>();
/// Bytes of a frame before what it holds.
pub const FRAME_BYTES: usize = size_of::<RawFrame>();

on_disk! {
    /// What an archive begins with.
    RawHead {
        /// "VELLUMAR"
        magic: [u8; 8],
        /// version of the archive's format
        version: U32,
        /// 1 all of a volume, 2 a pack: what leads to data, and no data
        kind: U32,
        /// the volume's UUID, zeros where no superblock tells it
        uuid: [u8; 16],
        /// times that the volume had been opened for writing
        life: U64,
        /// blocks of the medium
        medium_blocks: U64,
        /// bytes in a block
        block_bytes: U32,
        /// zero
        reserved: U32,
        /// XXH3-64 of the bytes before it
        sum: U64,
    }
}

on_disk! {
    /// A run of blocks.
    RawFrame {
        /// "VLAF"
        magic: [u8; 4],
        /// 1 blocks, 2 blocks that could not be read, 3 blocks of a pack that are damaged and were left out, 4 the end
        kind: U32,
        /// the first block; of the end: how many blocks the archive holds
        at: U64,
        /// how many; of the end: how many could not be read or were left out
        blocks: U64,
        /// bytes that follow the frame: the blocks, as they are or as one frame of zstd
        bytes: U32,
        /// 0 the blocks are as they are, 1 zstd
        encoding: U32,
        /// XXH3-64 of what follows the frame, seeded with that of the bytes before this field, seeded with the sum before
        sum: U64,
    }
}

/// The fields of a head.
pub const HEAD_FIELDS: &[Field] = RawHead::FIELDS;
/// The fields of a frame.
pub const FRAME_FIELDS: &[Field] = RawFrame::FIELDS;

/// What an archive is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All of a volume.
    Whole,
    /// What leads to data, and no data.
    Pack,
}

/// What is true of a whole archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is of.
    pub kind: Kind,
    /// The volume's UUID, if a superblock told it.
    pub uuid: [u8; 16],
    /// How often the volume had been opened for writing.
    pub life: u64,
    /// Blocks of the medium.
    pub medium_blocks: u64,
}

/// What a frame tells of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// They follow.
    Blocks,
    /// They could not be read.
    Unread,
    /// They are damaged: whose bytes they are is not known, so a pack is without them.
    LeftOut,
    /// There are no more.
    End,
}

/// A frame, without what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it tells.
    pub kind: FrameKind,
    /// Its first block. Of the end: how many blocks there were.
    pub at: Pba,
    /// How many. Of the end: how many are missing.
    pub blocks: u64,
    /// Bytes that follow it.
    pub bytes: u32,
    /// Whether they are encoded.
    pub is_encoded: bool,
}

fn value(what: &'static str, field: &'static str, value: u64) -> FormatError {
    FormatError::Value { what, field, value }
}

/// Fails unless two sums are the same.
fn same(what: &'static str, found: u64, expected: u64) -> Result<(), FormatError> {
    // Half of each is enough to be told.
    let [found_half, expected_half] = [found, expected].map(|sum| sum as u32);
    match found == expected {
        true => Ok(()),
        false => Err(FormatError::Checksum {
            what,
            found: found_half,
            expected: expected_half,
        }),
    }
}

impl Head {
    /// The head, and the sum that the first frame's begins with.
    #[must_use]
    pub fn encode(&self) -> ([u8; HEAD_BYTES], u64) {
        let mut raw = RawHead {
            magic: MAGIC,
            version: U32::new(VERSION),
            kind: U32::new(match self.kind {
                Kind::Whole => 1,
                Kind::Pack => 2,
            }),
            uuid: self.uuid,
            life: U64::new(self.life),
            medium_blocks: U64::new(self.medium_blocks),
            block_bytes: U32::new(BLOCK_BYTES as u32),
            reserved: U32::new(0),
            sum: U64::new(0),
        };
        let sum = sum_of_head(&raw);
        raw.sum = U64::new(sum);
        let mut out = [0; HEAD_BYTES];
        out.copy_from_slice(raw.as_bytes());
        (out, sum)
    }

    /// From bytes that may be anything, and the sum that the first frame's begins with.
    ///
    /// # Errors
    /// When they are no head of an archive, damaged, or from the future.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<(Self, u64), FormatError> {
        let Ok(raw) = RawHead::read_from_bytes(bytes) else {
            return Err(FormatError::Magic { what: HEAD });
        };
        if raw.magic != MAGIC {
            return Err(FormatError::Magic { what: HEAD });
        }
        if raw.version.get() != VERSION {
            return Err(FormatError::Version {
                what: HEAD,
                version: raw.version.get(),
                known: VERSION,
            });
        }
        let sum = sum_of_head(&raw);
        same(HEAD, sum, raw.sum.get())?;
        let kind = match raw.kind.get() {
            1 => Kind::Whole,
            2 => Kind::Pack,
            kind => return Err(value(HEAD, "kind", kind.into())),
        };
        let (block, blocks) = (raw.block_bytes.get(), raw.medium_blocks.get());
        if block != BLOCK_BYTES as u32 {
            return Err(value(HEAD, "block bytes", block.into()));
        }
        if blocks == 0 || blocks > MAX_PBA + 1 {
            return Err(value(HEAD, "medium blocks", blocks));
        }
        let head = Self {
            kind,
            uuid: raw.uuid,
            life: raw.life.get(),
            medium_blocks: blocks,
        };
        Ok((head, sum))
    }
}

fn sum_of_head(raw: &RawHead) -> u64 {
    let bytes = raw.as_bytes();
    xxh3_64_with_seed(&bytes[..HEAD_BYTES - size_of::<U64>()], 0)
}

impl Frame {
    /// The frame before what it holds, and the sum that the next one's begins with; this one's begins with `before`.
    #[must_use]
    pub fn encode(&self, before: u64, held: &[u8]) -> ([u8; FRAME_BYTES], u64) {
        debug_assert_eq!(self.bytes as usize, held.len());
        let mut raw = RawFrame {
            magic: FRAME_MAGIC,
            kind: U32::new(match self.kind {
                FrameKind::Blocks => 1,
                FrameKind::Unread => 2,
                FrameKind::LeftOut => 3,
                FrameKind::End => 4,
            }),
            at: U64::new(self.at.0),
            blocks: U64::new(self.blocks),
            bytes: U32::new(self.bytes),
            encoding: U32::new(self.is_encoded.into()),
            sum: U64::new(0),
        };
        let sum = sum_of_frame(&raw, before, held);
        raw.sum = U64::new(sum);
        let mut out = [0; FRAME_BYTES];
        out.copy_from_slice(raw.as_bytes());
        (out, sum)
    }

    /// From bytes that may be anything: what they say, so that what follows can be read. It is not known to be so before
    /// [`check`](Self::check).
    ///
    /// # Errors
    /// When they are no frame, or say what cannot be.
    pub fn decode(bytes: &[u8; FRAME_BYTES]) -> Result<Self, FormatError> {
        let Ok(raw) = RawFrame::read_from_bytes(bytes) else {
            return Err(FormatError::Magic { what: FRAME });
        };
        if raw.magic != FRAME_MAGIC {
            return Err(FormatError::Magic { what: FRAME });
        }
        let kind = match raw.kind.get() {
            1 => FrameKind::Blocks,
            2 => FrameKind::Unread,
            3 => FrameKind::LeftOut,
            4 => FrameKind::End,
            kind => return Err(value(FRAME, "kind", kind.into())),
        };
        let (blocks, held) = (raw.blocks.get(), raw.bytes.get());
        let is_encoded = match raw.encoding.get() {
            0 => false,
            1 => true,
            encoding => return Err(value(FRAME, "encoding", encoding.into())),
        };
        let all = blocks.saturating_mul(BLOCK_BYTES as u64);
        let fits = match (kind, is_encoded) {
            (FrameKind::Blocks, true) => held > 0 && u64::from(held) < all,
            (FrameKind::Blocks, false) => u64::from(held) == all,
            _ => held == 0 && !is_encoded,
        };
        if kind == FrameKind::Blocks && blocks > RUN_BLOCKS || kind != FrameKind::End && blocks == 0
        {
            return Err(value(FRAME, "blocks", blocks));
        }
        if !fits {
            return Err(value(FRAME, "bytes", held.into()));
        }
        Ok(Self {
            kind,
            at: Pba(raw.at.get()),
            blocks,
            bytes: held,
            is_encoded,
        })
    }

    /// Holds a frame's bytes and what follows them against its sum, and gives the one that the next begins with.
    ///
    /// # Errors
    /// When one of them is damaged, or the frame is not the one that follows what had the sum `before`.
    pub fn check(bytes: &[u8; FRAME_BYTES], before: u64, held: &[u8]) -> Result<u64, FormatError> {
        let Ok(raw) = RawFrame::read_from_bytes(bytes) else {
            return Err(FormatError::Magic { what: FRAME });
        };
        let sum = sum_of_frame(&raw, before, held);
        same(FRAME, sum, raw.sum.get())?;
        Ok(sum)
    }
}

fn sum_of_frame(raw: &RawFrame, before: u64, held: &[u8]) -> u64 {
    let bytes = raw.as_bytes();
    let own = xxh3_64_with_seed(&bytes[..FRAME_BYTES - size_of::<U64>()], before);
    xxh3_64_with_seed(held, own)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = Head {
        kind: Kind::Whole,
        uuid: [7; 16],
        life: 3,
        medium_blocks: 4096,
    };

    #[test]
    fn a_head_is_what_it_was_and_no_bit_of_it_flips() {
        let (bytes, sum) = HEAD.encode();
        assert_eq!(Head::decode(&bytes), Ok((HEAD, sum)));
        for bit in 0..HEAD_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_is_what_it_was_and_no_bit_of_it_flips() {
        let frame = Frame {
            kind: FrameKind::Blocks,
            at: Pba(9),
            blocks: 2,
            bytes: 100,
            is_encoded: true,
        };
        let held = [5; 100];
        let (bytes, sum) = frame.encode(11, &held);
        assert_eq!(Frame::decode(&bytes), Ok(frame));
        assert_eq!(Frame::check(&bytes, 11, &held), Ok(sum));
        assert!(Frame::check(&bytes, 12, &held).is_err(), "behind another");
        for bit in 0..FRAME_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = Frame::decode(&flipped).and_then(|_| Frame::check(&flipped, 11, &held));
            assert!(found.is_err(), "bit {bit}");
        }
        for bit in 0..held.len() * 8 {
            let mut flipped = held;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::check(&bytes, 11, &flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn what_a_frame_cannot_say_is_refused() {
        let frame = |kind, blocks, bytes, is_encoded| {
            let frame = Frame {
                kind,
                at: Pba(0),
                blocks,
                bytes,
                is_encoded,
            };
            let held = alloc::vec![0; bytes as usize];
            Frame::decode(&frame.encode(0, &held).0)
        };
        let block = BLOCK_BYTES as u32;
        assert!(frame(FrameKind::Blocks, 1, block, false).is_ok());
        assert!(frame(FrameKind::Blocks, 1, block, true).is_err());
        assert!(frame(FrameKind::Blocks, 2, block, false).is_err());
        assert!(frame(FrameKind::Blocks, 0, 0, false).is_err());
        assert!(frame(FrameKind::Blocks, RUN_BLOCKS + 1, 9, true).is_err());
        assert!(frame(FrameKind::Blocks, u64::MAX, 9, true).is_err());
        assert!(frame(FrameKind::Unread, u64::MAX, 0, false).is_ok());
        assert!(frame(FrameKind::Unread, 1, 1, false).is_err());
        assert!(frame(FrameKind::End, 0, 0, false).is_ok());
        assert!(frame(FrameKind::End, 0, 0, true).is_err());
    }
}
