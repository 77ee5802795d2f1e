//! The rest of a superblock whose properties were torn: its first sector, which has its own checksum.
//!
//! A change of properties writes one mirror, and then the other. A power cut may leave the first of them with some sectors new and some
//! old, and then only the other mirror is whole. If the other mirror is lost as well, the first sector still says where everything is,
//! because a medium writes a sector as a whole. So such a volume can be read.

use super::{Properties, RawSuperblock, Superblock, WHAT};
use crate::addr::BLOCK_BYTES;
use crate::format::error::{FormatError, same_sum};
use crate::format::field::Crc;
use crate::format::table::SECTOR_BYTES;
use core::mem::offset_of;
use zerocopy::FromBytes;

impl RawSuperblock {
    /// Reads the fields of a whole block that begins as a superblock does.
    pub(super) fn of(bytes: &[u8]) -> Result<Self, FormatError> {
        let truncated = FormatError::Truncated {
            what: WHAT,
            have: bytes.len(),
            need: BLOCK_BYTES,
        };
        let (raw, _) = Self::read_from_prefix(bytes).map_err(|_| truncated)?;
        if raw.magic != super::MAGIC {
            return Err(FormatError::Magic { what: WHAT });
        }
        match bytes.len() == BLOCK_BYTES {
            true => Ok(raw),
            false => Err(truncated),
        }
    }
}

impl RawSuperblock {
    /// Writes the checksum of the first sector.
    pub(super) fn sign(block: &mut [u8], crc: Crc) {
        let sum = sum(block, crc);
        let at = offset_of!(Self, head_crc);
        block[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

impl Superblock {
    /// Why there is no whole superblock, if this is the first sector of a torn one.
    #[must_use]
    pub fn torn(&self) -> Option<FormatError> {
        self.torn
    }

    /// Decodes the first sector of a block that may be anything. The result has no properties, and its volume must not be
    /// written.
    ///
    /// # Errors
    /// As for [`Superblock::decode`], and for volumes from before 2026-11-25.
    pub fn decode_head(bytes: &[u8], medium_blocks: u64, crc: Crc) -> Result<Self, FormatError> {
        let raw = RawSuperblock::of(bytes)?;
        same_sum(WHAT, sum(bytes, crc), raw.head_crc.get())?;
        let mut head = Self::of_raw(&raw, medium_blocks, || Ok(Properties::default()))?;
        head.torn = Some(FormatError::PropertiesTorn);
        Ok(head)
    }
}

fn sum(block: &[u8], crc: Crc) -> u32 {
    let mut head = [0; SECTOR_BYTES];
    head.copy_from_slice(&block[..SECTOR_BYTES]);
    for at in [
        offset_of!(RawSuperblock, crc),
        offset_of!(RawSuperblock, head_crc),
    ] {
        head[at..at + 4].fill(0);
    }
    crc(&head).max(1)
}
