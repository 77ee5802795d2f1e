//! Page mapping: where each logical block is, and where the next one goes.
//!
//! Pure: it decides and says what the flash has to do ([`FlashOp`]); who has no flash drops that.
//! Each die fills one block at a time, with the host's pages and the collector's alike (so that the closed forms apply); or two, one of
//! them with what is hot. Units go round robin over the dies, past those that are full.
//!
//! Memory is what a run's speed hangs on, so there are 8 bytes and a bit a page: the map, each page's owner (written and read in
//! order only), and whether that still holds (small enough to stay in a cache). A victim's entries of the map are looked at
//! together before they change, so that their cache misses are on their way at the same time.

use super::divisor::Divisor;
use super::levelling::Leveller;
use super::mapcache::Paging;
use super::own::{Chooser, Own};
use super::separation::Separation;
use super::victims::{Victim, Victims};
use crate::flash::{Die, EraseBlock, PLAIN, PageMapping, Shape};
use crate::rng::{Rng, mix};
use std::collections::VecDeque;

pub(super) const NONE: u32 = u32::MAX;
/// Erase blocks of each die that stay free for the collector, at least.
const RESERVE: u32 = 1;
/// Cold, and hot.
pub(super) const STREAMS_MOST: usize = 2;
/// Blocks that are looked at together before they are written, at most.
const AHEAD: usize = 16;

/// What the flash has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashOp {
    /// Read so many blocks of one unit.
    Read(Die, EraseBlock, u32),
    /// Program a unit.
    Program(Die),
    /// Program the summary of a block that is full.
    Summary(Die),
    /// Read a unit and program another one with it, within the die.
    Copy(Die),
    /// Erase.
    Erase(Die, EraseBlock),
}

/// What was written, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// For the host.
    pub host: u64,
    /// By the collector.
    pub moved: u64,
    /// By wear levelling.
    pub levelled: u64,
    /// Pages of the map.
    pub map: u64,
    /// Erasures.
    pub erases: u64,
}

/// The flash is too small for what is asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{logical} blocks do not fit: this flash can keep {most} of them alive; give it more capacity or over-provisioning"
)]
pub struct TooSmall {
    /// Asked for.
    pub logical: u64,
    /// Possible.
    pub most: u64,
}

/// Where a die puts the pages of one stream.
pub(super) struct Frontier {
    /// The block that is being filled, and how far.
    pub(super) active: u32,
    pub(super) offset: u32,
    /// Pages that its open unit still takes.
    pub(super) left: u32,
    /// Its blocks, that one among them, and their pages that are alive.
    pub(super) blocks: u32,
    pub(super) live: u64,
    pub(super) victims: Victims,
}

/// See the module.
pub struct PageMap {
    pub(super) pages: u32,
    pub(super) unit_blocks: u32,
    pub(super) per_die: u32,
    /// Erase blocks of each die that stay free for the collector.
    pub(super) reserve: u32,
    pub(super) how: PageMapping,
    pub(super) first: u32,
    by_pages: Divisor,
    by_die: Divisor,
    pub(super) map: Vec<u32>,
    /// Who wrote each page last.
    pub(super) owner: Vec<u32>,
    /// Whether the map still leads to it, a bit a page.
    pub(super) alive: Vec<u64>,
    pub(super) valid: Vec<u32>,
    /// How many blocks a die fills at a time: one, or one each for what is cold and what is hot.
    pub(super) streams: usize,
    /// By die, those of one after the other.
    pub(super) frontiers: Vec<Frontier>,
    /// Which stream's frontier has filled a block last.
    pub(super) filled_by: Vec<u8>,
    /// By die.
    pub(super) free: Vec<VecDeque<u32>>,
    /// Where each stream's next page goes.
    turn: [usize; STREAMS_MOST],
    /// A victim's pages that are alive, and their owners.
    pub(super) moving: Vec<(u32, u32)>,
    pub(super) counts: Moved,
    pub(super) ops: Vec<FlashOp>,
    pub(super) leveller: Option<Box<Leveller>>,
    pub(super) paging: Option<Box<Paging>>,
    pub(super) separation: Option<Box<Separation>>,
}

