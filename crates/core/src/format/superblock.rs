//! The superblock: the description of the volume. It is mirrored in the first and the last block of the medium.

mod bare;
mod chosen;
pub(super) mod features;
mod fields;
mod head;
mod leaves;
mod log_end;
mod places;
mod resettled;
mod roots;
mod secret;
mod segments;
mod settled;
mod shrunk;
mod tables;

use super::areas::{Areas, Layout};
use super::error::{FormatError, can_be, same_sum};
use super::field::{Crc, Field, VERSION, checksum_around, on_disk, seal_around};
use super::history::{self, History};
use super::properties::{self, Properties};
use super::sum::{BlockSum, SumKind};
use super::summary;
use crate::addr::{BLOCK_BYTES, Generation, Lba, Life, Pba, Seq};
use crate::entry::LEAF_ENTRIES;
use crate::limits::{COLLECTOR_SEGMENTS, MAX_LOGICAL_BLOCKS, STRIPE};
use core::mem::offset_of;
pub(super) use features::Features;
use features::{CLONES, COPIES, KNOWN, LONG_TABLES, SNAPSHOTS, WITHOUT_DATA, XXH3_SUMS};
pub use log_end::LogEnd;
pub use resettled::Resettled;
pub(super) use secret::Secret;
pub use segments::SegmentArea;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const WHAT: &str = "superblock";
const MAGIC: [u8; 8] = *b"VELLUMSB";
const ENTRY_WIDTH: u32 = 4;

on_disk! {
    /// The first bytes of the superblock's block.
    RawSuperblock {
        /// "VELLUMSB"
        magic: [u8; 8],
        /// format version
        version: U32,
        /// checksum of the block around this field
        crc: U32,
        /// the volume's UUID
        uuid: [u8; 16],
        /// key of the volume's hashes; of a pack the newest chunk whose data was whole (8 bytes), zeros (8), and the signature
        secret: [u8; 32],
        /// features that a program must know to read the volume: 1 blocks' sums are XXH3; 2 tables have editions; 4 a log has copies of what leads to data; 8 second roots have open summaries; 16 it is a pack, without data; 32 tables in place have what leads to data twice; 64 a chunk's header names the LBAs of the one before; 128 a log's roots and leaves lie behind its segments, for it has grown; 256 behind the blocks that clients see are those of snapshots; 512 there are clones among these, or were; 1024 it has grown, and so those of snapshots have had other LBAs; 2048 clients see fewer blocks than they did, for it has shrunk; 4096 a log's roots say which segments are free
        incompatible: U64,
        /// features that a program must know to write it: 1 there are properties; 2 a log's tables have more leaves than its medium needs, for that was longer
        read_only_compatible: U64,
        /// features that may be ignored
        compatible: U64,
        /// times that the volume has been opened for writing
        life: U64,
        /// blocks of the medium
        medium_blocks: U64,
        /// blocks that clients see; with feature 2048, those before the blocks of snapshots
        logical_blocks: U64,
        /// first block of the first segment
        first_segment: U64,
        /// first block of the map's leaves
        map_area: U64,
        /// first block of the root's first place; the second follows it
        roots: U64,
        /// bytes in a block
        block_bytes: U32,
        /// bytes in a map entry
        entry_width: U32,
        /// blocks in a segment
        segment_blocks: U32,
        /// segments
        segments: U32,
        /// leaves that map LBAs
        map_leaves: U32,
        /// leaves that hold shared pages
        shared_leaves: U32,
        /// over-provisioning asked for, in thousandths
        over_provisioning: U32,
        /// layout: 1 log, 2 ordered tables, 3 shadowed tables
        layout: U32,
        /// number of a map checkpoint that was durable when this was written: none older may be used; ordered tables: the last life that ended with a clean stop
        root_generation: U64,
        /// one more than the newest chunk that there was when this life began; 0: not known
        log_end: U64,
        /// tables: first block of the map table, the others behind it
        tables: U64,
        /// shadowed tables: first block of the directory
        directory: U64,
        /// tables: first data block
        data: U64,
        /// tables: data blocks
        data_blocks: U64,
        /// leaves that hold deltas, behind those of shared pages
        delta_leaves: U32,
        /// bytes of properties, from byte 512 of the block on
        property_bytes: U32,
        /// how often properties have been changed: of two mirrors, the one with the higher number has those that count
        property_generation: U64,
        /// parities of leaves, behind those of deltas; with feature 4 one for 16 leaves, else none
        parity_leaves: U32,
        /// checksum of the first 512 bytes, this field and `crc` taken for zero, and at least 1: it holds where a write of properties was torn; 0 in volumes from before 2026-11-25
        head_crc: U32,
        /// blocks that snapshots can keep; with feature 256, else none
        kept_blocks: U64,
        /// life of the newest chunk that there was when this life began; 0: not known
        log_end_life: U64,
        /// blocks whose LBA was always theirs: with feature 1024 the blocks that clients saw before the volume grew first, else all
        settled_blocks: U64,
        /// with feature 1024 the life that began as it grew last: what older ones wrote of other LBAs was of other blocks, else none
        settled_since: U64,
        /// with feature 2048 the blocks that clients see: no block from this one on to `logical blocks` holds data, else none
        shrunk_blocks: U64,
    }
}

