//! A chunk's header: what each of its data blocks is, and what else happened at that point of the log.

use super::summary::{Owner, Tag};
use super::{Crc, Field, FormatError, VERSION, checksum_around, on_disk, within_numbers};
use crate::addr::{BLOCK_BYTES, Generation, Lba, Life, Pba, Segment, Seq, Vba};
use crate::map::{MAX_PARTS, PACKED_PAGES};
use alloc::vec::Vec;
use core::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const WHAT: &str = "chunk header";
const MAGIC: [u8; 8] = *b"VELLUMCH";
const NO_SEGMENT: u32 = u32::MAX;
const KIND_SHIFT: u32 = 56;
const NUMBER: u64 = (1 << KIND_SHIFT) - 1;

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
        head: U32,
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
    /// Where the head goes on, if this is its last chunk in the segment.
    pub next: Option<Segment>,
}

/// Where in a page a part is, and how it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// CRC32C of the block that it stands for.
    pub crc: u32,
    /// Which block of its chunk it was written in; 0 is the header.
    pub block: u16,
    /// Which part of that page.
    pub slot: u8,
    /// How it is encoded; the runtime's business.
    pub encoding: u8,
    /// Its first byte in the page.
    pub offset: u16,
    /// Its length in bytes.
    pub len: u16,
}

/// One fact of the log. Kinds 16 to 31 are for blocks that are stored in parts of pages; 20 and on are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The next data block is this LBA's.
    Data {
        /// Whose.
        lba: Lba,
        /// CRC32C of the block.
        crc: u32,
    },
    /// The next data block is this LBA's, moved from where it was; holds only if the map still says so.
    Move {
        /// Whose.
        lba: Lba,
        /// CRC32C of the block.
        crc: u32,
        /// Where it was.
        from: Pba,
    },
    /// These LBAs are zero.
    Zero {
        /// The first.
        lba: Lba,
        /// How many.
        blocks: u64,
    },
    /// These LBAs are unmapped.
    Discard {
        /// The first.
        lba: Lba,
        /// How many.
        blocks: u64,
    },
    /// This LBA maps to a shared page.
    Share {
        /// Which LBA.
        lba: Lba,
        /// The page's number.
        vba: Vba,
        /// Where the page is.
        pba: Pba,
    },
    /// The next data block is this shared page, moved.
    MoveShared {
        /// Which page.
        vba: Vba,
        /// CRC32C of the block.
        crc: u32,
        /// Where it was.
        from: Pba,
    },
    /// After a crash this LBA reads what the journal's holds, if nothing else has been said of either since.
    Pledge {
        /// Where the journal's block belongs.
        home: Lba,
        /// The journal's block.
        journal: Lba,
    },
    /// The next data block is a page of parts; they follow.
    Pack {
        /// Its number.
        vba: Vba,
        /// CRC32C of the page.
        crc: u32,
    },
    /// This header's block is a page of parts as well; they follow.
    PackHere {
        /// Its number.
        vba: Vba,
    },
    /// This LBA is stored in a part of a page of this chunk.
    Part {
        /// Which LBA.
        lba: Lba,
        /// Which part, and where.
        part: Part,
    },
    /// This LBA maps to a part that is stored already.
    SharePart {
        /// Which LBA.
        lba: Lba,
        /// The page's number.
        vba: Vba,
        /// Which part of it.
        slot: u8,
    },
}

/// Bytes of a part's record.
pub(super) const PART_LEN: usize = 20;