impl PageMap {
    /// An empty map of `logical` blocks over erase blocks `first..first + per_die` of the first `dies` dies.
    ///
    /// # Errors
    /// When they do not fit.
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
        let most = u64::from(dies) * room(per_die, RESERVE, 1, pages);
        if logical > most || physical >= u64::from(NONE) {
            return Err(TooSmall { logical, most });
        }
        let mut map = Self {
            pages,
            unit_blocks: shape.unit_blocks,
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
            turn: [0; STREAMS_MOST],
            moving: Vec::with_capacity(pages as usize),
            counts: Moved::default(),
            ops: Vec::new(),
            leveller: None,
            paging: None,
            separation: None,
        };
        map.begin(victim);
        Ok(map)
    }

    /// Gives each frontier its first block, of an empty flash.
    pub(super) fn begin(&mut self, victim: Victim) {
        self.frontiers.clear();
        for die in 0..self.free.len() {
            for stream in 0..self.streams {
                self.frontiers.push(Frontier {
                    active: stream as u32,
                    offset: 0,
                    left: self.unit_blocks,
                    blocks: 1,
                    live: 0,
                    victims: Victims::new(victim, self.per_die, self.pages),
                });
                self.filled_by[die * self.per_die as usize + stream] = stream as u8;
            }
            self.free[die] = (self.streams as u32..self.per_die).collect();
        }
    }

    /// The same in its drive's way, before anything is written.
    ///
    /// # Errors
    /// When the blocks do not fit beside what is kept free.
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

    /// The same, its draws of victims following from this number: each frontier's are its own.
    #[must_use]
    pub fn drawing(mut self, seed: u64) -> Self {
        let mut seeds = Rng::new(mix(seed));
        for frontier in &mut self.frontiers {
            frontier.victims.draw_by(Rng::new(seeds.draw()));
        }
        self
    }

    /// The same with victims of somebody's own choice, before anything is written.
    #[must_use]
    pub fn choosing(mut self, chooser: Chooser<'_>) -> Self {
        for frontier in &mut self.frontiers {
            frontier.victims = Victims::Own(Own::new(chooser(), self.per_die, self.pages));
        }
        self
    }

    /// Blocks that can be alive.
    pub(super) fn most(&self) -> u64 {
        self.free.len() as u64 * self.room()
    }

    /// Blocks that one die can keep alive.
    fn room(&self) -> u64 {
        room(self.per_die, self.reserve, self.streams, self.pages)
    }

    pub(super) fn frontier(&mut self, die: usize, stream: usize) -> &mut Frontier {
        &mut self.frontiers[die * self.streams + stream]
    }

    /// All of a die's.
    pub(super) fn frontiers(&self, die: usize) -> &[Frontier] {
        &self.frontiers[die * self.streams..(die + 1) * self.streams]
    }

    /// What was written so far.
    #[must_use]
    pub fn counts(&self) -> Moved {
        self.counts
    }

    /// Blocks that the host sees.
    #[must_use]
    pub fn logical(&self) -> u64 {
        match &self.paging {
            Some(paging) => paging.logical(),
            None => self.map.len() as u64,
        }
    }

    /// Physical blocks without the reserve: the T of the closed forms.
    #[must_use]
    pub fn physical(&self) -> u64 {
        let blocks = u64::from(self.per_die - self.reserve);
        self.free.len() as u64 * blocks * u64::from(self.pages)
    }

    /// Blocks that are alive, those of a map on flash among them.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.frontiers.iter().map(|frontier| frontier.live).sum()
    }

    /// What the flash has to do since this was last asked, in order.
    pub fn take_ops(&mut self, into: &mut Vec<FlashOp>) {
        match into.is_empty() {
            true => std::mem::swap(into, &mut self.ops),
            false => into.append(&mut self.ops),
        }
    }

    /// Forgets what the flash has to do: there is none.
    pub fn drop_ops(&mut self) {
        self.ops.clear();
    }

    /// Writes one block.
    pub fn write(&mut self, lba: u64) {
        self.write_uncounted(lba);
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
            // A full die cannot win room by collecting: another takes its turn. One always has room.
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
        let fills = FlashOp::Program(Die(die as u32));
        self.append(die, stream, lba as u32, fills);
    }

    /// Looks at what is needed to write some blocks soon, so that it is in a cache by then: their entries in the map, and then
    /// what those lead to.
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

    /// Gives one block up.
    pub fn forget(&mut self, lba: u64) {
        let old = std::mem::replace(&mut self.map[lba as usize], NONE);
        if old == NONE {
            return;
        }
        self.alive[(old / 64) as usize] &= !(1 << (old % 64));
        let (block, _) = self.by_pages.split(old);
        let valid = &mut self.valid[block as usize];
        *valid -= 1;
        let valid = *valid;
        let stream = match &mut self.separation {
            None => 0,
            Some(separation) => {
                let stream = usize::from(self.filled_by[block as usize]);
                separation.died(stream);
                stream
            }
        };
        let (die, block) = self.by_die.split(block);
        let frontier = self.frontier(die as usize, stream);
        frontier.live -= 1;
        if block != frontier.active {
            frontier.victims.died(block, valid);
        }
    }

    /// Where a block is, if it was written: the die, its erase block, and a number that blocks of one program unit share.
    #[must_use]
    pub fn find(&self, lba: u64) -> Option<(Die, EraseBlock, u64)> {
        let at = self.map[lba as usize];
        (at != NONE).then(|| {
            let (block, _) = self.by_pages.split(at);
            let (die, block) = self.by_die.split(block);
            let block = EraseBlock(self.first + block);
            (Die(die), block, u64::from(at / self.unit_blocks))
        })
    }

    /// Puts a block where a die's stream is being filled; `fills` is what its unit takes once that is full.
    pub(super) fn append(&mut self, die: usize, stream: usize, lba: u32, fills: FlashOp) {
        let unit_blocks = self.unit_blocks;
        let frontier = self.frontier(die, stream);
        let (active, offset) = (frontier.active, frontier.offset);
        frontier.offset += 1;
        frontier.live += 1;
        frontier.left -= 1;
        if frontier.left == 0 {
            frontier.left = unit_blocks;
            self.ops.push(fills);
        }
        self.summarize(die, offset + 1);
        let block = die as u32 * self.per_die + active;
        self.valid[block as usize] += 1;
        self.put(lba, block * self.pages + offset);
    }

    /// A die's block is filled so far. Behind its last page comes its summary at once, on a drive that has them: who filled it waits
    /// for that, as in DiskSim.
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

