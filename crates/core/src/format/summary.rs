//! A segment's summary: the owner and the checksum of each of its blocks.
//!
//! It repeats what the segment's chunk headers say, in one place with a known address, so that a read finds the checksum of any
//! block with one read, and the collector finds all owners.

use super::error::{FormatError, same_sum};
use super::field::{Crc, Field, VERSION, checksum_around, is_known, on_disk, seal_around};
use crate::addr::{BLOCK_BYTES, Lba, Segment, Seq, Vba};
use alloc::vec::Vec;
use core::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const WHAT: &str = "segment summary";
const MAGIC: [u8; 8] = *b"VELLUMSU";
/// The magic of older summaries, whose sums have no salt.
const MAGIC_BEFORE: [u8; 8] = *b"VELLUMSS";
const ENTRY: usize = 12;
const KIND_SHIFT: u32 = 56;
const NUMBER: u64 = (1 << KIND_SHIFT) - 1;
/// No owner has a higher number: volumes have fewer blocks and pages by far.
const OWNER_MAX: u64 = (1 << 44) - 1;

on_disk! {
    /// The first bytes of a summary; an entry a block of the segment follows.
    RawSummary {
        /// "VELLUMSU"; "VELLUMSS" of before, whose sums are as they are
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

/// The owner of a block when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No owner: a chunk's header, or a block that was never written.
    None,
    /// An LBA, which shares the block with no other.
    Lba(Lba),
    /// A shared page.
    Vba(Vba),
}

/// A block's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Its owner when it was written.
    pub owner: Owner,
    /// Sum of its bytes.
    pub sum: u32,
}

/// The number of blocks of a segment's summary.
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

/// The value that a summary's sums are combined with. It differs for each use of a segment, so that a sector that a power cut has
/// left from the previous use proves nothing (see [`unchecked_sums`]).
fn salt(raw: &RawSummary) -> u32 {
    match raw.magic {
        // Odd, so that no two of four billion chunks have the same salt.
        MAGIC => (raw.last_seq.get() as u32).wrapping_mul(0x9E37_79B1),
        _ => 0,
    }
}

/// Writes a summary; `out` consists of whole blocks, enough for the tags.
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
    let salt = salt(&raw);
    let (head, body) = out.split_at_mut(size_of::<RawSummary>());
    head.copy_from_slice(raw.as_bytes());
    for (bytes, tag) in body.chunks_exact_mut(ENTRY).zip(tags) {
        let word = match tag.owner {
            Owner::None => 0,
            Owner::Lba(lba) => 1 << KIND_SHIFT | lba.0,
            Owner::Vba(vba) => 2 << KIND_SHIFT | u64::from(vba.0),
        };
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..].copy_from_slice(&(tag.sum ^ salt).to_le_bytes());
    }
    seal_around(out, offset_of!(RawSummary, crc), crc);
}

/// True if the bytes begin with a summary's magic.
#[must_use]
pub fn looks_like_one(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) || bytes.starts_with(&MAGIC_BEFORE)
}

/// Gives a summary of `count` entries another signature and a new checksum, and zeros what follows the entries.
pub fn sign(bytes: &mut [u8], signature: &[u8; 16], count: usize, crc: Crc) {
    let end = size_of::<RawSummary>() + count * ENTRY;
    bytes[end..].fill(0);
    let at = offset_of!(RawSummary, signature);
    bytes[at..at + signature.len()].copy_from_slice(signature);
    seal_around(bytes, offset_of!(RawSummary, crc), crc);
}

/// Decodes the summary of `segment`, with `count` entries.
///
/// # Errors
/// When it is damaged, from another volume or segment, or from a newer version.
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

/// Like [`decode`], but replaces the contents of `tags`: the collector reads one summary after another.
///
/// # Errors
/// As for [`decode`].
pub fn decode_into(
    signature: &[u8; 16],
    segment: Segment,
    count: usize,
    bytes: &[u8],
    crc: Crc,
    tags: &mut Vec<Tag>,
) -> Result<(), FormatError> {
    tags.clear();
    let (raw, body) = open(signature, segment, count, bytes, crc)?;
    let salt = salt(&raw);
    for entry in body.chunks_exact(ENTRY).take(count) {
        let word = word_of(entry);
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
            sum: stored_sum(entry) ^ salt,
        });
    }
    Ok(())
}

/// The owner of an entry, as it is stored.
fn word_of(entry: &[u8]) -> u64 {
    u64::from_le_bytes([
        entry[0], entry[1], entry[2], entry[3], entry[4], entry[5], entry[6], entry[7],
    ])
}

fn stored_sum(entry: &[u8]) -> u32 {
    u32::from_le_bytes([entry[8], entry[9], entry[10], entry[11]])
}

