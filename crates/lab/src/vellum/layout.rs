//! The layout of an engine's volume on flash.
//!
//! A segment is `deep` erase blocks on each die of a *group*: `width` neighbouring dies. Program unit `u` of a segment
//! is on die `u % width` of the group, so a chunk's write goes to all of them. Erasing a segment erases its erase
//! blocks. The engine overwrites its map area in place, which flash cannot do. So the first erase blocks of the first
//! group's dies are set aside for it and run by a small page map ([`Drive`]). A summary that is written a second time
//! goes there too.

use crate::base::{PageMap, TooSmall, Victim};
use crate::flash::{Cell, Die, EraseBlock, Shape};
use vellum_core::format::geometry::{self, GeometryError, Params};
use vellum_core::format::superblock::Superblock;
use vellum_core::format::{SumKind, areas};

/// The fewest segments a volume should have before segments are made longer.
const SEGMENTS_WANTED: u64 = 512;
/// Fewer are enough while segments are shorter than this: the cost of a segment (headers, a summary, the engine's
/// margin for the collector) weighs more then.
const SHORT: (u64, u64) = (128, 512);
/// Erase blocks of each die that the map area's page map has beyond its content: two that it keeps in reserve, and one
/// so that its victims are half empty.
const AREA_SPARE: u32 = 3;
/// The engine's limits for the blocks of a segment.
const SEGMENT_BLOCKS: std::ops::RangeInclusive<u64> = 64..=65_536;

/// Why a volume cannot be laid out on some flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// No segment fits the engine's limits.
    #[error(
        "erase blocks of {blocks} blocks cannot be made into segments: a power of two from 64 to 65536 is \
         needed"
    )]
    EraseBlock {
        /// Blocks of an erase block.
        blocks: u64,
    },
    /// The engine refuses the geometry.
    #[error("the engine cannot use this capacity")]
    Geometry(#[from] GeometryError),
    /// The engine cannot keep this many blocks.
    #[error(
        "the engine can keep {most} blocks alive in {segments} segments of {segment_blocks} on this flash, \
         and {logical} are asked for: give it more capacity or over-provisioning"
    )]
    Full {
        /// Blocks requested.
        logical: u64,
        /// Blocks possible.
        most: u64,
        /// Segments.
        segments: u32,
        /// Blocks of each.
        segment_blocks: u32,
    },
    /// The tables cannot keep this many blocks.
    #[error(
        "the tables leave room for {most} blocks, and {logical} are asked for: give it more capacity or \
         over-provisioning"
    )]
    Tables {
        /// Blocks requested.
        logical: u64,
        /// Blocks possible.
        most: u64,
    },
    /// The drive allows too few active zones.
    #[error(
        "the log needs {needs} zones that may be partly written at a time, and the drive allows {most}: \
         give it more ([zoned] active)"
    )]
    Active {
        /// Zones needed.
        needs: u32,
        /// Zones allowed.
        most: u32,
    },
    /// The map area does not fit the conventional zones.
    #[error(
        "what the log overwrites takes {needs} blocks, and the conventional zones hold {most}: \
         give the drive more of them ([zoned] conventional), or none"
    )]
    Conventional {
        /// Blocks needed.
        needs: u64,
        /// Blocks possible.
        most: u64,
    },
    /// The map area does not fit.
    #[error("the map area: {0}")]
    Area(#[from] TooSmall),
}

/// Where a segment is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The group's first die.
    pub die: u32,
    /// The first erase block, on each die of the group.
    pub block: EraseBlock,
}

/// A volume's layout; see the module.
pub struct Layout {
    /// The volume.
    pub superblock: Superblock,
    /// Dies of a group.
    pub width: u32,
    /// Erase blocks of a segment on each die of its group.
    pub deep: u32,
    /// Blocks of a program unit.
    pub unit_blocks: u32,
    /// The place of every segment.
    pub places: Vec<Place>,
    /// Erase blocks set aside for the map area, on each die of the first group.
    pub area_blocks: u32,
}

