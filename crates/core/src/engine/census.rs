//! Carries out the census of a volume that was opened before its owners and live blocks were counted
//! ([0061](../../../../docs/decisions/0061-a-census-beside-requests.md)).
//!
//! The leaves of the map are read beside requests, many at once, and counted as they arrive. Then pages are settled in the same way. What
//! need not be read is counted in short steps, and requests have their turn between two. Until the end the collector rests, and new data
//! goes only to segments that the root says are free. What finds no room there waits for the end of the census.

use super::{Engine, Pending};
use crate::addr::{BLOCK_BYTES, Leaf, Pba, Segment};
use crate::log::SegmentState;
use crate::reserve::Reserve;
use crate::seam::{Effect, Outcome};
use crate::state::{Uncounted, Unsound};

/// To count so many leaves that hold nothing takes as long as to count one that holds something.
const EMPTY: usize = 64;

impl Engine {
    /// Takes a step of the census: reads further leaves, and counts or settles some that need not be read. The end has a step of its own.
    pub(super) fn advance_census(&mut self) {
        if !self.counts() || self.residency.census.rests(self.front.course.now()) {
            return;
        }
        if self.residency.census.is_at_end() {
            return self.end_census();
        }
        let now = self.front.course.now();
        // A leaf that holds nothing takes hardly any time.
        let mut left = self.options.census_step * EMPTY;
        while self.residency.census.has_room(now) {
            let leaf = match self.next_uncounted() {
                Some(Uncounted::Here(leaf)) => leaf,
                Some(Uncounted::Away(leaf)) => {
                    self.ask_to_count(leaf);
                    continue;
                }
                None if self.residency.census.is_idle() => {
                    self.residency.census.on_all_counted();
                    return self.residency.census.rest(now);
                }
                None => return,
            };
            let cost = if self.state.is_empty_leaf(leaf) {
                1
            } else {
                EMPTY
            };
            if !self.count_here(leaf) {
                return;
            }
            left = left.saturating_sub(cost);
            if left == 0 {
                return self.residency.census.rest(now);
            }
        }
    }

    /// Returns the next leaf to count. Those that came to be needed behind the others have their turn after them.
    fn next_uncounted(&mut self) -> Option<Uncounted> {
        let next = self.state.next_uncounted(self.residency.census.next());
        if next.is_some() || !self.residency.census.is_idle() {
            return next;
        }
        self.residency.census.start_again();
        self.state.next_uncounted(self.residency.census.next())
    }

    /// Counts a leaf that need not be read; false if that poisons the volume.
    fn count_here(&mut self, leaf: Leaf) -> bool {
        let is_sound = self.state.count_leaf(leaf, None);
        self.residency.census.on_begun(leaf);
        !self.poison_if_unsound(is_sound)
    }

    fn ask_to_count(&mut self, leaf: Leaf) {
        let Some(at) = self.state.place_of_leaf(leaf) else {
            unreachable!("leaf {leaf} is away, so the medium has it")
        };
        self.residency.census.on_begun(leaf);
        self.residency.census.on_requested();
        self.front
            .ask(Pending::Census(leaf), |id| Effect::ReadMeta {
                id,
                at,
                blocks: 1,
            });
    }

    /// Counts a leaf that was read. If the newest root leads to another block by now, or the block is damaged, it is read again.
    pub(super) fn census_read(&mut self, leaf: Leaf, outcome: Outcome<'_>) {
        self.residency.census.on_read();
        let block = match outcome {
            Outcome::Bytes(bytes) => <&[u8; BLOCK_BYTES]>::try_from(bytes).ok(),
            _ => None,
        };
        let is_sound = self.state.count_leaf(leaf, block);
        self.poison_if_unsound(is_sound);
    }

    /// Counts what is in memory; if that is all, the census is over before it began.
    pub(super) fn begin_census(&mut self) {
        loop {
            match self.next_uncounted() {
                Some(Uncounted::Here(leaf)) if self.count_here(leaf) => {}
                Some(_) => return,
                None => break,
            }
        }
        let is_sound = self.state.end_census();
        self.poison_if_unsound(is_sound);
    }

    fn end_census(&mut self) {
        let is_sound = self.state.end_census();
        if self.poison_if_unsound(is_sound) {
            return;
        }
        for segment in (0..self.segments.count()).map(Segment) {
            let is_empty = self.state.live().valid(segment) == 0;
            match self.segments.get(segment).state {
                SegmentState::Closed if is_empty => self.emptied(segment),
                SegmentState::Free if !is_empty => {
                    self.poison_if_unsound(Err(Unsound::FreeSegments));
                    return;
                }
                _ => {}
            }
        }
        self.hear_of_events();
        self.placing.reserve = Reserve::new(self.room());
    }

    /// Poisons the volume if what was counted is impossible: then nothing that follows from it may reach the medium.
    fn poison_if_unsound(&mut self, counted: Result<(), Unsound>) -> bool {
        let Err(unsound) = counted else {
            return false;
        };
        self.residency.census.on_unsound(unsound);
        self.front.outbox.withdraw_writes();
        self.poison();
        true
    }

    /// Returns the damaged block that poisoned the volume, if there is one: a block of the map or of another table that could not be
    /// restored.
    #[must_use]
    pub fn damaged_table(&self) -> Option<Pba> {
        if let Some(leaf) = self.state.lost_leaf() {
            let place = self.state.place_of_leaf(leaf);
            return Some(place.unwrap_or(self.superblock.leaf_slot(leaf, 0)));
        }
        let unsound = self.residency.census.unsound()?;
        let root = self.superblock.root_place(self.checkpoint.generation());
        Some(unsound.place(&self.superblock, root).1)
    }

    /// True if owners and live blocks are still being counted.
    #[must_use]
    pub fn is_in_census(&self) -> bool {
        self.state.is_in_census()
    }
}
