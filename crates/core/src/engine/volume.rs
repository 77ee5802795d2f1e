//! What every path asks of the volume: what fits, how full it is, whether writes are refused; and how a buffer is given back.

use super::{Engine, Pending};
use crate::addr::{Buf, Lba, Nanos};
use crate::front::{Outbox, admit};
use crate::log::Collector;
use crate::room::Room;
use crate::seam::Refusal;

impl Engine {
    pub(super) fn in_range(&self, lba: Lba, blocks: u64) -> bool {
        admit::fits(self, lba, blocks)
    }

    /// True if no effect is in flight, and no step of a census is due.
    pub(super) fn is_quiet(&self) -> bool {
        self.front.outbox.is_quiet() && self.census_due().is_none()
    }

    /// True if the census goes on. A volume that stops need not be counted, unless a request waits for that.
    pub(super) fn counts(&self) -> bool {
        self.state.is_in_census()
            && (self.front.course.is_running() || !self.front.queue.is_empty())
            && !self.front.course.is_poisoned()
    }

    /// When the census takes its next step, if it rests.
    #[inline]
    pub(super) fn census_due(&self) -> Option<Nanos> {
        let due = self.residency.census.due()?;
        self.counts().then_some(due)
    }

    /// The number of data blocks that may be live at once, as of now.
    pub(super) fn capacity(&self) -> u64 {
        let usable = self.superblock.usable_blocks();
        let live = self.state.live();
        let quarantined = self.segments.quarantined().iter();
        let lost: u64 = quarantined
            .map(|&segment| u64::from(usable - live.valid(segment)))
            .sum();
        let staying = self.superblock.capacity_of(self.segments.staying());
        staying.saturating_sub(lost)
    }

    /// Returns the refusal that every write gets now, if writes are refused. That lasts until the medium's state changes, or an effect in
    /// flight ends.
    #[must_use]
    pub fn refuses_writes(&self) -> Option<Refusal> {
        self.front.refuses_writes()
    }

    /// How full the volume is.
    #[must_use]
    pub fn room(&self) -> Room {
        Room {
            live: self.state.live().total(),
            capacity: self.capacity(),
            promised: self.superblock.logical_blocks(),
            keeps: self.superblock.history().kept() > 0,
        }
    }

    /// How full the volume may be. During a census, each block of a segment that is not free counts as live.
    #[must_use]
    pub fn fullest_room(&self) -> Room {
        let room = self.room();
        if !self.state.is_in_census() {
            return room;
        }
        let used = self.segments.count() as u64 - self.segments.free() as u64;
        let live = used * u64::from(self.superblock.usable_blocks());
        Room { live, ..room }
    }

    /// Returns a buffer that is no longer needed to the collector or to the runtime.
    pub(super) fn release(&mut self, buf: Buf) {
        give_back(&mut self.collector, &mut self.front.outbox, buf);
    }

    /// Stops accepting requests after a failed write or sync of the medium. From here on nobody knows what is durable: a repeated sync
    /// could succeed without the lost pages.
    pub(super) fn poison(&mut self) {
        self.front.course.poison();
    }
}

/// Gives a buffer back to its owner. True if the owner is the runtime, which holds it for a client.
pub(super) fn give_back(collector: &mut Collector, outbox: &mut Outbox<Pending>, buf: Buf) -> bool {
    let is_clients = !collector.take_back(buf);
    if is_clients {
        outbox.release(buf);
    }
    is_clients
}
