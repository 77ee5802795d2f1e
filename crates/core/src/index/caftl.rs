//! The fingerprint store of CAFTL (§3.2.3), for comparison with our own.
//!
//! Hashes are spread over segments (hash mod N); a segment is a list of buckets of 4 KiB, each sorted by hash. Buckets are handed out
//! until none are left. From then on a new entry replaces the entry with the fewest owners in one bucket, unless the new entry has fewer
//! itself. The paper has three ways to search faster. A *range check* skips a bucket whose smallest and largest hash show that the hash
//! is not in it. Entries of a segment are reorganised over its buckets *by hotness*, or *by value*, which allows a binary search over the
//! buckets. The last two exclude each other: they are two orders of the same entries.
//!
//! The paper does not say how an order is kept while entries arrive. Here, by value, new entries gather in a last bucket until it
//! is full, and are then merged; by hotness, a segment is reorganised after as many changes as it has entries.

use super::holder::Holder;
use crate::addr::{Lba, Vba};
use crate::seam::{CaftlSearch, EntryOrder};
use alloc::{vec, vec::Vec};
use core::cmp::{Ordering, Reverse};

const BUCKET_BYTES: usize = 4096;
/// As in the paper's measurements (§4.3.3), where memory is enough for a few buckets each.
const SEGMENTS: usize = 256;
/// The fewest buckets of a segment.
const BUCKETS: usize = 4;

#[derive(Clone, Copy)]
struct Entry {
    print: u32,
    number: u32,
    /// The bits of an LBA above those 32.
    high: u8,
    owners: u8,
    is_page: bool,
}

const BUCKET_ENTRIES: usize = BUCKET_BYTES / size_of::<Entry>();

impl Entry {
    fn new(print: u32, holder: Holder, owners: u32) -> Self {
        let (number, is_page) = match holder {
            Holder::Lba(lba) => (lba.0, false),
            Holder::Page(vba) => (vba.0.into(), true),
        };
        Self {
            print,
            number: number as u32,
            high: (number >> 32) as u8,
            owners: owners.clamp(1, 255) as u8,
            is_page,
        }
    }

    fn holder(&self) -> Holder {
        match self.is_page {
            true => Holder::Page(Vba(self.number)),
            false => Holder::Lba(Lba(u64::from(self.high) << 32 | u64::from(self.number))),
        }
    }
}

/// Sorted by print.
type Bucket = Vec<Entry>;

#[derive(Clone, Default)]
struct Segment {
    buckets: Vec<Bucket>,
    /// By value: how many of the first buckets are in order.
    sorted: usize,
    /// By hotness: changes since it was reorganised.
    changes: usize,
    /// The bucket that is next to take a newcomer.
    turn: usize,
    /// Where in a bucket the search for the coldest begins.
    victim: usize,
}

/// CAFTL's fingerprint store.
#[derive(Default)]
pub struct Caftl {
    search: CaftlSearch,
    segments: Vec<Segment>,
    /// Buckets that no segment has yet; each segment's first bucket is reserved for it.
    spare: usize,
    capacity: usize,
    entries: usize,
    comparisons: u64,
}

fn compare(print: u32, with: &Entry, comparisons: &mut u64) -> Ordering {
    *comparisons += 1;
    print.cmp(&with.print)
}

/// Where in a bucket a print is.
fn search_bucket(bucket: &Bucket, print: u32, check: bool, comparisons: &mut u64) -> Option<usize> {
    if check {
        let (first, last) = (bucket.first()?, bucket.last()?);
        if compare(print, first, comparisons).is_lt() || compare(print, last, comparisons).is_gt() {
            return None;
        }
    }
    bucket
        .binary_search_by(|entry| compare(print, entry, comparisons).reverse())
        .ok()
}

impl Segment {
    fn find(
        &self,
        print: u32,
        search: CaftlSearch,
        comparisons: &mut u64,
    ) -> Option<(usize, usize)> {
        let (mut low, mut high) = (0, self.sorted);
        while low < high {
            let middle = usize::midpoint(low, high);
            let bucket = &self.buckets[middle];
            let (first, last) = (bucket.first()?, bucket.last()?);
            if compare(print, first, comparisons).is_lt() {
                high = middle;
            } else if compare(print, last, comparisons).is_gt() {
                low = middle + 1;
            } else {
                if let Some(at) = search_bucket(bucket, print, false, comparisons) {
                    return Some((middle, at));
                }
                break;
            }
        }
        let unsorted = self.buckets.iter().enumerate().skip(self.sorted);
        for (index, bucket) in unsorted {
            if let Some(at) = search_bucket(bucket, print, search.range_check, comparisons) {
                return Some((index, at));
            }
        }
        None
    }

