//! The first 64 bytes: which disk, when, and what is recorded.

use crate::error::Problem;
use crate::limits::{BLOCK_BYTES, DISK_BLOCKS_MAX};

/// What a trace begins with.
pub const MAGIC: [u8; 8] = *b"VELTRACE";
pub(crate) const HEADER_BYTES: usize = 64;
const VERSION: u16 = 1;

/// How blocks were encoded to learn their sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// Not at all: the trace has no sizes.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// zstd, level 1.
    Zstd,
}

impl Sizes {
    const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];
}

/// The facts that hold for the whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// A number that only this trace has, so that frames of another trace are not mistaken for its own.
    pub id: [u8; 16],
    /// Blocks of the disk.
    pub blocks: u64,
    /// When it began, in nanoseconds since 1970.
    pub began: u64,
    /// How sizes were found.
    pub sizes: Sizes,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(10, &(HEADER_BYTES as u16).to_le_bytes());
        put(12, &(BLOCK_BYTES as u32).to_le_bytes());
        put(16, &self.blocks.to_le_bytes());
        put(24, &self.began.to_le_bytes());
        put(32, &self.id);
        put(48, &[self.sizes as u8]);
        let sum = crc32c::crc32c(&out[..HEADER_BYTES - 4]);
        out[HEADER_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Problem> {
        if bytes[..8] != MAGIC {
            return Err(Problem::Magic);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(Problem::Version { version });
        }
        let (body, sum) = bytes.split_at(HEADER_BYTES - 4);
        if crc32c::crc32c(body).to_le_bytes() != *sum {
            return Err(Problem::HeaderChecksum);
        }
        let wrong = |field, value: u64, need| Problem::Header { field, value, need };
        let length = u64::from(u16::from_le_bytes([bytes[10], bytes[11]]));
        if length != HEADER_BYTES as u64 {
            return Err(wrong("length", length, "64 in version 1"));
        }
        let block = u64::from(number::<4>(bytes, 12) as u32);
        if block != BLOCK_BYTES {
            return Err(wrong("block size", block, "4096 in version 1"));
        }
        let blocks = number::<8>(bytes, 16);
        if blocks > DISK_BLOCKS_MAX {
            return Err(Problem::Disk { blocks });
        }
        let sizes = Sizes::ALL.get(usize::from(bytes[48]));
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[32..48]);
        Ok(Self {
            id,
            blocks,
            began: number::<8>(bytes, 24),
            sizes: *sizes.ok_or_else(|| {
                wrong(
                    "encoding",
                    bytes[48].into(),
                    "0 (none), 1 (LZ4) or 2 (zstd)",
                )
            })?,
        })
    }

    /// The seed of the checksums of this trace's frames.
    pub(crate) fn seed(&self) -> u32 {
        crc32c::crc32c(&self.id)
    }
}

/// Reads a number of `N` bytes, low ones first.
pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut all = [0; 8];
    all[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(all)
}
