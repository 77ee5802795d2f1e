//! A map that does not fit in RAM (DFTL: Gupta, Kim, Urgaonkar, ASPLOS 2009).
//!
//! The whole map is in translation pages on flash, each with as many entries as fit a page. RAM holds the most recently used
//! entries one by one (the paper's cached mapping table), and where each translation page is (its global translation directory).
//! A request whose entries are not in RAM reads their translation page first. A changed entry that is evicted is written back:
//! its page is read, takes all changed entries of its range at once (the paper's batch update), and is written again. The
//! collector changes entries, too. It changes them in RAM (the paper's lazy copying), and loads those that are not there, so that
//! these changes also gather before their page is written.
//!
//! Differences from the paper: entries are evicted in LRU order (there: a segmented LRU), and translation pages go into the same
//! blocks as data, as further cold or hot pages, instead of into separate blocks.
//!
//! RAM survives a power cut here, so a flush writes no map pages.

use super::ops::{FlashOp, NONE, Place};
use super::pagemap::{PageMap, TooSmall};
use super::paging::{Lookups, PER_PAGE, Paging};
use crate::flash::{Cell, Die, EraseBlock};

/// RAM of a cached entry: a logical and a physical page number.
pub const ENTRY_BYTES: u64 = 8;
/// The most translation pages that one call writes for the collector; the others wait.
const SETTLED_AT_ONCE: usize = 256;

impl PageMap {
    /// Moves the map to flash, with RAM for `entries` entries, before anything is written.
    ///
    /// # Errors
    /// If the translation pages do not fit in addition to the data.
    pub fn paged(mut self, entries: usize) -> Result<Self, TooSmall> {
        let paging = Paging::new(self.logical(), entries);
        let logical = self.logical() + paging.is_stale.len() as u64;
        let most = self.most();
        if logical > most || logical >= u64::from(NONE) {
            return Err(TooSmall { logical, most });
        }
        self.map.resize(logical as usize, NONE);
        if let Some(separation) = &mut self.separation {
            separation.cover(logical);
        }
        self.paging = Some(Box::new(paging));
        Ok(self)
    }

    /// Returns the lookups, the entries that fit RAM, and the number of translation pages, if the map is on flash.
    #[must_use]
    pub fn lookups(&self) -> Option<(Lookups, u64, u64)> {
        let paging = self.paging.as_ref()?;
        let pages = paging.is_stale.len() as u64;
        Some((paging.lookups, paging.most as u64, pages))
    }

    /// True if the map is on flash.
    #[must_use]
    pub fn is_paged(&self) -> bool {
        self.paging.is_some()
    }

    /// Loads the entries of some blocks into RAM, as changed or not. Appends the translation pages that must be read first to
    /// `waits`.
    pub fn look_up(
        &mut self,
        lba: u64,
        blocks: u64,
        changed: bool,
        waits: &mut Vec<(Die, EraseBlock, Cell)>,
    ) {
        let mut read = NONE;
        for lba in lba..lba + blocks {
            let page = (lba / PER_PAGE) as u32;
            let Some(paging) = &mut self.paging else {
                return;
            };
            if paging.touch(lba as u32, changed) {
                continue;
            }
            let evicted = paging.insert(lba as u32, changed);
            if read != page
                && let Some(place) = self.find_translation(page)
            {
                read = page;
                waits.push(place.at);
                self.lookup(|lookups| lookups.reads_waited += 1);
            }
            if let Some(evicted) = evicted {
                self.lookup(|lookups| lookups.writes_evicted += 1);
                self.write_translation(evicted);
            }
        }
        self.settle();
    }

    /// Writes translation pages for what the collector has moved.
    pub fn settle(&mut self) {
        for _ in 0..SETTLED_AT_ONCE {
            let Some(paging) = &mut self.paging else {
                return;
            };
            paging.sort_moved();
            let Some(page) = paging.stale.pop_front() else {
                return;
            };
            // It may have been written for another reason.
            if paging.is_stale[page as usize] {
                paging.lookups.writes_moved += 1;
                self.write_translation(page);
            }
        }
    }

