//! Page mapping: where each logical block is, and where the next one goes.
//!
//! Pure: it decides, and returns what the flash has to do ([`FlashOp`]); a caller without flash drops that. Each die fills one
//! block at a time, with the host's pages and the collector's alike (so that the closed forms apply), or two blocks, one of them
//! with hot data. Units go round robin over the dies, past those that are full.
//!
//! A run's speed depends on memory, so there are 8 bytes and a bit a page: the map, each page's owner (written and read only in
//! order), and whether that owner is current (small enough to stay in a cache). The map entries of a victim are read together
//! before they change, so that their cache misses overlap.

use super::divisor::Divisor;
use super::leveller::Leveller;
pub(super) use super::ops::NONE;
pub use super::ops::{FlashOp, Place};
use super::own::{Chooser, Own};
use super::paging::Paging;
use super::slc::Slc;
use super::streams::{Apart, STREAMS_ROOM};
use super::victims::{Victim, Victims};
use crate::flash::{Cell, Die, EraseBlock, PLAIN, PageMapping, Shape};
use crate::rng::{Rng, mix};
use std::collections::VecDeque;

/// The fewest erase blocks of each die that stay free for the collector.
const RESERVE: u32 = 1;
/// The most blocks that are read together before they are written.
const AHEAD: usize = 16;

/// Blocks written, by cause, and erasures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Written for the host.
    pub host: u64,
    /// Moved by the collector.
    pub moved: u64,
    /// Moved by wear levelling.
    pub levelled: u64,
    /// Moved by refreshing.
    pub refreshed: u64,
    /// Pages of the map.
    pub map: u64,
    /// Erasures.
    pub erases: u64,
}

/// The error: the flash is too small for the blocks wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{logical} blocks do not fit: this flash can keep {most} of them alive; give it more capacity or \
     over-provisioning"
)]
pub struct TooSmall {
    /// Blocks wanted.
    pub logical: u64,
    /// The most that are possible.
    pub most: u64,
}

/// Where a die writes the pages of one stream.
pub(super) struct Frontier {
    /// The block that is being filled, and how far.
    pub(super) active: u32,
    pub(super) offset: u32,
    /// Pages that still fit its open unit.
    pub(super) left: u32,
    /// The stream's blocks, including the open one, and their valid pages.
    pub(super) blocks: u32,
    pub(super) live: u64,
    pub(super) victims: Victims,
}

/// The page map; see the module.
pub struct PageMap {
    pub(super) pages: u32,
    pub(super) unit_blocks: u32,
    /// Page types that take different times.
    pub(super) types: u32,
    pub(super) per_die: u32,
    /// Erase blocks of each die that stay free for the collector.
    pub(super) reserve: u32,
    pub(super) how: PageMapping,
    pub(super) first: u32,
    by_pages: Divisor,
    by_die: Divisor,
    pub(super) map: Vec<u32>,
    /// The logical block that was last written to each page.
    pub(super) owner: Vec<u32>,
    /// One bit a page: true if the map still points to it.
    pub(super) alive: Vec<u64>,
    pub(super) valid: Vec<u32>,
    /// The number of blocks a die fills at a time: one, one for cold and one for hot data, or one for each placement handle.
    pub(super) streams: usize,
    /// By die; the streams of a die are adjacent.
    pub(super) frontiers: Vec<Frontier>,
    /// The stream that filled each block last.
    pub(super) filled_by: Vec<u8>,
    /// Free blocks, by die.
    pub(super) free: Vec<VecDeque<u32>>,
    /// The die of each stream's next page.
    turn: [usize; STREAMS_ROOM],
    /// The valid pages of a victim, and their owners.
    pub(super) moving: Vec<(u32, u32)>,
    pub(super) counts: Moved,
    pub(super) ops: Vec<FlashOp>,
    pub(super) leveller: Option<Box<Leveller>>,
    pub(super) paging: Option<Box<Paging>>,
    pub(super) separation: Option<Box<Apart>>,
    pub(super) slc: Option<Box<Slc>>,
    /// Blocks that were begun, if the caller wants to know when they receive data.
    pub(super) opened: Option<Vec<u32>>,
}

