//! Geometry: the layout of a new volume on a medium.

use super::areas::{self, Areas, Layout};
use super::history::{self, History};
use super::properties::Properties;
use super::sum::SumKind;
use super::superblock::{Features, LeafCounts, Secret, Superblock, segment_area};
use super::{root, summary};
use crate::addr::{Generation, Lba, Life};
use crate::entry::{LEAF_DELTAS, LEAF_ENTRIES, MAX_PBA};
use crate::limits::{self, COLLECTOR_SEGMENTS, MAX_LOGICAL_BLOCKS, MAX_NARROW_BLOCKS};
use crate::size::Size;

/// A thin volume may promise this many times what its medium holds.
pub const THIN_LIMIT: u64 = 16;

/// The over-provisioning that a volume may have, in thousandths.
pub const OVER_PROVISIONING: core::ops::RangeInclusive<u32> = 20..=900;

/// The parameters of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// Blocks of the medium.
    pub medium_blocks: u64,
    /// Blocks that clients see; `None`: what the medium holds less over-provisioning.
    pub logical_blocks: Option<u64>,
    /// Space kept from the clients, in thousandths of what they see.
    pub over_provisioning: u32,
    /// Blocks in a segment, a power of two; `None`: by the medium's size.
    pub segment_blocks: Option<u32>,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// The key of its hashes, random.
    pub secret: [u8; 32],
    /// The kind of its blocks' sums.
    pub sums: SumKind,
}

/// The shortest length of a segment.
const LEAST_SEGMENT: u32 = 64;

impl Params {
    /// Checks them. Returns the size to begin with: the requested one, or else one that is too large. A layout has `most` blocks at most.
    fn checked(&self, segment_blocks: u32, most: u64) -> Result<u64, GeometryError> {
        let blocks = self.medium_blocks;
        if blocks > MAX_PBA {
            return Err(GeometryError::TooLarge { blocks });
        }
        if !OVER_PROVISIONING.contains(&self.over_provisioning) {
            return Err(GeometryError::OverProvisioning(self.over_provisioning));
        }
        if !segment_blocks.is_power_of_two() || !(LEAST_SEGMENT..=65536).contains(&segment_blocks) {
            return Err(GeometryError::SegmentBlocks(segment_blocks));
        }
        if self.logical_blocks == Some(0) {
            return Err(GeometryError::Nothing);
        }
        let logical = self.logical_blocks.unwrap_or(blocks);
        let limit = blocks.saturating_mul(THIN_LIMIT).min(most);
        match logical > limit {
            true => Err(GeometryError::TooThin { logical, limit }),
            false => Ok(logical),
        }
    }

    /// A new volume with no areas yet. Its segments have the shortest length, so tables can leave what only a log has.
    fn blank(&self, layout: Layout, logical: u64) -> Superblock {
        Superblock {
            read_only_compatible: 0,
            torn: None,
            properties: Properties::default(),
            uuid: self.uuid,
            secret: Secret::Known(self.secret),
            life: Life(0),
            medium_blocks: self.medium_blocks,
            logical_blocks: logical,
            kept_blocks: 0,
            map_area: 0,
            roots: areas::ROOTS,
            segments: segment_area(0, LEAST_SEGMENT, 0),
            leaves: LeafCounts::default(),
            over_provisioning: self.over_provisioning,
            root_generation: Generation(0),
            log_end: None,
            layout,
            features: Features::default(),
            areas: Areas::default(),
            sums: self.sums,
        }
    }
}

/// A volume of 64 MiB whose segments have 256 blocks, for tests.
#[cfg(test)]
pub(crate) const SMALL: Params = Params {
    medium_blocks: 1 << 14,
    logical_blocks: None,
    over_provisioning: 70,
    segment_blocks: Some(256),
    uuid: [1; 16],
    secret: [2; 32],
    sums: SumKind::Xxh3,
};

/// The most that a medium can have.
const MEDIUM_MAX: Size = Size::of_blocks(MAX_PBA);

