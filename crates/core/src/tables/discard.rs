//! The medium is told what is free.
//!
//! A block is free when nothing on the medium leads to it, and that is durable (invariant 3): then it may be written over,
//! and just as well forgotten. While a discard of it is in flight it is not free, for a write of it must not be overtaken.
//! No answer waits for any of this; under a steady load it goes on beside it, a few runs at a time.

use super::{Pending, Tables};
use crate::addr::Nanos;
use crate::limits;
use crate::seam::Effect;

impl Tables {
    /// Discards what has been free for a while.
    pub(super) fn discard_stale(&mut self) {
        if !self.may_discard() {
            return;
        }
        let now = self.course.now();
        while self.discards < limits::DISCARDS_IN_FLIGHT
            && self.space.stale().is_some_and(|stale| stale.is_due(now))
        {
            let Some((first, blocks)) = self.space.take_stale(limits::DISCARD_BLOCKS) else {
                return;
            };
            self.discards += 1;
            self.stats.stale_discards += 1;
            self.stats.stale_blocks_discarded += u64::from(blocks);
            let id = self.outbox.begin(Pending::Discard { first, blocks });
            let at = self.superblock.areas().data(first);
            self.outbox.tell(Effect::Erase { id, at, blocks });
        }
    }

    fn may_discard(&self) -> bool {
        let room = u64::from(self.space.free_blocks()) >= limits::FREE_BLOCKS_TO_DISCARD;
        let waits = self.outbox.holds_writes() || self.is_doubling();
        room && !self.course.is_poisoned() && self.course.is_running() && !waits
    }

    /// When to look next for what can be discarded, if nothing happens before.
    pub(super) fn discard_due(&self) -> Option<Nanos> {
        let stale = self.space.known_stale().filter(|_| self.may_discard())?;
        match stale.is_under_way() {
            // The next one that completes goes on with it.
            true if self.discards > 0 => None,
            true => Some(Nanos(self.course.now().0 + limits::LOOK_ON_AFTER_NANOS)),
            false => stale.due().map(|due| due.max(self.course.now())),
        }
    }

    /// Whether contents that nobody has any more, and that are kept because somebody may write them again, take more of the
    /// medium than they are worth: it has to move them about when it collects, and would have their room to do it in.
    pub(super) fn too_many_unused(&self) -> bool {
        if self.space.known_stale().is_none() {
            return false;
        }
        let all = self.superblock.areas().data_blocks();
        let known = self.stats.live_blocks + u64::from(self.space.free_blocks());
        all - known.min(all) > all / limits::UNUSED_SHARE
    }

    /// A discard that failed costs nothing but wear: its blocks are free all the same.
    pub(super) fn discarded(&mut self, first: u32, blocks: u32) {
        self.discards -= 1;
        self.space.discarded(first, blocks);
    }
}
