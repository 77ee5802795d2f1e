//! The census: owners and live blocks of a large volume are counted beside requests, after the volume was opened.
//!
//! A leaf of the map is counted at one instant. From then on each change of its entries is counted too; before, none is. So at any time
//! the counts are exactly those of the counted leaves, whatever requests have changed, and in whatever order leaves are counted. They are
//! lower than the whole map's. Once all leaves of the map are counted, pages are settled, leaf by leaf (`settle`). Nothing may be freed,
//! moved or refused because of a count before the census is complete. Until then records have the same effects as in a replay
//! ([0061](../../../../docs/decisions/0061-a-census-beside-requests.md)).

use super::bounds::Unwritten;
use super::census::{Census, Uncounted};
use super::settling::{Settling, count_block};
use super::shelf::Shelf;
use super::{State, Unsound};
use crate::addr::{BLOCK_BYTES, Lba, Leaf};
use crate::entry::{Entry, PartId, split};
use crate::format::root::LeafSlot;
use crate::format::slots::Slots;
use alloc::vec::Vec;

impl State {
    /// Leaves the map and the table of pages on the medium, from which entries are read when they are needed. Call it before any leaf is
    /// loaded; false if leaves may not be evicted, and have to be loaded.
    pub(crate) fn leave_on_medium(&mut self, slots: &Slots) -> bool {
        if !self.is_paged() {
            return false;
        }
        let is_there = |leaf: u32| slots.get(Leaf(leaf)) != LeafSlot::Absent;
        for leaf in (0..self.map_leaves).filter(|&leaf| is_there(leaf)) {
            self.map.leave_on_medium(leaf as usize);
        }
        let shared = 0..self.shared_leaves;
        for leaf in shared.filter(|&leaf| is_there(self.map_leaves + leaf)) {
            self.shared.leave_on_medium(leaf as usize);
        }
        self.check_leaves(true);
        self.shared.end_at_last_page();
        true
    }

    /// Begins the census, at the end of a replay. Returns false if all has to be counted at once: pledges or deltas need room that only a
    /// full count finds.
    pub(crate) fn begin_census(&mut self, unwritten: &Unwritten) -> bool {
        debug_assert!(!self.is_counted);
        self.leave_for_later();
        if !self.shared.reserve_for_log(self.pledges.len()) || !self.shared.deltas().fits() {
            return false;
        }
        self.map.leaves_mut().end_at(unwritten);
        let fresh = self.shared.numbers();
        self.settle_from(Census::new(self.map_leaves, fresh, unwritten.clone()));
        true
    }

    /// Leaves the entries that a replay has yet to set to whoever reads their leaves.
    fn leave_for_later(&mut self) {
        let leaves: Vec<Lba> = self.later.leaves().collect();
        for first in leaves {
            let leaf = Leaf(split(first).0 as u32);
            if !self.map.changes_later(leaf) {
                self.catch_up(first, first);
            }
        }
        let later = core::mem::take(&mut self.later);
        if let Some(shelf) = self.map.leaves_mut().shelf_mut() {
            shelf.set_later(later);
        }
    }

    /// True if owners and live blocks are still being counted.
    #[must_use]
    #[inline]
    pub fn is_in_census(&self) -> bool {
        self.census.is_some()
    }

