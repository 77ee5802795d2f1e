//! The root of a map checkpoint: which slot each leaf is in, which segments are free, and where replay of the log begins.

use super::crc;
use super::error::{FormatError, can_be, same_sum, within_numbers};
use super::field::{Crc, Field, VERSION, checksum_around, is_known, on_disk, seal_around};
use crate::addr::{BLOCK_BYTES, Generation, Life, Segment, Seq};
use alloc::vec::Vec;
use core::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const WHAT: &str = "root";
const MAGIC: [u8; 8] = *b"VELLUMRT";
const ENTRY: usize = 8;

/// Slots in a block of a root.
pub const SLOTS_IN_BLOCK: usize = BLOCK_BYTES / ENTRY;

on_disk! {
    /// The first bytes of a root's first block. The table follows in the next block.
    RawRoot {
        /// "VELLUMRT"
        magic: [u8; 8],
        /// format version
        version: U32,
        /// checksum of this block around this field
        crc: U32,
        /// the volume's UUID
        uuid: [u8; 16],
        /// number of the map checkpoint; its lowest bit is the place
        generation: U64,
        /// newest chunk whose effects every leaf includes; replay begins after it
        seq: U64,
        /// life in which that chunk was written
        life: U64,
        /// newest chunk known durable when the root was written
        durable: U64,
        /// segment in which the hot head goes on
        hot_segment: U32,
        /// block of that segment at which its next chunk starts
        hot_offset: U32,
        /// segment in which the cold head goes on
        cold_segment: U32,
        /// block of that segment at which its next chunk starts
        cold_offset: U32,
        /// leaves in the table
        leaves: U32,
        /// CRC32C of the table's blocks, and of those with the free segments
        table_crc: U32,
        /// a sweep for duplicates goes on at this checksum of a block; 0: none is under way
        swept: U32,
        /// a scrub goes on at this block of the map, and one more; 0: none is under way
        scrubbed: U32,
    }
}

/// The fields of a root's header.
pub const FIELDS: &[Field] = RawRoot::FIELDS;

/// Where a head continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The segment.
    pub segment: Segment,
    /// The block in the segment.
    pub offset: u32,
}

/// Where a leaf is, with its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafSlot {
    /// Nothing in it is mapped.
    Absent,
    /// In its first slot.
    Slot0(u32),
    /// In its second slot.
    Slot1(u32),
}

impl LeafSlot {
    /// A leaf with this checksum, in slot 0 or 1.
    #[must_use]
    pub fn at(slot: u32, sum: u32) -> Self {
        match slot {
            0 => Self::Slot0(sum),
            _ => Self::Slot1(sum),
        }
    }

    /// The leaf's slot, and its checksum, if anything in it is mapped.
    #[must_use]
    pub fn found(self) -> Option<(u32, u32)> {
        match self {
            Self::Absent => None,
            Self::Slot0(sum) => Some((0, sum)),
            Self::Slot1(sum) => Some((1, sum)),
        }
    }

    /// The slot that it is not in.
    #[must_use]
    pub fn other(self) -> u32 {
        u32::from(matches!(self, Self::Slot0(_)))
    }

    /// The checksum of the leaf if it is in slot `slot` (0 or 1).
    #[must_use]
    pub fn sum_in(self, slot: u32) -> Option<u32> {
        let found = self.found().filter(|found| found.0 == slot);
        found.map(|found| found.1)
    }
}

/// A root without its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootHeader {
    /// The volume.
    pub uuid: [u8; 16],
    /// Number of the map checkpoint.
    pub generation: Generation,
    /// Newest chunk that every leaf includes.
    pub seq: Seq,
    /// The life of that chunk.
    pub life: Life,
    /// Newest chunk known durable.
    pub durable: Seq,
    /// Where the hot and the cold head continue.
    pub cursors: [Cursor; 2],
    /// An unfinished sweep for duplicates has examined the contents whose checksums are below this; 0: there is none.
    pub swept: u32,
    /// One more than the block at which an unfinished scrub continues; 0: there is none.
    pub scrubbed: u32,
}

/// The number of blocks of a root with `leaves` leaves, without those with the free segments.
#[must_use]
pub fn blocks(leaves: u32) -> u32 {
    1 + (leaves as usize * ENTRY).div_ceil(BLOCK_BYTES) as u32
}

/// The number of blocks in which a root says which of `segments` segments are free.
#[must_use]
pub fn free_blocks(segments: u32) -> u32 {
    segments.div_ceil(8 * BLOCK_BYTES as u32)
}

/// The segments that were free when a root was written: no recovery from this root, or from a newer one, finds anything in them that was
/// written before. Others may be free too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeSegments {
    /// A bit for each segment.
    bytes: Vec<u8>,
}

impl FreeSegments {
    /// Notes that a segment is free.
    pub fn put(&mut self, segment: Segment) {
        let byte = segment.0 as usize / 8;
        if byte >= self.bytes.len() {
            self.bytes.resize(byte + 1, 0);
        }
        self.bytes[byte] |= 1 << (segment.0 % 8);
    }