impl Layout {
    /// Lays out a volume of `logical` blocks.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn on_flash(shape: &Shape, logical: u64, over_permille: u32) -> Result<Self, LayoutError> {
        let erase_block = u64::from(shape.block_blocks());
        let width = width(shape)?;
        let deep = deep(shape, width);
        debug_assert!((width * deep * shape.unit_blocks).is_power_of_two());
        let segment_blocks = (erase_block * u64::from(width * deep)) as u32;
        // The area's size depends on the number of segments and reduces it: settle in a few steps.
        let mut area_blocks = 0;
        let mut layout = None;
        for _ in 0..3 {
            let places = places(shape, (width, deep), area_blocks);
            let superblock = volume(places.len() as u64, segment_blocks, logical, over_permille)?;
            let round = erase_block * u64::from(width);
            let area = area(&superblock).div_ceil(round) as u32 + AREA_SPARE;
            let settled = area == area_blocks;
            layout = Some(Self {
                superblock,
                width,
                deep,
                unit_blocks: shape.unit_blocks,
                places,
                area_blocks,
            });
            if settled {
                break;
            }
            area_blocks = area.max(area_blocks);
        }
        let Some(layout) = layout else {
            unreachable!("at least one step is taken")
        };
        let most = layout.superblock.capacity_blocks();
        if logical > most {
            return Err(LayoutError::Full {
                logical,
                most,
                segments: layout.superblock.segment_count(),
                segment_blocks,
            });
        }
        Ok(layout)
    }

    /// True if a volume on so many blocks may have segments of this length.
    #[must_use]
    pub fn is_segment(segment_blocks: u32, blocks: u64) -> bool {
        let long = u64::from(segment_blocks);
        long.is_power_of_two() && SEGMENT_BLOCKS.contains(&long) && blocks / long >= SHORT.0
    }

    /// Lays out a volume on a medium other than flash, as `vellum create` does: segments of a log, or tables. There is
    /// one copy of the tables, as in the papers they are compared with. `segment_blocks`: how long a segment is, if not
    /// by the medium's size.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn on_blocks(
        areas: areas::Layout,
        blocks: u64,
        logical: u64,
        over_permille: u32,
        segment_blocks: Option<u32>,
    ) -> Result<Self, LayoutError> {
        let params = params(blocks, logical, over_permille, segment_blocks);
        let superblock = match areas {
            areas::Layout::Log => geometry::plan(&params),
            tables => geometry::plan_single_tables(&params, tables),
        }?;
        let most = superblock.capacity_blocks();
        if logical > most && areas != areas::Layout::Log {
            return Err(LayoutError::Tables { logical, most });
        }
        if logical > most {
            return Err(LayoutError::Full {
                logical,
                most,
                segments: superblock.segment_count(),
                segment_blocks: superblock.segment_blocks(),
            });
        }
        Ok(Self {
            superblock,
            width: 1,
            deep: 1,
            unit_blocks: 1,
            places: Vec::new(),
            area_blocks: 0,
        })
    }

    /// The map area's page map.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn area_map(&self, shape: &Shape) -> Result<PageMap, TooSmall> {
        PageMap::new(
            shape,
            self.width,
            (0, self.area_blocks),
            area(&self.superblock),
            Victim::Greedy,
        )
    }

    /// The program unit of a segment's block. On flash everything here is a power of two (`width`), and this is asked for each
    /// block that is read or written: a division would cost more than the rest.
    pub fn unit(&self, offset: u32) -> u32 {
        offset >> self.unit_blocks.trailing_zeros()
    }

    /// The die of a segment's program unit.
    pub fn die(&self, segment: usize, unit: u32) -> Die {
        Die(self.places[segment].die + (unit & (self.width - 1)))
    }

    /// The erase block of a segment's program unit, on that die.
    pub fn block(&self, segment: usize, unit: u32) -> EraseBlock {
        let deep = unit >> (self.width.trailing_zeros() + self.units_of_block());
        EraseBlock(self.places[segment].block.0 + deep)
    }

    /// How many program units an erase block has, as a power of two.
    fn units_of_block(&self) -> u32 {
        let erase_block = self.superblock.segment_blocks().trailing_zeros();
        erase_block - (self.width * self.deep * self.unit_blocks).trailing_zeros()
    }

    /// The type of the unit's page, where there are `types` types.
    pub fn cell(&self, unit: u32, types: u32) -> Cell {
        match types {
            1 => Cell::FIRST,
            types => {
                let row = unit >> self.width.trailing_zeros();
                Cell::of_unit(row & ((1 << self.units_of_block()) - 1), types)
            }
        }
    }
}

