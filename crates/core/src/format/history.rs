//! The blocks that belong to snapshots: they follow those that clients see.
//!
//! They are ordinary blocks, in the same map and the same log. There are three kinds, one after the other: the list of snapshots,
//! the rows, and the kept blocks. A row says which block of which snapshot a kept block is.

use super::error::FormatError;
use super::field::Field;
use crate::addr::{BLOCK_BYTES, Lba};
use crate::limits::{MAX_MAPPED_BLOCKS, MAX_NARROW_BLOCKS};
use core::ops::Range;

/// The number of blocks of the list.
pub const LIST_BLOCKS: u64 = 16;

/// Bytes of a snapshot's entry in the list.
pub const ENTRY_BYTES: usize = 64;

/// Snapshots in a block of the list.
pub const BLOCK_ENTRIES: usize = BLOCK_BYTES / ENTRY_BYTES;

/// The most snapshots that a volume can have.
pub const SNAPSHOTS_MAX: usize = LIST_BLOCKS as usize * BLOCK_ENTRIES;

/// The most bytes in a snapshot's name.
pub const NAME_BYTES: usize = 44;

/// Bytes of a mark.
pub const MARK_BYTES: usize = 6;

/// Rows in a block.
pub const BLOCK_ROWS: usize = BLOCK_BYTES / 8;

/// Where the list, the rows and the kept blocks are, in blocks of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    first: Lba,
    kept: u64,
}

/// The most blocks that snapshots can keep on a volume of this size: their LBAs follow those that clients see, and the rows take some.
/// As long as clients' LBAs have 32 bits, so have theirs.
#[must_use]
pub(super) fn most(logical: u64) -> u64 {
    let end = match logical > MAX_NARROW_BLOCKS {
        true => MAX_MAPPED_BLOCKS,
        false => MAX_NARROW_BLOCKS,
    };
    let room = end.saturating_sub(logical).min(2 * MAX_NARROW_BLOCKS);
    // In less room than this the list and the rows alone would have larger numbers.
    if room < 64 { 0 } else { room / 2 }
}

/// The number of blocks that snapshots can keep on a volume of this size: so many thousandths of it.
#[must_use]
pub(super) fn kept_blocks(logical: u64, thousandths: u32) -> u64 {
    let kept = logical.saturating_mul(thousandths.into()).div_ceil(1000);
    kept.min(most(logical))
}

/// The number of blocks that snapshots can keep after the volume has grown, in the old proportion.
#[must_use]
pub(super) fn grown(kept: u64, before: u64, now: u64) -> u64 {
    let grown = u128::from(kept) * u128::from(now) / u128::from(before.max(1));
    let grown = u64::try_from(grown).unwrap_or(u64::MAX).max(kept);
    grown.min(most(now))
}

impl History {
    /// The space that begins at `first`, with room for `kept` blocks; empty if that is 0.
    #[must_use]
    pub fn new(first: Lba, kept: u64) -> Self {
        Self { first, kept }
    }

    /// How rows say which block of which snapshot they are for.
    #[must_use]
    pub fn row_form(&self) -> RowForm {
        match self.first.0 > MAX_NARROW_BLOCKS {
            true => RowForm { number_bits: 24 },
            false => RowForm { number_bits: 32 },
        }
    }

    /// How many blocks snapshots can keep.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// The number of blocks of rows.
    #[must_use]
    pub fn row_blocks(&self) -> u64 {
        self.kept.div_ceil(BLOCK_ROWS as u64)
    }

    /// The address of a block of the list.
    #[must_use]
    pub fn list(&self, block: u64) -> Lba {
        debug_assert!(block < LIST_BLOCKS);
        self.first.plus(block)
    }

    /// The address of a block of rows.
    #[must_use]
    pub fn rows(&self, block: u64) -> Lba {
        debug_assert!(block < self.row_blocks());
        self.first.plus(LIST_BLOCKS + block)
    }

    /// The address of a kept block.
    #[must_use]
    pub fn block(&self, slot: u32) -> Lba {
        debug_assert!(u64::from(slot) < self.kept);
        let before = LIST_BLOCKS + self.row_blocks();
        self.first.plus(before + u64::from(slot))
    }

    /// True if this block belongs to the list or to the rows.
    #[must_use]
    pub fn is_of_books(&self, lba: Lba) -> bool {
        let end = self.first.0.saturating_add(LIST_BLOCKS + self.row_blocks());
        self.kept > 0 && lba >= self.first && lba.0 < end
    }