    /// Finds the bucket for a print that is not there: one with room if there is one, or if one can be added.
    fn bucket_for(&mut self, print: u32, order: EntryOrder, spare: &mut usize) -> usize {
        let has_room = |bucket: &Bucket| bucket.len() < BUCKET_ENTRIES;
        let mut covering = None;
        if order == EntryOrder::Value && self.sorted > 0 {
            let below = |bucket: &Bucket| bucket.last().is_some_and(|last| last.print < print);
            let index = self.buckets[..self.sorted].partition_point(below);
            let index = index.min(self.sorted - 1);
            if has_room(&self.buckets[index]) {
                return index;
            }
            covering = Some(index);
        }
        if self.sorted < self.buckets.len() && self.buckets.last().is_some_and(has_room) {
            return self.buckets.len() - 1;
        }
        if self.buckets.is_empty() || *spare > 0 {
            *spare -= usize::from(!self.buckets.is_empty());
            // A single bucket is in order.
            self.sorted += usize::from(order == EntryOrder::Value && self.buckets.is_empty());
            self.buckets.push(Vec::with_capacity(BUCKET_ENTRIES));
            return self.buckets.len() - 1;
        }
        covering.unwrap_or_else(|| {
            self.turn = (self.turn + 1) % self.buckets.len();
            self.turn
        })
    }

    /// Adds an entry. Returns true if there is one more than before.
    fn add(&mut self, entry: Entry, order: EntryOrder, spare: &mut usize) -> bool {
        let index = self.bucket_for(entry.print, order, spare);
        let bucket = &mut self.buckets[index];
        let replaces = bucket.len() == BUCKET_ENTRIES;
        if replaces {
            // The paper does not say which of several to replace: each in turn.
            self.victim = (self.victim + 1) % BUCKET_ENTRIES;
            let coldest = (self.victim..BUCKET_ENTRIES)
                .chain(0..self.victim)
                .min_by_key(|&at| bucket[at].owners);
            match coldest {
                Some(at) if bucket[at].owners <= entry.owners => bucket.remove(at),
                _ => return false,
            };
        }
        let at = bucket.partition_point(|other| other.print < entry.print);
        bucket.insert(at, entry);
        if order == EntryOrder::Value && index >= self.sorted && bucket.len() == BUCKET_ENTRIES {
            self.reorganise(order, spare);
        }
        !replaces
    }

    fn changed(&mut self, order: EntryOrder, spare: &mut usize) {
        self.changes += 1;
        if order == EntryOrder::Hotness
            && self.buckets.len() > 1
            && self.changes >= (self.buckets.len() - 1) * BUCKET_ENTRIES
        {
            self.reorganise(order, spare);
        }
    }

    /// The paper's merge sort over a segment's buckets.
    fn reorganise(&mut self, order: EntryOrder, spare: &mut usize) {
        self.changes = 0;
        let mut all = self.buckets.concat();
        match order {
            EntryOrder::Arrival => return,
            EntryOrder::Hotness => all.sort_by_key(|entry| Reverse(entry.owners)),
            EntryOrder::Value => all.sort_by_key(|entry| entry.print),
        }
        let mut parts = all.chunks(BUCKET_ENTRIES);
        for bucket in &mut self.buckets {
            bucket.clear();
            bucket.extend_from_slice(parts.next().unwrap_or_default());
            bucket.sort_unstable_by_key(|entry| entry.print);
        }
        let needed = all.len().div_ceil(BUCKET_ENTRIES).max(1);
        *spare += self.buckets.len() - needed;
        self.buckets.truncate(needed);
        if order == EntryOrder::Value {
            self.sorted = needed;
        }
    }

    fn remove(&mut self, (index, at): (usize, usize), spare: &mut usize) {
        self.buckets[index].remove(at);
        if self.buckets[index].is_empty() && self.buckets.len() > 1 {
            self.buckets.remove(index);
            self.sorted -= usize::from(index < self.sorted);
            *spare += 1;
        }
    }
}