const _: () = assert!(size_of::<RawSuperblock>() <= properties::AREA.start);

/// The fields of a superblock.
pub const FIELDS: &[Field] = RawSuperblock::FIELDS;

/// The number of leaves of each kind, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeafCounts {
    pub map: u32,
    pub shared: u32,
    pub deltas: u32,
    /// 0: no leaf has a parity, and no root a second copy.
    pub parities: u32,
}

impl LeafCounts {
    /// The leaves of tables.
    pub(super) fn of_tables(&self) -> u64 {
        let tables = [self.map, self.shared, self.deltas];
        tables.into_iter().map(u64::from).sum()
    }

    /// The same, with tables of pages that are at least as long as others. These are longer if the medium was longer once, and
    /// a page may have any number for which there is a leaf.
    pub(super) fn with_tables_of(self, others: &Self) -> Self {
        let mut counts = Self {
            shared: self.shared.max(others.shared),
            deltas: self.deltas.max(others.deltas),
            ..self
        };
        if counts.parities > 0 {
            counts.parities = (counts.of_tables() as u32).div_ceil(STRIPE);
        }
        counts
    }

    fn of(raw: &RawSuperblock) -> Self {
        Self {
            map: raw.map_leaves.get(),
            shared: raw.shared_leaves.get(),
            deltas: raw.delta_leaves.get(),
            // Without the feature the field did not exist, and has no meaning.
            parities: match raw.incompatible.get() & COPIES {
                0 => 0,
                _ => raw.parity_leaves.get().max(1),
            },
        }
    }
}

/// The area of so many segments of so many blocks, from block `first` on.
pub(super) fn segment_area(first: u64, blocks: u32, count: u32) -> SegmentArea {
    SegmentArea::new(first, blocks, summary::blocks(blocks), count)
}

/// The description of a volume. [`geometry::plan`](super::geometry::plan) makes one, or a mirror is decoded. Both check it, so what its
/// methods compute always lies on the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub(super) uuid: [u8; 16],
    pub(super) secret: Secret,
    pub(super) life: Life,
    pub(super) medium_blocks: u64,
    /// The blocks before those of snapshots; clients see all of them, unless the volume has shrunk.
    pub(super) logical_blocks: u64,
    /// Blocks that snapshots can keep.
    pub(super) kept_blocks: u64,
    pub(super) map_area: u64,
    pub(super) roots: u64,
    pub(super) segments: SegmentArea,
    pub(super) leaves: LeafCounts,
    pub(super) over_provisioning: u32,
    pub(super) root_generation: Generation,
    pub(super) log_end: Option<LogEnd>,
    pub(super) layout: Layout,
    pub(super) features: Features,
    pub(super) areas: Areas,
    pub(super) sums: SumKind,
    /// Features that this program does not know. It may read the volume all the same, but not write to it.
    pub(super) read_only_compatible: u64,
    pub(super) properties: Properties,
    /// Why the properties are not known, if they are not.
    pub(super) torn: Option<FormatError>,
}

impl Superblock {
    /// Why this program may read the volume but not write it, or `None`.
    #[must_use]
    pub fn unknown_to_write(&self) -> Option<FormatError> {
        let bits = self.read_only_compatible;
        let unknown = (bits != 0).then_some(FormatError::Features { what: WHAT, bits });
        self.torn.or(unknown)
    }

    /// How blocks and their metadata lie on the medium.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Where tables and their data are; empty for a log.
    #[must_use]
    pub fn areas(&self) -> &Areas {
        &self.areas
    }

    /// The volume's UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The key of the volume's hashes.
    #[must_use]
    pub fn secret(&self) -> [u8; 32] {
        self.secret.bytes()
    }

