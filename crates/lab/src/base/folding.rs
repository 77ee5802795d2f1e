//! The page map's cache of blocks with one bit a cell. Host writes go there first, because it is fast, and are folded into the
//! other blocks later.
//!
//! Each die has a number of cache blocks in addition to those that hold its data. They are filled one after the other and folded
//! in the same order: when a die needs a cache block and none is free, or when the host has been idle for some time. Data
//! overwritten in the meantime are not folded. Folded pages pass through the page map like the host's pages.

use super::pagemap::{FlashOp, NONE, PageMap, Place};
use super::slc::{Folded, Slc};
use crate::flash::{Cell, Die, EraseBlock, Shape, SlcCache};

impl PageMap {
    /// Adds a cache, before anything is written. A map that is itself on flash has none.
    #[must_use]
    pub fn cached(mut self, how: Option<&SlcCache>, shape: &Shape) -> Self {
        let logical = self.logical();
        self.slc = how.map(|how| Box::new(Slc::new(how, shape, logical)));
        self
    }

    /// Returns what passed through the cache, if there is one.
    #[must_use]
    pub fn folded(&self) -> Option<Folded> {
        self.slc.as_ref().map(|slc| slc.counts)
    }

    /// Returns the number of blocks in it.
    pub(super) fn live_in_cache(&self) -> u64 {
        self.slc.as_ref().map_or(0, |slc| slc.live)
    }

    /// Returns where the cache holds a block.
    pub(super) fn find_in_cache(&self, lba: u64) -> Option<Place> {
        self.slc.as_ref().and_then(|slc| slc.find(lba))
    }

    /// Drops a block from the cache. Returns whether it was there.
    #[cold]
    pub(super) fn forget_in_cache(&mut self, lba: u64) -> bool {
        self.slc.as_mut().is_some_and(|slc| slc.forget(lba))
    }

    /// Writes one block to the cache.
    #[cold]
    pub(super) fn write_to_cache(&mut self, lba: u64) {
        let Some(mut slc) = self.slc.take() else {
            return;
        };
        if !slc.forget(lba) {
            self.forget(lba);
        }
        if slc.parts[slc.turn].left == slc.unit_blocks {
            slc.turn = (slc.turn + 1) % slc.parts.len();
        }
        let die = slc.turn;
        if slc.parts[die].offset == slc.pages {
            let part = &mut slc.parts[die];
            part.full.push_back(part.active);
            part.offset = 0;
            if part.free.is_empty() {
                self.fold(&mut slc, die);
            }
            let part = &mut slc.parts[die];
            part.active = part.free.pop_front().unwrap_or(part.active);
        }
        let first = slc.first(die, slc.parts[die].active);
        let part = &mut slc.parts[die];
        let at = first + part.offset;
        part.offset += 1;
        part.left -= 1;
        if part.left == 0 {
            part.left = slc.unit_blocks;
            self.ops.push(FlashOp::Program(Die(die as u32), Cell::SLC));
        }
        slc.place[lba as usize] = at;
        slc.owner[at as usize] = lba as u32;
        slc.live += 1;
        slc.counts.written += 1;
        self.slc = Some(slc);
    }

    /// Folds the oldest full block of a die's part. Returns whether there was one.
    fn fold(&mut self, slc: &mut Slc, die: usize) -> bool {
        let Some(block) = slc.parts[die].full.pop_front() else {
            return false;
        };
        let on = Die(die as u32);
        let first = slc.first(die, block);
        for unit in (first..first + slc.pages).step_by(slc.unit_blocks as usize) {
            let places = unit..unit + slc.unit_blocks;
            let is_there = |at: &u32| slc.owner[*at as usize] != NONE;
            let count = places.clone().filter(is_there).count() as u32;
            if count > 0 {
                self.ops
                    .push(FlashOp::Read(on, EraseBlock(0), Cell::SLC, count));
            }
            for at in places {
                let lba = std::mem::replace(&mut slc.owner[at as usize], NONE);
                if lba != NONE {
                    slc.place[lba as usize] = NONE;
                    slc.live -= 1;
                    slc.counts.folded += 1;
                    self.write_uncounted(u64::from(lba));
                }
            }
        }
        self.ops.push(FlashOp::EraseCache(on));
        slc.counts.erases += 1;
        slc.parts[die].free.push_back(block);
        true
    }

