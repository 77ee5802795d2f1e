//! An archive: the blocks of a medium as one stream, in a file or a pipe. It has a head and [frames](super::frames): runs of
//! blocks by rising addresses, and an end that counts them. Blocks in no frame are zeros.

use super::error::FormatError;
use super::field::{Field, on_disk};
use super::frames::{check_head, seal_head, value};
use crate::addr::BLOCK_BYTES;
use crate::entry::MAX_PBA;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const HEAD: &str = "archive";
const MAGIC: [u8; 8] = *b"VELLUMAR";
/// Separate from the volume's version: archives change independently of volumes.
const VERSION: u32 = 1;

/// Bytes of a head.
pub const HEAD_BYTES: usize = size_of::<RawHead>();

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

/// The fields of a head.
pub const HEAD_FIELDS: &[Field] = RawHead::FIELDS;

/// What an archive contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All of a volume.
    Whole,
    /// The metadata that leads to data, without the data.
    Pack,
}

/// What applies to a whole archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the archive contains.
    pub kind: Kind,
    /// The volume's UUID, if a superblock could be read.
    pub uuid: [u8; 16],
    /// How often the volume had been opened for writing.
    pub life: u64,
    /// Blocks of the medium.
    pub medium_blocks: u64,
}

impl Head {
    /// Encodes the head. Also returns the sum that the first frame's sum begins with.
    #[must_use]
    pub fn encode(&self) -> ([u8; HEAD_BYTES], u64) {
        let raw = RawHead {
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
        seal_head(raw.as_bytes())
    }

    /// Decodes bytes that may be anything. Also returns the sum that the first frame's sum begins with.
    ///
    /// # Errors
    /// When they are not the head of an archive, are damaged, or are from a newer version.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<(Self, u64), FormatError> {
        let read = RawHead::read_from_bytes(bytes).ok();
        let raw = read
            .filter(|raw| raw.magic == MAGIC)
            .ok_or(FormatError::Magic { what: HEAD })?;
        let sum = check_head(HEAD, bytes, [raw.version.get(), VERSION], raw.sum.get())?;
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
    fn a_decoded_head_is_the_encoded_one_and_a_flipped_bit_is_detected() {
        let (bytes, sum) = HEAD.encode();
        assert_eq!(Head::decode(&bytes), Ok((HEAD, sum)));
        for bit in 0..HEAD_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode(&flipped).is_err(), "bit {bit}");
        }
    }
}