/// Returns the sums in what looks like the summary of `segment`, whether it is whole or not, and the newest chunk that it claims
/// to cover. A summary is rewritten in place, with other owners and the same sums. If a power cut tears that write, its checksum
/// fails, but any mixture of old and new sectors still has the sums. Bytes that are not from this segment at all yield none.
///
/// Nothing protects a single sum, so it may be wrong. If a block has it, the block is what was written; if not, nothing is known. Use it
/// only where no other sum is known. A sector that is left from the segment's previous use has another salt, so its sums match no block.
/// That holds only if the first sector is from the present use: no chunk in the segment may be newer than the chunk that it names.
#[must_use]
pub fn unchecked_sums(
    signature: &[u8; 16],
    segment: Segment,
    count: usize,
    bytes: &[u8],
) -> Option<(Seq, Vec<u32>)> {
    let (raw, body) = RawSummary::ref_from_prefix(bytes).ok()?;
    let is_its =
        raw.magic == MAGIC && raw.signature == *signature && raw.segment.get() == segment.0;
    let entries = body.chunks_exact(ENTRY).take(count);
    let salt = salt(raw);
    (is_its && entries.len() == count).then(|| {
        let sums = entries.map(|entry| stored_sum(entry) ^ salt).collect();
        (Seq(raw.last_seq.get()), sums)
    })
}

/// The newest chunk that the summary of `segment` covers.
///
/// # Errors
/// As for [`decode`].
pub fn last_seq(
    signature: &[u8; 16],
    segment: Segment,
    count: usize,
    bytes: &[u8],
    crc: Crc,
) -> Result<Seq, FormatError> {
    open(signature, segment, count, bytes, crc).map(|(raw, _)| Seq(raw.last_seq.get()))
}

/// Bytes of a sector, the least that a drive writes whole.
const SECTOR: usize = 512;
/// Entries that are judged together: each sector has some such groups that no other sector has a part of.
const GROUP: usize = 16;

/// True if these bytes, which do not decode, may be what damage left of the summary of `segment`. Where none was ever written, a
/// used drive has what its last owner left there: that is none, even if it is the summary of another volume.
#[must_use]
pub fn may_be_left_of(
    signature: &[u8; 16],
    segment: Segment,
    count: usize,
    bytes: &[u8],
    crc: Crc,
) -> bool {
    let Ok((raw, body)) = RawSummary::ref_from_prefix(bytes) else {
        return false;
    };
    let is_whole = checksum_around(bytes, offset_of!(RawSummary, crc), crc) == raw.crc.get();
    let is_named = raw.segment.get() == segment.0 && raw.count.get() as usize == count;
    if raw.signature == *signature || (is_named && !is_whole) {
        return true;
    }
    // The first sector may be what is lost. In a full segment at least every second block has an owner, where each chunk has data.
    let entries = body.chunks_exact(ENTRY).take(count);
    let after_the_first = entries.skip((SECTOR - size_of::<RawSummary>()).div_ceil(ENTRY));
    let kinds: Vec<Option<u64>> = after_the_first.map(kind_of).collect();
    let is_of_entries = |group: &[Option<u64>]| {
        let owned = group.iter().flatten().filter(|kind| **kind > 0).count();
        group.iter().all(Option::is_some) && owned * 2 >= group.len()
    };
    !looks_like_one(bytes) && kinds.chunks_exact(GROUP).any(is_of_entries)
}

/// The kind of an entry's owner, if an entry can have this one.
fn kind_of(entry: &[u8]) -> Option<u64> {
    let word = word_of(entry);
    match (word >> KIND_SHIFT, word & NUMBER) {
        (0, 0) => Some(0),
        (kind @ 1..=2, 0..=OWNER_MAX) => Some(kind),
        _ => None,
    }
}