    /// Folds a block of each die while the host is idle. Returns whether there was one.
    pub(super) fn fold_idle(&mut self) -> bool {
        let Some(mut slc) = self.slc.take() else {
            return false;
        };
        let before = slc.counts.folded;
        let mut any = false;
        for die in 0..slc.parts.len() {
            // An open block is closed if its units are full, so that less than a unit remains unfolded.
            let part = &mut slc.parts[die];
            if part.full.is_empty() && part.offset > 0 && part.left == slc.unit_blocks {
                part.full.push_back(part.active);
                part.offset = 0;
                let folded = self.fold(&mut slc, die);
                let part = &mut slc.parts[die];
                part.active = part.free.pop_front().unwrap_or(part.active);
                any |= folded;
            } else {
                any |= self.fold(&mut slc, die);
            }
        }
        slc.counts.idle += slc.counts.folded - before;
        self.slc = Some(slc);
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Victim;
    use crate::rng::Rng;

    const SHAPE: Shape = Shape {
        channels: 1,
        dies: 3,
        erase_blocks: 16,
        units: 8,
        unit_blocks: 4,
    };
    const CACHE: SlcCache = SlcCache {
        blocks: 2,
        bits: 3,
        read_ns: 1,
        program_ns: 1,
        erase_ns: 1,
        idle_ns: None,
    };

    fn map() -> PageMap {
        let map = PageMap::new(&SHAPE, 3, (0, 16), 1200, Victim::Greedy).unwrap();
        map.cached(Some(&CACHE), &SHAPE)
    }

    /// Checks that each block is in the cache or in the map, and in one place only.
    fn check(map: &PageMap, written: &[bool]) {
        let slc = map.slc.as_ref().unwrap();
        for (lba, &wanted) in written.iter().enumerate() {
            let (behind, cached) = (map.map[lba] != NONE, slc.place[lba] != NONE);
            assert_eq!(
                (behind, cached),
                (wanted && !cached, wanted && !behind),
                "{lba}"
            );
            assert_eq!(map.find(lba as u64).is_some(), wanted);
            if cached {
                assert_eq!(slc.owner[slc.place[lba] as usize], lba as u32);
                assert_eq!(map.find(lba as u64).unwrap().at.2, Cell::SLC);
            }
        }
        let owned = slc.owner.iter().filter(|&&lba| lba != NONE).count();
        assert_eq!(slc.live, owned as u64);
        let live = written.iter().filter(|&&written| written).count();
        assert_eq!(map.live(), live as u64);
    }

    #[test]
    fn every_block_is_in_the_cache_or_behind_it() {
        let (mut map, mut rng) = (map(), Rng::new(7));
        let mut written = vec![false; 1200];
        for step in 0..20_000 {
            let lba = rng.below(if step < 10_000 { 1200 } else { 60 });
            match rng.below(10) {
                0 => map.forget(lba),
                _ => map.write(lba),
            }
            written[lba as usize] = map.find(lba).is_some();
            if rng.below(500) == 0 {
                map.fold_idle();
            }
            if step % 500 == 0 {
                check(&map, &written);
            }
        }
        check(&map, &written);
        while map.fold_idle() {}
        check(&map, &written);
        // Less than a unit of each die remains.
        assert!(map.live_in_cache() < 3 * 4);
        let (folded, moved) = (map.folded().unwrap(), map.counts());
        assert_eq!(folded.written, moved.host);
        assert!(folded.folded < folded.written && folded.idle > 0 && moved.moved > 0);
    }

    #[test]
    fn each_write_is_programmed_once_in_the_cache_and_once_behind_it() {
        let mut map = map();
        (0..600).for_each(|lba| map.write(lba));
        while map.fold_idle() {}
        let mut ops = Vec::new();
        map.take_ops(&mut ops);
        let of = |wanted: &dyn Fn(&FlashOp) -> bool| ops.iter().filter(|op| wanted(op)).count();
        let cached = |op: &FlashOp| matches!(op, FlashOp::Program(_, Cell::SLC));
        let behind = |op: &FlashOp| matches!(op, FlashOp::Program(..)) && !cached(op);
        let read = |op: &FlashOp| matches!(op, FlashOp::Read(.., Cell::SLC, 4));
        assert_eq!([of(&cached), of(&behind), of(&read)], [150; 3]);
        // A cache block has two units: eight units of the other blocks divided by three bits, rounded down.
        assert_eq!(of(&|op| matches!(op, FlashOp::EraseCache(_))), 75);
        assert_eq!(map.folded().unwrap().erases, 75);
    }
}