/// Why a volume cannot be laid out as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// The medium is too small.
    #[error(
        "{} are too little: a volume needs at least {least} segments of {}",
        Size::of_blocks(*.blocks),
        Size::of_blocks((*.segment_blocks).into())
    )]
    TooSmall {
        /// Blocks of the medium.
        blocks: u64,
        /// Segments needed.
        least: usize,
        /// Blocks in a segment.
        segment_blocks: u32,
    },
    /// The medium is too small for tables.
    #[error(
        "{} are too little: tables need room for at least {} of data",
        Size::of_blocks(*.blocks).beside(Size::of_blocks(*.least)),
        Size::of_blocks(*.least).beside(Size::of_blocks(*.blocks))
    )]
    TooFew {
        /// Blocks of the medium.
        blocks: u64,
        /// Data blocks needed.
        least: u64,
    },
    /// The medium is too large for the width of a map entry.
    #[error(
        "a medium of {}: a volume can use {} at most",
        Size::of_blocks(*.blocks).beside(MEDIUM_MAX),
        MEDIUM_MAX.beside(Size::of_blocks(*.blocks))
    )]
    TooLarge {
        /// Blocks of the medium.
        blocks: u64,
    },
    /// The length of a segment is out of range, or not a power of two.
    #[error(
        "segments of {}: it must be a power of two from 256 KiB to 256 MiB",
        Size::of_blocks((*.0).into())
    )]
    SegmentBlocks(u32),
    /// The over-provisioning is out of range.
    #[error("over-provisioning of {0} thousandths: it must be from 20 to 900")]
    OverProvisioning(u32),
    /// The volume is thinner than allowed.
    #[error(
        "a size of {}: here it can be {} at most. A volume promises no more than {THIN_LIMIT} times what its \
         medium holds, and no more than 64 TiB. It is 16 TiB with tables in place, and for a volume that was \
         made smaller with room for snapshots",
        Size::of_blocks(*.logical).beside(Size::of_blocks(*.limit)),
        Size::of_blocks(*.limit).beside(Size::of_blocks(*.logical))
    )]
    TooThin {
        /// Blocks requested.
        logical: u64,
        /// Blocks allowed.
        limit: u64,
    },
    /// The logical size is 0.
    #[error("a size of 0: a volume needs at least one block")]
    Nothing,
    /// A volume of tables neither grows nor shrinks.
    #[error(
        "a volume of layout `{0}` keeps its size: `vellum migrate` copies it into one of another size"
    )]
    Fixed(&'static str),
    /// The volume is a log without copies of its metadata, and neither grows nor becomes shorter.
    #[error(
        "a volume of before 2026-11-24 has one copy of what leads to its data, and keeps its size: \
         `vellum migrate` copies it into one of another size"
    )]
    WithoutCopies,
    /// The requested size is not larger.
    #[error(
        "a size of {}: the volume has {}, and `vellum shrink` makes it smaller",
        Size::of_blocks(*.logical).beside(Size::of_blocks(*.before)),
        Size::of_blocks(*.before).beside(Size::of_blocks(*.logical))
    )]
    Shrinks {
        /// Blocks that clients would see.
        logical: u64,
        /// Blocks that they see now.
        before: u64,
    },
    /// The requested size is larger than the volume has ever been.
    #[error(
        "a size of {}: the volume has {}, and `vellum grow` makes it larger",
        Size::of_blocks(*.logical).beside(Size::of_blocks(*.before)),
        Size::of_blocks(*.before).beside(Size::of_blocks(*.logical))
    )]
    Grows {
        /// Blocks that clients would see.
        logical: u64,
        /// Blocks that they see now.
        before: u64,
    },
    /// The medium has no room for the grown volume's metadata.
    #[error(
        "the volume's file or device has {}, and needs at least {} to grow: enlarge the device, or give a \
         larger size",
        Size::of_blocks(*.blocks).beside(Size::of_blocks(*.least)),
        Size::of_blocks(*.least).beside(Size::of_blocks(*.blocks))
    )]
    TooLittle {
        /// Blocks of the medium.
        blocks: u64,
        /// Blocks needed.
        least: u64,
    },
    /// The requested medium is not shorter.
    #[error(
        "a medium of {:#}: the volume has {:#} of it, and `vellum grow` takes more",
        Size::of_blocks(*.blocks),
        Size::of_blocks(*.before)
    )]
    Lengthens {
        /// Blocks of the requested medium.
        blocks: u64,
        /// Blocks of the medium now.
        before: u64,
    },
    /// What leads to the volume's data would move over itself.
    #[error(
        "a medium of {:#}: the volume has grown, so what leads to its data lies at the end of the medium, \
         and moves as a whole: choose at most {:#}",
        Size::of_blocks(*.blocks),
        Size::of_blocks(*.most)
    )]
    InTheWay {
        /// Blocks of the requested medium.
        blocks: u64,
        /// The most blocks that are possible.
        most: u64,
    },
}

/// Lays out a volume.
///
/// # Errors
/// When the medium cannot hold it; the error names the limit.
pub fn plan(params: &Params) -> Result<Superblock, GeometryError> {
    plan_with_history(params, 0)
}

/// Lays out a volume with room for snapshots. They can keep `kept` thousandths of the blocks that clients see. The map has room
/// for all of these; data takes room only as snapshots keep it.
///
/// # Errors
/// When the medium cannot hold it; the error names the limit.
pub fn plan_with_history(params: &Params, kept: u32) -> Result<Superblock, GeometryError> {
    let segment_blocks = params.segment_blocks.unwrap_or_else(|| {
        let wanted = (params.medium_blocks / 2048).max(1).next_power_of_two();
        wanted.clamp(256, 1024) as u32
    });
    // The areas before the segments depend on the logical size, which depends on the segments. Two steps settle this; the first
    // assumes a logical size that is too large.
    let mut logical = params.checked(segment_blocks, MAX_LOGICAL_BLOCKS)?;
    let mut superblock = lay_out(params, segment_blocks, logical, kept)?;
    if params.logical_blocks.is_none() {
        // Over-provisioning is a share of what clients see (T / U - 1), without the reserve.
        let capacity = superblock.capacity_blocks();
        logical = (capacity * 1000 / u64::from(1000 + params.over_provisioning)).max(1);
        superblock = lay_out(params, segment_blocks, logical, kept)?;
    }
    Ok(superblock)
}