impl PageMap {
    /// Returns an empty map of `logical` blocks over erase blocks `first..first + per_die` of the first `dies` dies.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn new(
        shape: &Shape,
        dies: u32,
        (first, per_die): (u32, u32),
        logical: u64,
        victim: Victim,
    ) -> Result<Self, TooSmall> {
        let pages = shape.block_blocks();
        let blocks = u64::from(dies) * u64::from(per_die);
        let physical = blocks * u64::from(pages);
        let most = u64::from(dies) * room(per_die, RESERVE + 1, pages);
        if logical > most || physical >= u64::from(NONE) {
            return Err(TooSmall { logical, most });
        }
        let mut map = Self {
            pages,
            unit_blocks: shape.unit_blocks,
            types: 1,
            per_die,
            reserve: RESERVE,
            how: PLAIN,
            first,
            by_pages: Divisor::new(pages),
            by_die: Divisor::new(per_die),
            map: vec![NONE; logical as usize],
            owner: vec![0; physical as usize],
            alive: vec![0; physical.div_ceil(64) as usize],
            valid: vec![0; blocks as usize],
            streams: 1,
            frontiers: Vec::new(),
            filled_by: vec![0; blocks as usize],
            free: vec![VecDeque::new(); dies as usize],
            turn: [0; STREAMS_ROOM],
            moving: Vec::with_capacity(pages as usize),
            counts: Moved::default(),
            ops: Vec::new(),
            leveller: None,
            paging: None,
            separation: None,
            slc: None,
            opened: None,
        };
        map.begin(victim);
        Ok(map)
    }

    /// Gives each frontier its first block on empty flash.
    pub(super) fn begin(&mut self, victim: Victim) {
        self.frontiers.clear();
        for die in 0..self.free.len() {
            for stream in 0..self.streams {
                let has_victims = self.pool(stream) == stream;
                let closed = if has_victims { self.per_die } else { 0 };
                self.frontiers.push(Frontier {
                    active: stream as u32,
                    offset: 0,
                    left: self.unit_blocks,
                    blocks: 1,
                    live: 0,
                    victims: Victims::new(victim, closed, self.pages),
                });
                self.filled_by[die * self.per_die as usize + stream] = stream as u8;
            }
            self.free[die] = (self.streams as u32..self.per_die).collect();
        }
    }

    /// Applies a drive's properties, before anything is written.
    ///
    /// # Errors
    /// If the blocks do not fit in addition to what is kept free.
    pub fn mapped(mut self, how: PageMapping) -> Result<Self, TooSmall> {
        assert!(!how.copy_back || self.unit_blocks == 1);
        let kept_free = u64::from(self.per_die) * u64::from(how.kept_free) / 1000;
        self.reserve = self.reserve.max(kept_free as u32);
        self.how = how;
        let (logical, most) = (self.logical(), self.most());
        match logical > most {
            true => Err(TooSmall { logical, most }),
            false => Ok(self),
        }
    }

    /// Sets the number of page types.
    #[must_use]
    pub fn typed(mut self, types: u32) -> Self {
        self.types = types.max(1);
        self
    }

    /// Returns the type of the page that holds a block of an erase block.
    pub(super) fn cell(&self, offset: u32) -> Cell {
        Cell::of_unit(offset / self.unit_blocks, self.types)
    }

    /// Seeds the random choice of victims. Each frontier draws its own numbers.
    #[must_use]
    pub fn drawing(mut self, seed: u64) -> Self {
        let mut seeds = Rng::new(mix(seed));
        for frontier in &mut self.frontiers {
            frontier.victims.draw_by(Rng::new(seeds.draw()));
        }
        self
    }

    /// Uses a user-defined victim policy, before anything is written.
    #[must_use]
    pub fn choosing(mut self, chooser: Chooser<'_>) -> Self {
        for frontier in &mut self.frontiers {
            frontier.victims = Victims::Own(Own::new(chooser(), self.per_die, self.pages));
        }
        self
    }

    /// Returns the most blocks that can be valid.
    pub(super) fn most(&self) -> u64 {
        self.free.len() as u64 * self.room()
    }

    /// Returns the most blocks that one die can keep valid.
    fn room(&self) -> u64 {
        let kept = match self.separation.as_deref() {
            None => self.reserve + 1,
            // Two frontiers each have a block that is not full, and the collected stream must have a block's worth to give.
            Some(Apart::Heat(_)) => self.reserve + 3,
            // Any stream may have it: the victim is the best of all.
            Some(Apart::Handles(_)) => self.reserve + self.streams as u32,
        };
        room(self.per_die, kept, self.pages)
    }

    /// Returns the stream that has the victims of a stream.
    pub(super) fn pool(&self, stream: usize) -> usize {
        match &self.separation {
            None => stream,
            Some(apart) => apart.pool(stream),
        }
    }

    /// Returns the victims of a die's stream.
    pub(super) fn victims(&mut self, die: usize, stream: usize) -> &mut Victims {
        let pool = self.pool(stream);
        &mut self.frontier(die, pool).victims
    }

    pub(super) fn frontier(&mut self, die: usize, stream: usize) -> &mut Frontier {
        &mut self.frontiers[die * self.streams + stream]
    }

    /// Returns all frontiers of a die.
    pub(super) fn frontiers(&self, die: usize) -> &[Frontier] {
        &self.frontiers[die * self.streams..(die + 1) * self.streams]
    }

    /// Returns the number of dies.
    #[must_use]
    pub fn dies(&self) -> usize {
        self.free.len()
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> Moved {
        self.counts
    }

    /// Returns the number of blocks that the host sees.
    #[must_use]
    pub fn logical(&self) -> u64 {
        match &self.paging {
            Some(paging) => paging.logical(),
            None => self.map.len() as u64,
        }
    }

    /// Returns the physical blocks without the reserve: the T of the closed forms.
    #[must_use]
    pub fn physical(&self) -> u64 {
        let blocks = u64::from(self.per_die - self.reserve);
        self.free.len() as u64 * blocks * u64::from(self.pages)
    }

    /// Returns the number of valid blocks, including those of a map on flash.
    #[must_use]
    pub fn live(&self) -> u64 {
        let live: u64 = self.frontiers.iter().map(|frontier| frontier.live).sum();
        live + self.live_in_cache()
    }

    /// Moves what the flash has to do since the last call into `into`, in order.
    pub fn take_ops(&mut self, into: &mut Vec<FlashOp>) {
        match into.is_empty() {
            true => std::mem::swap(into, &mut self.ops),
            false => into.append(&mut self.ops),
        }
    }

    /// Drops what the flash has to do, for callers without flash.
    pub fn drop_ops(&mut self) {
        self.ops.clear();
    }

    /// Writes one block.
    pub fn write(&mut self, lba: u64) {
        match self.slc.is_none() {
            true => self.write_uncounted(lba),
            false => self.write_to_cache(lba),
        }
        self.counts.host += 1;
    }

    pub(super) fn write_uncounted(&mut self, lba: u64) {
        self.forget(lba);
        let stream = match &mut self.separation {
            None => 0,
            Some(separation) => separation.written(lba as u32),
        };
        let dies = self.free.len();
        let mut die = self.turn[stream];
        if self.how.striped {
            die = (lba / u64::from(self.unit_blocks)) as usize % dies;
        } else if self.frontier(die, stream).left == self.unit_blocks {
            // A full die cannot gain room by collecting, so another one takes its turn. One always has room.
            let room = self.room();
            for _ in 0..dies {
                die = if die + 1 == dies { 0 } else { die + 1 };
                let live = self.frontiers(die).iter().map(|frontier| frontier.live);
                if live.sum::<u64>() < room {
                    break;
                }
            }
        }
        self.turn[stream] = die;
        self.make_room(die, stream);
        let fills = FlashOp::Program(Die(die as u32), Cell::FIRST);
        self.append(die, stream, lba as u32, fills);
    }

    /// Reads what the writes of some blocks will need soon, so that it is in a cache by then: their map entries, and then what
    /// those point to.
    pub fn look_ahead(&self, lbas: impl Iterator<Item = u64>) {
        let mut found = [NONE; AHEAD];
        for (old, lba) in found.iter_mut().zip(lbas) {
            *old = self.map.get(lba as usize).copied().unwrap_or(NONE);
        }
        let alive = |old: &u32| self.alive.get(*old as usize / 64).copied();
        std::hint::black_box(
            found
                .iter()
                .filter_map(alive)
                .fold(0, |all, bits| all ^ bits),
        );
    }

    /// Discards one block.
    pub fn forget(&mut self, lba: u64) {
        let old = std::mem::replace(&mut self.map[lba as usize], NONE);
        if old == NONE {
            if self.slc.is_some() {
                self.forget_in_cache(lba);
            }
            return;
        }
        self.alive[(old / 64) as usize] &= !(1 << (old % 64));
        let (block, _) = self.by_pages.split(old);
        let valid = &mut self.valid[block as usize];
        *valid -= 1;
        let valid = *valid;
        let (stream, pool) = match &mut self.separation {
            None => (0, 0),
            Some(separation) => {
                let stream = usize::from(self.filled_by[block as usize]);
                separation.died(stream);
                (stream, separation.pool(stream))
            }
        };
        let (die, block) = self.by_die.split(block);
        let frontier = self.frontier(die as usize, stream);
        frontier.live -= 1;
        if block != frontier.active {
            self.frontier(die as usize, pool).victims.died(block, valid);
        }
    }

    /// Returns where a block is, if it was written.
    #[must_use]
    pub fn find(&self, lba: u64) -> Option<Place> {
        let at = self.map[lba as usize];
        if at == NONE {
            return self.find_in_cache(lba);
        }
        Some({
            let (block, offset) = self.by_pages.split(at);
            let (die, block) = self.by_die.split(block);
            let block = EraseBlock(self.first + block);
            Place {
                at: (Die(die), block, self.cell(offset)),
                unit: u64::from(at / self.unit_blocks),
            }
        })
    }

    /// Appends a block to the open block of a die's stream. `fills` is the operation once its unit is full.
    pub(super) fn append(&mut self, die: usize, stream: usize, lba: u32, fills: FlashOp) {
        let unit_blocks = self.unit_blocks;
        let frontier = self.frontier(die, stream);
        let (active, offset) = (frontier.active, frontier.offset);
        frontier.offset += 1;
        frontier.live += 1;
        frontier.left -= 1;
        if frontier.left == 0 {
            frontier.left = unit_blocks;
            self.ops.push(match self.types {
                1 => fills,
                _ => fills.with(self.cell(offset)),
            });
        }
        self.summarize(die, offset + 1);
        let block = die as u32 * self.per_die + active;
        self.valid[block as usize] += 1;
        self.put(lba, block * self.pages + offset);
    }

    /// Programs a block's summary if `filled` says that its last page is written, on a drive that has summaries. Whoever filled
    /// the block waits for that, as in DiskSim.
    pub(super) fn summarize(&mut self, die: usize, filled: u32) {
        if self.how.summary && filled == self.pages {
            self.ops.push(FlashOp::Summary(Die(die as u32)));
        }
    }

    pub(super) fn put(&mut self, lba: u32, at: u32) {
        self.map[lba as usize] = at;
        self.owner[at as usize] = lba;
        self.alive[(at / 64) as usize] |= 1 << (at % 64);
    }
}

/// Returns the blocks that a die can keep valid: all but what is kept for the collector, so that a victim always frees something.
fn room(per_die: u32, kept: u32, pages: u32) -> u64 {
    u64::from(per_die.saturating_sub(kept)) * u64::from(pages)
}

#[cfg(test)]
mod tests;