    /// The seed of the volume's weak hashes: eight bytes of the secret.
    #[must_use]
    pub fn hash_seed(&self) -> u64 {
        let mut seed = [0; 8];
        seed.copy_from_slice(&self.secret()[..8]);
        u64::from_le_bytes(seed)
    }

    /// The kind of sums that its blocks have.
    #[must_use]
    pub fn sums(&self) -> SumKind {
        self.sums
    }

    /// True if the table of editions detects writes of the map table that the medium confirmed and lost.
    #[must_use]
    pub fn has_editions(&self) -> bool {
        self.features.editions
    }

    /// The function that computes the sums.
    #[must_use]
    pub fn sum(&self, crc: Crc) -> BlockSum {
        match self.sums {
            SumKind::Crc32c => BlockSum::Crc32c(crc),
            SumKind::Xxh3 => BlockSum::Xxh3 {
                seed: self.hash_seed(),
            },
        }
    }

    /// The signature of chunk headers and summaries: half of the secret, which no client can read or guess. So no block that a
    /// client writes can pass for one, wherever it lies.
    #[must_use]
    pub fn signature(&self) -> [u8; 16] {
        let mut signature = [0; 16];
        signature.copy_from_slice(&self.secret()[16..]);
        signature
    }

    /// How often it has been opened for writing.
    #[must_use]
    pub fn life(&self) -> Life {
        self.life
    }

    /// Begins a new life, after the chunk at which recovery found the end of the log; the caller writes both mirrors, with a sync after
    /// each, before anything else. Both mirrors may be stale, if they were restored from an older copy. Even so the new life is newer
    /// than that chunk, because a chunk of an older life is never accepted as the continuation of the log.
    pub fn begin_life(&mut self, log_end: LogEnd) {
        self.life = Life(self.life.max(log_end.life).0.saturating_add(1));
        self.log_end = Some(log_end);
    }

    /// True if a chunk can be part of the log. It cannot if it is of an older life and lies past the end that the log had when this life
    /// began. Then it was torn, or followed a torn chunk, although later writes may have made it whole.
    #[must_use]
    pub fn is_of_log(&self, seq: Seq, life: Life) -> bool {
        life >= self.life || self.log_end.is_none_or(|end| end.can_have(seq, life))
    }

    /// A map checkpoint that is known to have been durable; what an older checkpoint needs may be gone.
    #[must_use]
    pub fn root_generation(&self) -> Generation {
        self.root_generation
    }

    /// The newest chunk when this life began, if known.
    #[must_use]
    pub fn log_end(&self) -> Option<LogEnd> {
        self.log_end
    }

    /// Notes a durable map checkpoint. The caller must know that it is durable, because what recovery reads may exist only in a
    /// cache.
    pub fn mark_root(&mut self, generation: Generation) {
        self.root_generation = self.root_generation.max(generation);
    }

    /// Notes that tables in place are complete: nothing is left to write, and everything written is durable. They have no root whose
    /// number could be noted, so the life's number is used.
    pub fn mark_stop(&mut self) {
        self.root_generation = Generation(self.life.0);
    }

    /// True if tables in place were left complete, and no life has begun since.
    #[must_use]
    pub fn was_stopped(&self) -> bool {
        self.layout == Layout::Ordered && self.root_generation.0 == self.life.0
    }

    /// True if both are of the same life of the same volume. They may name different roots, because a map checkpoint marks only
    /// one mirror, and may have different properties, if a change of these was interrupted.
    #[must_use]
    pub fn mirrors_same_life(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.root_generation = self.root_generation;
        other.properties.clone_from(&self.properties);
        *self == other
    }

    /// Blocks of the medium.
    #[must_use]
    pub fn medium_blocks(&self) -> u64 {
        self.medium_blocks
    }

    /// Where the blocks of snapshots are: after those that clients see, or have seen before the volume shrank.
    #[must_use]
    pub fn history(&self) -> History {
        History::new(Lba(self.logical_blocks), self.kept_blocks)
    }

    /// The number of blocks in the map: those that clients see or have seen, and those of snapshots.
    #[must_use]
    pub fn mapped_blocks(&self) -> u64 {
        self.history().end().0
    }

    /// The over-provisioning requested at creation, in thousandths.
    #[must_use]
    pub fn over_provisioning(&self) -> u32 {
        self.over_provisioning
    }