impl Record {
    /// The kinds, as the docs list them: number, name, bytes, layout.
    pub const KINDS: &'static [(u8, &'static str, usize, &'static str)] = &[
        (
            1,
            "Data",
            12,
            "LBA in the word; CRC32C u32; owns the next data block",
        ),
        (
            2,
            "Move",
            20,
            "LBA in the word; CRC32C u32; old PBA u64; owns the next data block",
        ),
        (3, "Zero", 16, "first LBA in the word; blocks u64"),
        (4, "Discard", 16, "first LBA in the word; blocks u64"),
        (5, "Share", 20, "LBA in the word; VBA u32; PBA u64"),
        (
            6,
            "MoveShared",
            20,
            "VBA in the word; CRC32C u32; old PBA u64; owns the next data block",
        ),
        (
            7,
            "Pledge",
            16,
            "home's LBA in the word; the journal's LBA u64",
        ),
        (
            16,
            "Pack",
            12,
            "VBA in the word; CRC32C u32; owns the next data block, a page of parts",
        ),
        (
            17,
            "PackHere",
            8,
            "VBA in the word; the header's own block is a page of parts",
        ),
        (
            18,
            "Part",
            PART_LEN,
            "LBA in the word; CRC32C of the block u32; block of the chunk u16 (0: the header); slot u8; encoding u8; offset u16; length u16",
        ),
        (19, "SharePart", 16, "LBA in the word; VBA u32; slot u32"),
    ];

    fn kind(&self) -> u8 {
        match self {
            Self::Data { .. } => 1,
            Self::Move { .. } => 2,
            Self::Zero { .. } => 3,
            Self::Discard { .. } => 4,
            Self::Share { .. } => 5,
            Self::MoveShared { .. } => 6,
            Self::Pledge { .. } => 7,
            Self::Pack { .. } => 16,
            Self::PackHere { .. } => 17,
            Self::Part { .. } => 18,
            Self::SharePart { .. } => 19,
        }
    }

    /// Bytes that it takes in a header.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        match self {
            Self::PackHere { .. } => 8,
            Self::Data { .. } | Self::Pack { .. } => 12,
            Self::Zero { .. }
            | Self::Discard { .. }
            | Self::Pledge { .. }
            | Self::SharePart { .. } => 16,
            Self::Move { .. } | Self::Share { .. } | Self::MoveShared { .. } => 20,
            Self::Part { .. } => PART_LEN,
        }
    }

    /// Whether it owns a data block, and then whose that is and its checksum.
    #[must_use]
    pub fn tag(&self) -> Option<Tag> {
        match *self {
            Self::Data { lba, crc } | Self::Move { lba, crc, .. } => Some(Tag {
                owner: Owner::Lba(lba),
                crc,
            }),
            Self::MoveShared { vba, crc, .. } | Self::Pack { vba, crc } => Some(Tag {
                owner: Owner::Vba(vba),
                crc,
            }),
            Self::Zero { .. }
            | Self::Discard { .. }
            | Self::Share { .. }
            | Self::Pledge { .. }
            | Self::PackHere { .. }
            | Self::Part { .. }
            | Self::SharePart { .. } => None,
        }
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        let (number, middle, last) = match *self {
            Self::Data { lba, crc } => (lba.0, Some(crc), None),
            Self::Move { lba, crc, from } => (lba.0, Some(crc), Some(from.0)),
            Self::Zero { lba, blocks } | Self::Discard { lba, blocks } => {
                (lba.0, None, Some(blocks))
            }
            Self::Share { lba, vba, pba } => (lba.0, Some(vba.0), Some(pba.0)),
            Self::MoveShared { vba, crc, from } => (u64::from(vba.0), Some(crc), Some(from.0)),
            Self::Pledge { home, journal } => (home.0, None, Some(journal.0)),
            Self::Pack { vba, crc } => (u64::from(vba.0), Some(crc), None),
            Self::PackHere { vba } => (u64::from(vba.0), None, None),
            Self::Part { lba, part } => {
                let place = u64::from(part.block)
                    | u64::from(part.slot) << 16
                    | u64::from(part.encoding) << 24
                    | u64::from(part.offset) << 32
                    | u64::from(part.len) << 48;
                (lba.0, Some(part.crc), Some(place))
            }
            Self::SharePart { lba, vba, slot } => {
                let place = u64::from(vba.0) | u64::from(slot) << 32;
                (lba.0, None, Some(place))
            }
        };
        let word = u64::from(self.kind()) << KIND_SHIFT | number;
        out[..8].copy_from_slice(&word.to_le_bytes());
        let mut at = 8;
        if let Some(middle) = middle {
            out[at..at + 4].copy_from_slice(&middle.to_le_bytes());
            at += 4;
        }
        if let Some(last) = last {
            out[at..at + 8].copy_from_slice(&last.to_le_bytes());
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let value = |field, value| FormatError::Value {
            what: "record",
            field,
            value,
        };
        let short = FormatError::Truncated {
            what: "record",
            have: bytes.len(),
            need: 12,
        };
        let u32_at = |at: usize| {
            bytes
                .get(at..at + 4)
                .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        };
        let u64_at = |at: usize| Some(u64::from(u32_at(at)?) | u64::from(u32_at(at + 4)?) << 32);
        let word = u64_at(0).ok_or(short)?;
        let lba = Lba(word & NUMBER);
        let packed = |vba: u64| match u32::try_from(vba) {
            Ok(vba) if vba < PACKED_PAGES => Ok(Vba(vba)),
            _ => Err(value("the number of a page of parts", vba)),
        };
        let slot_of = |slot: u64| match u8::try_from(slot) {
            Ok(slot) if usize::from(slot) < MAX_PARTS => Ok(slot),
            _ => Err(value("the place of a part", slot)),
        };
        Ok(match (word >> KIND_SHIFT) as u8 {
            1 => Self::Data {
                lba,
                crc: u32_at(8).ok_or(short)?,
            },
            2 => Self::Move {
                lba,
                crc: u32_at(8).ok_or(short)?,
                from: Pba(u64_at(12).ok_or(short)?),
            },
            3 => Self::Zero {
                lba,
                blocks: u64_at(8).ok_or(short)?,
            },
            4 => Self::Discard {
                lba,
                blocks: u64_at(8).ok_or(short)?,
            },
            5 => Self::Share {
                lba,
                vba: Vba(u32_at(8).ok_or(short)?),
                pba: Pba(u64_at(12).ok_or(short)?),
            },
            6 => Self::MoveShared {
                vba: Vba(u32::try_from(lba.0).map_err(|_| value("a shared page's number", lba.0))?),
                crc: u32_at(8).ok_or(short)?,
                from: Pba(u64_at(12).ok_or(short)?),
            },
            7 => Self::Pledge {
                home: lba,
                journal: Lba(u64_at(8).ok_or(short)?),
            },
            16 => Self::Pack {
                vba: packed(lba.0)?,
                crc: u32_at(8).ok_or(short)?,
            },
            17 => Self::PackHere {
                vba: packed(lba.0)?,
            },
            18 => {
                let place = u64_at(12).ok_or(short)?;
                let part = Part {
                    crc: u32_at(8).ok_or(short)?,
                    block: place as u16,
                    slot: slot_of(place >> 16 & 0xff)?,
                    encoding: (place >> 24) as u8,
                    offset: (place >> 32) as u16,
                    len: (place >> 48) as u16,
                };
                if usize::from(part.offset) + usize::from(part.len) > BLOCK_BYTES {
                    return Err(value("the end of a part", place));
                }
                Self::Part { lba, part }
            }
            19 => {
                let place = u64_at(8).ok_or(short)?;
                Self::SharePart {
                    lba,
                    vba: packed(place & u64::from(u32::MAX))?,
                    slot: slot_of(place >> 32)?,
                }
            }
            kind => {
                return Err(FormatError::Value {
                    what: "record",
                    field: "kind",
                    value: kind.into(),
                });
            }
        })
    }
}

