//! A chunk's header: what each of its data blocks is, and what else happened at that point of the log.

use super::error::{FormatError, same_sum, within_numbers};
use super::field::{Crc, Field, VERSION, checksum_around, is_known, on_disk, seal_around};
use super::names::Names;
pub use super::record::{Part, Record};
use super::sum::BlockSum;
use super::summary::{Owner, Tag};
use super::superblock::Superblock;
use crate::addr::{BLOCK_BYTES, Generation, Life, Pba, Segment, Seq};
use alloc::vec::Vec;
use core::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const WHAT: &str = "chunk header";
const MAGIC: [u8; 8] = *b"VELLUMCH";
const NO_SEGMENT: u32 = u32::MAX;

on_disk! {
    /// The first bytes of a chunk; its records follow.
    RawChunk {
        /// "VELLUMCH"
        magic: [u8; 8],
        /// format version
        version: U32,
        /// checksum of the block around this field
        crc: U32,
        /// the volume's signature: half of its secret
        signature: [u8; 16],
        /// place in the one order of all chunks
        seq: U64,
        /// life in which it was written
        life: U64,
        /// life of the chunk before it in that order
        prev_life: U64,
        /// newest chunk known durable when it was sealed
        durable: U64,
        /// its own physical address
        at: U64,
        /// map checkpoint that was durable when it was sealed
        root_generation: U64,
        /// 0 hot (clients' data), 1 cold (moved by the collector)
        head: U16,
        /// bytes behind the records: the names of the chunk before it in that order
        names: U16,
        /// data blocks after the header
        data_blocks: U32,
        /// records
        records: U32,
        /// bytes of records
        record_bytes: U32,
        /// on the last chunk of a segment: where its head goes on; else 0xffffffff
        next: U32,
    }
}

/// The fields of a chunk's header.
pub const FIELDS: &[Field] = RawChunk::FIELDS;

/// Bytes for records in a header.
pub const RECORD_ROOM: usize = BLOCK_BYTES - size_of::<RawChunk>();

/// A chunk's header without its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The volume's signature.
    pub signature: [u8; 16],
    /// Place in the order of all chunks.
    pub seq: Seq,
    /// Life in which it was written.
    pub life: Life,
    /// Life of the chunk before.
    pub prev_life: Life,
    /// Newest chunk known durable when it was sealed.
    pub durable: Seq,
    /// Where it is.
    pub at: Pba,
    /// Map checkpoint durable when it was sealed.
    pub root_generation: Generation,
    /// 0 hot, 1 cold.
    pub head: u8,
    /// Data blocks.
    pub data_blocks: u32,
    /// Where the head continues, if this is its last chunk in the segment.
    pub next: Option<Segment>,
}

/// Writes a header's block: its records, then `names`, those of the previous chunk. The bytes after these stay unchanged: they
/// hold parts if there are any, and are zeros otherwise.
pub fn encode(header: &ChunkHeader, records: &[Record], names: &[u8], crc: Crc, out: &mut [u8]) {
    debug_assert_eq!(out.len(), BLOCK_BYTES);
    let mut at = size_of::<RawChunk>();
    for record in records {
        let end = at + record.encoded_len();
        record.encode(&mut out[at..end]);
        at = end;
    }
    out[at..at + names.len()].copy_from_slice(names);
    let raw = RawChunk {
        magic: MAGIC,
        version: U32::new(VERSION),
        crc: U32::new(0),
        signature: header.signature,
        seq: U64::new(header.seq.0),
        life: U64::new(header.life.0),
        prev_life: U64::new(header.prev_life.0),
        durable: U64::new(header.durable.0),
        at: U64::new(header.at.0),
        root_generation: U64::new(header.root_generation.0),
        head: U16::new(header.head.into()),
        names: U16::new(names.len() as u16),
        data_blocks: U32::new(header.data_blocks),
        records: U32::new(records.len() as u32),
        record_bytes: U32::new((at - size_of::<RawChunk>()) as u32),
        next: U32::new(header.next.map_or(NO_SEGMENT, |segment| segment.0)),
    };
    out[..size_of::<RawChunk>()].copy_from_slice(raw.as_bytes());
    seal_around(out, offset_of!(RawChunk, crc), crc);
}