    /// Encodes the block.
    pub fn encode(&self, crc: Crc, out: &mut [u8]) {
        debug_assert_eq!(out.len(), BLOCK_BYTES);
        out.fill(0);
        let property_bytes = self.properties.encode(&mut out[properties::AREA]);
        let raw = RawSuperblock {
            magic: MAGIC,
            version: U32::new(VERSION),
            crc: U32::new(0),
            uuid: self.uuid,
            secret: self.secret(),
            incompatible: U64::new(self.incompatible()),
            read_only_compatible: U64::new(self.to_write()),
            compatible: U64::new(0),
            life: U64::new(self.life.0),
            medium_blocks: U64::new(self.medium_blocks),
            logical_blocks: U64::new(self.logical_blocks),
            first_segment: U64::new(self.segments.first().0),
            map_area: U64::new(self.map_area),
            roots: U64::new(self.roots),
            block_bytes: U32::new(BLOCK_BYTES as u32),
            entry_width: U32::new(ENTRY_WIDTH),
            segment_blocks: U32::new(self.segments.blocks()),
            segments: U32::new(self.segments.count()),
            map_leaves: U32::new(self.leaves.map),
            shared_leaves: U32::new(self.leaves.shared),
            delta_leaves: U32::new(self.leaves.deltas),
            over_provisioning: U32::new(self.over_provisioning),
            layout: U32::new(self.layout.number()),
            root_generation: U64::new(self.root_generation.0),
            log_end: U64::new(self.log_end.map_or(0, |end| end.seq.0 + 1)),
            tables: U64::new(self.areas.tables),
            directory: U64::new(self.areas.directory),
            data: U64::new(self.areas.data),
            data_blocks: U64::new(self.areas.data_blocks),
            property_bytes: U32::new(property_bytes as u32),
            property_generation: U64::new(self.properties.generation()),
            parity_leaves: U32::new(self.leaves.parities),
            head_crc: U32::new(0),
            kept_blocks: U64::new(self.kept_blocks),
            log_end_life: U64::new(self.log_end.map_or(0, |end| end.life.0)),
            settled_blocks: U64::new(self.features.resettled.map_or(0, |how| how.settled)),
            settled_since: U64::new(self.features.resettled.map_or(0, |how| how.since.0)),
            shrunk_blocks: U64::new(self.features.shrunk.unwrap_or(0)),
        };
        out[..size_of::<RawSuperblock>()].copy_from_slice(raw.as_bytes());
        RawSuperblock::sign(out, crc);
        seal_around(out, offset_of!(RawSuperblock, crc), crc);
    }

    fn to_write(&self) -> u64 {
        let own = self.properties.feature() | self.features.bits_to_write();
        self.read_only_compatible | own
    }

    fn incompatible(&self) -> u64 {
        let sums = match self.sums {
            SumKind::Crc32c => 0,
            SumKind::Xxh3 => XXH3_SUMS,
        };
        let of = |has: bool, feature: u64| if has { feature } else { 0 };
        let is_pack = matches!(self.secret, Secret::Withheld { .. });
        sums | self.features.bits()
            | of(self.leaves.parities > 0, COPIES)
            | of(is_pack, WITHOUT_DATA)
            | of(self.kept_blocks > 0, SNAPSHOTS)
            | of(self.properties.has_clones(), CLONES)
    }

    /// The place of the volume's last mirror, according to a superblock that may be damaged.
    #[must_use]
    pub fn last_mirror_in(bytes: &[u8]) -> Option<Pba> {
        let (raw, _) = RawSuperblock::read_from_prefix(bytes).ok()?;
        let blocks = raw.medium_blocks.get();
        (raw.magic == MAGIC && blocks > 1).then(|| Pba(blocks - 1))
    }

    /// Decodes a block that may be anything, on a medium of `medium_blocks`.
    ///
    /// # Errors
    /// When it is not a superblock, is damaged, is from a newer version, or its geometry does not fit the medium.
    pub fn decode(bytes: &[u8], medium_blocks: u64, crc: Crc) -> Result<Self, FormatError> {
        let raw = RawSuperblock::of(bytes)?;
        let found = checksum_around(bytes, offset_of!(RawSuperblock, crc), crc);
        same_sum(WHAT, found, raw.crc.get())?;
        let properties = || {
            let (generation, used) = (raw.property_generation.get(), raw.property_bytes.get());
            let has_clones = raw.incompatible.get() & CLONES != 0;
            Properties::of_block(generation, used, bytes)
                .map(|properties| properties.with_clones(has_clones))
        };
        Self::of_raw(&raw, medium_blocks, properties)
    }