/// The widest group, up to all dies, that leaves enough segments.
fn width(shape: &Shape) -> Result<u32, LayoutError> {
    let blocks = u64::from(shape.block_blocks());
    if !blocks.is_power_of_two() || blocks > *SEGMENT_BLOCKS.end() {
        return Err(LayoutError::EraseBlock { blocks });
    }
    let fits = |width: u32| {
        let long = blocks * u64::from(width);
        shape.dies.is_multiple_of(width) && long <= *SEGMENT_BLOCKS.end()
    };
    let many = |width: u32| {
        let long = blocks * u64::from(width);
        let count = shape.blocks() / long;
        count >= SEGMENTS_WANTED || (count >= SHORT.0 && long <= SHORT.1)
    };
    let powers = || (0..16).map(|shift| 1u32 << shift);
    powers()
        .filter(|&width| fits(width) && many(width))
        .max()
        .or_else(|| powers().find(|&width| fits(width)))
        .filter(|&width| SEGMENT_BLOCKS.contains(&(blocks * u64::from(width))))
        .ok_or(LayoutError::EraseBlock { blocks })
}

/// How many erase blocks of a die make a segment that is not short, while there are enough segments.
fn deep(shape: &Shape, width: u32) -> u32 {
    let round = u64::from(shape.block_blocks()) * u64::from(width);
    let fine = |deep: u32| {
        let long = round * u64::from(deep);
        long <= SHORT.1 && shape.blocks() / long >= SEGMENTS_WANTED
    };
    let powers = (0..16).map(|shift| 1u32 << shift);
    powers.filter(|&deep| fine(deep)).max().unwrap_or(1)
}

/// Every segment's place, round robin over the groups, so that neighbouring segments are on different dies.
fn places(shape: &Shape, (width, deep): (u32, u32), area_blocks: u32) -> Vec<Place> {
    let mut places = Vec::new();
    for row in (0..shape.erase_blocks).step_by(deep as usize) {
        for die in (0..shape.dies).step_by(width as usize) {
            let block = row + if die == 0 { area_blocks } else { 0 };
            if block + deep <= shape.erase_blocks {
                let block = EraseBlock(block);
                places.push(Place { die, block });
            }
        }
    }
    places
}

fn params(blocks: u64, logical: u64, over_permille: u32, segment_blocks: Option<u32>) -> Params {
    Params {
        medium_blocks: blocks,
        logical_blocks: Some(logical),
        over_provisioning: over_permille.clamp(
            *geometry::OVER_PROVISIONING.start(),
            *geometry::OVER_PROVISIONING.end(),
        ),
        segment_blocks,
        uuid: [1; 16],
        secret: [2; 32],
        sums: SumKind::default(),
    }
}

/// A volume of this many segments.
pub(super) fn volume(
    segments: u64,
    segment_blocks: u32,
    logical: u64,
    over_permille: u32,
) -> Result<Superblock, GeometryError> {
    let plan = |blocks| {
        geometry::plan(&params(
            blocks,
            logical,
            over_permille,
            Some(segment_blocks),
        ))
    };
    let wanted = segments * u64::from(segment_blocks);
    // The part before the segments grows slowly with the volume.
    let mut blocks = wanted + 1;
    loop {
        let superblock = plan(blocks)?;
        let missing = segments.saturating_sub(u64::from(superblock.segment_count()));
        if missing == 0 {
            return Ok(superblock);
        }
        blocks += missing.div_ceil(2) * u64::from(segment_blocks.min(256));
    }
}

/// Blocks of the map area: everything before the segments, the second superblock, and a place for the second summary
/// of each segment.
pub(super) fn area(superblock: &Superblock) -> u64 {
    superblock.segment_start(vellum_core::addr::Segment(0)).0 + 1 + summaries(superblock)
}

fn summaries(superblock: &Superblock) -> u64 {
    let each = superblock.segment_blocks() - superblock.usable_blocks();
    u64::from(each) * u64::from(superblock.segment_count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    #[test]
    fn an_error_does_not_repeat_its_cause() {
        let shape = Shape {
            channels: 1,
            dies: 1,
            erase_blocks: 8,
            units: 8192,
            unit_blocks: 1,
        };
        let error = Layout::on_flash(&shape, 1000, 70).err().unwrap();
        let cause = error.source().unwrap().to_string();
        assert!(!error.to_string().contains(&cause), "{error}");
    }
}
