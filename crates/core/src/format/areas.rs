//! Where tables in place lie: linear tables, one after the other, and then the data.
//!
//! `ordered` has each table block once. `shadow` has each twice, and a directory that says which of the two counts; the
//! directory's blocks exist twice as well, and the root says which of those counts. A root is written twice in one go: if one
//! copy is damaged, the other proves that its commit took place.
//!
//! After the data are *twins*: second copies of the blocks of the map and of the directory, written in the same stage as the
//! originals. So a damaged block of either, or one whose write was lost, costs nothing. Twins lie in the order of their
//! originals, the map's first; volumes from before 2026-11-25 have none.

use super::kind::Kind;
use super::superblock::features::Features;
use crate::addr::Pba;

/// How blocks and their metadata lie on the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// A log: nothing is written in place.
    #[default]
    Log,
    /// Tables in place, kept right by the order of writes alone (OrderMergeDedup §2).
    Ordered,
    /// The same tables, shadowed and committed by a root (Dmdedup).
    Shadow,
}

impl Layout {
    /// Its number in a superblock.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Log => 1,
            Self::Ordered => 2,
            Self::Shadow => 3,
        }
    }

    pub(super) fn of(number: u32) -> Option<Self> {
        [Self::Log, Self::Ordered, Self::Shadow]
            .into_iter()
            .find(|layout| layout.number() == number)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Ordered => "ordered",
            Self::Shadow => "shadow",
        }
    }

    /// True if what a crash leaves is the effect of a prefix of the writes (promise 3).
    #[must_use]
    pub fn keeps_order(self) -> bool {
        self != Self::Ordered
    }
}

/// Data blocks of the smallest volume of tables.
pub const LEAST_DATA_BLOCKS: u64 = 256;

/// Where the roots of shadowed tables begin.
pub(super) const ROOTS: u64 = 1;

/// Entries of a directory block.
pub const DIRECTORY_ENTRIES: u64 = 512;

/// Where tables and data are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    pub(super) tables: u64,
    pub(super) directory: u64,
    pub(super) data: u64,
    pub(super) data_blocks: u64,
}

/// The number of slots of a table block, not counting its twin.
pub(super) fn slots(layout: Layout) -> u64 {
    match layout {
        Layout::Shadow => 2,
        _ => 1,
    }
}

/// The number of table blocks of each kind, in the order of the kinds.
pub(super) fn table_blocks(logical: u64, data_blocks: u64, editions: bool) -> [u64; 4] {
    let map = logical.div_ceil(Kind::Map.entries() as u64);
    Kind::ALL.map(|kind| match kind {
        Kind::Map => map,
        Kind::Counts | Kind::Prints => data_blocks.div_ceil(kind.entries() as u64),
        Kind::Editions if editions => map.div_ceil(kind.entries() as u64),
        Kind::Editions => 0,
    })
}

impl Areas {
    /// Lays out tables and data, with as much data as fits.
    pub(super) fn plan(
        layout: Layout,
        features: Features,
        medium_blocks: u64,
        logical: u64,
    ) -> Option<Self> {
        // The tables' length depends on the data's. The space beside tables sized for the whole medium always fits; the few
        // blocks that this wastes are not worth a search.
        let most = Self::lay_out(layout, features, logical, medium_blocks);
        let data_blocks = medium_blocks.checked_sub(most.data + 1)?;
        let areas = Self::lay_out(layout, features, logical, data_blocks);
        (data_blocks >= LEAST_DATA_BLOCKS && areas.data + data_blocks < medium_blocks)
            .then_some(areas)
    }

    /// Lays out tables and data for so many data blocks.
    pub(super) fn lay_out(
        layout: Layout,
        features: Features,
        logical: u64,
        data_blocks: u64,
    ) -> Self {
        let of_kinds = table_blocks(logical, data_blocks, features.editions);
        let blocks: u64 = of_kinds.iter().sum();
        let (directory, tables, of_directory) = match layout {
            Layout::Shadow => {
                let directory = ROOTS + 4 * root_blocks(blocks);
                let of_directory = slots(layout) * directory_blocks(blocks);
                (directory, directory + of_directory, of_directory)
            }
            _ => (0, ROOTS, 0),
        };
        let twins = match features.twins {
            true => slots(layout) * of_kinds[Kind::Map as usize] + of_directory,
            false => 0,
        };
        Self {
            tables,
            directory,
            data: (tables + slots(layout) * blocks + twins).next_multiple_of(8),
            data_blocks,
        }
    }

    /// The number of data blocks.
    #[must_use]
    pub fn data_blocks(&self) -> u64 {
        self.data_blocks
    }

    /// How many data blocks may be live at once. The others hold new versions while the old ones wait for the commit that frees
    /// them.
    #[must_use]
    pub fn capacity_blocks(&self) -> u64 {
        self.data_blocks - (self.data_blocks / 32).max(128)
    }

    /// Where a data block is.
    #[must_use]
    pub fn data(&self, index: u32) -> Pba {
        debug_assert!(u64::from(index) < self.data_blocks);
        Pba(self.data + u64::from(index))
    }

    /// The index of the data block at an address.
    #[must_use]
    pub fn data_index(&self, at: Pba) -> Option<u32> {
        let index = at.0.checked_sub(self.data)?;
        (index < self.data_blocks).then_some(index as u32)
    }
}

/// The number of directory blocks for so many table blocks.
pub(super) fn directory_blocks(table_blocks: u64) -> u64 {
    table_blocks.div_ceil(DIRECTORY_ENTRIES)
}

/// The number of blocks of a root for so many table blocks.
pub(super) fn root_blocks(table_blocks: u64) -> u64 {
    u64::from(super::root::blocks(directory_blocks(table_blocks) as u32))
}