    fn of_raw(
        raw: &RawSuperblock,
        medium_blocks: u64,
        properties: impl FnOnce() -> Result<Properties, FormatError>,
    ) -> Result<Self, FormatError> {
        let (layout, segment_blocks) = raw.checked(medium_blocks)?;
        let superblock = Self {
            uuid: raw.uuid,
            secret: Secret::of(raw.secret, raw.incompatible.get() & WITHOUT_DATA != 0),
            life: Life(raw.life.get()),
            medium_blocks: raw.medium_blocks.get(),
            logical_blocks: raw.logical_blocks.get(),
            // Without the feature the field did not exist, and has no meaning.
            kept_blocks: match raw.incompatible.get() & SNAPSHOTS {
                0 => 0,
                _ => raw.kept_blocks.get().max(1),
            },
            map_area: raw.map_area.get(),
            roots: raw.roots.get(),
            segments: segment_area(raw.first_segment.get(), segment_blocks, raw.segments.get()),
            leaves: LeafCounts::of(raw),
            over_provisioning: raw.over_provisioning.get(),
            root_generation: Generation(raw.root_generation.get()),
            log_end: LogEnd::of(raw.log_end.get(), raw.log_end_life.get()),
            layout,
            features: Features::of(
                (raw.incompatible.get(), raw.read_only_compatible.get()),
                Resettled {
                    settled: raw.settled_blocks.get(),
                    since: Life(raw.settled_since.get()),
                },
                raw.shrunk_blocks.get(),
            ),
            areas: Areas {
                tables: raw.tables.get(),
                directory: raw.directory.get(),
                data: raw.data.get(),
                data_blocks: raw.data_blocks.get(),
            },
            sums: match raw.incompatible.get() & XXH3_SUMS {
                0 => SumKind::Crc32c,
                _ => SumKind::Xxh3,
            },
            read_only_compatible: raw.read_only_compatible.get()
                & !(properties::FEATURE | LONG_TABLES),
            properties: properties()?,
            torn: None,
        };
        superblock.validate()?;
        Ok(superblock)
    }

    /// Checks that every area follows the previous one and ends before the last block.
    pub(super) fn validate(&self) -> Result<(), FormatError> {
        let check = |ok, field, value| can_be(WHAT, ok, field, value);
        let kept = self.kept_blocks;
        let has_room = kept <= history::most(self.logical_blocks);
        check(has_room, "kept blocks", kept)?;
        if let Some(how) = self.features.resettled {
            let is_before = how.settled <= self.logical_blocks;
            check(is_before, "settled blocks", how.settled)?;
        }
        self.validate_end()?;
        if self.layout != Layout::Log {
            check(kept == 0, "kept blocks of tables", kept)?;
            return self.validate_areas();
        }
        check(!self.features.editions, "editions of a log", 1)?;
        check(!self.features.twins, "second tables of a log", 1)?;
        let has_twins = self.leaves.parities > 0 || !self.features.open_summaries;
        check(has_twins, "open summaries without second roots", 1)?;
        let logical_limit = u64::from(self.leaves.map) * LEAF_ENTRIES as u64;
        check(
            self.logical_blocks > 0 && self.logical_blocks <= logical_limit.min(MAX_LOGICAL_BLOCKS),
            "logical blocks",
            self.logical_blocks,
        )?;
        let parities = self.leaves.parities;
        let leaves = self.leaves.of_tables();
        check(leaves <= 1 << 26, "leaves", leaves)?;
        check(
            parities == 0 || parities == self.first_parity().div_ceil(STRIPE),
            "parity leaves",
            parities.into(),
        )?;
        check(
            self.leaves.map as u64 == self.mapped_blocks().div_ceil(LEAF_ENTRIES as u64),
            "map leaves",
            self.leaves.map.into(),
        )?;
        check(
            self.segments.count() as usize >= COLLECTOR_SEGMENTS + 4,
            "segments",
            self.segments.count().into(),
        )?;
        let length = u64::from(self.segments.count()) * u64::from(self.segments.blocks());
        let first = self.segments.first().0;
        let segments = (first, first.saturating_add(length), "first segment");
        self.validate_roots()?;
        let roots = self.roots.saturating_add(2 * u64::from(self.root_blocks()));
        let roots = (self.roots, roots, "root place");
        let leaves = self
            .map_area
            .saturating_add(2 * u64::from(self.leaves()))
            .saturating_add(2 * self.twin_blocks());
        let leaves = (self.map_area, leaves, "map area");
        let areas = match self.features.moved {
            false => [roots, leaves, segments],
            true => [segments, roots, leaves],
        };
        let mut least = 1;
        for (start, end, field) in areas {
            check(start >= least && end < self.medium_blocks, field, start)?;
            least = end;
        }
        Ok(())
    }
}
