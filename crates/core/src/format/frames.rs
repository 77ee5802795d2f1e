//! Frames: runs of blocks as one stream of bytes, and an end that counts them. An [archive](super::archive) consists of frames,
//! and so does a [stream](super::stream) of a snapshot.
//!
//! Each sum begins with the previous one, and the first with the head's. So a frame that is missing, repeated or foreign is
//! detected where it is, and the last sum covers the whole.

use super::error::FormatError;
use super::field::{Field, on_disk};
use crate::addr::BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const FRAME: &str = "frame";
const FRAME_MAGIC: [u8; 4] = *b"VLAF";

/// The most blocks in one run.
pub const RUN_BLOCKS: u64 = 256;

/// Bytes of a frame's header.
pub const FRAME_BYTES: usize = size_of::<RawFrame>();

on_disk! {
    /// A run of blocks.
    RawFrame {
        /// "VLAF"
        magic: [u8; 4],
        /// 1 blocks, 2 blocks that could not be read, 3 blocks of a pack that are damaged and were left out, 4 the end,
        /// 5 blocks of a snapshot that are zeros
        kind: U32,
        /// the first block; of the end: how many blocks there were
        at: U64,
        /// how many; of the end: how many there were of the other kinds
        blocks: U64,
        /// bytes that follow the frame: the blocks, as they are or as one frame of zstd
        bytes: U32,
        /// 0 the blocks are as they are, 1 zstd
        encoding: U32,
        /// XXH3-64 of what follows the frame, seeded with that of the bytes before this field, seeded with the sum before
        sum: U64,
    }
}

/// The fields of a frame.
pub const FIELDS: &[Field] = RawFrame::FIELDS;

/// What a frame says about its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Their contents follow.
    Blocks,
    /// They could not be read.
    Unread,
    /// They are damaged. Their owner is not known, so a pack leaves them out.
    LeftOut,
    /// The end: no frames follow.
    End,
    /// They are zeros.
    Zeros,
}

/// A frame, without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it says about its blocks.
    pub kind: FrameKind,
    /// Its first block, of a medium or of a snapshot. In the end frame: the number of [`Blocks`](FrameKind::Blocks) there were.
    pub at: u64,
    /// The number of blocks. In the end frame: the number there were of the other kinds.
    pub blocks: u64,
    /// Bytes of its contents.
    pub bytes: u32,
    /// True if the contents are encoded.
    pub is_encoded: bool,
}

pub(super) fn value(what: &'static str, field: &'static str, value: u64) -> FormatError {
    FormatError::Value { what, field, value }
}

/// The bytes of a head, whose last field becomes the sum of those before it; and that sum.
pub(super) fn seal_head<const BYTES: usize>(raw: &[u8]) -> ([u8; BYTES], u64) {
    let mut out = [0; BYTES];
    out.copy_from_slice(raw);
    let sum = sum_before_sum(raw, 0);
    out[BYTES - size_of::<U64>()..].copy_from_slice(&sum.to_le_bytes());
    (out, sum)
}

/// Checks a head that says that it has this version and this sum. Returns the sum.
pub(super) fn check_head(
    what: &'static str,
    bytes: &[u8],
    [version, known]: [u32; 2],
    told: u64,
) -> Result<u64, FormatError> {
    if version != known {
        return Err(FormatError::Version {
            what,
            version,
            known,
        });
    }
    let sum = sum_before_sum(bytes, 0);
    same(what, sum, told)?;
    Ok(sum)
}

/// XXH3-64 of what comes before the last field, which is the sum.
fn sum_before_sum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(&bytes[..bytes.len() - size_of::<U64>()], seed)
}

/// Fails unless two sums are the same.
fn same(what: &'static str, found: u64, expected: u64) -> Result<(), FormatError> {
    // The message shows half of each.
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

impl Frame {
    /// Encodes the frame without its contents. Its sum begins with `before`. Also returns the sum that the next frame's begins
    /// with.
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
                FrameKind::Zeros => 5,
            }),
            at: U64::new(self.at),
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

    /// Decodes bytes that may be anything, so that the contents after them can be read. The result is not verified before
    /// [`check`](Self::check).
    ///
    /// # Errors
    /// When they are not a frame, or have impossible values.
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
            5 => FrameKind::Zeros,
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
            at: raw.at.get(),
            blocks,
            bytes: held,
            is_encoded,
        })
    }

    /// Checks a frame and its contents against its sum. Returns the sum that the next frame's begins with.
    ///
    /// # Errors
    /// When either is damaged, or the frame does not follow the one with the sum `before`.
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
    xxh3_64_with_seed(held, sum_before_sum(raw.as_bytes(), before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoded_frame_is_the_encoded_one_and_a_flipped_bit_is_detected() {
        let frame = Frame {
            kind: FrameKind::Blocks,
            at: 9,
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
    fn a_frame_with_impossible_values_is_refused() {
        let frame = |kind, blocks, bytes, is_encoded| {
            let frame = Frame {
                kind,
                at: 0,
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
        assert!(frame(FrameKind::Zeros, u64::MAX, 0, false).is_ok());
        assert!(frame(FrameKind::Zeros, 0, 0, false).is_err());
        assert!(frame(FrameKind::End, 0, 0, false).is_ok());
        assert!(frame(FrameKind::End, 0, 0, true).is_err());
    }
}