/// Blocks that a die can keep alive: all but the reserve, and so many more that a victim always gives. Two frontiers each have a block
/// that is not full, and a stream is collected that has a block's worth to give.
fn room(per_die: u32, reserve: u32, streams: usize, pages: u32) -> u64 {
    let kept = reserve + 2 * streams as u32 - 1;
    u64::from(per_die.saturating_sub(kept)) * u64::from(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        channels: 1,
        dies: 3,
        erase_blocks: 16,
        units: 8,
        unit_blocks: 4,
    };

    fn check(map: &PageMap, written: &[bool]) {
        let mut live = 0;
        for (lba, &wanted) in written.iter().enumerate() {
            let at = map.map[lba];
            assert_eq!(at != NONE, wanted, "block {lba}");
            if wanted {
                assert_eq!(map.owner[at as usize], lba as u32);
                assert_eq!(map.alive[at as usize / 64] >> (at % 64) & 1, 1);
                live += 1;
            }
        }
        assert_eq!(map.valid.iter().sum::<u32>(), live);
        assert_eq!(map.live(), u64::from(live));
        for (at, frontier) in map.frontiers.iter().enumerate() {
            let (die, stream) = (at / map.streams, at % map.streams);
            let blocks = map.filled_by.iter().enumerate().filter(|&(block, &by)| {
                let (of, block) = (block as u32 / map.per_die, block as u32 % map.per_die);
                of == die as u32 && usize::from(by) == stream && !map.free[die].contains(&block)
            });
            let valid = blocks.clone().map(|(block, _)| u64::from(map.valid[block]));
            assert_eq!(frontier.blocks as usize, blocks.clone().count());
            assert_eq!(frontier.live, valid.sum::<u64>());
        }
        let alive: u32 = map.alive.iter().map(|bits| bits.count_ones()).sum();
        assert_eq!(alive, live);
    }

    impl PageMap {
        /// Panics unless the map, the owners and the counts agree.
        pub(in crate::base) fn assert_sound(&self) {
            let written: Vec<bool> = self.map.iter().map(|&at| at != NONE).collect();
            check(self, &written);
        }
    }

    #[test]
    fn every_block_stays_where_the_map_says() {
        for victim in [
            Victim::Greedy,
            Victim::Fifo,
            Victim::Choices(1),
            Victim::Choices(5),
        ] {
            let mut map = PageMap::new(&SHAPE, 3, (0, 16), 1200, victim).unwrap();
            let mut written = vec![false; 1200];
            let mut rng = Rng::new(3);
            for step in 0..30_000 {
                // The second half skews: some dies must not fill up under it.
                let lba = rng.below(if step < 15_000 { 1200 } else { 60 });
                if rng.below(10) == 0 {
                    map.forget(lba);
                    written[lba as usize] = false;
                } else {
                    map.write(lba);
                    written[lba as usize] = true;
                }
                if step % 1000 == 0 {
                    check(&map, &written);
                }
            }
            check(&map, &written);
            let mut ops = Vec::new();
            map.take_ops(&mut ops);
            let programs = ops.iter().filter(|op| matches!(op, FlashOp::Program(_)));
            let counts = map.counts();
            let blocks = programs.count() as u64 * 4;
            // What is missing is in units that are not full.
            assert!(counts.host + counts.moved - blocks < 3 * 4);
        }
    }

    #[test]
    fn what_cannot_fit_is_refused() {
        let error = PageMap::new(&SHAPE, 3, (0, 16), 1400, Victim::Greedy).err();
        let (logical, most) = (1400, 1344);
        assert_eq!(error, Some(TooSmall { logical, most }));
        let map = PageMap::new(&SHAPE, 3, (0, 16), 1200, Victim::Greedy).unwrap();
        let kept_free = 250;
        let how = PageMapping { kept_free, ..PLAIN };
        let (logical, most) = (1200, 1056);
        assert_eq!(map.mapped(how).err(), Some(TooSmall { logical, most }));
    }

    #[test]
    fn a_striped_map_keeps_blocks_on_their_dies_and_room_on_each() {
        let how = PageMapping {
            striped: true,
            kept_free: 250,
            copy_back: false,
            summary: false,
        };
        let map = PageMap::new(&SHAPE, 3, (0, 16), 1050, Victim::Greedy).unwrap();
        let mut map = map.mapped(how).unwrap();
        let mut rng = Rng::new(4);
        for _ in 0..30_000 {
            let lba = rng.below(1050);
            map.write(lba);
            assert_eq!(map.find(lba).unwrap().0, Die((lba / 4 % 3) as u32));
            assert!(map.free.iter().all(|free| free.len() >= 4));
        }
        for lba in (0..1050).filter(|&lba| map.map[lba as usize] != NONE) {
            assert_eq!(map.find(lba).unwrap().0, Die((lba / 4 % 3) as u32));
        }
        assert!(map.counts().moved > 0);
        map.assert_sound();
    }

    #[test]
    fn what_is_copied_back_is_moved_all_the_same() {
        let shape = Shape {
            unit_blocks: 1,
            ..SHAPE
        };
        let run = |copy_back| {
            let map = PageMap::new(&shape, 3, (0, 16), 300, Victim::Greedy).unwrap();
            let mut map = map.mapped(PageMapping { copy_back, ..PLAIN }).unwrap();
            let mut rng = Rng::new(5);
            (0..20_000).for_each(|_| map.write(rng.below(300)));
            let mut ops = Vec::new();
            map.take_ops(&mut ops);
            let of = |wanted: fn(&FlashOp) -> bool| ops.iter().filter(|op| wanted(op)).count();
            let reads = of(|op| matches!(op, FlashOp::Read(..)));
            let copies = of(|op| matches!(op, FlashOp::Copy(_)));
            let programs = of(|op| matches!(op, FlashOp::Program(_)));
            (map.counts(), [reads, copies, programs].map(|n| n as u64))
        };
        let ((across, [reads, none, programs]), (within, [crossing, copies, host])) =
            (run(false), run(true));
        assert_eq!(across, within);
        assert!(across.moved > 1000);
        assert_eq!((reads, none, programs), (across.moved, 0, 20_000 + reads));
        assert_eq!((crossing, copies, host), (0, across.moved, 20_000));
    }

    #[test]
    fn a_summary_comes_behind_the_last_page_of_each_block() {
        for separated in [false, true] {
            let map = PageMap::new(&SHAPE, 3, (0, 16), 900, Victim::Greedy).unwrap();
            let map = match separated {
                true => map.separated(Victim::Greedy).unwrap(),
                false => map,
            };
            let how = PageMapping {
                summary: true,
                ..PLAIN
            };
            let mut map = map.mapped(how).unwrap();
            let mut rng = Rng::new(5);
            (0..20_000).for_each(|_| map.write(rng.below(900)));
            let mut ops = Vec::new();
            map.take_ops(&mut ops);
            for die in (0..3).map(Die) {
                let count = |wanted| ops.iter().filter(|&&op| op == wanted).count();
                let (programs, summaries) =
                    (count(FlashOp::Program(die)), count(FlashOp::Summary(die)));
                // Of each stream a block is not full.
                let open = programs - summaries * 8;
                assert!(summaries > 100 && open < 8 * map.streams, "{open}");
            }
            map.assert_sound();
        }
    }
}
