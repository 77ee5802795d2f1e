//! A map that does not fit in RAM (DFTL: Gupta, Kim, Urgaonkar, ASPLOS 2009).
//!
//! The whole map is in translation pages on flash, of as many entries as a page holds. RAM has the entries that were used last (the paper's cached mapping
//! table), each by itself, and where each translation page is (its global translation directory). A request whose entries are not
//! there reads their translation page first. An entry that has changed and has to leave is written back: its page is read, takes
//! all changed entries of its range at once (the paper's batch update), and is written anew. The collector changes entries as well: in RAM
//! (its lazy copying), into which those that are not there are brought, so that they too gather before their page is written.
//!
//! Where it differs from the paper: entries leave in the order of their last use (there: a segmented LRU), and translation pages go into
//! the same blocks as data, as one more cold or hot page, instead of into blocks of their own.
//!
//! RAM survives a power cut here, so a flush writes no map.

use super::pagemap::{FlashOp, NONE, PageMap, TooSmall};
use crate::flash::{Die, EraseBlock};
use serde::Serialize;
use std::collections::VecDeque;
use vellum_core::addr::BLOCK_BYTES;

/// Entries of a translation page.
const PER_PAGE: u64 = BLOCK_BYTES as u64 / 4;
/// RAM of a cached entry: a logical and a physical page number.
pub const ENTRY_BYTES: u64 = 8;
/// Translation pages that one call writes for the collector, at most: the others wait.
const SETTLED_AT_ONCE: usize = 256;

/// What became of lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lookups {
    /// Blocks whose entry was in RAM.
    pub hits: u64,
    /// Blocks whose entry was not.
    pub misses: u64,
    /// Translation pages read because a request waited for them.
    pub reads_waited: u64,
    /// Translation pages read to be changed.
    pub reads_to_change: u64,
    /// Translation pages written because a changed entry had to leave.
    pub writes_evicted: u64,
    /// Translation pages written because the collector had moved what they tell of.
    pub writes_moved: u64,
}

impl Lookups {
    /// What has come since.
    #[must_use]
    pub fn since(self, before: Option<Self>) -> Self {
        let before = before.unwrap_or_default();
        Self {
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
            reads_waited: self.reads_waited - before.reads_waited,
            reads_to_change: self.reads_to_change - before.reads_to_change,
            writes_evicted: self.writes_evicted - before.writes_evicted,
            writes_moved: self.writes_moved - before.writes_moved,
        }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    lba: u32,
    before: u32,
    after: u32,
    changed: bool,
}

/// See the module.
pub(in crate::base) struct Paging {
    logical: u64,
    most: usize,
    /// Where the entry of a block is in the table.
    places: Vec<u32>,
    entries: Vec<Entry>,
    /// The entries used last and least recently.
    last: u32,
    least: u32,
    /// Pages that were moved and whose entries have not been looked at.
    moved: Vec<u32>,
    /// Translation pages that have to be written for that, and whether each is among them.
    stale: VecDeque<u32>,
    is_stale: Vec<bool>,
    lookups: Lookups,
}

impl Paging {
    fn new(logical: u64, most: usize) -> Self {
        let most = most.min(logical as usize);
        Self {
            logical,
            most,
            places: vec![NONE; logical as usize],
            entries: Vec::with_capacity(most),
            last: NONE,
            least: NONE,
            moved: Vec::new(),
            stale: VecDeque::new(),
            is_stale: vec![false; logical.div_ceil(PER_PAGE) as usize],
            lookups: Lookups::default(),
        }
    }

    pub fn logical(&self) -> u64 {
        self.logical
    }

    pub fn moved(&mut self, moved: &[(u32, u32)]) {
        self.moved.extend(moved.iter().map(|&(_, lba)| lba));
    }

    fn unlink(&mut self, place: u32) {
        let Entry { before, after, .. } = self.entries[place as usize];
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.after = after,
            None => self.last = after,
        }
        match self.entries.get_mut(after as usize) {
            Some(entry) => entry.before = before,
            None => self.least = before,
        }
    }

    fn link_last(&mut self, place: u32) {
        let next = std::mem::replace(&mut self.last, place);
        let entry = &mut self.entries[place as usize];
        (entry.before, entry.after) = (NONE, next);
        match self.entries.get_mut(next as usize) {
            Some(entry) => entry.before = place,
            None => self.least = place,
        }
    }