impl Caftl {
    pub(super) fn new(search: CaftlSearch, bytes: usize) -> Self {
        let buckets = bytes / BUCKET_BYTES;
        let segments = (buckets / BUCKETS).clamp(buckets.min(1), SEGMENTS);
        Self {
            search,
            segments: vec![Segment::default(); segments],
            spare: buckets - segments,
            capacity: buckets * BUCKET_ENTRIES,
            ..Self::default()
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn comparisons(&self) -> u64 {
        self.comparisons
    }

    /// The segment, and the part of the hash that identifies a content in it: the 32 bits that are the content's own.
    fn place(&self, hash: u64) -> Option<(usize, u32)> {
        let print = hash as u32;
        let segment = (print as usize).checked_rem(self.segments.len())?;
        Some((segment, print))
    }

    fn locate(&mut self, hash: u64) -> Option<(usize, (usize, usize))> {
        let (segment, print) = self.place(hash)?;
        let found = self.segments[segment].find(print, self.search, &mut self.comparisons)?;
        Some((segment, found))
    }

    pub(super) fn find(&mut self, hash: u64) -> Option<Holder> {
        let (segment, (bucket, at)) = self.locate(hash)?;
        Some(self.segments[segment].buckets[bucket][at].holder())
    }

    pub(super) fn insert(&mut self, hash: u64, holder: Holder, owners: u32) {
        let Some((segment, print)) = self.place(hash) else {
            return;
        };
        let entry = Entry::new(print, holder, owners);
        let search = self.search;
        // The caller has just looked it up: these comparisons are not counted as a look-up's.
        let found = self.segments[segment].find(print, search, &mut 0);
        let segment = &mut self.segments[segment];
        if let Some((bucket, at)) = found {
            segment.buckets[bucket][at] = entry;
        } else if segment.add(entry, search.order, &mut self.spare) {
            self.entries += 1;
        }
        segment.changed(search.order, &mut self.spare);
    }

    pub(super) fn moved(&mut self, hash: u64, holder: Holder) {
        if let Some((segment, (bucket, at))) = self.locate(hash) {
            let entry = &mut self.segments[segment].buckets[bucket][at];
            *entry = Entry::new(entry.print, holder, 1);
        }
    }

    pub(super) fn remove(&mut self, hash: u64) {
        if let Some((segment, found)) = self.locate(hash) {
            self.segments[segment].remove(found, &mut self.spare);
            self.entries -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hash;
    use super::*;

    fn filled(search: CaftlSearch, buckets: usize) -> Caftl {
        let mut store = Caftl::new(search, buckets * BUCKET_BYTES);
        for content in 0..2 * store.capacity() as u64 {
            let owners = if content % 10 == 0 { 9 } else { 1 };
            store.insert(hash(content), Holder::Lba(Lba(content)), owners);
        }
        store
    }

    fn searches() -> impl Iterator<Item = CaftlSearch> {
        [EntryOrder::Arrival, EntryOrder::Hotness, EntryOrder::Value]
            .into_iter()
            .flat_map(|order| [false, true].map(|range_check| CaftlSearch { range_check, order }))
    }

    #[test]
    fn a_content_with_many_owners_stays() {
        for search in searches() {
            let mut store = filled(search, 300);
            assert!(store.len() * 100 > store.capacity() * 95, "{search:?}");
            let contents = 2 * store.capacity() as u64;
            let shared = (0..contents).step_by(10);
            let there = shared.filter(|&c| store.find(hash(c)).is_some()).count() as u64;
            assert_eq!(there, contents.div_ceil(10), "{search:?}");
        }
    }

    #[test]
    fn buckets_are_sorted_and_so_are_those_before_the_last() {
        for search in searches() {
            let store = filled(search, 300);
            for segment in &store.segments {
                for bucket in &segment.buckets {
                    assert!(bucket.is_sorted_by_key(|entry| entry.print));
                }
                let sorted = segment.buckets[..segment.sorted].concat();
                assert!(sorted.is_sorted_by_key(|entry| entry.print));
                assert!(
                    search.order != EntryOrder::Value
                        || segment.sorted + 1 >= segment.buckets.len()
                );
            }
        }
    }

    #[test]
    fn a_search_over_buckets_compares_less() {
        let mut comparisons = searches().map(|search| {
            let mut store = filled(search, 256 * 8);
            let before = store.comparisons();
            for content in 0..10_000 {
                let _ = store.find(hash(1 << 24 | content));
            }
            store.comparisons() - before
        });
        let all: Vec<u64> = comparisons.by_ref().collect();
        // By value, with and without range check, against arrival without: the paper has -85.5% (§4.3.3).
        assert!(all[4] * 4 < all[0] && all[5] * 4 < all[0], "{all:?}");
    }
}
