//! Each change of what the volume holds goes through here: a record, and what the policies learn of what came of it.

use super::Engine;
use super::segments::SegmentState;
use crate::addr::{Lba, Segment};
use crate::format::chunk::Record;
use crate::state::{Event, Origin};

impl Engine {
    /// Looks at the map's entries of blocks that are to be asked for soon: that is faster for many together than for each
    /// in its turn. Changes nothing.
    pub fn look_ahead(&self, lbas: impl Iterator<Item = Lba>) {
        self.state.map().look_ahead(lbas);
    }

    /// Does what a record says that has just been added to a chunk.
    #[inline]
    pub(super) fn apply(&mut self, origin: Origin, record: &Record) {
        let is_known = self.state.apply(origin, record);
        // Else the log would say what is not so here, and a crash would find it.
        assert!(
            is_known.is_some(),
            "{record:?} names what the volume does not hold"
        );
        if self.state.has_events() {
            self.hear_of_events();
        }
    }

    /// Tells the policies and the log what came of it.
    pub(super) fn hear_of_events(&mut self) {
        while let Some(event) = self.state.poll_event() {
            match event {
                Event::Emptied(segment) => {
                    if self.segments.get(segment).state == SegmentState::Closed {
                        self.emptied(segment);
                    }
                }
                Event::GivenUp(vba) => {
                    self.shut(vba);
                    self.tell_given_up(vba);
                }
                // Data has gone on, and only its copy in the journal is left.
                Event::Unshared { hash, owner }
                    if self.proposers.dedup().forgets() && self.proposers.once().has(owner) =>
                {
                    self.proposers.dedup_mut().forget(hash)
                }
                Event::Unshared { hash, owner } => self.proposers.dedup_mut().unshared(hash, owner),
            }
        }
    }

    /// A closed segment has no live block left.
    pub(super) fn emptied(&mut self, segment: Segment) {
        debug_assert_eq!(self.state.live().valid(segment), 0);
        self.segments.empty(segment, self.log.marks());
        if !self.collector.is_collecting(segment) {
            self.stats.emptied_segments += 1;
        }
    }
}
