//! Where tables in place lie: linear tables, one behind the other, and the data behind them.
//!
//! `ordered` has each table block once. `shadow` has each twice, and a directory that says which of the two
//! counts; the directory's blocks are there twice as well, and the root says which of those counts. A root is written
//! twice in one go: when one copy is damaged the other tells that its commit was.
//!
//! Behind the tables are *twins*: whatever is written of the map, or of the directory, is written there once more in the same
//! stage. So a block of either that is damaged, or whose write was lost, costs nothing. Twins lie in the order of what they
//! are of, the map's first; volumes from before 2026-11-25 have none.

use super::FormatError;
use super::geometry::MAX_LOGICAL_BLOCKS;
use super::superblock::{Features, Superblock};
use super::table::Kind;
use crate::addr::{Generation, Pba};

/// How blocks, and what is known of them, lie on the medium.
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

    /// As people write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Ordered => "ordered",
            Self::Shadow => "shadow",
        }
    }

    /// Whether what a crash leaves is the effect of a prefix of the writes (promise 3).
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

/// How often a table block is there, besides its twin.
fn slots(layout: Layout) -> u64 {
    match layout {
        Layout::Shadow => 2,
        _ => 1,
    }
}

/// Table blocks of each kind, in the order of the kinds.
fn table_blocks(logical: u64, data_blocks: u64, editions: bool) -> [u64; 4] {
    let map = logical.div_ceil(Kind::Map.entries() as u64);
    Kind::ALL.map(|kind| match kind {
        Kind::Map => map,
        Kind::Counts | Kind::Prints => data_blocks.div_ceil(kind.entries() as u64),
        Kind::Editions if editions => map.div_ceil(kind.entries() as u64),
        Kind::Editions => 0,
    })
}

impl Areas {
    /// Lays tables and data out, with as much data as fits.
    pub(super) fn plan(
        layout: Layout,
        features: Features,
        medium_blocks: u64,
        logical: u64,
    ) -> Option<Self> {
        // The tables' length depends on the data's. What is left beside tables for the whole medium always fits; the
        // few blocks that this gives away are not worth a search.
        let most = Self::lay_out(layout, features, logical, medium_blocks);
        let data_blocks = medium_blocks.checked_sub(most.data + 1)?;
        let areas = Self::lay_out(layout, features, logical, data_blocks);
        (data_blocks >= LEAST_DATA_BLOCKS && areas.data + data_blocks < medium_blocks)
            .then_some(areas)
    }

    fn lay_out(layout: Layout, features: Features, logical: u64, data_blocks: u64) -> Self {
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

    /// That every area follows the one before and ends before the last block.
    pub(super) fn validate(&self, superblock: &Superblock) -> Result<(), FormatError> {
        let logical = superblock.logical_blocks;
        let checks = [
            (
                (1..=MAX_LOGICAL_BLOCKS).contains(&logical),
                "logical blocks",
                logical,
            ),
            (
                superblock.segment_count() == 0 && superblock.leaves.map == 0,
                "segments",
                superblock.segment_count().into(),
            ),
            (
                superblock.leaves.shared == 0,
                "shared leaves",
                superblock.leaves.shared.into(),
            ),
            (superblock.roots == ROOTS, "root place", superblock.roots),
            (
                superblock.layout == Layout::Ordered || !superblock.features.editions,
                "layout with editions",
                superblock.layout.number().into(),
            ),
            (
                !superblock.features.open_summaries,
                "layout with open summaries",
                superblock.layout.number().into(),
            ),
            (
                (LEAST_DATA_BLOCKS..superblock.medium_blocks).contains(&self.data_blocks),
                "data blocks",
                self.data_blocks,
            ),
        ];
        for (ok, field, value) in checks {
            check(ok, field, value)?;
        }
        let right = Self::lay_out(
            superblock.layout,
            superblock.features,
            logical,
            self.data_blocks,
        );
        check(self.tables == right.tables, "tables", self.tables)?;
        check(
            self.directory == right.directory,
            "directory",
            self.directory,
        )?;
        check(self.data == right.data, "data", self.data)?;
        let end = self.data.saturating_add(self.data_blocks);
        check(end < superblock.medium_blocks, "data", self.data)
    }

    /// Data blocks.
    #[must_use]
    pub fn data_blocks(&self) -> u64 {
        self.data_blocks
    }

    /// Data blocks that may be live at once: the others are what is written while their predecessors wait for
    /// the commit that frees them.
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

    /// Which data block is there.
    #[must_use]
    pub fn data_index(&self, at: Pba) -> Option<u32> {
        let index = at.0.checked_sub(self.data)?;
        (index < self.data_blocks).then_some(index as u32)
    }
}

impl Superblock {
    /// Blocks of each table, in the order of the kinds.
    #[must_use]
    pub fn table_blocks(&self) -> [u64; 4] {
        table_blocks(
            self.logical_blocks,
            self.areas.data_blocks,
            self.features.editions,
        )
    }

