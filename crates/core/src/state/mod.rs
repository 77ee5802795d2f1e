//! The state of a volume: where each LBA is stored, which pages are shared or hold parts, which parts are deltas, which blocks are live,
//! and the pledges.
//!
//! Only log records change what a volume holds: [`State::apply`] carries out a record, both when the record is added to a chunk and when
//! recovery reads it again. So the original and the replay cannot differ. A recovery redeems pledges with records of its own (`redeem`).
//! There are two exceptions, both for a volume at rest: a rescue, which guesses (`rescue`), and a volume that grows (`grow`). What other
//! methods change is only memory: which leaves are in it, what was counted, and hashes and fingerprints, which prove nothing.
//!
//! Owners and live blocks are counted while a volume is open. Recovery counts nothing while it replays: a leaf may be newer than the
//! record that is applied to it, and then the counts would be wrong. Recovery counts at its end, in [`State::settle`], or leaves it to a
//! census beside requests.

mod apply;
mod bounds;
mod census;
mod changes;
mod count;
mod deltas;
mod dirty;
mod grow;
mod later;
mod leaves;
mod live;
mod map;
mod paging;
mod pledges;
mod redeem;
mod rescue;
mod resident;
mod settle;
mod settling;
mod shared;
mod shelf;
mod strays;
#[cfg(test)]
mod tests;
mod watched;

pub use deltas::Deltas;
pub use live::Live;
pub use map::Map;
pub use paging::{Nodes, Paging};
pub use pledges::Pledges;
pub use shared::Shared;
pub use strays::Strays;

use crate::addr::{Lba, Leaf, Pba, Segment, Vba};
use crate::entry::Entry;
use crate::format::Crc;
use crate::format::slots::Slots;
use crate::format::summary::Owner;
use crate::format::superblock::{SegmentArea, Superblock};
use crate::seam::Fingerprint;
use alloc::{collections::VecDeque, vec::Vec};
pub use bounds::Unwritten;
use census::Census;
pub use census::Uncounted;
use later::Later;
use shelf::Shelf;
use watched::Watched;

/// Facts about a record that follow from its place in the log.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The block that the record owns, if it owns one; for [`PackHere`](crate::format::chunk::Record::PackHere) its chunk's
    /// header.
    pub block: Pba,
    /// The number of the page that holds the record's part, if it has one.
    pub page: Option<Vba>,
}

impl Origin {
    /// The origin of a record that owns no block.
    pub const NONE: Self = Self {
        block: Pba(0),
        page: None,
    };

    /// The origin of a record that owns this block.
    #[must_use]
    pub fn of_block(block: Pba) -> Self {
        Self { block, page: None }
    }
}

/// An indirect effect of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A segment has no live block left.
    Emptied(Segment),
    /// Nothing leads into a page of parts any more.
    GivenUp(Vba),
    /// A page with this hash has one owner left.
    Unshared {
        /// See [`Shared::hash`].
        hash: u64,
        /// That owner.
        owner: Lba,
    },
}

/// Where a block is stored: at a physical address, or in a part of the page there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address.
    pub pba: Pba,
    /// The part.
    pub slot: Option<u8>,
}

/// A table with contents that are impossible for the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsound {
    /// This leaf of the map.
    Map(Leaf),
    /// The table of shared pages.
    Shared,
    /// The table of deltas.
    Deltas,
    /// The root's list of free segments: one of them holds something.
    FreeSegments,
}

impl Unsound {
    /// Its name, and a block of it; `root` is the place of the newest root.
    #[must_use]
    pub fn place(self, volume: &Superblock, root: Pba) -> (&'static str, Pba) {
        let first_shared = volume.map_leaves();
        let (what, leaf) = match self {
            Self::Map(leaf) => ("the map", leaf.0),
            Self::Shared => ("the table of shared pages", first_shared),
            Self::Deltas => ("the table of deltas", first_shared + volume.shared_leaves()),
            Self::FreeSegments => return ("the root's list of free segments", root),
        };
        // A table may have no leaf: a volume from before deltas has none for the table of deltas.
        let leaf = Leaf(leaf.min(volume.leaves() - 1));
        (what, volume.leaf_slot(leaf, 0))
    }
}