    fn lookup(&mut self, count: impl FnOnce(&mut Lookups)) {
        if let Some(paging) = &mut self.paging {
            count(&mut paging.lookups);
        }
    }

    fn find_translation(&self, page: u32) -> Option<Place> {
        self.find(self.logical() + u64::from(page))
    }

    fn write_translation(&mut self, page: u32) {
        if let Some(place) = self.find_translation(page) {
            let (die, block, cell) = place.at;
            self.ops.push(FlashOp::Read(die, block, cell, 1));
            self.lookup(|lookups| lookups.reads_to_change += 1);
        }
        if let Some(paging) = &mut self.paging {
            paging.written(page);
        }
        self.write_uncounted(self.logical() + u64::from(page));
        self.counts.map += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::victims::Victim;
    use super::*;
    use crate::flash::Shape;
    use crate::rng::Rng;

    const SHAPE: Shape = Shape {
        channels: 1,
        dies: 2,
        erase_blocks: 64,
        units: 64,
        unit_blocks: 1,
    };
    const LOGICAL: u64 = 6800;

    fn map(entries: Option<usize>, victim: Victim) -> PageMap {
        let map = PageMap::new(&SHAPE, 2, (0, 64), LOGICAL, victim).unwrap();
        match entries {
            Some(entries) => map.paged(entries).unwrap(),
            None => map,
        }
    }

    /// Half of the accesses are reads; `near` is the part of the volume that is used.
    fn run(map: &mut PageMap, near: u64) -> Vec<FlashOp> {
        let mut rng = Rng::new(4);
        let (mut ops, mut waits) = (Vec::new(), Vec::new());
        for lba in 0..LOGICAL {
            map.look_up(lba, 1, true, &mut waits);
            map.write(lba);
            map.settle();
        }
        for _ in 0..40_000 {
            let lba = rng.below(near);
            let writes = rng.below(2) == 0;
            map.look_up(lba, 1, writes, &mut waits);
            if writes {
                map.write(lba);
                map.settle();
            }
            map.take_ops(&mut ops);
        }
        ops
    }

    #[test]
    fn with_room_for_every_entry_it_is_a_map_in_ram() {
        for victim in [Victim::Greedy, Victim::Fifo, Victim::CostBenefit] {
            let (mut in_ram, mut paged) = (map(None, victim), map(Some(LOGICAL as usize), victim));
            assert_eq!(run(&mut in_ram, LOGICAL), run(&mut paged, LOGICAL));
            assert_eq!(in_ram.counts(), paged.counts());
            assert!(in_ram.map == paged.map[..LOGICAL as usize]);
            let (lookups, ..) = paged.lookups().unwrap();
            assert_eq!((lookups.misses, lookups.reads_waited), (LOGICAL, 0));
        }
    }

    #[test]
    fn a_small_cache_costs_pages_and_a_load_that_fits_it_does_not() {
        let cost = |entries, near| {
            let mut map = map(Some(entries), Victim::Greedy);
            run(&mut map, near);
            map.assert_sound();
            let counts = map.counts();
            let (lookups, ..) = map.lookups().unwrap();
            let written = lookups.writes_evicted + lookups.writes_moved;
            assert_eq!(counts.map, written);
            assert_eq!(lookups.hits + lookups.misses, LOGICAL + 40_000);
            (counts.map, lookups)
        };
        let (small, lookups) = cost(512, LOGICAL);
        let (large, _) = cost(4096, LOGICAL);
        let (near, lookups_near) = cost(512, 400);
        assert!(small > large, "{small} {large}");
        assert!(lookups.misses > 30_000 && lookups.reads_waited > 30_000);
        // All but the first uses of a part that fits are hits, and almost no map page is written.
        assert!(lookups_near.misses < LOGICAL + 500, "{lookups_near:?}");
        assert!(near < small / 20, "{near} {small}");
    }

    #[test]
    fn every_victim_policy_works_with_it() {
        for victim in [
            Victim::Fifo,
            Victim::Choices(1),
            Victim::Choices(5),
            Victim::CostBenefit,
        ] {
            let mut map = map(Some(512), victim);
            run(&mut map, LOGICAL);
            map.assert_sound();
        }
    }
}
