//! What a volume holds: where each LBA is, which pages are shared or hold parts, what is a delta, what is live, what is pledged.
//!
//! Records of the log change it, and nothing else: [`State::apply`] does what a record says, when the record is added to a
//! chunk and when recovery reads it again. So what was done and what is redone cannot differ.
//!
//! Owners and live blocks are counted from when a volume is open. Recovery counts nothing while it replays: a leaf may be
//! newer than the record that is applied to it, and then what was counted would be wrong. It counts at its end, in
//! [`State::settle`].

mod apply;
mod deltas;
mod dirty;
mod grow;
mod leaves;
mod live;
mod map;
mod pledges;
mod redeem;
mod rescue;
mod resident;
mod settle;
mod shared;
mod shelf;
mod strays;
#[cfg(test)]
mod tests;
mod watched;

pub use deltas::Deltas;
pub use live::Live;
pub use map::Map;
pub use pledges::Pledges;
pub use shared::Shared;
pub use shelf::{Nodes, Paging};
pub use strays::Strays;

use crate::addr::{Lba, Leaf, Pba, Segment, Vba};
use crate::entry::Entry;
use crate::format::Crc;
use crate::format::root::LeafSlot;
use crate::format::summary::Owner;
use crate::format::superblock::{SegmentArea, Superblock};
use crate::seam::Fingerprint;
use alloc::{collections::VecDeque, vec::Vec};
use shelf::Shelf;
use watched::Watched;

/// What a record's place in the log adds to what it says.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The block that the record owns, if it owns one; of [`PackHere`](crate::format::chunk::Record::PackHere) its chunk's
    /// header.
    pub block: Pba,
    /// The number of the page that holds the record's part, if it tells of one.
    pub page: Option<Vba>,
}

impl Origin {
    /// That of a record which owns no block.
    pub const NONE: Self = Self {
        block: Pba(0),
        page: None,
    };

    /// That of a record which owns this block, or none.
    #[must_use]
    pub fn of_block(block: Pba) -> Self {
        Self { block, page: None }
    }
}

/// What a record brought about beside what it says.
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

/// Which table does not say what a volume can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsound {
    /// This leaf of the map.
    Map(Leaf),
    /// The table of shared pages.
    Shared,
    /// The table of deltas.
    Deltas,
}

/// See the module.
pub struct State {
    segments: SegmentArea,
    map_leaves: u32,
    shared_leaves: u32,
    map: Map,
    shared: Shared,
    live: Live,
    /// Blocks whose owner is not the one that their segment's summary names (a shared page that has one owner left):
    /// WOJ's reverse map.
    strays: Strays,
    /// Behind it is what tags name by LBAs that it had before the volume grew, if it has.
    unsettled: Lba,
    pledges: Pledges,
    /// Those that end with the map checkpoint under way: until it is durable, a crash finds them still.
    ending: Pledges,
    watched: Watched,
    /// Whether what was redeemed is in no durable map checkpoint yet.
    is_redeeming: bool,
    /// Whether owners and live blocks are counted.
    is_counted: bool,
    /// Pages that are being given up; empty between two records.
    died: Vec<(Vba, Pba)>,
    events: VecDeque<Event>,
}

impl State {
    /// That of an empty volume, for recovery to replay into.
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
            died: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// From now on leaves need not all stay in memory: they are read where the root says with which replay begins.
    pub fn page(&mut self, paging: &Paging, volume: &Superblock, slots: &[LeafSlot], crc: Crc) {
        let shared = self.map_leaves..self.map_leaves + self.shared_leaves;
        let shelf = |own| Shelf::new(paging.clone(), volume, slots, own, crc);
        self.map.leaves_mut().set_shelf(shelf(0..self.map_leaves));
        self.shared.leaves_mut().set_shelf(shelf(shared));
    }

    /// Where each LBA is.
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

    /// What is pledged.
    #[must_use]
    pub fn pledges(&self) -> &Pledges {
        &self.pledges
    }

    /// What was pledged before the map checkpoint under way, and a crash finds still.
    #[must_use]
    pub fn ending_pledges(&self) -> &Pledges {
        &self.ending
    }

