//! Records: what a chunk's header says about the chunk's blocks, and other changes at that point of the log.

use super::error::{FormatError, can_be};
use super::summary::{Owner, Tag};
use crate::addr::{BLOCK_BYTES, Lba, Pba, Vba};
use crate::entry::{MAX_PARTS, PACKED_PAGES, PartId};

const WHAT: &str = "record";

const KIND_SHIFT: u32 = 56;
const NUMBER: u64 = (1 << KIND_SHIFT) - 1;

/// Where in a page a part is, and how it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Sum of the block that the part encodes.
    pub sum: u32,
    /// The block of its chunk that it was written in; 0 is the header.
    pub block: u16,
    /// Its number in that page.
    pub slot: u8,
    /// How it is encoded; only the runtime knows the encodings.
    pub encoding: u8,
    /// Its first byte in the page.
    pub offset: u16,
    /// Its length in bytes.
    pub len: u16,
}

impl Part {
    fn place(&self) -> u64 {
        u64::from(self.block)
            | u64::from(self.slot) << 16
            | u64::from(self.encoding) << 24
            | u64::from(self.offset) << 32
            | u64::from(self.len) << 48
    }
}

/// One fact in the log. Kinds 16 to 31 are for blocks that are stored in parts of pages; 21 and up are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The next data block belongs to this LBA.
    Data {
        /// The LBA.
        lba: Lba,
        /// Sum of the block.
        sum: u32,
    },
    /// The next data block belongs to this LBA, and moved here; it counts only if the map still has the old place.
    Move {
        /// The LBA.
        lba: Lba,
        /// Sum of the block.
        sum: u32,
        /// Where it was.
        from: Pba,
    },
    /// These LBAs read as zeros.
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
        /// The LBA.
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
        /// Sum of the block.
        sum: u32,
        /// Where it was.
        from: Pba,
    },
    /// After a crash this LBA reads as the journal's block, unless a later record concerns either of them.
    Pledge {
        /// The LBA that the journal's block belongs to.
        home: Lba,
        /// The journal's block.
        journal: Lba,
    },
    /// The next data block is a page of parts; their records follow.
    Pack {
        /// Its number.
        vba: Vba,
        /// Sum of the page.
        sum: u32,
    },
    /// This header's block is also a page of parts; their records follow.
    PackHere {
        /// Its number.
        vba: Vba,
    },
    /// This LBA is stored in a part of a page in this chunk.
    Part {
        /// The LBA.
        lba: Lba,
        /// The part, and where it is.
        part: Part,
    },
    /// Like [`Record::Part`], for a part that is a delta.
    Delta {
        /// The LBA.
        lba: Lba,
        /// The part, and where it is.
        part: Part,
        /// The base that it is decoded from: a part of a page in an earlier chunk.
        base: PartId,
    },
    /// This LBA maps to a part that is already stored.
    SharePart {
        /// The LBA.
        lba: Lba,
        /// The page's number.
        vba: Vba,
        /// The part's number in the page.
        slot: u8,
    },
}

/// Bytes of a part's record.
pub(super) const PART_LEN: usize = 20;

/// Bytes of a delta's record: a part's, and the base.
const DELTA_LEN: usize = PART_LEN + 4;

