//! An open summary: the summary so far of a segment that a head is in. It follows a root's second copy.
//!
//! It is a summary whose newest chunk is the root's. For a segment that already has its own summary, it has no entries.

use super::error::FormatError;
use super::field::Crc;
use super::root::RootHeader;
use super::summary::{self, Tag};
use super::superblock::Superblock;
use crate::addr::{Segment, Seq};
use alloc::vec::Vec;

/// Decodes an open summary: a copy of what the headers before a head's cursor say. Returns `None` for a segment that has its own
/// summary.
///
/// # Errors
/// When it is damaged, or belongs to another root.
pub fn decode(
    superblock: &Superblock,
    root: &RootHeader,
    head: u32,
    bytes: &[u8],
    crc: Crc,
) -> Result<Option<Vec<Tag>>, FormatError> {
    let cursor = root.cursors[head as usize];
    if cursor.offset == 0 {
        return Ok(None);
    }
    let signature = superblock.signature();
    let (seq, tags) = match summary::last_seq(&signature, cursor.segment, 0, bytes, crc) {
        Ok(seq) => (seq, None),
        Err(_) => {
            let (seq, tags) = whole(superblock, cursor.segment, bytes, crc)?;
            (seq, Some(tags))
        }
    };
    match seq == root.seq {
        true => Ok(tags),
        false => Err(FormatError::Value {
            what: "open summary",
            field: "newest chunk",
            value: seq.0,
        }),
    }
}

/// Decodes a whole summary, and the newest chunk that it covers.
pub(crate) fn whole(
    superblock: &Superblock,
    segment: Segment,
    bytes: &[u8],
    crc: Crc,
) -> Result<(Seq, Vec<Tag>), FormatError> {
    let (signature, count) = (superblock.signature(), superblock.usable_blocks() as usize);
    let tags = summary::decode(&signature, segment, count, bytes, crc)?;
    Ok((
        summary::last_seq(&signature, segment, count, bytes, crc)?,
        tags,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{BLOCK_BYTES, Generation, Lba, Life};
    use crate::format::geometry::{self, SMALL};
    use crate::format::root::Cursor;
    use crate::format::summary::Owner;
    use alloc::{vec, vec::Vec};
    use crc32c::crc32c;

    fn root(seq: u64, offset: u32) -> RootHeader {
        let at = |segment, offset| Cursor {
            segment: Segment(segment),
            offset,
        };
        RootHeader {
            uuid: [1; 16],
            generation: Generation(5),
            seq: Seq(seq),
            life: Life(1),
            durable: Seq(seq),
            cursors: [at(3, offset), at(4, 0)],
            swept: 0,
            scrubbed: 0,
        }
    }

    #[test]
    fn only_an_open_summary_of_this_root_and_segment_is_accepted() {
        let superblock = geometry::plan(&SMALL).unwrap();
        let tag = |number: u32| Tag {
            owner: Owner::Lba(Lba(number.into())),
            sum: number * 7,
        };
        let tags: Vec<Tag> = (0..superblock.usable_blocks()).map(tag).collect();
        let write = |segment, seq, tags: &[Tag]| {
            let mut bytes = vec![0; superblock.open_summary_blocks() as usize * BLOCK_BYTES];
            let signature = superblock.signature();
            summary::encode(
                &signature,
                Segment(segment),
                Seq(seq),
                tags,
                crc32c,
                &mut bytes,
            );
            bytes
        };
        let read =
            |seq, offset, bytes: &[u8]| decode(&superblock, &root(seq, offset), 0, bytes, crc32c);
        let mut whole = write(3, 9, &tags);
        assert_eq!(read(9, 17, &whole), Ok(Some(tags.clone())));
        assert!(read(8, 17, &whole).is_err(), "of a later root");
        assert!(read(10, 17, &whole).is_err(), "of an earlier one");
        assert!(
            read(9, 17, &write(4, 9, &tags)).is_err(),
            "of another segment"
        );
        assert_eq!(
            read(9, 17, &write(3, 9, &[])),
            Ok(None),
            "the segment has its own summary"
        );
        assert!(read(10, 17, &write(3, 9, &[])).is_err());
        assert!(read(9, 17, &vec![0; whole.len()]).is_err());
        assert_eq!(read(9, 0, &vec![0; whole.len()]), Ok(None), "a blank block");
        whole[700] ^= 1;
        assert!(read(9, 17, &whole).is_err());
    }
}