    /// Forgets all, and makes room for so many segments.
    pub fn clear(&mut self, segments: u32) {
        self.bytes.clear();
        self.bytes.resize(segments.div_ceil(8) as usize, 0);
    }

    /// Notes that a segment is not free.
    pub fn remove(&mut self, segment: Segment) {
        if let Some(byte) = self.bytes.get_mut(segment.0 as usize / 8) {
            *byte &= !(1 << (segment.0 % 8));
        }
    }

    /// True if a segment was free.
    #[must_use]
    pub fn holds(&self, segment: Segment) -> bool {
        let byte = self.bytes.get(segment.0 as usize / 8);
        byte.is_some_and(|byte| byte >> (segment.0 % 8) & 1 == 1)
    }

    /// Writes one of the blocks that say which segments are free.
    pub(super) fn encode(&self, index: u32, out: &mut [u8]) {
        let mut blocks = self.bytes.chunks(BLOCK_BYTES);
        let told = blocks.nth(index as usize).unwrap_or_default();
        out.fill(0);
        out[..told.len()].copy_from_slice(told);
    }

    /// Reads them from a root of `leaves` leaves that [`decode`] accepts. A root of an older volume has none.
    #[must_use]
    pub fn of_root(bytes: &[u8], leaves: u32) -> Self {
        let rest = bytes.get(blocks(leaves) as usize * BLOCK_BYTES..);
        let rest = rest.unwrap_or_default();
        let end = rest.iter().rposition(|&byte| byte != 0);
        Self {
            bytes: rest[..end.map_or(0, |end| end + 1)].to_vec(),
        }
    }
}

/// Writes a root that says of no segment that it is free; `out` has as many blocks as the volume's roots.
pub fn encode(header: &RootHeader, slots: &[LeafSlot], crc: Crc, out: &mut [u8]) {
    let slots = slots.iter().copied();
    encode_with(header, slots, &FreeSegments::default(), crc, out);
}

/// Writes a root; `out` has as many blocks as the volume's roots.
pub fn encode_with(
    header: &RootHeader,
    mut slots: impl ExactSizeIterator<Item = LeafSlot>,
    free: &FreeSegments,
    crc: Crc,
    out: &mut [u8],
) {
    let leaves = slots.len() as u32;
    debug_assert!(out.len() >= blocks(leaves) as usize * BLOCK_BYTES);
    let (head, table) = out.split_at_mut(BLOCK_BYTES);
    let mut sum = 0;
    for (index, block) in (1..).zip(table.chunks_exact_mut(BLOCK_BYTES)) {
        match index < blocks(leaves) {
            true => encode_slots(slots.by_ref().take(SLOTS_IN_BLOCK), block),
            false => free.encode(index - blocks(leaves), block),
        }
        sum = crc::with_block(sum, crc(block));
    }
    encode_head(header, leaves, sum, crc, head);
}

/// Writes a block of a root: the slots of as many leaves as fit, or fewer.
pub(super) fn encode_slots(slots: impl Iterator<Item = LeafSlot>, out: &mut [u8]) {
    out.fill(0);
    for (bytes, slot) in out.chunks_exact_mut(ENTRY).zip(slots) {
        let (sum, state) = slot.to_raw();
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes[4..].copy_from_slice(&u32::from(state).to_le_bytes());
    }
}

/// Writes a root's first block; `table_sum` is the CRC of all others.
pub(super) fn encode_head(
    header: &RootHeader,
    leaves: u32,
    table_sum: u32,
    crc: Crc,
    out: &mut [u8],
) {
    let [hot, cold] = header.cursors;
    let raw = RawRoot {
        magic: MAGIC,
        version: U32::new(VERSION),
        crc: U32::new(0),
        uuid: header.uuid,
        generation: U64::new(header.generation.0),
        seq: U64::new(header.seq.0),
        life: U64::new(header.life.0),
        durable: U64::new(header.durable.0),
        hot_segment: U32::new(hot.segment.0),
        hot_offset: U32::new(hot.offset),
        cold_segment: U32::new(cold.segment.0),
        cold_offset: U32::new(cold.offset),
        leaves: U32::new(leaves),
        table_crc: U32::new(table_sum),
        swept: U32::new(header.swept),
        scrubbed: U32::new(header.scrubbed),
    };
    out.fill(0);
    out[..size_of::<RawRoot>()].copy_from_slice(raw.as_bytes());
    seal_around(out, offset_of!(RawRoot, crc), crc);
}

/// Reads a root of the volume `uuid` with `leaves` leaves. `bytes` are all blocks of the root: see [`FreeSegments::of_root`].
///
/// # Errors
/// When it is damaged, from another volume, or from a newer version.
pub fn decode(
    bytes: &[u8],
    uuid: &[u8; 16],
    leaves: u32,
    crc: Crc,
) -> Result<(RootHeader, Vec<LeafSlot>), FormatError> {
    let need = blocks(leaves) as usize * BLOCK_BYTES;
    if bytes.len() < need {
        return Err(FormatError::Truncated {
            what: WHAT,
            have: bytes.len(),
            need,
        });
    }
    let (head, table) = bytes.split_at(BLOCK_BYTES);
    let raw = RawRoot::of_block(head, uuid, crc)?;
    let told = raw.leaves.get();
    can_be(WHAT, told == leaves, "leaves", told.into())?;
    same_sum("root's table", crc(table), raw.table_crc.get())?;
    let entries = table.chunks_exact(ENTRY).take(leaves as usize);
    let slots = entries.map(LeafSlot::decode).collect::<Result<_, _>>()?;
    Ok((raw.header(), slots))
}