    /// Its parts in order: the list, the rows, the kept blocks.
    #[must_use]
    pub fn parts(&self) -> [Range<Lba>; 3] {
        let mut end = self.first;
        [self.list_blocks(), self.row_blocks(), self.kept].map(|blocks| {
            let first = end;
            end = Lba(end.0.saturating_add(blocks));
            first..end
        })
    }

    fn list_blocks(&self) -> u64 {
        match self.kept {
            0 => 0,
            _ => LIST_BLOCKS,
        }
    }

    /// The first block.
    #[must_use]
    pub fn first(&self) -> Lba {
        self.first
    }

    /// The block after the last.
    #[must_use]
    pub fn end(&self) -> Lba {
        let [_, _, kept] = self.parts();
        kept.end
    }
}

/// A snapshot's number. Later snapshots have higher ones. When the newest are deleted and the volume is opened anew, their numbers are
/// used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u32);

/// The state of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// It exists.
    Kept = 1,
    /// It is being deleted, and is not read any more.
    Leaving = 2,
    /// The volume is being rolled back to it.
    Returning = 3,
    /// It is being received as a whole, and does not exist yet.
    ArrivingWhole = 4,
    /// It is being received as changes since the newest complete one, and does not exist yet.
    ArrivingChanges = 5,
    /// It is a clone of a snapshot.
    Clone = 6,
    /// It is a clone that is being deleted.
    LeavingClone = 7,
}

impl Stage {
    /// True if it is not complete yet.
    #[must_use]
    pub fn arrives(self) -> bool {
        matches!(self, Self::ArrivingWhole | Self::ArrivingChanges)
    }

    /// True if it is a clone of a snapshot.
    #[must_use]
    pub fn is_clone(self) -> bool {
        matches!(self, Self::Clone | Self::LeavingClone)
    }

    /// True if it is being deleted.
    #[must_use]
    pub fn leaves(self) -> bool {
        matches!(self, Self::Leaving | Self::LeavingClone)
    }
}

/// A snapshot's name: characters that are allowed in a path, but no `@` or `/`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; NAME_BYTES],
    len: u8,
}

/// Why a text is not a snapshot's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a snapshot's name is 1 to {NAME_BYTES} bytes long: letters, digits, `.`, `_`, `:`, `+` and `-`; \
     the first is a letter or a digit"
)]
pub struct BadName;

impl Name {
    /// Makes a name from text.
    ///
    /// # Errors
    /// When it is too long, or has characters that a name must not have.
    pub fn new(text: &str) -> Result<Self, BadName> {
        let may_be = |c: char| c.is_ascii_alphanumeric() || "._:+-".contains(c);
        let first = text.chars().next().ok_or(BadName)?;
        if text.len() > NAME_BYTES || !first.is_ascii_alphanumeric() || !text.chars().all(may_be) {
            return Err(BadName);
        }
        let mut bytes = [0; NAME_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        let len = text.len() as u8;
        Ok(Self { bytes, len })
    }

    /// Makes a name from the first `len` of these bytes, which may be anything.
    pub(super) fn of_bytes(bytes: &[u8], len: u8) -> Option<Self> {
        let text = core::str::from_utf8(bytes.get(..usize::from(len))?).ok()?;
        Self::new(text).ok()
    }

    /// Its bytes, padded with zeros, and its length.
    pub(super) fn padded(&self) -> ([u8; NAME_BYTES], u8) {
        (self.bytes, self.len)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // A name consists of ASCII only.
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_str().fmt(f)
    }
}

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_str().fmt(f)
    }
}

/// A random number drawn when a snapshot is taken. With its name and time it distinguishes the snapshot from all others, on
/// whatever volume. A received snapshot has the mark of the one that was sent. All zeros: taken by a version that drew none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(pub [u8; MARK_BYTES]);

/// What distinguishes a snapshot from all others, on whatever volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub name: Name,
    /// When it was taken, in seconds since 1970, by the clock of the machine that took it.
    pub taken: u64,
    /// Its mark.
    pub mark: Mark,
}

/// A snapshot as recorded in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its number.
    pub number: Number,
    /// What distinguishes it from all others.
    pub identity: Identity,
    /// Its state.
    pub stage: Stage,
}

const fn field(name: &'static str, offset: usize, size: usize, doc: &'static str) -> Field {
    Field {
        name,
        offset,
        size,
        doc,
    }
}

