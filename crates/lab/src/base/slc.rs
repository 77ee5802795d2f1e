//! A cache of blocks with one bit a cell, and its contents.

use super::ops::{NONE, Place};
use crate::flash::{Cell, Die, EraseBlock, Shape, SlcCache};
use serde::Serialize;
use std::collections::VecDeque;

/// A die's part of the cache.
pub(super) struct Part {
    pub active: u32,
    /// Pages of the open block that are filled.
    pub offset: u32,
    /// Pages that still fit its open unit.
    pub left: u32,
    pub free: VecDeque<u32>,
    /// In the order in which they were filled.
    pub full: VecDeque<u32>,
}

/// What passed through the cache, in blocks of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Folded {
    /// Written to it.
    pub written: u64,
    /// Folded into the other blocks; the rest was overwritten or discarded before.
    pub folded: u64,
    /// Those folded while the host was idle.
    pub idle: u64,
    /// Erasures of cache blocks.
    pub erases: u64,
}

impl Folded {
    /// Returns the counts since `before`.
    pub(crate) fn since(self, before: Option<Self>) -> Self {
        let before = before.unwrap_or_default();
        Self {
            written: self.written - before.written,
            folded: self.folded - before.folded,
            idle: self.idle - before.idle,
            erases: self.erases - before.erases,
        }
    }
}

/// The cache; see the module.
pub(super) struct Slc {
    /// Blocks of 4 KiB in one of its erase blocks.
    pub pages: u32,
    per_die: u32,
    pub unit_blocks: u32,
    /// The place of each block in the cache.
    pub place: Vec<u32>,
    /// The block in each place.
    pub owner: Vec<u32>,
    pub live: u64,
    pub parts: Vec<Part>,
    pub turn: usize,
    pub counts: Folded,
}

impl Slc {
    pub fn new(how: &SlcCache, shape: &Shape, logical: u64) -> Self {
        let pages = how.units(shape.units) * shape.unit_blocks;
        let part = || Part {
            active: 0,
            offset: 0,
            left: shape.unit_blocks,
            free: (1..how.blocks).collect(),
            full: VecDeque::new(),
        };
        Self {
            pages,
            per_die: how.blocks,
            unit_blocks: shape.unit_blocks,
            place: vec![NONE; logical as usize],
            owner: vec![NONE; (shape.dies * how.blocks) as usize * pages as usize],
            live: 0,
            parts: (0..shape.dies).map(|_| part()).collect(),
            turn: 0,
            counts: Folded::default(),
        }
    }

    /// Drops a block from the cache. Returns whether it was there.
    pub fn forget(&mut self, lba: u64) -> bool {
        let at = std::mem::replace(&mut self.place[lba as usize], NONE);
        if at == NONE {
            return false;
        }
        self.owner[at as usize] = NONE;
        self.live -= 1;
        true
    }

    pub fn find(&self, lba: u64) -> Option<Place> {
        let at = *self.place.get(lba as usize)?;
        (at != NONE).then(|| Place {
            at: (
                Die(at / self.pages / self.per_die),
                EraseBlock(0),
                Cell::SLC,
            ),
            // Distinct from the units of the other blocks.
            unit: 1 << 32 | u64::from(at / self.unit_blocks),
        })
    }

    /// Returns the first place of a die's block.
    pub fn first(&self, die: usize, block: u32) -> u32 {
        (die as u32 * self.per_die + block) * self.pages
    }
}