    /// The number of leaves that the census has yet to count or settle; 0 only once it has ended.
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        let Some(census) = &self.census else {
            return 0;
        };
        let pages = self.shared.leaf_count() - census.settling().settled();
        (census.left() + pages as u64).max(1)
    }

    /// Returns the next leaf from `from` on that the census has to count or to settle: first the leaves of the map; when all of these are
    /// counted, the leaves of the table of pages, and leaves of the map with an LBA that is the only owner of its page.
    pub fn next_uncounted(&self, from: Leaf) -> Option<Uncounted> {
        let census = self.census.as_ref()?;
        let leaf = match census.left() {
            0 => self.next_unsettled(census.settling(), from),
            _ => census.next(from),
        };
        leaf.map(|leaf| match self.is_away(leaf) {
            true => Uncounted::Away(leaf),
            false => Uncounted::Here(leaf),
        })
    }

    fn next_unsettled(&self, settling: &Settling, from: Leaf) -> Option<Leaf> {
        let first = from.0.saturating_sub(self.map_leaves) as usize;
        let leaf = settling.next(first, self.shared.leaf_count());
        let of_pages = leaf.map(|leaf| Leaf(self.map_leaves + leaf as u32));
        of_pages.or_else(|| settling.next_alone(from))
    }

    /// True if a leaf of the map holds nothing.
    #[must_use]
    pub fn is_empty_leaf(&self, leaf: Leaf) -> bool {
        leaf.0 < self.map_leaves && self.map.is_empty_leaf(leaf)
    }

    /// Counts or settles a leaf, unless that is done already; `block` is what the medium has of it, if that was read.
    ///
    /// # Errors
    /// The leaf, if its entries lead to more blocks than there are, or to a page of another kind, or if it cannot be read.
    pub fn count_leaf(
        &mut self,
        leaf: Leaf,
        block: Option<&[u8; BLOCK_BYTES]>,
    ) -> Result<(), Unsound> {
        let Some(census) = &mut self.census else {
            return Ok(());
        };
        if leaf.0 >= self.map_leaves {
            return self.settle_leaf((leaf.0 - self.map_leaves) as usize, block);
        }
        if !census.count(leaf) {
            return self.make_plain_in(leaf, block);
        }
        // A map that fits in memory is in memory once it is counted.
        let shelf = self.map.leaves().shelf();
        if let Some(block) = block
            && shelf.is_some_and(Shelf::has_room)
        {
            self.map.take_leaf(leaf, block);
        }
        let (segments, live, shared) = (&self.segments, &mut self.live, &mut self.shared);
        let is_read = self
            .map
            .visit_leaf(leaf.0 as usize, block, |lba, entry| match entry {
                Entry::Unmapped | Entry::Zero => true,
                Entry::Plain(pba) => count_block(segments, live, pba).is_some(),
                Entry::Shared(vba) => shared.count_owner(vba, lba),
                Entry::Packed(vba, _) => shared.count_part(vba),
            });
        match is_read && self.lost_leaf().is_none() {
            true => Ok(()),
            false => Err(Unsound::Map(leaf)),
        }
    }

    /// Maps the LBAs of a leaf that own pages alone to these pages.
    fn make_plain_in(
        &mut self,
        leaf: Leaf,
        block: Option<&[u8; BLOCK_BYTES]>,
    ) -> Result<(), Unsound> {
        let settling = self.census.as_ref().map(Census::settling);
        let alone = settling.map_or(Vec::new(), |settling| settling.alone_in(leaf));
        if let (false, Some(block)) = (alone.is_empty(), block) {
            self.map.take_leaf(leaf, block);
        }
        self.make_plain(&alone);
        self.is_sound()
    }

    /// Maps `lba` anew while not all is counted.
    #[cold]
    pub(super) fn remap_uncounted(&mut self, lba: Lba, entry: Entry) {
        if self.census.is_none() && self.sets_later(lba, entry) {
            return;
        }
        let old = self.map.set(lba, entry);
        let (leaf, _) = split(lba);
        if self.census.as_ref().is_some_and(|census| census.has(leaf)) {
            self.uncount(lba, old);
            self.count_entry(lba, entry);
        }
    }

    /// Makes a part a delta while not all is counted.
    pub(super) fn need_uncounted(&mut self, part: PartId, base: PartId) {
        if let Some(census) = &mut self.census {
            census.settling_mut().note_base(base.page);
        }
        self.shared.restore_delta(part, base);
    }

    fn count_entry(&mut self, lba: Lba, entry: Entry) {
        let is_counted = match entry {
            Entry::Unmapped | Entry::Zero => true,
            Entry::Plain(pba) => count_block(&self.segments, &mut self.live, pba).is_some(),
            Entry::Shared(vba) => self.change_uses(vba, |shared| shared.count_owner(vba, lba)),
            Entry::Packed(vba, _) => self.change_uses(vba, |shared| shared.count_part(vba)),
        };
        debug_assert!(
            is_counted,
            "{lba} is mapped to {entry:?}, which cannot be counted"
        );
    }

    fn uncount(&mut self, lba: Lba, entry: Entry) {
        match entry {
            Entry::Unmapped | Entry::Zero => {}
            Entry::Plain(pba) => {
                self.strays.remove(pba);
                if let Some((segment, _)) = self.segments.segment_of(pba) {
                    self.live.died(segment);
                }
            }
            Entry::Shared(vba) => self.change_uses(vba, |shared| shared.uncount_owner(vba, lba)),
            Entry::Packed(vba, _) => self.change_uses(vba, |shared| shared.uncount_part(vba)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::{Pba, Segment, Vba};
    use crate::entry::LEAF_ENTRIES;
    use crate::format::chunk::Record;
    use crate::format::geometry::{SMALL, plan};
    use crate::format::leaf;
    use crate::format::root::{Cursor, FreeSegments};
    use crate::format::superblock::Superblock;
    use crate::state::{Nodes, Origin, Paging};
    use alloc::{collections::BTreeMap, sync::Arc, vec};
    use core::sync::atomic::{AtomicUsize, Ordering};
    use crc32c::crc32c as crc;

    #[derive(Default)]
    struct Disk {
        blocks: BTreeMap<Pba, [u8; BLOCK_BYTES]>,
        reads: AtomicUsize,
    }

    impl Nodes for Disk {
        fn read(&self, at: Pba, block: &mut [u8; BLOCK_BYTES]) -> bool {
            self.reads.fetch_add(1, Ordering::Relaxed);
            self.blocks.get(&at).inspect(|of| *block = **of).is_some()
        }
    }

    fn volume() -> Superblock {
        plan(&SMALL).unwrap_or_else(|error| panic!("{error}"))
    }

    fn block_of(entries: &[(usize, u32)]) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        for (index, raw) in entries {
            block[4 * index..][..4].copy_from_slice(&raw.to_le_bytes());
        }
        block
    }

    /// A state whose leaves are these numbers at these indexes on the medium, and of which `most` may be in memory.
    fn state_of(leaves: &[(u32, &[(usize, u32)])], most: usize) -> State {
        state_on_disk(leaves, most).0
    }

    fn state_on_disk(leaves: &[(u32, &[(usize, u32)])], most: usize) -> (State, Arc<Disk>) {
        let volume = volume();
        let mut slots = vec![LeafSlot::Absent; volume.leaves() as usize];
        let mut disk = Disk::default();
        for (of, entries) in leaves {
            let block = block_of(entries);
            slots[*of as usize] = LeafSlot::Slot0(leaf::checksum(Leaf(*of), &block, crc));
            disk.blocks.insert(volume.leaf_slot(Leaf(*of), 0), block);
        }
        let mut state = State::new(&volume);
        let (slots, disk) = (Slots::from(slots), Arc::new(disk));
        let paging = Paging::new(disk.clone(), most).with_census();
        state.page(&paging, &volume, &slots, crc);
        assert!(state.leave_on_medium(&slots));
        (state, disk)
    }

    fn count_all(state: &mut State) -> Result<(), Unsound> {
        for leaf in 0..volume().map_leaves() {
            state.count_leaf(Leaf(leaf), None)?;
        }
        state.end_census()
    }

    #[test]
    fn a_number_without_a_page_is_a_lost_leaf_that_has_a_place() {
        for number in [3, 5000, (1 << 30) - 1] {
            let entry = Entry::Shared(Vba(number)).pack();
            let mut state = state_of(&[(0, &[(7, entry)])], 0);
            assert!(state.begin_census(&Unwritten::default()));
            let place = state.place_of(state.map().get(Lba(7)));
            assert_eq!(place.map(|place| place.pba), Some(Pba::NOWHERE));
            let lost = state.lost_leaf();
            // Nothing may come of it, and the user is told where.
            assert!(
                lost.is_some_and(|leaf| leaf.0 < volume().leaves()),
                "{lost:?}"
            );
            assert_eq!(lost.and_then(|leaf| state.place_of_leaf(leaf)), None);
            assert_eq!(state.count_leaf(Leaf(0), None), Err(Unsound::Map(Leaf(0))));
        }
    }

    #[test]
    fn leaves_of_both_tables_stay_in_memory_as_long_as_there_is_room() {
        let at = volume().segments().first().0 as u32;
        let pages = volume().map_leaves();
        let shared = [
            Entry::Shared(Vba(0)).pack(),
            Entry::Shared(Vba(1024)).pack(),
        ];
        let map = [
            (0, shared[0]),
            (1, shared[0]),
            (2, shared[1]),
            (3, shared[1]),
        ];
        let leaves: [(u32, &[(usize, u32)]); 3] =
            [(0, &map), (pages, &[(0, at)]), (pages + 1, &[(0, at + 1)])];
        for most in 0..5 {
            let mut state = state_of(&leaves, most);
            assert!(state.begin_census(&Unwritten::default()));
            // The engine hands over what it has read of a leaf that is away.
            let mut next = Leaf(0);
            while let Some(uncounted) = state.next_uncounted(next) {
                let (Uncounted::Here(leaf) | Uncounted::Away(leaf)) = uncounted;
                let of_leaf = leaves.iter().find(|(of, _)| *of == leaf.0);
                let block = of_leaf.map(|(_, entries)| block_of(entries));
                assert_eq!(uncounted == Uncounted::Away(leaf), block.is_some());
                assert_eq!(state.count_leaf(leaf, block.as_ref()), Ok(()));
                next = Leaf(leaf.0 + 1);
            }
            assert_eq!(next, Leaf(pages + 2));
            assert_eq!(state.end_census(), Ok(()));
            let (here, may_be, _) = state.residency().unwrap_or_default();
            assert!(may_be == most || most > 0 && may_be == most - 1);
            assert_eq!(here, may_be.min(3), "{most} may be in memory");
            assert_eq!(state.has_away(), may_be < 3);
            assert_eq!(state.shared().len(), 2);
        }
    }

    /// Where such a page is, was known when its leaf was settled: in a step of the census nothing is waited for.
    #[test]
    fn lbas_that_own_pages_alone_get_them_without_a_read() {
        let at = volume().segments().first().0 as u32;
        let pages = volume().map_leaves();
        let leaves = volume().shared_leaves();
        assert!(leaves > 1, "more than may be in memory");
        let own = |page: u32| (page as usize, Entry::Shared(Vba(page * 1024)).pack());
        let map: Vec<_> = (0..leaves).map(own).collect();
        let places: Vec<_> = (0..leaves).map(|page| [(0, at + page)]).collect();
        let of_pages = (pages..).zip(places.iter().map(<[_; 1]>::as_slice));
        let all: Vec<(u32, &[_])> = [(0, &map[..])].into_iter().chain(of_pages).collect();
        let (mut state, disk) = state_on_disk(&all, 1);
        assert!(state.begin_census(&Unwritten::default()));
        let blocks: BTreeMap<_, _> = all.iter().map(|(of, own)| (*of, block_of(own))).collect();
        for leaf in 0..pages + leaves {
            assert_eq!(state.count_leaf(Leaf(leaf), blocks.get(&leaf)), Ok(()));
        }
        let before = disk.reads.load(Ordering::Relaxed);
        assert_eq!(
            state.next_uncounted(Leaf(0)),
            Some(Uncounted::Here(Leaf(0)))
        );
        assert_eq!(state.count_leaf(Leaf(0), None), Ok(()));
        assert_eq!(disk.reads.load(Ordering::Relaxed), before);
        assert_eq!(state.end_census(), Ok(()));
        for page in 0..leaves {
            let entry = state.map().get(Lba(page.into()));
            assert_eq!(entry, Entry::Plain(Pba((at + page).into())));
        }
    }

    /// A page's counted owners and one that is not counted: together they say nothing of another owner.
    #[test]
    fn a_write_of_an_uncounted_owner_does_not_ask_who_is_the_last() {
        let at = volume().segments().first().0 as u32;
        let page = Entry::Shared(Vba(0)).pack();
        let leaves = volume().map_leaves();
        // Two leaves whose numbers make one that no leaf has.
        let first = leaves - 1;
        let second = (1..first).find(|other| first ^ other >= leaves);
        let second = second.unwrap_or_else(|| panic!("{leaves} leaves"));
        let own: [(usize, u32); 1] = [(0, page)];
        let on_medium: [(u32, &[(usize, u32)]); 4] = [
            (0, &own),
            (first, &own),
            (second, &own),
            (leaves, &[(0, at)]),
        ];
        let mut state = state_of(&on_medium, 9);
        assert!(state.begin_census(&Unwritten::default()));
        let lba = Lba(u64::from(second) * LEAF_ENTRIES as u64);
        assert_eq!(state.map().get(lba), Entry::Shared(Vba(0)));
        for leaf in [0, first] {
            assert_eq!(state.count_leaf(Leaf(leaf), None), Ok(()));
        }
        let mut missing = Vec::new();
        state.missing_to_change(lba, 1, &mut missing);
        assert_eq!(missing, []);
    }

    #[test]
    fn a_leaf_of_before_that_leads_to_what_was_not_written_is_lost() {
        let segments = volume().segments();
        let at = |offset: u64| segments.first().plus(offset);
        let heads = [Cursor {
            segment: Segment(0),
            offset: 4,
        }];
        let mut free = FreeSegments::default();
        free.put(Segment(1));
        let unwritten = Unwritten::new(&heads, free);
        let in_free = u64::from(volume().segment_blocks()) + 2;
        let plain = |offset| Entry::Plain(at(offset)).pack();
        let shared = |offset| (Entry::Shared(Vba(7)).pack(), at(offset).0 as u32);
        for (offset, is_sound) in [(3, true), (4, false), (5, false), (in_free, false)] {
            let on_map: &[(usize, u32)] = &[(1, plain(offset))];
            let (owned, place) = shared(offset);
            let owners: &[(usize, u32)] = &[(1, owned), (2, owned)];
            let pages: &[(usize, u32)] = &[(7, place)];
            let of_pages = volume().map_leaves();
            for leaves in [vec![(0, on_map)], vec![(0, owners), (of_pages, pages)]] {
                let mut state = state_of(&leaves, 1);
                assert!(state.begin_census(&unwritten));
                assert_eq!(count_all(&mut state).is_ok(), is_sound, "{offset}");
            }
            // A record of the log says that this is no longer so.
            let mut state = state_of(&[(0, on_map)], 1);
            let zero = Record::Discard {
                lba: Lba(1),
                blocks: 1,
            };
            assert_eq!(state.apply(Origin::of_block(at(0)), &zero), Some(()));
            assert!(state.begin_census(&unwritten));
            assert_eq!(count_all(&mut state), Ok(()));
        }
    }

    #[test]
    fn entries_of_a_replay_are_there_for_whoever_reads_and_for_the_census() {
        let at = volume().segments().first();
        let entry = |block: u64| Entry::Plain(at.plus(block));
        let old = [(5, entry(1).pack()), (6, entry(2).pack())];
        let mut state = state_of(&[(0, &old)], 0);
        let record = Record::Data {
            lba: Lba(5),
            sum: 0,
        };
        assert_eq!(state.apply(Origin::of_block(at.plus(9)), &record), Some(()));
        assert!(state.begin_census(&Unwritten::default()));
        assert!(
            state.is_away(Leaf(0)) && state.is_dirty(Leaf(0)),
            "it was not read"
        );
        assert_eq!(count_all(&mut state), Ok(()));
        assert_eq!(state.live().total(), 2);
        assert_eq!(state.map().get(Lba(5)), entry(9));
        assert_eq!(state.map().get(Lba(6)), entry(2));
        let mut block = [0; BLOCK_BYTES];
        assert!(state.encode_leaf(Leaf(0), &mut block));
        assert_eq!(block[20..24], entry(9).pack().to_le_bytes());
    }
}