/// Checks the header, and returns it with the bytes after it.
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
    if !looks_like_one(bytes) {
        return Err(FormatError::Magic { what: WHAT });
    }
    let found = checksum_around(bytes, offset_of!(RawSummary, crc), crc);
    same_sum(WHAT, found, raw.crc.get())?;
    is_known(WHAT, raw.version.get())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use crc32c::crc32c;

    const SIGNATURE: [u8; 16] = [7; 16];
    const SEGMENT: Segment = Segment(3);
    const COUNT: usize = 255;

    fn encoded(last_seq: u64, owner: u64, sums: u32) -> Vec<u8> {
        let tag = |index: usize| Tag {
            owner: Owner::Lba(Lba(owner + index as u64)),
            sum: sums + index as u32,
        };
        let tags: Vec<Tag> = (0..COUNT).map(tag).collect();
        let mut out = vec![0; BLOCK_BYTES];
        let seq = Seq(last_seq);
        encode(&SIGNATURE, SEGMENT, seq, &tags, crc32c, &mut out);
        out
    }

    /// The first `sectors` sectors of one write, and the rest of another.
    fn torn(new: &[u8], old: &[u8], sectors: usize) -> Vec<u8> {
        [&new[..sectors * SECTOR], &old[sectors * SECTOR..]].concat()
    }

    #[test]
    fn a_summary_torn_while_its_owners_were_rewritten_keeps_its_sums() {
        let (first, again) = (encoded(9, 0, 100), encoded(9, 5000, 100));
        for sectors in 1..7 {
            let torn = torn(&again, &first, sectors);
            assert!(decode(&SIGNATURE, SEGMENT, COUNT, &torn, crc32c).is_err());
            let (seq, sums) = unchecked_sums(&SIGNATURE, SEGMENT, COUNT, &torn).unwrap();
            assert_eq!(seq, Seq(9));
            assert!(sums.into_iter().eq(100..100 + COUNT as u32));
        }
    }

    #[test]
    fn a_sector_from_the_previous_use_proves_no_block_of_that_use() {
        let (old, new) = (encoded(8, 0, 100), encoded(9, 0, 70_000));
        for sectors in 1..7 {
            let torn = torn(&new, &old, sectors);
            let (_, sums) = unchecked_sums(&SIGNATURE, SEGMENT, COUNT, &torn).unwrap();
            let before = (0..).zip(&sums).filter(|(index, sum)| **sum == 100 + index);
            assert_eq!(before.count(), 0, "{sectors} sectors are new");
        }
    }

    fn may_be_left(bytes: &[u8]) -> bool {
        may_be_left_of(&SIGNATURE, SEGMENT, COUNT, bytes, crc32c)
    }

    #[test]
    fn a_summary_is_known_whatever_sector_of_it_is_lost() {
        let whole = encoded(9, 0, 100);
        for at in 0..BLOCK_BYTES {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            assert!(may_be_left(&bytes), "byte {at}");
        }
        // One block in each chunk: every other one is a header.
        let tag = |index: usize| Tag {
            owner: match index % 2 {
                0 => Owner::None,
                _ => Owner::Lba(Lba(index as u64)),
            },
            sum: index as u32,
        };
        let tags: Vec<Tag> = (0..COUNT).map(tag).collect();
        let mut bytes = vec![0; BLOCK_BYTES];
        encode(&SIGNATURE, SEGMENT, Seq(9), &tags, crc32c, &mut bytes);
        bytes[..SECTOR].fill(0x55);
        assert!(may_be_left(&bytes));
        for (fill, sectors) in [(0, 0..5), (0x55, 0..5), (0x55, 1..7), (0, 3..4)] {
            let mut bytes = whole.clone();
            bytes[sectors.start * SECTOR..sectors.end * SECTOR].fill(fill);
            assert!(may_be_left(&bytes), "{fill:#x}, sectors {sectors:?}");
        }
    }

    #[test]
    fn what_a_used_drive_has_is_not_taken_for_a_summary() {
        let mut other = encoded(9, 0, 100);
        sign(&mut other, &[8; 16], COUNT, crc32c);
        let mut shorter = other.clone();
        shorter[offset_of!(RawSummary, count)] -= 1;
        let mut random = 1_u64;
        let noise = (0..BLOCK_BYTES).map(|_| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 56) as u8
        });
        let inodes = (0..BLOCK_BYTES).map(|at| if at % 256 < 28 { at as u8 } else { 0 });
        for (name, bytes) in [
            ("another volume's", other),
            ("another's, of segments of another size", shorter),
            ("zeros", vec![0; BLOCK_BYTES]),
            ("ones", vec![0xff; BLOCK_BYTES]),
            ("noise", noise.collect()),
            ("text", b"to be or not to be; ".repeat(205)),
            (
                "numbers",
                (0..1024_u32).flat_map(u32::to_le_bytes).collect(),
            ),
            ("inodes", inodes.collect()),
        ] {
            assert!(!may_be_left(&bytes[..BLOCK_BYTES]), "{name}");
        }
    }

    #[test]
    fn an_older_summary_is_read_but_proves_nothing_unless_it_is_whole() {
        let mut bytes = encoded(9, 0, 100);
        let tags = decode(&SIGNATURE, SEGMENT, COUNT, &bytes, crc32c).unwrap();
        bytes[..8].copy_from_slice(&MAGIC_BEFORE);
        let body = size_of::<RawSummary>();
        for (entry, tag) in bytes[body..].chunks_exact_mut(ENTRY).zip(&tags) {
            entry[8..].copy_from_slice(&tag.sum.to_le_bytes());
        }
        sign(&mut bytes, &SIGNATURE, COUNT, crc32c);
        assert_eq!(decode(&SIGNATURE, SEGMENT, COUNT, &bytes, crc32c), Ok(tags));
        assert_eq!(unchecked_sums(&SIGNATURE, SEGMENT, COUNT, &bytes), None);
    }
}