/// Writes a header's block. What is behind its records stays as it is: parts are there already, if it has
/// any, and zeros if not.
pub fn encode(header: &ChunkHeader, records: &[Record], crc: Crc, out: &mut [u8]) {
    debug_assert_eq!(out.len(), BLOCK_BYTES);
    let mut at = size_of::<RawChunk>();
    for record in records {
        let end = at + record.encoded_len();
        record.encode(&mut out[at..end]);
        at = end;
    }
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
        head: U32::new(header.head.into()),
        data_blocks: U32::new(header.data_blocks),
        records: U32::new(records.len() as u32),
        record_bytes: U32::new((at - size_of::<RawChunk>()) as u32),
        next: U32::new(header.next.map_or(NO_SEGMENT, |segment| segment.0)),
    };
    out[..size_of::<RawChunk>()].copy_from_slice(raw.as_bytes());
    let hole = offset_of!(RawChunk, crc);
    let sum = checksum_around(out, hole, crc);
    out[hole..hole + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Reads a header's block.
///
/// # Errors
/// When it is not one, is damaged, from the future, or contradicts itself.
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
    let value = |field, value: u32| FormatError::Value {
        what: WHAT,
        field,
        value: value.into(),
    };
    if raw.head.get() > 1 {
        return Err(value("head", raw.head.get()));
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
    let start = size_of::<RawChunk>();
    let mut rest = &bytes[start..start + length];
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

/// The tag of a header's own block, if that is a page of parts.
#[must_use]
pub fn own_tag(records: &[Record], bytes: &[u8], crc: Crc) -> Option<Tag> {
    records.iter().find_map(|record| match *record {
        Record::PackHere { vba } => Some(Tag {
            owner: Owner::Vba(vba),
            crc: crc(bytes),
        }),
        _ => None,
    })
}

/// Fills in what a header at block `offset` of a segment says of the blocks after it; the offset of the
/// next header, or `None` when this is the segment's last.
///
/// # Errors
/// When this is not a header of ours.
pub fn try_tags(
    bytes: &[u8],
    signature: &[u8; 16],
    at: Pba,
    crc: Crc,
    offset: u32,
    tags: &mut [Tag],
) -> Result<Option<u32>, FormatError> {
    let (header, records) = decode(bytes, crc)?;
    if header.signature != *signature || header.at != at {
        return Err(FormatError::Foreign { what: WHAT });
    }
    if let (Some(own), Some(tag)) = (own_tag(&records, bytes, crc), tags.get_mut(offset as usize)) {
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
