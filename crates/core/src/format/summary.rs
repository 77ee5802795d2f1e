//! A segment's summary: who owns each of its blocks, and each block's checksum.
//!
//! It repeats what the segment's chunk headers say, in one place whose address is known, so that a read
//! finds the checksum of any block with one read and the collector all owners.

use super::error::FormatError;
use super::field::{Crc, Field, VERSION, checksum_around, on_disk};
use crate::addr::{BLOCK_BYTES, Lba, Segment, Seq, Vba};
use alloc::vec::Vec;
use core::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const WHAT: &str = "segment summary";
const MAGIC: [u8; 8] = *b"VELLUMSS";
const ENTRY: usize = 12;
const KIND_SHIFT: u32 = 56;
const NUMBER: u64 = (1 << KIND_SHIFT) - 1;

on_disk! {
    /// The first bytes of a summary; an entry a block of the segment follows.
    RawSummary {
        /// "VELLUMSS"
        magic: [u8; 8],
        /// format version
        version: U32,
        /// checksum of the whole summary around this field
        crc: U32,
        /// the volume's signature: half of its secret
        signature: [u8; 16],
        /// the segment
        segment: U32,
        /// entries
        count: U32,
        /// newest chunk in the segment
        last_seq: U64,
    }
}

/// The fields of a summary's header.
pub const FIELDS: &[Field] = RawSummary::FIELDS;

/// Whose a block was when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Nobody's: a chunk's header, or never written.
    None,
    /// An LBA's own.
    Lba(Lba),
    /// A shared page.
    Vba(Vba),
}

/// A block's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Whose it was when written.
    pub owner: Owner,
    /// Sum of its bytes.
    pub sum: u32,
}

/// Blocks that the summary of a segment takes.
#[must_use]
pub const fn blocks(segment_blocks: u32) -> u32 {
    let mut blocks = 1;
    while (size_of::<RawSummary>() + (segment_blocks - blocks) as usize * ENTRY)
        > blocks as usize * BLOCK_BYTES
    {
        blocks += 1;
    }
    blocks
}

/// Writes a summary; `out` is whole blocks, enough for the tags.
pub fn encode(
    signature: &[u8; 16],
    segment: Segment,
    last_seq: Seq,
    tags: &[Tag],
    crc: Crc,
    out: &mut [u8],
) {
    out.fill(0);
    let raw = RawSummary {
        magic: MAGIC,
        version: U32::new(VERSION),
        crc: U32::new(0),
        signature: *signature,
        segment: U32::new(segment.0),
        count: U32::new(tags.len() as u32),
        last_seq: U64::new(last_seq.0),
    };
    let (head, body) = out.split_at_mut(size_of::<RawSummary>());
    head.copy_from_slice(raw.as_bytes());
    for (bytes, tag) in body.chunks_exact_mut(ENTRY).zip(tags) {
        let word = match tag.owner {
            Owner::None => 0,
            Owner::Lba(lba) => 1 << KIND_SHIFT | lba.0,
            Owner::Vba(vba) => 2 << KIND_SHIFT | u64::from(vba.0),
        };
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..].copy_from_slice(&tag.sum.to_le_bytes());
    }
    let hole = offset_of!(RawSummary, crc);
    let sum = checksum_around(out, hole, crc);
    out[hole..hole + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Whether it begins as a summary does.
#[must_use]
pub fn looks_like_one(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Signs a summary of so many entries anew, and zeros what is behind them.
pub fn sign(bytes: &mut [u8], signature: &[u8; 16], count: usize, crc: Crc) {
    let end = size_of::<RawSummary>() + count * ENTRY;
    bytes[end..].fill(0);
    let at = offset_of!(RawSummary, signature);
    bytes[at..at + signature.len()].copy_from_slice(signature);
    let hole = offset_of!(RawSummary, crc);
    let sum = checksum_around(bytes, hole, crc);
    bytes[hole..hole + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Reads the summary of `segment`, `count` entries.
///
/// # Errors
/// When it is damaged, of another volume or segment, or from the future.
pub fn decode(
    signature: &[u8; 16],
    segment: Segment,
    count: usize,
    bytes: &[u8],
    crc: Crc,
) -> Result<Vec<Tag>, FormatError> {
    let mut tags = Vec::with_capacity(count);
    decode_into(signature, segment, count, bytes, crc, &mut tags)?;
    Ok(tags)
}

/// As [`decode`], in place of what `tags` holds: the collector reads one summary after the other.
///
/// # Errors
/// As [`decode`].
pub fn decode_into(
    signature: &[u8; 16],
    segment: Segment,
    count: usize,
    bytes: &[u8],
    crc: Crc,
    tags: &mut Vec<Tag>,
) -> Result<(), FormatError> {
    tags.clear();
    let (_, body) = open(signature, segment, count, bytes, crc)?;
    for entry in body.chunks_exact(ENTRY).take(count) {
        let word = u64::from_le_bytes([
            entry[0], entry[1], entry[2], entry[3], entry[4], entry[5], entry[6], entry[7],
        ]);
        let number = word & NUMBER;
        let unknown = FormatError::Value {
            what: WHAT,
            field: "an owner",
            value: word,
        };
        let owner = match word >> KIND_SHIFT {
            0 => Owner::None,
            1 => Owner::Lba(Lba(number)),
            2 => Owner::Vba(Vba(u32::try_from(number).map_err(|_| unknown)?)),
            _ => return Err(unknown),
        };
        tags.push(Tag {
            owner,
            sum: u32::from_le_bytes([entry[8], entry[9], entry[10], entry[11]]),
        });
    }
    Ok(())
}

/// The newest chunk that the summary of `segment` knows of.
///
/// # Errors
/// As [`decode`].
pub fn last_seq(
    signature: &[u8; 16],
    segment: Segment,
    count: usize,
    bytes: &[u8],
    crc: Crc,
) -> Result<Seq, FormatError> {
    open(signature, segment, count, bytes, crc).map(|(raw, _)| Seq(raw.last_seq.get()))
}

/// The header, checked, and the bytes after it.
fn open<'a>(
    signature: &[u8; 16],
    segment: Segment,
    count: usize,
    bytes: &'a [u8],
    crc: Crc,
) -> Result<(RawSummary, &'a [u8]), FormatError> {
    let need = size_of::<RawSummary>() + count * ENTRY;
    let truncated = FormatError::Truncated {
        what: WHAT,
        have: bytes.len(),
        need,
    };
    let (raw, body) = RawSummary::read_from_prefix(bytes).map_err(|_| truncated)?;
    if bytes.len() < need {
        return Err(truncated);
    }
    if raw.magic != MAGIC {
        return Err(FormatError::Magic { what: WHAT });
    }
    let found = checksum_around(bytes, offset_of!(RawSummary, crc), crc);
    if found != raw.crc.get() {
        return Err(FormatError::Checksum {
            what: WHAT,
            found,
            expected: raw.crc.get(),
        });
    }
    if raw.version.get() > VERSION {
        return Err(FormatError::Version {
            what: WHAT,
            version: raw.version.get(),
            known: VERSION,
        });
    }
    if raw.signature != *signature {
        return Err(FormatError::Foreign { what: WHAT });
    }
    for (field, value, expected) in [
        ("segment", raw.segment.get(), segment.0),
        ("count", raw.count.get(), count as u32),
    ] {
        if value != expected {
            return Err(FormatError::Value {
                what: WHAT,
                field,
                value: value.into(),
            });
        }
    }
    Ok((raw, body))
}
