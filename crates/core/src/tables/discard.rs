//! Discards free blocks on the medium.
//!
//! A block is free when nothing on the medium leads to it, and that is durable (invariant 3). Then it may be overwritten, so it may also
//! be discarded. While its discard is in flight, the block does not count as free, because the discard must not overtake a new write to
//! it. No answer waits for discards. Under a steady load they go on in parallel, a few runs at a time.

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
        let now = self.front.course.now();
        while self.blocks.discards() < limits::DISCARDS_IN_FLIGHT
            && self.blocks.stale().is_some_and(|stale| stale.is_due(now))
        {
            let Some((first, blocks)) = self.blocks.take_stale(limits::DISCARD_BLOCKS) else {
                return;
            };
            self.stats.stale_discards += 1;
            self.stats.stale_blocks_discarded += u64::from(blocks);
            let id = self.front.begin(Pending::Discard { first, blocks });
            let at = self.superblock.areas().data(first);
            self.front.tell(Effect::Erase { id, at, blocks });
        }
    }

    fn may_discard(&self) -> bool {
        let room = u64::from(self.blocks.free_blocks()) >= limits::FREE_BLOCKS_TO_DISCARD;
        let waits = self.front.outbox.holds_writes() || self.groups.are_doubling();
        room && !self.front.course.is_poisoned() && self.front.course.is_running() && !waits
    }

    /// When to look next for blocks to discard, if nothing happens before.
    pub(super) fn discard_due(&self) -> Option<Nanos> {
        let stale = self.blocks.known_stale().filter(|_| self.may_discard())?;
        match stale.is_under_way() {
            // The next discard that completes continues it.
            true if self.blocks.discards() > 0 => None,
            true => Some(Nanos(
                self.front.course.now().0 + limits::LOOK_ON_AFTER_NANOS,
            )),
            false => stale.due().map(|due| due.max(self.front.course.now())),
        }
    }

    /// True if contents that no LBA has any more take too much of the medium. They are kept because a client may write them again. But
    /// the medium has to move them when it collects garbage, and could use their room as spare space.
    pub(super) fn too_many_unused(&self) -> bool {
        if self.blocks.known_stale().is_none() {
            return false;
        }
        let all = self.superblock.areas().data_blocks();
        let known = self.stats.live_blocks + u64::from(self.blocks.free_blocks());
        all - known.min(all) > all / limits::UNUSED_SHARE
    }

    /// A failed discard costs only wear: its blocks are free all the same.
    pub(super) fn discarded(&mut self, first: u32, blocks: u32) {
        self.blocks.discarded(first, blocks);
    }
}