impl LeafSlot {
    /// The leaf's checksum, and which of its slots it is in: 0 is none.
    pub(super) fn to_raw(self) -> (u32, u8) {
        self.found()
            .map_or((0, 0), |(slot, sum)| (sum, slot as u8 + 1))
    }

    /// The inverse.
    pub(super) fn from_raw(sum: u32, state: u32) -> Self {
        let slot = state.checked_sub(1);
        slot.map_or(Self::Absent, |slot| Self::at(slot, sum))
    }

    fn decode(entry: &[u8]) -> Result<Self, FormatError> {
        let word = |at: usize| {
            u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
        };
        let (sum, state) = (word(0), word(4));
        can_be(WHAT, state <= 2, "leaf state", state.into())?;
        Ok(Self::from_raw(sum, state))
    }
}

impl RawRoot {
    /// Reads the first block of a root, and checks what it says of itself.
    fn of_block(head: &[u8], uuid: &[u8; 16], crc: Crc) -> Result<Self, FormatError> {
        let (raw, _) = Self::read_from_prefix(head).map_err(|_| FormatError::Truncated {
            what: WHAT,
            have: head.len(),
            need: BLOCK_BYTES,
        })?;
        if raw.magic != MAGIC {
            return Err(FormatError::Magic { what: WHAT });
        }
        let found = checksum_around(head, offset_of!(Self, crc), crc);
        same_sum(WHAT, found, raw.crc.get())?;
        is_known(WHAT, raw.version.get())?;
        if raw.uuid != *uuid {
            return Err(FormatError::Foreign { what: WHAT });
        }
        let numbers = [
            ("generation", raw.generation.get()),
            ("sequence number", raw.seq.get()),
            ("life", raw.life.get()),
            ("durable", raw.durable.get()),
        ];
        within_numbers(WHAT, &numbers)?;
        Ok(raw)
    }

    fn header(&self) -> RootHeader {
        let cursor = |segment: U32, offset: U32| Cursor {
            segment: Segment(segment.get()),
            offset: offset.get(),
        };
        RootHeader {
            uuid: self.uuid,
            generation: Generation(self.generation.get()),
            seq: Seq(self.seq.get()),
            life: Life(self.life.get()),
            durable: Seq(self.durable.get()),
            cursors: [
                cursor(self.hot_segment, self.hot_offset),
                cursor(self.cold_segment, self.cold_offset),
            ],
            swept: self.swept.get(),
            scrubbed: self.scrubbed.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use crc32c::crc32c as crc;

    #[test]
    fn a_root_says_which_segments_are_free() {
        let header = RootHeader {
            uuid: [3; 16],
            generation: Generation(4),
            seq: Seq(9),
            life: Life(2),
            durable: Seq(8),
            cursors: [0, 1].map(|segment| Cursor {
                segment: Segment(segment),
                offset: 0,
            }),
            swept: 0,
            scrubbed: 0,
        };
        let slots = [LeafSlot::Absent, LeafSlot::Slot1(7)];
        let segments = [2, 7, 8, 40_000].map(Segment);
        let mut free = FreeSegments::default();
        segments.iter().for_each(|segment| free.put(*segment));
        let length = blocks(2) + free_blocks(40_001);
        let mut bytes = vec![0; length as usize * BLOCK_BYTES];
        encode_with(&header, slots.iter().copied(), &free, crc, &mut bytes);
        assert_eq!(
            decode(&bytes, &[3; 16], 2, crc),
            Ok((header, slots.to_vec()))
        );
        let told = FreeSegments::of_root(&bytes, 2);
        let all = (0..50_000)
            .map(Segment)
            .filter(|segment| told.holds(*segment));
        assert_eq!(all.collect::<Vec<_>>(), segments);
        free.remove(Segment(7));
        assert!(free.holds(Segment(8)) && !free.holds(Segment(7)));
        // A root of an older volume, or one that nobody told: nothing is known to be free.
        assert_eq!(
            FreeSegments::of_root(&bytes[..2 * BLOCK_BYTES], 2),
            FreeSegments::default()
        );
        encode(&header, &slots, crc, &mut bytes);
        assert_eq!(FreeSegments::of_root(&bytes, 2), FreeSegments::default());
        // The checksum of the table covers the free segments.
        bytes[2 * BLOCK_BYTES] = 1;
        let wrong = matches!(
            decode(&bytes, &[3; 16], 2, crc),
            Err(FormatError::Checksum { .. })
        );
        assert!(wrong);
    }
}
