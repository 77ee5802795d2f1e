//! Where tables in place are, according to a superblock.

use super::Superblock;
use crate::addr::{Generation, Pba};
use crate::format::areas::{
    Areas, LEAST_DATA_BLOCKS, Layout, ROOTS, directory_blocks, root_blocks, slots, table_blocks,
};
use crate::format::error::FormatError;
use crate::format::kind::Kind;
use crate::limits::MAX_NARROW_BLOCKS;

impl Superblock {
    /// The number of blocks of each table, in the order of the kinds.
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

    /// The table block with that number.
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

    /// Where the table block with that number is; for shadowed tables, in slot 0 or 1.
    #[must_use]
    pub fn table_at(&self, number: u64, slot: u64) -> Pba {
        let slots = slots(self.layout);
        Pba(self.areas.tables + slots * number + slot % slots)
    }

    /// Where the twin of a block of the map is, given its number and slot; `None` without twins.
    #[must_use]
    pub fn map_twin(&self, number: u64, slot: u64) -> Option<Pba> {
        let is_there = self.features.twins && number < self.table_blocks()[Kind::Map as usize];
        let slots = slots(self.layout);
        is_there.then(|| self.first_twin().plus(slots * number + slot % slots))
    }

    /// Where the twin of a block of the directory is; `None` without twins.
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

    /// True if the blocks of the map and of the directory have twins.
    #[must_use]
    pub fn has_twins(&self) -> bool {
        self.features.twins
    }

    /// The number of directory blocks of shadowed tables.
    #[must_use]
    pub fn directory_blocks(&self) -> u64 {
        directory_blocks(self.table_blocks().iter().sum())
    }

    /// Where a block of the directory is.
    #[must_use]
    pub fn directory_at(&self, block: u64, slot: u64) -> Pba {
        Pba(self.areas.directory + 2 * block + slot)
    }

    /// The number of blocks of a root of shadowed tables.
    #[must_use]
    pub fn shadow_root_blocks(&self) -> u64 {
        root_blocks(self.table_blocks().iter().sum())
    }

    /// Where the root of a commit is: two copies, one after the other.
    #[must_use]
    pub fn shadow_root_at(&self, generation: Generation) -> Pba {
        Pba(ROOTS + (generation.0 & 1) * 2 * self.shadow_root_blocks())
    }

    /// Checks that every area follows the previous one and ends before the last block.
    pub(super) fn validate_areas(&self) -> Result<(), FormatError> {
        let logical = self.logical_blocks;
        let checks = [
            (
                (1..=MAX_NARROW_BLOCKS).contains(&logical),
                "logical blocks",
                logical,
            ),
            (
                self.segment_count() == 0 && self.leaves.map == 0,
                "segments",
                self.segment_count().into(),
            ),
            (
                self.leaves.shared == 0,
                "shared leaves",
                self.leaves.shared.into(),
            ),
            (self.roots == ROOTS, "root place", self.roots),
            (
                self.layout == Layout::Ordered || !self.features.editions,
                "layout with editions",
                self.layout.number().into(),
            ),
            (
                !self.features.open_summaries,
                "layout with open summaries",
                self.layout.number().into(),
            ),
            (
                !self.features.free_segments,
                "layout with free segments",
                self.layout.number().into(),
            ),
            (
                (LEAST_DATA_BLOCKS..self.medium_blocks).contains(&self.areas.data_blocks),
                "data blocks",
                self.areas.data_blocks,
            ),
        ];
        for (ok, field, value) in checks {
            check(ok, field, value)?;
        }
        let right = Areas::lay_out(self.layout, self.features, logical, self.areas.data_blocks);
        check(
            self.areas.tables == right.tables,
            "tables",
            self.areas.tables,
        )?;
        check(
            self.areas.directory == right.directory,
            "directory",
            self.areas.directory,
        )?;
        check(self.areas.data == right.data, "data", self.areas.data)?;
        let end = self.areas.data.saturating_add(self.areas.data_blocks);
        check(end < self.medium_blocks, "data", self.areas.data)
    }
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
