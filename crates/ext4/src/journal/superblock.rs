//! The journal's own superblock.

use super::format::{JournalBlock, JournalFeatures, JournalFormat, Sequence};
use crate::aside::{Part, StoodAside};
use crate::checksum::{crc32c, crc32c_around};
use crate::limits::JOURNAL_BLOCKS_MIN;
use crate::span::Uuid;
use core::mem::offset_of;
use core::ops::Range;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Its size.
pub(crate) const BYTES: usize = 1024;

const MAGIC: u32 = super::block::MAGIC;
const VERSION_1: u32 = 3;
const VERSION_2: u32 = 4;
const CHECKSUM_CRC32C: u8 = 4;
/// The meaning of 0 in `s_num_fc_blks`.
const FAST_COMMIT_BLOCKS: u32 = 256;

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Raw {
    magic: U32,
    kind: U32,
    _sequence: U32,
    block_bytes: U32,
    blocks: U32,
    first: U32,
    log_sequence: U32,
    log_start: U32,
    _error: U32,
    compatible: U32,
    incompatible: U32,
    _read_only_compatible: U32,
    uuid: [u8; 16],
    users: U32,
    _limits: [u8; 12],
    checksum_type: u8,
    _padding: [u8; 3],
    fast_commit_blocks: U32,
    _head: U32,
    _reserved: [u8; 0xA0],
    checksum: U32,
    _users: [u8; 0x300],
}

const _: () = assert!(size_of::<Raw>() == BYTES);
const _: () = assert!(offset_of!(Raw, compatible) == 0x24);
const _: () = assert!(offset_of!(Raw, uuid) == 0x30);
const _: () = assert!(offset_of!(Raw, checksum_type) == 0x50);
const _: () = assert!(offset_of!(Raw, checksum) == 0xFC);

/// The offset of the field that says at which block the log begins.
pub(super) const LOG_START: usize = offset_of!(Raw, log_start);

/// True if a block of this kind is a superblock.
pub(super) fn is_kind(kind: u32) -> bool {
    matches!(kind, VERSION_1 | VERSION_2)
}

/// The parts that do not change while the log advances.
pub(crate) const STEADY: [Range<usize>; 2] = [0..0x18, 0x24..0x58];

/// What a journal's superblock says about its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// How to read its blocks from here on: the kernel sets features when it mounts the file system.
    pub format: JournalFormat,
    /// The first transaction and its block; `None` if the log is empty.
    pub begin: Option<(Sequence, JournalBlock)>,
}

/// Parses a superblock written while its log is followed; `None` if it is damaged or invalid.
pub(crate) fn log(bytes: &[u8], block_bytes: u32, room: u64, own: JournalBlock) -> Option<Log> {
    let bytes = bytes.get(..BYTES)?;
    let format = check(0, bytes, block_bytes, room, own).ok()?.format;
    let (raw, _) = Raw::ref_from_prefix(bytes).ok()?;
    let start = JournalBlock(raw.log_start.get());
    let begin = (start.0 != 0).then(|| (Sequence(raw.log_sequence.get()), start));
    let in_log = |(_, start)| (format.first..format.end).contains(&start);
    begin.is_none_or(in_log).then_some(Log { format, begin })
}

/// The checked contents of a journal's superblock.
pub(crate) struct Checked {
    pub format: JournalFormat,
    pub is_empty: bool,
    pub blocks: u32,
    pub fast_commit_blocks: u32,
    pub uuid: Uuid,
}

/// Checks the superblock at byte `at` of a journal with room for `room` blocks of `block_bytes`, one of which is
/// the superblock itself, `own`.
pub(crate) fn check(
    at: u64,
    bytes: &[u8],
    block_bytes: u32,
    room: u64,
    own: JournalBlock,
) -> Result<Checked, StoodAside> {
    let ensure = |fine, field, found| ensure(at, fine, field, found);
    let Ok((raw, _)) = Raw::ref_from_prefix(bytes) else {
        let part = Part::JournalSuperblock;
        return Err(StoodAside::Checksum { part, at });
    };
    let features = features_of(at, raw, bytes)?;
    let size = raw.block_bytes.get();
    ensure(size == block_bytes, "s_blocksize", size)?;
    let blocks = raw.blocks.get();
    ensure(
        (JOURNAL_BLOCKS_MIN..=room).contains(&blocks.into()),
        "s_maxlen",
        blocks,
    )?;
    let fast_commit_blocks = match (features.fast_commit(), raw.fast_commit_blocks.get()) {
        (false, _) => 0,
        (true, 0) => FAST_COMMIT_BLOCKS,
        (true, some) => some,
    };
    let end = blocks.saturating_sub(fast_commit_blocks);
    ensure(
        u64::from(end) >= JOURNAL_BLOCKS_MIN,
        "s_num_fc_blks",
        fast_commit_blocks,
    )?;
    let first = raw.first.get();
    ensure(own.0 < first && first < end, "s_first", first)?;
    let is_v2 = raw.kind.get() == VERSION_2;
    if is_v2 {
        // Journals shared by several file systems were planned, but never implemented.
        ensure(raw.users.get() <= 1, "s_nr_users", raw.users.get())?;
    }
    Ok(Checked {
        format: JournalFormat {
            block_bytes,
            first: JournalBlock(first),
            end: JournalBlock(end),
            features,
            seed: crc32c(!0, &raw.uuid),
        },
        is_empty: raw.log_start.get() == 0,
        blocks,
        fast_commit_blocks,
        uuid: match is_v2 {
            true => Uuid(raw.uuid),
            false => Uuid::default(),
        },
    })
}

fn ensure(at: u64, fine: bool, field: &'static str, found: u32) -> Result<(), StoodAside> {
    match fine {
        true => Ok(()),
        false => Err(StoodAside::field(Part::JournalSuperblock, at, field, found)),
    }
}

/// The features of a journal, if this is its superblock, is whole, and has no feature that is not known here.
fn features_of(at: u64, raw: &Raw, bytes: &[u8]) -> Result<JournalFeatures, StoodAside> {
    let part = Part::JournalSuperblock;
    let ensure = |fine, field, found| ensure(at, fine, field, found);
    let (magic, kind) = (raw.magic.get(), raw.kind.get());
    ensure(magic == MAGIC, "h_magic", magic)?;
    ensure(is_kind(kind), "h_blocktype", kind)?;
    // Version 1 ends before the features.
    let features = match kind == VERSION_2 {
        true => JournalFeatures {
            compatible: raw.compatible.get(),
            incompatible: raw.incompatible.get(),
        },
        false => JournalFeatures::default(),
    };
    let incompatible = features.incompatible;
    let unknown = incompatible & !JournalFeatures::INCOMPATIBLE;
    if unknown != 0 {
        return Err(StoodAside::Unsupported {
            part,
            at,
            field: "s_feature_incompat",
            bits: unknown,
        });
    }
    let one_kind = !(features.checksum_v2() && features.checksum_v3());
    ensure(one_kind, "s_feature_incompat", incompatible)?;
    if features.checksum_v2() || features.checksum_v3() {
        let of_type = raw.checksum_type;
        ensure(
            of_type == CHECKSUM_CRC32C,
            "s_checksum_type",
            of_type.into(),
        )?;
        let hole = offset_of!(Raw, checksum);
        if crc32c_around(!0, bytes, hole..hole + 4) != raw.checksum.get() {
            return Err(StoodAside::Checksum { part, at });
        }
    }
    Ok(features)
}