/// The leaves of a volume that maps so many blocks, on a medium of so many blocks.
pub(super) fn leaf_counts(medium_blocks: u64, mapped: u64, has_parities: bool) -> LeafCounts {
    let of = |blocks: u64| blocks.div_ceil(LEAF_ENTRIES as u64) as u32;
    let most = limits::DELTAS.div_ceil(LEAF_DELTAS) as u32;
    let mut counts = LeafCounts {
        map: of(mapped),
        shared: of(medium_blocks),
        deltas: (of(medium_blocks) / 4).clamp(1, most),
        parities: 0,
    };
    if has_parities {
        counts.parities = (counts.of_tables() as u32).div_ceil(limits::STRIPE);
    }
    counts
}

fn lay_out(
    params: &Params,
    segment_blocks: u32,
    logical: u64,
    kept: u32,
) -> Result<Superblock, GeometryError> {
    let blocks = params.medium_blocks;
    // A volume from before XXH3 sums is from before copies as well.
    let has_parities = params.sums == SumKind::Xxh3;
    let kept_blocks = history::kept_blocks(logical, kept);
    let mapped = History::new(Lba(logical), kept_blocks).end().0;
    let counts = leaf_counts(blocks, mapped, has_parities);
    let leaves = counts.of_tables() as u32 + counts.parities;
    let roots = 1;
    // The segments are not counted yet; there are no more than fit on the whole medium.
    let free_blocks = match has_parities {
        true => root::free_blocks((blocks / u64::from(segment_blocks)) as u32),
        false => 0,
    };
    let root_places = 2 * u64::from(root::blocks(leaves) + free_blocks);
    let map_area = roots + root_places;
    let align = u64::from(segment_blocks.min(256));
    let open_summaries = has_parities;
    let twins = match open_summaries {
        true => root_places + 4 * u64::from(summary::blocks(segment_blocks)),
        false => 0,
    };
    let first_segment = (map_area + 2 * u64::from(leaves) + twins).next_multiple_of(align);
    let room = blocks.saturating_sub(1).saturating_sub(first_segment);
    let segments = (room / u64::from(segment_blocks)) as u32;
    let least = COLLECTOR_SEGMENTS + 7;
    if (segments as usize) < least {
        return Err(GeometryError::TooSmall {
            blocks,
            least,
            segment_blocks,
        });
    }
    Ok(Superblock {
        kept_blocks,
        map_area,
        roots,
        segments: segment_area(first_segment, segment_blocks, segments),
        leaves: counts,
        features: Features {
            open_summaries,
            names: open_summaries,
            free_segments: has_parities,
            ..Features::default()
        },
        ..params.blank(Layout::Log, logical)
    })
}

/// Lays out a volume of tables, which does not use the length of segments.
///
/// # Errors
/// When the medium cannot hold it; the error names the limit.
pub fn plan_tables(params: &Params, layout: Layout) -> Result<Superblock, GeometryError> {
    // A volume from before XXH3 sums is from before twins as well.
    lay_out_tables(params, layout, params.sums == SumKind::Xxh3)
}

/// Lays out a volume of tables without twins, as in older volumes and in the papers: a damaged block loses its contents.
///
/// # Errors
/// When the medium cannot hold it; the error names the limit.
pub fn plan_single_tables(params: &Params, layout: Layout) -> Result<Superblock, GeometryError> {
    lay_out_tables(params, layout, false)
}

fn lay_out_tables(
    params: &Params,
    layout: Layout,
    twins: bool,
) -> Result<Superblock, GeometryError> {
    let blocks = params.medium_blocks;
    let mut logical = params.checked(LEAST_SEGMENT, MAX_NARROW_BLOCKS)?;
    // A volume from before XXH3 sums is from before editions as well. Shadowed tables have their directory instead.
    let features = Features {
        editions: layout == Layout::Ordered && params.sums == SumKind::Xxh3,
        twins,
        ..Features::default()
    };
    let too_small = GeometryError::TooFew {
        blocks,
        least: areas::LEAST_DATA_BLOCKS,
    };
    let mut areas = Areas::plan(layout, features, blocks, logical).ok_or(too_small)?;
    if params.logical_blocks.is_none() {
        let room = areas.capacity_blocks() * 1000;
        logical = (room / u64::from(1000 + params.over_provisioning)).max(1);
        areas = Areas::plan(layout, features, blocks, logical).ok_or(too_small)?;
    }
    Ok(Superblock {
        features,
        areas,
        ..params.blank(layout, logical)
    })
}
