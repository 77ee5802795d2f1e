//! Frames: a header of 40 bytes and a payload. Each can be decoded alone, so reading can begin at any of them.

use crate::error::Problem;
use crate::header::number;
use crate::limits::PAYLOAD_BYTES_MAX;

pub(crate) const FRAME_BYTES: usize = 40;
const MAGIC: [u8; 4] = *b"VFRM";

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Entries.
    Entries = 1,
    /// The index. It also says that the recording ended in order.
    End = 2,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub kind: Kind,
    /// Bytes of the payload.
    pub bytes: u32,
    /// Entries in it; in the end frame: places in the index.
    pub count: u32,
    /// The number of its first entry; in the end frame: the number of all entries.
    pub first: u64,
    /// What its first request's time is relative to; in the end frame: the time of the end.
    pub at: u64,
    /// The payload's checksum.
    pub sum: u32,
}

impl Frame {
    pub fn encode(&self, seed: u32) -> [u8; FRAME_BYTES] {
        let mut out = [0; FRAME_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(4, &[self.kind as u8]);
        put(8, &self.bytes.to_le_bytes());
        put(12, &self.count.to_le_bytes());
        put(16, &self.first.to_le_bytes());
        put(24, &self.at.to_le_bytes());
        put(32, &self.sum.to_le_bytes());
        let sum = crc32c::crc32c_append(seed, &out[..FRAME_BYTES - 4]);
        out[FRAME_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8; FRAME_BYTES], seed: u32) -> Result<Self, Problem> {
        if bytes[..4] != MAGIC {
            return Err(Problem::NoFrame);
        }
        let (body, sum) = bytes.split_at(FRAME_BYTES - 4);
        if crc32c::crc32c_append(seed, body).to_le_bytes() != *sum {
            return Err(Problem::FrameChecksum);
        }
        let kind = match bytes[4] {
            1 => Kind::Entries,
            2 => Kind::End,
            kind => return Err(Problem::FrameKind { kind }),
        };
        let length = number::<4>(bytes, 8);
        if length > PAYLOAD_BYTES_MAX as u64 {
            return Err(Problem::PayloadLong { bytes: length });
        }
        Ok(Self {
            kind,
            bytes: length as u32,
            count: number::<4>(bytes, 12) as u32,
            first: number::<8>(bytes, 16),
            at: number::<8>(bytes, 24),
            sum: number::<4>(bytes, 32) as u32,
        })
    }
}