    /// The physical block that an entry names as a whole, if it does.
    #[must_use]
    pub fn physical(&self, entry: Entry) -> Option<Pba> {
        match entry {
            Entry::Unmapped | Entry::Zero | Entry::Packed(..) => None,
            Entry::Plain(pba) => Some(pba),
            Entry::Shared(vba) => Some(self.shared.pba(vba)),
        }
    }

    /// Where what an entry names is stored, if it is.
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

    /// Who owns the block now, if anyone does; `tag` is who owned it when it was written.
    #[must_use]
    pub fn owner_of(&self, pba: Pba, tag: Owner) -> Option<Owner> {
        // A block has one owner that has it for itself, or is a shared page: where the map says that the tag is right,
        // which is seen at once, nothing else need be asked.
        if let Owner::Lba(lba) = tag
            && lba.0 < self.map.blocks()
            && self.map.get(lba) == Entry::Plain(pba)
        {
            return Some(tag);
        }
        match self.shared.find(pba) {
            Some(vba) => Some(Owner::Vba(vba)),
            None => self.strays.owner(pba).map(Owner::Lba),
        }
    }

    /// Whether anything came of the records that were applied.
    #[must_use]
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// What came of the records that were applied; ask until there is nothing more.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A number for a shared page that the next record tells of; `None` when there are no more.
    pub fn number(&mut self) -> Option<Vba> {
        self.shared.number()
    }

    /// The same for a page of parts.
    pub fn number_for_parts(&mut self) -> Option<Vba> {
        self.shared.number_for_parts()
    }

    /// Keeps so many numbers for what recovery may have to redeem; whether there are as many, and one more.
    pub fn reserve_numbers(&mut self, numbers: u32) -> bool {
        self.shared.reserve(numbers)
    }

    /// From now on it is known which of some blocks have entries that have not been written since: of those from `first` on the
    /// ones with a bit in `which`. Of others no longer.
    pub fn watch(&mut self, first: Lba, which: u32) {
        self.watched = Watched::new(first, which);
    }

    /// Whether a block is one of those, and its entry has not been written since.
    #[must_use]
    pub fn is_intact(&self, lba: Lba) -> bool {
        self.watched.is_intact(lba)
    }

    /// Whether recovery has changed the map without a record: nothing may follow in the log before a map checkpoint is durable.
    #[must_use]
    pub fn is_redeeming(&self) -> bool {
        self.is_redeeming
    }

    /// A map checkpoint begins: it ends what is pledged, and the numbers that are free by now rest until it is durable.
    pub fn checkpoint_begins(&mut self) {
        self.shared.checkpoint_begins();
        debug_assert!(self.ending.is_empty(), "one map checkpoint at a time");
        self.ending = core::mem::take(&mut self.pledges);
    }

    /// It is durable.
    pub fn checkpoint_durable(&mut self) {
        self.shared.checkpoint_durable();
        self.ending.clear();
        self.is_redeeming = false;
        self.shared.reserve(self.pledges.len() as u32);
    }

    /// Any page of [`State::strays`], another each time; `None` once they have all had their turn.
    pub fn next_stray(&mut self) -> Option<Pba> {
        self.strays.next()
    }

    /// Owners of a segment's blocks that neither tags nor strays name are looked for in the whole map, until so many are found as
    /// there are. Where a volume has grown, mostly they are what belongs to snapshots: that is looked at first.
    pub fn find_strays(&mut self, segment: Segment, mut left: u32) {
        let behind = self.map.iter_from(self.unsettled);
        let before = self.map.iter().take_while(|(lba, _)| *lba < self.unsettled);
        for (lba, entry) in behind.chain(before) {
            if let Entry::Plain(pba) = entry
                && self
                    .segments
                    .segment_of(pba)
                    .is_some_and(|(at, _)| at == segment)
            {
                self.strays.insert(pba, lba);
                left = left.saturating_sub(1);
                if left == 0 {
                    return;
                }
            }
        }
    }

    /// The page's summary names its owner, or never will.
    pub fn is_no_stray(&mut self, pba: Pba) {
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

    /// A shared page's content is not what it was.
    pub fn forget_print(&mut self, vba: Vba) {
        self.shared.forget_print(vba);
    }

    /// Forgets all fingerprints.
    pub fn forget_prints(&mut self) {
        self.shared.forget_prints();
    }
}
