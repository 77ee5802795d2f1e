//! The map entries that are in RAM, and the translation pages that wait to be written for them.

use super::ops::NONE;
use serde::Serialize;
use std::collections::VecDeque;
use vellum_core::addr::BLOCK_BYTES;

/// Entries of a translation page.
pub(super) const PER_PAGE: u64 = BLOCK_BYTES as u64 / 4;

/// Counts of map lookups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lookups {
    /// Blocks whose entry was in RAM.
    pub hits: u64,
    /// Blocks whose entry was not.
    pub misses: u64,
    /// Translation pages read because a request waited for them.
    pub reads_waited: u64,
    /// Translation pages read in order to change them.
    pub reads_to_change: u64,
    /// Translation pages written because a changed entry was evicted.
    pub writes_evicted: u64,
    /// Translation pages written because the collector moved the pages they map.
    pub writes_moved: u64,
}

impl Lookups {
    /// Returns the counts since `before`.
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

/// The cached map; see [`super::mapcache`].
pub(super) struct Paging {
    logical: u64,
    pub most: usize,
    /// The table index of each block's entry.
    places: Vec<u32>,
    entries: Vec<Entry>,
    /// The most and the least recently used entry.
    last: u32,
    least: u32,
    /// Pages that were moved and whose entries have not been updated.
    moved: Vec<u32>,
    /// Translation pages that must be written for that, and a flag for each page that is among them.
    pub stale: VecDeque<u32>,
    pub is_stale: Vec<bool>,
    pub lookups: Lookups,
}

impl Paging {
    pub fn new(logical: u64, most: usize) -> Self {
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

    /// Uses an entry. Returns whether it was in RAM.
    #[inline]
    pub fn touch(&mut self, lba: u32, changed: bool) -> bool {
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

    /// Loads an entry. Returns the translation page that must be written for the entry it evicts.
    #[inline]
    pub fn insert(&mut self, lba: u32, changed: bool) -> Option<u32> {
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

    /// Marks all entries of a translation page as unchanged: the page was written.
    pub fn written(&mut self, page: u32) {
        let first = u64::from(page) * PER_PAGE;
        let range = first as usize..(first + PER_PAGE).min(self.logical) as usize;
        for &place in &self.places[range] {
            if let Some(entry) = self.entries.get_mut(place as usize) {
                entry.changed = false;
            }
        }
        self.is_stale[page as usize] = false;
    }

    /// Updates the entries of moved pages: those in RAM become changed, and the others are loaded.
    #[inline]
    pub fn sort_moved(&mut self) {
        while let Some(lba) = self.moved.pop() {
            // A translation page itself: where it is, is in RAM.
            let Some(&place) = self.places.get(lba as usize) else {
                continue;
            };
            if let Some(entry) = self.entries.get_mut(place as usize) {
                entry.changed = true;
                continue;
            }
            // It is loaded as changed. The entry it evicts is written together with the other changed ones of its page.
            if let Some(page) = self.insert(lba, true)
                && !std::mem::replace(&mut self.is_stale[page as usize], true)
            {
                self.stale.push_back(page);
            }
        }
    }
}
