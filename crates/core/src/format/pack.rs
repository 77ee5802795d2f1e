//! A page of parts: several blocks, each stored in fewer bytes than its size (CSA-FS §4.2; compression).
//!
//! A page that is a data block begins with a directory: the records of its parts, as in its chunk's header. A chunk's header is
//! such a page too when parts follow its records; then those records are its directory. The collector copies either unchanged
//! when it moves it.

use super::chunk;
use super::error::FormatError;
use super::field::{Crc, Field, on_disk};
use super::record::{PART_LEN, Part, Record};
use crate::addr::{BLOCK_BYTES, Lba, Pba, Vba};
use crate::entry::MAX_PARTS;
use alloc::vec::Vec;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

const WHAT: &str = "page of parts";
const MAGIC: [u8; 4] = *b"VLPK";

on_disk! {
    /// The first bytes of a page of parts; its directory follows, then the parts.
    RawPack {
        /// "VLPK"
        magic: [u8; 4],
        /// parts
        parts: U32,
    }
}

/// The fields of a page's head.
pub const FIELDS: &[Field] = RawPack::FIELDS;

/// A page of parts, as described by its segment's summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageOfParts {
    /// Where it is.
    pub at: Pba,
    /// Its number.
    pub number: Vba,
    /// The sum of its block.
    pub sum: u32,
}

/// One part of a page, as described by the page's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartTag {
    /// The owner when it was written.
    pub lba: Lba,
    /// Which part.
    pub slot: u8,
    /// Sum of the block that the part encodes.
    pub sum: u32,
}

/// Bytes of a page for parts and their directory.
pub const ROOM: usize = BLOCK_BYTES - size_of::<RawPack>();

/// Bytes that a part takes beyond its contents.
pub const OVERHEAD: usize = PART_LEN;

/// The offset of the first part in a page of `parts`.
#[must_use]
pub fn first_offset(parts: usize) -> usize {
    size_of::<RawPack>() + parts * PART_LEN
}

/// Writes the directory in front of parts that are already in the page.
pub fn encode<'a>(parts: impl Iterator<Item = &'a Record>, out: &mut [u8]) {
    debug_assert_eq!(out.len(), BLOCK_BYTES);
    let (head, rest) = out.split_at_mut(size_of::<RawPack>());
    let mut count = 0;
    for (entry, part) in rest.chunks_exact_mut(PART_LEN).zip(parts) {
        if let Some((lba, part)) = part.part() {
            // The base is not recorded here, because the reader of a delta knows it.
            Record::Part { lba, part }.encode(entry);
        }
        count += 1;
    }
    debug_assert!(count as usize <= MAX_PARTS);
    let raw = RawPack {
        magic: MAGIC,
        parts: U32::new(count),
    };
    head.copy_from_slice(raw.as_bytes());
}

/// A page's head, and what follows it.
fn raw(page: &[u8]) -> Result<(RawPack, &[u8]), FormatError> {
    let whole = RawPack::read_from_prefix(page).ok();
    let whole = whole.filter(|_| page.len() == BLOCK_BYTES);
    whole.ok_or(FormatError::Truncated {
        what: WHAT,
        have: page.len(),
        need: BLOCK_BYTES,
    })
}

/// Finds one part of a page whose checksum is verified elsewhere: its owner when it was written, its description, and its bytes.
///
/// # Errors
/// When it is not a page of parts, is damaged, or has no such part.
pub fn find(page: &[u8], slot: u8, crc: Crc) -> Result<(Lba, Part, &[u8]), FormatError> {
    let missing = FormatError::Value {
        what: WHAT,
        field: "parts",
        value: slot.into(),
    };
    let (raw, rest) = raw(page)?;
    let record = if raw.magic == MAGIC {
        let parts = (raw.parts.get() as usize).min(MAX_PARTS);
        if usize::from(slot) >= parts {
            return Err(missing);
        }
        Record::decode(&rest[usize::from(slot) * PART_LEN..])?
    } else {
        let (_, records) = chunk::decode(page, crc)?;
        let is_it = |(_, part): &(Lba, Part)| part.block == 0 && part.slot == slot;
        let found = records.iter().filter_map(Record::part).find(is_it);
        let (lba, part) = found.ok_or(missing)?;
        Record::Part { lba, part }
    };
    match record {
        // The part ends inside the page, otherwise the record would not have been decoded.
        Record::Part { lba, part } if part.slot == slot => {
            let from = usize::from(part.offset);
            Ok((lba, part, &page[from..from + usize::from(part.len)]))
        }
        _ => Err(missing),
    }
}

/// Replaces `out` with all parts of a page whose checksum has been verified.
///
/// # Errors
/// When it is not a page of parts, or is damaged.
pub fn directory(page: &[u8], crc: Crc, out: &mut Vec<PartTag>) -> Result<(), FormatError> {
    out.clear();
    let (raw, rest) = raw(page)?;
    let mut add = |record: Record, in_header: bool| {
        if let Some((lba, part)) = record.part()
            && (!in_header || part.block == 0)
        {
            let Part { slot, sum, .. } = part;
            out.push(PartTag { lba, slot, sum });
        }
    };
    if raw.magic == MAGIC {
        for entry in rest
            .chunks_exact(PART_LEN)
            .take((raw.parts.get() as usize).min(MAX_PARTS))
        {
            add(Record::decode(entry)?, false);
        }
    } else {
        let (_, records) = chunk::decode(page, crc)?;
        records.into_iter().for_each(|record| add(record, true));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crc32c::crc32c as crc;

    fn part(slot: u8, offset: u16, len: u16) -> Record {
        let part = Part {
            sum: 7,
            block: 3,
            slot,
            encoding: 1,
            offset,
            len,
        };
        Record::Part {
            lba: Lba(u64::from(slot) + 40),
            part,
        }
    }

    #[test]
    fn each_part_is_found_and_no_other() {
        let mut page = [0; BLOCK_BYTES];
        let first = first_offset(2) as u16;
        page[usize::from(first)..][..5].copy_from_slice(b"hello");
        encode([part(0, first, 5), part(1, first + 5, 0)].iter(), &mut page);
        let (lba, found, bytes) = find(&page, 0, crc).unwrap();
        assert_eq!((lba, found.encoding, bytes), (Lba(40), 1, &b"hello"[..]));
        assert_eq!(find(&page, 1, crc).unwrap().2, b"");
        assert!(find(&page, 2, crc).is_err());
        let mut all = alloc::vec![PartTag {
            lba: Lba(9),
            slot: 9,
            sum: 9
        }];
        directory(&page, crc, &mut all).unwrap();
        let tag = |slot: u8| PartTag {
            lba: Lba(u64::from(slot) + 40),
            slot,
            sum: 7,
        };
        assert_eq!(all, [tag(0), tag(1)]);
        assert!(directory(&page[..100], crc, &mut all).is_err());
        assert!(find(&page[..100], 0, crc).is_err());
        // Its length exceeds the page.
        page[size_of::<RawPack>() + 18..][..2].copy_from_slice(&[0xff, 0xff]);
        assert!(find(&page, 0, crc).is_err());
        assert!(find(&[0; BLOCK_BYTES], 0, crc).is_err());
        assert!(directory(&[0; BLOCK_BYTES], crc, &mut all).is_err());
    }
}