/// The fields of an entry of the list.
pub const FIELDS: &[Field] = &[
    field("number", 0, 4, "u32; 0: nothing is here"),
    field(
        "stage",
        4,
        1,
        "1 kept; 2 being deleted; 3 the volume is being taken back to it; 4 all of it is being received; \
         5 what changed since the newest other one is; 6 it is a clone; \
         7 it is a clone that is being deleted",
    ),
    field("name_bytes", 5, 1, "bytes of the name"),
    field(
        "mark",
        6,
        MARK_BYTES,
        "drawn at random; of a received one, that of the one that was sent; of a clone, the number \
         of its snapshot, u32",
    ),
    field(
        "taken",
        12,
        8,
        "u64; when it was taken, in seconds since 1970",
    ),
    field("name", 20, NAME_BYTES, "ASCII, then zeros"),
];

impl Mark {
    /// The mark of a clone: the number of its snapshot.
    #[must_use]
    pub fn of_clone(of: Number) -> Self {
        let mut mark = [0; MARK_BYTES];
        mark[..4].copy_from_slice(&of.0.to_le_bytes());
        Self(mark)
    }
}

impl Snapshot {
    /// The snapshot that this is a clone of, if it is a clone.
    #[must_use]
    pub fn clone_of(&self) -> Option<Number> {
        let [a, b, c, d, ..] = self.identity.mark.0;
        let of = Number(u32::from_le_bytes([a, b, c, d]));
        self.stage.is_clone().then_some(of)
    }

    /// Encodes its entry in the list.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        out[..4].copy_from_slice(&self.number.0.to_le_bytes());
        out[4] = self.stage as u8;
        out[5] = self.identity.name.len;
        out[6..12].copy_from_slice(&self.identity.mark.0);
        out[12..20].copy_from_slice(&self.identity.taken.to_le_bytes());
        out[20..].copy_from_slice(&self.identity.name.bytes);
        out
    }

    /// Decodes an entry, which may be anything; `None` if it is empty.
    ///
    /// # Errors
    /// When it is not a snapshot's.
    pub fn decode(entry: &[u8; ENTRY_BYTES]) -> Result<Option<Self>, FormatError> {
        const WHAT: &str = "list of snapshots";
        let number = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        if number == 0 {
            return Ok(None);
        }
        let stage = match entry[4] {
            1 => Stage::Kept,
            2 => Stage::Leaving,
            3 => Stage::Returning,
            4 => Stage::ArrivingWhole,
            5 => Stage::ArrivingChanges,
            6 => Stage::Clone,
            7 => Stage::LeavingClone,
            other => {
                let (what, field, value) = (WHAT, "stage", other.into());
                return Err(FormatError::Value { what, field, value });
            }
        };
        let name = Name::of_bytes(&entry[20..], entry[5]);
        let (mut mark, mut taken) = (Mark::default(), [0; 8]);
        mark.0.copy_from_slice(&entry[6..12]);
        taken.copy_from_slice(&entry[12..20]);
        Ok(Some(Self {
            number: Number(number),
            identity: Identity {
                name: name.ok_or(FormatError::Value {
                    what: WHAT,
                    field: "name",
                    value: entry[5].into(),
                })?,
                taken: u64::from_le_bytes(taken),
                mark,
            },
            stage,
        }))
    }
}

/// Which block of which snapshot a kept block is. Rows are sorted by block, then by snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The block, as clients see it.
    pub lba: Lba,
    /// The newest snapshot that has these contents for the block; or the clone.
    pub number: Number,
}

/// How a row is encoded in 8 bytes: the LBA in the upper bits, the number in the lower ones; 0 is no row. Numbers have 32 bits, or 24
/// on a volume of more than 16 TiB, whose LBAs have up to 40.
#[derive(Clone, Copy, Debug)]
pub struct RowForm {
    number_bits: u32,
}

impl RowForm {
    /// The highest number that a snapshot can have.
    #[must_use]
    pub fn last_number(self) -> Number {
        Number(u32::MAX >> (32 - self.number_bits))
    }

    /// Encodes a row. An LBA that no row can name counts as the highest that one can.
    #[must_use]
    pub fn raw(self, row: Row) -> u64 {
        debug_assert!(row.number <= self.last_number());
        let lba = row.lba.0.min(u64::MAX >> self.number_bits);
        lba << self.number_bits | u64::from(row.number.0)
    }

    /// The inverse of [`raw`](Self::raw); `None` if there is no row.
    #[must_use]
    pub fn row(self, raw: u64) -> Option<Row> {
        let number = raw as u32 & self.last_number().0;
        (number > 0).then_some(Row {
            lba: Lba(raw >> self.number_bits),
            number: Number(number),
        })
    }