    /// A table block's number, counted over all tables.
    #[must_use]
    pub fn table_number(&self, kind: Kind, block: u32) -> u64 {
        let before: u64 = self.table_blocks()[..kind as usize].iter().sum();
        before + u64::from(block)
    }

    /// Which table block has that number.
    #[must_use]
    pub fn table_of(&self, number: u64) -> Option<(Kind, u32)> {
        let mut first = 0;
        for (kind, blocks) in Kind::ALL.into_iter().zip(self.table_blocks()) {
            if (first..first + blocks).contains(&number) {
                return Some((kind, (number - first) as u32));
            }
            first += blocks;
        }
        None
    }

    /// Where a table block of that number is; of shadowed ones in slot 0 or 1.
    #[must_use]
    pub fn table_at(&self, number: u64, slot: u64) -> Pba {
        let slots = slots(self.layout);
        Pba(self.areas.tables + slots * number + slot % slots)
    }

    /// Where the twin of a block of the map is, by its number and slot, if there are twins.
    #[must_use]
    pub fn map_twin(&self, number: u64, slot: u64) -> Option<Pba> {
        let is_there = self.features.twins && number < self.table_blocks()[Kind::Map as usize];
        let slots = slots(self.layout);
        is_there.then(|| self.first_twin().plus(slots * number + slot % slots))
    }

    /// Where the twin of a block of the directory is, if there are twins.
    #[must_use]
    pub fn directory_twin(&self, block: u64, slot: u64) -> Option<Pba> {
        let of_map = slots(self.layout) * self.table_blocks()[Kind::Map as usize];
        let is_there = self.features.twins && self.layout == Layout::Shadow;
        is_there.then(|| self.first_twin().plus(of_map + 2 * block + slot))
    }

    fn first_twin(&self) -> Pba {
        let tables: u64 = self.table_blocks().iter().sum();
        Pba(self.areas.tables + slots(self.layout) * tables)
    }

    /// Whether what leads to data is there twice, of tables in place.
    #[must_use]
    pub fn has_twins(&self) -> bool {
        self.features.twins
    }

    /// Blocks of the directory of shadowed tables.
    #[must_use]
    pub fn directory_blocks(&self) -> u64 {
        directory_blocks(self.table_blocks().iter().sum())
    }

    /// Where a block of the directory is.
    #[must_use]
    pub fn directory_at(&self, block: u64, slot: u64) -> Pba {
        Pba(self.areas.directory + 2 * block + slot)
    }

    /// Blocks of the root of shadowed tables.
    #[must_use]
    pub fn shadow_root_blocks(&self) -> u64 {
        root_blocks(self.table_blocks().iter().sum())
    }

    /// Where the root of a commit is: two copies, one behind the other.
    #[must_use]
    pub fn shadow_root_at(&self, generation: Generation) -> Pba {
        Pba(ROOTS + (generation.0 & 1) * 2 * self.shadow_root_blocks())
    }
}

fn directory_blocks(table_blocks: u64) -> u64 {
    table_blocks.div_ceil(DIRECTORY_ENTRIES)
}

fn root_blocks(table_blocks: u64) -> u64 {
    u64::from(super::root::blocks(directory_blocks(table_blocks) as u32))
}

fn check(ok: bool, field: &'static str, value: u64) -> Result<(), FormatError> {
    match ok {
        true => Ok(()),
        false => Err(FormatError::Value {
            what: "superblock",
            field,
            value,
        }),
    }
}