/// Reads a header's block.
///
/// # Errors
/// When it is not a header, is damaged, is from a newer version, or contradicts itself.
pub fn decode(bytes: &[u8], crc: Crc) -> Result<(ChunkHeader, Vec<Record>), FormatError> {
    let truncated = FormatError::Truncated {
        what: WHAT,
        have: bytes.len(),
        need: BLOCK_BYTES,
    };
    let (raw, _) = RawChunk::read_from_prefix(bytes).map_err(|_| truncated)?;
    if raw.magic != MAGIC {
        return Err(FormatError::Magic { what: WHAT });
    }
    if bytes.len() != BLOCK_BYTES {
        return Err(truncated);
    }
    let found = checksum_around(bytes, offset_of!(RawChunk, crc), crc);
    same_sum(WHAT, found, raw.crc.get())?;
    is_known(WHAT, raw.version.get())?;
    let value = |field, value: u32| FormatError::Value {
        what: WHAT,
        field,
        value: value.into(),
    };
    if raw.head.get() > 1 {
        return Err(value("head", raw.head.get().into()));
    }
    within_numbers(
        WHAT,
        &[
            ("sequence number", raw.seq.get()),
            ("life", raw.life.get()),
            ("durable", raw.durable.get()),
        ],
    )?;
    let length = raw.record_bytes.get() as usize;
    if length > RECORD_ROOM {
        return Err(value("record bytes", raw.record_bytes.get()));
    }
    if usize::from(raw.names.get()) > RECORD_ROOM - length {
        return Err(value("bytes of names", raw.names.get().into()));
    }
    let records = records_of(&raw, bytes)?;
    let header = ChunkHeader {
        signature: raw.signature,
        seq: Seq(raw.seq.get()),
        life: Life(raw.life.get()),
        prev_life: Life(raw.prev_life.get()),
        durable: Seq(raw.durable.get()),
        at: Pba(raw.at.get()),
        root_generation: Generation(raw.root_generation.get()),
        head: raw.head.get() as u8,
        data_blocks: raw.data_blocks.get(),
        next: Some(Segment(raw.next.get())).filter(|next| next.0 != NO_SEGMENT),
    };
    Ok((header, records))
}

/// Decodes a header's records, and checks their number, and the number of blocks that they own, against the header.
fn records_of(raw: &RawChunk, bytes: &[u8]) -> Result<Vec<Record>, FormatError> {
    let value = |field, value: u32| FormatError::Value {
        what: WHAT,
        field,
        value: value.into(),
    };
    let start = size_of::<RawChunk>();
    let mut rest = &bytes[start..start + raw.record_bytes.get() as usize];
    let mut records = Vec::with_capacity(raw.records.get().min(512) as usize);
    let mut owning = 0;
    while !rest.is_empty() {
        let record = Record::decode(rest)?;
        owning += u32::from(record.tag().is_some());
        records.push(record);
        rest = &rest[record.encoded_len()..];
    }
    if records.len() != raw.records.get() as usize {
        return Err(value("records", raw.records.get()));
    }
    if owning != raw.data_blocks.get() {
        return Err(value("data blocks", raw.data_blocks.get()));
    }
    Ok(records)
}

/// The names of the previous chunk in a header that [`decode`] has read.
///
/// # Errors
/// When the names are not valid.
pub fn names_of_before(bytes: &[u8]) -> Result<Names, FormatError> {
    let truncated = FormatError::Truncated {
        what: WHAT,
        have: bytes.len(),
        need: BLOCK_BYTES,
    };
    let (raw, _) = RawChunk::read_from_prefix(bytes).map_err(|_| truncated)?;
    let start = size_of::<RawChunk>() + raw.record_bytes.get() as usize;
    let names = bytes.get(start..start + usize::from(raw.names.get()));
    let names = Names::decode(names.ok_or(truncated)?);
    names.ok_or(FormatError::Value {
        what: WHAT,
        field: "names",
        value: raw.names.get().into(),
    })
}

/// True if the bytes begin with a header's magic.
#[must_use]
pub fn looks_like_one(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Gives a header another signature and a new checksum, and zeros what follows its records and names: parts of clients' blocks.
pub fn sign_without_parts(block: &mut [u8], signature: &[u8; 16], crc: Crc) {
    let Ok((mut raw, _)) = RawChunk::read_from_prefix(block) else {
        return;
    };
    raw.signature = *signature;
    let head = size_of::<RawChunk>();
    block[..head].copy_from_slice(raw.as_bytes());
    let told = raw.record_bytes.get() as usize + usize::from(raw.names.get());
    block[head + told..].fill(0);
    seal_around(block, offset_of!(RawChunk, crc), crc);
}

/// The tag of a header's own block, if that is a page of parts.
#[must_use]
pub fn own_tag(records: &[Record], bytes: &[u8], sum: BlockSum) -> Option<Tag> {
    records.iter().find_map(|record| match *record {
        Record::PackHere { vba } => Some(Tag {
            owner: Owner::Vba(vba),
            sum: sum.of(bytes),
        }),
        _ => None,
    })
}

/// Fills in the tags that a header at block `offset` of a segment has for the blocks after it. Returns the offset of the next
/// header, or `None` when this is the segment's last.
///
/// # Errors
/// When this is not a header of this volume.
pub fn try_tags(
    bytes: &[u8],
    superblock: &Superblock,
    at: Pba,
    crc: Crc,
    offset: u32,
    tags: &mut [Tag],
) -> Result<Option<u32>, FormatError> {
    let (header, records) = decode(bytes, crc)?;
    // A newer life continued the log before this header, so the header is stale.
    let is_of_log = superblock.is_of_log(header.seq, header.life);
    if header.signature != superblock.signature() || header.at != at || !is_of_log {
        return Err(FormatError::Foreign { what: WHAT });
    }
    let own = own_tag(&records, bytes, superblock.sum(crc));
    if let (Some(own), Some(tag)) = (own, tags.get_mut(offset as usize)) {
        *tag = own;
    }
    let mut index = offset as usize + 1;
    for tag in records.iter().filter_map(Record::tag) {
        let value = u64::from(header.data_blocks);
        let past = FormatError::Value {
            what: WHAT,
            field: "data blocks",
            value,
        };
        *tags.get_mut(index).ok_or(past)? = tag;
        index += 1;
    }
    Ok(header.next.is_none().then_some(index as u32))
}