    /// Turns an encoded row round: the number is in the upper bits.
    #[must_use]
    pub fn turned(self, raw: u64) -> u64 {
        raw.rotate_right(self.number_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_LOGICAL_BLOCKS;
    use proptest::prelude::*;

    /// On a volume of up to 16 TiB, rows and the pairs of a sweep have room for 32 bits of an LBA; on a larger one, for 35 or more.
    #[test]
    fn the_lbas_of_a_history_have_no_more_bits_than_there_is_room_for() {
        for room in 0..200 {
            for (blocks, end) in [
                (MAX_NARROW_BLOCKS, MAX_NARROW_BLOCKS),
                (MAX_NARROW_BLOCKS + 200, MAX_MAPPED_BLOCKS),
                (MAX_LOGICAL_BLOCKS, MAX_MAPPED_BLOCKS),
            ] {
                let logical = blocks - room;
                let history = History::new(Lba(logical), most(logical));
                assert!(history.end().0 <= end, "{logical} blocks");
            }
        }
    }

    const STAGES: [Stage; 7] = [
        Stage::Kept,
        Stage::Leaving,
        Stage::Returning,
        Stage::ArrivingWhole,
        Stage::ArrivingChanges,
        Stage::Clone,
        Stage::LeavingClone,
    ];

    #[test]
    fn the_parts_follow_each_other() {
        let none = History::new(Lba(1000), 0);
        assert_eq!((none.first(), none.end()), (Lba(1000), Lba(1000)));
        let history = History::new(Lba(1000), 513);
        assert_eq!(history.list(LIST_BLOCKS - 1).plus(1), history.rows(0));
        assert_eq!(history.rows(1).plus(1), history.block(0));
        assert_eq!(history.block(512).plus(1), history.end());
        let [list, rows, kept] = history.parts();
        assert_eq!(
            [list.start, rows.start, kept.start],
            [Lba(1000), history.rows(0), history.block(0)]
        );
        assert_eq!(
            [list.end, rows.end, kept.end],
            [rows.start, kept.start, history.end()]
        );
        assert!(
            none.parts()
                .iter()
                .all(|part| *part == (Lba(1000)..Lba(1000)))
        );
    }

    #[test]
    fn names_are_plain() {
        let long = "x".repeat(NAME_BYTES + 1);
        for bad in ["", "a/b", "a@b", "-a", ".a", "a b", "ä", "a\0", &long] {
            assert_eq!(Name::new(bad), Err(BadName), "{bad:?}");
        }
        for good in ["a", "2026-11-25T10:00:00", "before+1_x.y", &long[1..]] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
    }

    proptest! {
        #[test]
        fn a_decoded_entry_is_the_encoded_one(
            number in 1..=u32::MAX,
            name in "[a-z0-9][a-z0-9._:+-]{0,43}",
            taken: u64,
            mark: [u8; MARK_BYTES],
            stage in prop::sample::select(&STAGES[..]),
        ) {
            let name = Name::new(&name).unwrap();
            let identity = Identity { name, taken, mark: Mark(mark) };
            let snapshot = Snapshot { number: Number(number), identity, stage };
            prop_assert_eq!(Snapshot::decode(&snapshot.encode()), Ok(Some(snapshot)));
        }

        #[test]
        fn any_bytes_are_an_entry_or_an_error(bytes: [u8; 32], more: [u8; 32]) {
            let mut entry = [0; ENTRY_BYTES];
            entry[..32].copy_from_slice(&bytes);
            entry[32..].copy_from_slice(&more);
            if let Ok(Some(snapshot)) = Snapshot::decode(&entry) {
                prop_assert_eq!(Snapshot::decode(&snapshot.encode()), Ok(Some(snapshot)));
            }
        }

        #[test]
        fn a_decoded_row_is_the_encoded_one(lba: u64, number in 1..=u32::MAX, is_wide: bool) {
            let first = Lba(MAX_NARROW_BLOCKS + u64::from(is_wide));
            let form = History::new(first, 1).row_form();
            let lba = Lba(lba % if is_wide { MAX_MAPPED_BLOCKS } else { MAX_NARROW_BLOCKS });
            let number = Number((number & form.last_number().0).max(1));
            let row = Row { lba, number };
            prop_assert_eq!(form.row(form.raw(row)), Some(row));
            let turned = form.turned(form.raw(row));
            let by_number = turned >> (64 - if is_wide { 24 } else { 32 });
            prop_assert_eq!(by_number, u64::from(number.0));
        }
    }
}