impl Record {
    /// The kinds, as the docs list them: number, name, bytes, layout.
    pub const KINDS: &'static [(u8, &'static str, usize, &'static str)] = &[
        (
            1,
            "Data",
            12,
            "LBA in the word; sum u32; owns the next data block",
        ),
        (
            2,
            "Move",
            20,
            "LBA in the word; sum u32; old PBA u64; owns the next data block",
        ),
        (3, "Zero", 16, "first LBA in the word; blocks u64"),
        (4, "Discard", 16, "first LBA in the word; blocks u64"),
        (5, "Share", 20, "LBA in the word; VBA u32; PBA u64"),
        (
            6,
            "MoveShared",
            20,
            "VBA in the word; sum u32; old PBA u64; owns the next data block",
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
            "VBA in the word; sum u32; owns the next data block, a page of parts",
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
            "LBA in the word; sum of the block u32; block of the chunk u16 (0: the header); \
             slot u8; encoding u8; offset u16; length u16",
        ),
        (19, "SharePart", 16, "LBA in the word; VBA u32; slot u32"),
        (
            20,
            "Delta",
            DELTA_LEN,
            "as Part; then what it needs: VBA x 32 + slot u32, of an earlier chunk",
        ),
    ];

    /// The LBAs that it says something new about. Moves say nothing new.
    #[must_use]
    pub fn names(&self) -> Option<(Lba, u64)> {
        match *self {
            Self::Pledge { home, .. } => Some((home, 1)),
            _ => self.sets(),
        }
    }

    /// The LBAs whose state it determines, whatever that was before. A move takes effect only if the map leads to the block that it moves.
    #[must_use]
    pub fn sets(&self) -> Option<(Lba, u64)> {
        match *self {
            Self::Data { lba, .. }
            | Self::Share { lba, .. }
            | Self::Part { lba, .. }
            | Self::Delta { lba, .. }
            | Self::SharePart { lba, .. } => Some((lba, 1)),
            Self::Zero { lba, blocks } | Self::Discard { lba, blocks } => Some((lba, blocks)),
            Self::Move { .. }
            | Self::MoveShared { .. }
            | Self::Pledge { .. }
            | Self::Pack { .. }
            | Self::PackHere { .. } => None,
        }
    }

    /// True if it must not be replayed from a checkpoint that began after it: the page or the pledge that it links to may be gone by then.
    /// So a checkpoint seals its chunk before it begins.
    #[must_use]
    pub fn links(&self) -> bool {
        match self {
            Self::Share { .. } | Self::Pledge { .. } => true,
            Self::Data { .. }
            | Self::Move { .. }
            | Self::Zero { .. }
            | Self::Discard { .. }
            | Self::MoveShared { .. }
            | Self::Pack { .. }
            | Self::PackHere { .. }
            | Self::Part { .. }
            | Self::Delta { .. }
            | Self::SharePart { .. } => false,
        }
    }

    /// Its number among [`Record::KINDS`].
    #[must_use]
    pub fn kind(&self) -> u8 {
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
            Self::Delta { .. } => 20,
        }
    }

    /// The bytes that it takes in a header.
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
            Self::Delta { .. } => DELTA_LEN,
        }
    }

    /// The tag of the data block that it owns, if it owns one.
    #[must_use]
    pub fn tag(&self) -> Option<Tag> {
        match *self {
            Self::Data { lba, sum } | Self::Move { lba, sum, .. } => Some(Tag {
                owner: Owner::Lba(lba),
                sum,
            }),
            Self::MoveShared { vba, sum, .. } | Self::Pack { vba, sum } => Some(Tag {
                owner: Owner::Vba(vba),
                sum,
            }),
            Self::Zero { .. }
            | Self::Discard { .. }
            | Self::Share { .. }
            | Self::Pledge { .. }
            | Self::PackHere { .. }
            | Self::Part { .. }
            | Self::Delta { .. }
            | Self::SharePart { .. } => None,
        }
    }

    /// The part that it describes, with its LBA, whether it is a delta or not.
    #[must_use]
    pub fn part(&self) -> Option<(Lba, Part)> {
        match *self {
            Self::Part { lba, part } | Self::Delta { lba, part, .. } => Some((lba, part)),
            _ => None,
        }
    }

    /// Like [`Record::part`], for changing it.
    pub fn part_mut(&mut self) -> Option<&mut Part> {
        match self {
            Self::Part { part, .. } | Self::Delta { part, .. } => Some(part),
            _ => None,
        }
    }

    pub(super) fn encode(&self, out: &mut [u8]) {
        let (number, middle, last) = match *self {
            Self::Data { lba, sum } => (lba.0, Some(sum), None),
            Self::Move { lba, sum, from } => (lba.0, Some(sum), Some(from.0)),
            Self::Zero { lba, blocks } | Self::Discard { lba, blocks } => {
                (lba.0, None, Some(blocks))
            }
            Self::Share { lba, vba, pba } => (lba.0, Some(vba.0), Some(pba.0)),
            Self::MoveShared { vba, sum, from } => (u64::from(vba.0), Some(sum), Some(from.0)),
            Self::Pledge { home, journal } => (home.0, None, Some(journal.0)),
            Self::Pack { vba, sum } => (u64::from(vba.0), Some(sum), None),
            Self::PackHere { vba } => (u64::from(vba.0), None, None),
            Self::Part { lba, part } => (lba.0, Some(part.sum), Some(part.place())),
            Self::Delta { lba, part, base } => {
                out[PART_LEN..][..4].copy_from_slice(&base.raw().to_le_bytes());
                (lba.0, Some(part.sum), Some(part.place()))
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
        let fields = Fields(bytes);
        let word = fields.u64_at(0)?;
        let number = word & NUMBER;
        let lba = Lba(number);
        Ok(match (word >> KIND_SHIFT) as u8 {
            1 => Self::Data {
                lba,
                sum: fields.u32_at(8)?,
            },
            2 => Self::Move {
                lba,
                sum: fields.u32_at(8)?,
                from: Pba(fields.u64_at(12)?),
            },
            3 => Self::Zero {
                lba,
                blocks: fields.u64_at(8)?,
            },
            4 => Self::Discard {
                lba,
                blocks: fields.u64_at(8)?,
            },
            5 => Self::Share {
                lba,
                vba: Vba(fields.u32_at(8)?),
                pba: Pba(fields.u64_at(12)?),
            },
            6 => Self::MoveShared {
                vba: shared_page(number)?,
                sum: fields.u32_at(8)?,
                from: Pba(fields.u64_at(12)?),
            },
            7 => Self::Pledge {
                home: lba,
                journal: Lba(fields.u64_at(8)?),
            },
            16 => Self::Pack {
                vba: page_of_parts(number)?,
                sum: fields.u32_at(8)?,
            },
            17 => Self::PackHere {
                vba: page_of_parts(number)?,
            },
            18 => Self::Part {
                lba,
                part: fields.part()?,
            },
            19 => fields.share_part(lba)?,
            20 => Self::Delta {
                lba,
                part: fields.part()?,
                base: fields.base()?,
            },
            kind => {
                let (field, value) = ("kind", kind.into());
                return Err(FormatError::Value {
                    what: WHAT,
                    field,
                    value,
                });
            }
        })
    }
}

/// The bytes of a record that is being read. They may end too early.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array_at<const N: usize>(&self, at: usize) -> Result<[u8; N], FormatError> {
        let field = self.0.get(at..).and_then(<[u8]>::first_chunk);
        field.copied().ok_or(FormatError::Truncated {
            what: WHAT,
            have: self.0.len(),
            need: at + N,
        })
    }

    fn u32_at(&self, at: usize) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array_at(at)?))
    }

    fn u64_at(&self, at: usize) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array_at(at)?))
    }

    /// What [`Part::place`] and the sum before it say.
    fn part(&self) -> Result<Part, FormatError> {
        let place = self.u64_at(12)?;
        let part = Part {
            sum: self.u32_at(8)?,
            block: place as u16,
            slot: slot(place >> 16 & 0xff)?,
            encoding: (place >> 24) as u8,
            offset: (place >> 32) as u16,
            len: (place >> 48) as u16,
        };
        let end = usize::from(part.offset) + usize::from(part.len);
        can_be(WHAT, end <= BLOCK_BYTES, "the end of a part", place)?;
        Ok(part)
    }

    fn share_part(&self, lba: Lba) -> Result<Record, FormatError> {
        let place = self.u64_at(8)?;
        Ok(Record::SharePart {
            lba,
            vba: page_of_parts(place & u64::from(u32::MAX))?,
            slot: slot(place >> 32)?,
        })
    }

    fn base(&self) -> Result<PartId, FormatError> {
        let raw = self.u32_at(PART_LEN)?;
        let base = PartId::from_raw(raw);
        can_be(WHAT, base.raw() == raw, "what a delta needs", raw.into())?;
        Ok(base)
    }
}

fn shared_page(number: u64) -> Result<Vba, FormatError> {
    let is_one = number <= u32::MAX.into();
    can_be(WHAT, is_one, "a shared page's number", number)?;
    Ok(Vba(number as u32))
}

fn page_of_parts(number: u64) -> Result<Vba, FormatError> {
    let is_one = number < PACKED_PAGES.into();
    can_be(WHAT, is_one, "the number of a page of parts", number)?;
    Ok(Vba(number as u32))
}

fn slot(number: u64) -> Result<u8, FormatError> {
    let is_one = number < MAX_PARTS as u64;
    can_be(WHAT, is_one, "the place of a part", number)?;
    Ok(number as u8)
}