/// The state of a volume.
pub struct State {
    segments: SegmentArea,
    map_leaves: u32,
    shared_leaves: u32,
    map: Map,
    shared: Shared,
    live: Live,
    /// Blocks whose segment's summary does not name their owner (a shared page that has one owner left): WOJ's reverse map.
    strays: Strays,
    /// If the volume has grown: the tags of blocks mapped from this LBA on may name LBAs from before the growth.
    unsettled: Lba,
    pledges: Pledges,
    /// Pledges that end with the map checkpoint in flight: until it is durable, a crash still finds them.
    ending: Pledges,
    watched: Watched,
    /// True if redeemed pledges are not in a durable map checkpoint yet.
    is_redeeming: bool,
    /// True if all owners and live blocks are counted.
    is_counted: bool,
    /// A census that is under way.
    census: Option<Census>,
    /// Entries that a replay has yet to set.
    later: Later,
    /// Pages that are being given up; empty between two records.
    died: Vec<(Vba, Pba)>,
    events: VecDeque<Event>,
}

impl State {
    /// The state of an empty volume, for recovery to replay into.
    #[must_use]
    pub fn new(superblock: &Superblock) -> Self {
        Self {
            segments: superblock.segments(),
            map_leaves: superblock.map_leaves(),
            shared_leaves: superblock.shared_leaves(),
            map: Map::new(superblock.mapped_blocks()),
            shared: Shared::new(superblock.shared_leaves(), superblock.delta_leaves()),
            live: Live::new(superblock.segment_count()),
            strays: Strays::default(),
            unsettled: superblock
                .resettled()
                .map_or(Lba(0), |_| superblock.history().first()),
            pledges: Pledges::default(),
            ending: Pledges::default(),
            watched: Watched::default(),
            is_redeeming: false,
            is_counted: false,
            census: None,
            later: Later::default(),
            died: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Allows leaves to be evicted from now on: they are read back from the places in the root that replay starts from. If there is room
    /// for all leaves there can be, all stay.
    pub fn page(&mut self, paging: &Paging, volume: &Superblock, slots: &Slots, crc: Crc) {
        let shared = self.map_leaves..self.map_leaves + self.shared_leaves;
        if paging.has_room_for(shared.end) {
            return;
        }
        let paging = paging.for_volume(volume);
        let shelf = |own| Shelf::new(paging.clone(), volume, slots, own, crc);
        self.map.leaves_mut().set_shelf(shelf(0..self.map_leaves));
        self.shared.leaves_mut().set_shelf(shelf(shared));
    }

    /// The map: where each LBA is stored.
    #[must_use]
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// The pages that have a number.
    #[must_use]
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Live blocks.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Pages whose owner is not the one that their segment's summary names.
    #[must_use]
    pub fn strays(&self) -> &Strays {
        &self.strays
    }

    /// The pledges in force.
    #[must_use]
    pub fn pledges(&self) -> &Pledges {
        &self.pledges
    }

    /// The pledges from before the map checkpoint in flight, which a crash still finds.
    #[must_use]
    pub fn ending_pledges(&self) -> &Pledges {
        &self.ending
    }

    /// Returns the physical block that holds an entry's content, if it holds it as a whole.
    #[must_use]
    pub fn physical(&self, entry: Entry) -> Option<Pba> {
        match entry {
            Entry::Unmapped | Entry::Zero | Entry::Packed(..) => None,
            Entry::Plain(pba) => Some(pba),
            Entry::Shared(vba) => Some(self.shared.pba(vba)),
        }
    }

    /// Returns the place of an entry's content, if it is stored.
    #[must_use]
    pub fn place_of(&self, entry: Entry) -> Option<Place> {
        match entry {
            Entry::Packed(vba, slot) => Some(Place {
                pba: self.shared.pba(vba),
                slot: Some(slot),
            }),
            other => self.physical(other).map(|pba| Place { pba, slot: None }),
        }
    }

    /// Returns the current owner of a block, if it has one; `tag` is its owner when it was written.
    #[must_use]
    #[inline]
    pub fn owner_of(&self, pba: Pba, tag: Owner) -> Option<Owner> {
        // A block either belongs to one LBA alone, or is a shared page. So if the map confirms the tag, which is quick to check, nothing
        // else need be checked.
        if let Owner::Lba(lba) = tag
            && lba.0 < self.map.blocks()
            && self.map.get(lba) == Entry::Plain(pba)
        {
            return Some(tag);
        }
        self.owner_if_not(pba, tag)
    }

    /// The same, for a block that the map does not confirm.
    #[inline]
    fn owner_if_not(&self, pba: Pba, tag: Owner) -> Option<Owner> {
        if let Owner::Vba(vba) = tag
            && self.shared.is_used(vba)
            && self.shared.is_at(vba, pba)
        {
            return Some(tag);
        }
        match self.shared.find(pba) {
            Some(vba) => Some(Owner::Vba(vba)),
            None => self.strays.owner(pba).map(Owner::Lba),
        }
    }

    /// True if the leaf of a page is settled, in a census that has found no fault.
    fn is_settled(&self, page: Vba) -> bool {
        let settling = self.census.as_ref().map(Census::settling);
        settling.is_some_and(|settling| settling.has(page) && settling.fault().is_none())
    }

    /// True if applied records had further effects.
    #[must_use]
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Returns the next effect of applied records; call until `None`.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns a number for the shared page of the next record; `None` if no number is left.
    pub fn number(&mut self) -> Option<Vba> {
        self.shared.number()
    }

    /// The same for a page of parts.
    pub fn number_for_parts(&mut self) -> Option<Vba> {
        self.shared.number_for_parts()
    }

    /// Reserves numbers for the pledges that recovery may have to redeem; true if there are that many, and one more.
    pub fn reserve_numbers(&mut self, numbers: u32) -> bool {
        self.shared.reserve(numbers)
    }

    /// Starts to watch for writes to the entries of some blocks: of those from `first` on, the ones with a bit in `which`.
    /// Blocks watched before are no longer watched.
    pub fn watch(&mut self, first: Lba, which: u32) {
        self.watched = Watched::new(first, which);
    }

    /// True if a block is watched, and its entry has not been written since.
    #[must_use]
    pub fn is_intact(&self, lba: Lba) -> bool {
        self.watched.is_intact(lba)
    }

    /// True if recovery has changed the map without a record: nothing may follow in the log before a map checkpoint is durable.
    #[must_use]
    pub fn is_redeeming(&self) -> bool {
        self.is_redeeming
    }

    /// Begins a map checkpoint. It ends all pledges. Page numbers that are free now rest until it is durable.
    pub fn checkpoint_begins(&mut self) {
        self.shared.checkpoint_begins();
        debug_assert!(self.ending.is_empty(), "one map checkpoint at a time");
        self.ending = core::mem::take(&mut self.pledges);
    }

    /// Notes that the map checkpoint is durable.
    pub fn checkpoint_durable(&mut self) {
        self.shared.checkpoint_durable();
        self.ending.clear();
        self.is_redeeming = false;
        self.shared.reserve(self.pledges.len() as u32);
    }

    /// Returns a page of [`State::strays`], another one each time; `None` once all have had their turn.
    pub fn next_stray(&mut self) -> Option<Pba> {
        self.strays.next()
    }

    /// Searches the whole map, and then all pages, for `left` owners of a segment's blocks that neither tags nor strays name. If a volume
    /// has grown, most of these blocks belong to snapshots, so the snapshots' part of the map is searched first.
    pub fn find_strays(&mut self, segment: Segment, mut left: u32) {
        let segments = &self.segments;
        let is_there = |pba| matches!(segments.segment_of(pba), Some((at, _)) if at == segment);
        let behind = self.map.iter_from(self.unsettled);
        let before = self.map.iter().take_while(|(lba, _)| *lba < self.unsettled);
        for (lba, entry) in behind.chain(before) {
            if let Entry::Plain(pba) = entry
                && is_there(pba)
            {
                self.strays.insert(pba, lba);
                left = left.saturating_sub(1);
                if left == 0 {
                    return;
                }
            }
        }
        self.shared.find_pages_of_parts(is_there);
    }

    /// Forgets a stray: its summary now names its owner, or never will.
    pub fn forget_stray(&mut self, pba: Pba) {
        self.strays.remove(pba);
    }

    /// Notes the hash of a shared page's content.
    pub fn set_hash(&mut self, vba: Vba, hash: u64) {
        self.shared.set_hash(vba, hash);
    }

    /// Notes the fingerprint of a shared page's content.
    pub fn set_print(&mut self, vba: Vba, print: Fingerprint) {
        self.shared.set_print(vba, print);
    }

    /// Notes that a shared page's content has changed.
    pub fn forget_print(&mut self, vba: Vba) {
        self.shared.forget_print(vba);
    }

    /// Forgets all fingerprints.
    pub fn forget_prints(&mut self) {
        self.shared.forget_prints();
    }
}