    /// Uses an entry; whether it was there.
    fn touch(&mut self, lba: u32, changed: bool) -> bool {
        let place = self.places[lba as usize];
        if place == NONE {
            self.lookups.misses += 1;
            return false;
        }
        self.lookups.hits += 1;
        self.entries[place as usize].changed |= changed;
        if self.last != place {
            self.unlink(place);
            self.link_last(place);
        }
        true
    }

    /// Brings an entry in; the translation page that has to be written for the one that leaves.
    fn insert(&mut self, lba: u32, changed: bool) -> Option<u32> {
        let entry = Entry {
            lba,
            before: NONE,
            after: NONE,
            changed,
        };
        let mut evicted = None;
        let place = if self.entries.len() < self.most {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let place = self.least;
            self.unlink(place);
            let old = std::mem::replace(&mut self.entries[place as usize], entry);
            self.places[old.lba as usize] = NONE;
            evicted = old.changed.then_some(old.lba / PER_PAGE as u32);
            place
        };
        self.places[lba as usize] = place;
        self.link_last(place);
        evicted
    }

    /// All entries of a translation page are as it has them.
    fn written(&mut self, page: u32) {
        let first = u64::from(page) * PER_PAGE;
        let range = first as usize..(first + PER_PAGE).min(self.logical) as usize;
        for &place in &self.places[range] {
            if let Some(entry) = self.entries.get_mut(place as usize) {
                entry.changed = false;
            }
        }
        self.is_stale[page as usize] = false;
    }

    /// Sorts what was moved into what is changed in RAM and what is not there.
    fn sort_moved(&mut self) {
        while let Some(lba) = self.moved.pop() {
            // A translation page itself: its place is in RAM.
            let Some(&place) = self.places.get(lba as usize) else {
                continue;
            };
            if let Some(entry) = self.entries.get_mut(place as usize) {
                entry.changed = true;
                continue;
            }
            // It is brought in as changed; what has to leave for it is written with all that changed beside it.
            if let Some(page) = self.insert(lba, true)
                && !std::mem::replace(&mut self.is_stale[page as usize], true)
            {
                self.stale.push_back(page);
            }
        }
    }
}

impl PageMap {
    /// The same with its map on flash and RAM for so many entries, before anything is written.
    ///
    /// # Errors
    /// When the translation pages do not fit beside the data.
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

    /// What became of lookups, the entries that RAM has room for, and the translation pages there are; where the map is on flash.
    #[must_use]
    pub fn lookups(&self) -> Option<(Lookups, u64, u64)> {
        let paging = self.paging.as_ref()?;
        let pages = paging.is_stale.len() as u64;
        Some((paging.lookups, paging.most as u64, pages))
    }

    /// Whether the map is on flash.
    #[must_use]
    pub fn is_paged(&self) -> bool {
        self.paging.is_some()
    }

    /// Brings the entries of some blocks into RAM, as changed or not; `waits` is told which translation pages have to be read for
    /// that.
    pub fn look_up(
        &mut self,
        lba: u64,
        blocks: u64,
        changed: bool,
        waits: &mut Vec<(Die, EraseBlock)>,
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
                && let Some((die, block, _)) = self.find_translation(page)
            {
                read = page;
                waits.push((die, block));
                self.lookup(|lookups| lookups.reads_waited += 1);
            }
            if let Some(evicted) = evicted {
                self.lookup(|lookups| lookups.writes_evicted += 1);
                self.write_translation(evicted);
            }
        }
        self.settle();
    }

    /// Writes translation pages of what the collector has moved.
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

    fn find_translation(&self, page: u32) -> Option<(Die, EraseBlock, u64)> {
        self.find(self.logical() + u64::from(page))
    }

    fn write_translation(&mut self, page: u32) {
        if let Some((die, block, _)) = self.find_translation(page) {
            self.ops.push(FlashOp::Read(die, block, 1));
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

    /// Half of the accesses read; `near` says how much of the volume is used.
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
        // All but the first uses of a part that fits are hits, and hardly a page of the map is written.
        assert!(lookups_near.misses < LOGICAL + 500, "{lookups_near:?}");
        assert!(near < small / 20, "{near} {small}");
    }

    #[test]
    fn every_victim_policy_gets_along_with_it() {
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
