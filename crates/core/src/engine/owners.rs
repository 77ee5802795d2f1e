//! Every change of the volume's contents goes through here: apply a record, then report its results to the policies.

use super::Engine;
use crate::addr::{Lba, Segment};
use crate::format::chunk::Record;
use crate::log::SegmentState;
use crate::state::{Event, Origin};

impl Engine {
    /// Prefetches the map's entries of blocks that will be needed soon: their cache misses then overlap. Changes nothing.
    pub fn look_ahead(&self, lbas: impl Iterator<Item = Lba>) {
        self.state.map().look_ahead(lbas);
    }

    /// Applies a record that was just added to a chunk.
    #[inline]
    pub(super) fn apply(&mut self, origin: Origin, record: &Record) {
        let is_known = self.state.apply(origin, record);
        // If a record could not be applied, the log would not match the state, and the next crash would show it.
        assert!(
            is_known.is_some(),
            "{record:?} names what the volume does not hold"
        );
        if self.state.has_events() {
            self.hear_of_events();
        }
    }

    /// Reports the results to the policies and the log.
    pub(super) fn hear_of_events(&mut self) {
        while let Some(event) = self.state.poll_event() {
            match event {
                Event::Emptied(segment) => {
                    if self.segments.get(segment).state == SegmentState::Closed {
                        self.emptied(segment);
                    }
                }
                Event::GivenUp(vba) => {
                    self.placing.pack.on_given_up(vba);
                    self.tell_given_up(vba);
                }
                // The home address has new data, and only the copy in the journal is left.
                Event::Unshared { hash, owner }
                    if self.proposers.dedup().forgets() && self.proposers.once().has(owner) =>
                {
                    self.proposers.dedup_mut().forget(hash)
                }
                Event::Unshared { hash, owner } => self.proposers.dedup_mut().unshared(hash, owner),
            }
        }
    }

    /// Handles a closed segment that has no live block left.
    pub(super) fn emptied(&mut self, segment: Segment) {
        debug_assert_eq!(self.state.live().valid(segment), 0);
        self.segments.empty(segment, self.log.marks());
        if !self.collector.is_collecting(segment) {
            self.stats.emptied_segments += 1;
        }
    }
}
