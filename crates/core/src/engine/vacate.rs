//! Empties the last segments, because the medium becomes shorter. The collector moves their live blocks; the rest is here.
//!
//! When nothing leads to a page any more, the table of pages still keeps its address. A map checkpoint makes the loss of the last owner
//! durable, and only the next checkpoint writes the table without that address. So two are needed: recovery would take an address in a
//! segment that does not exist for damage.

use super::Engine;
use crate::addr::Generation;

/// Map checkpoints after which the table of pages names nothing that had died before the first of them.
const CHECKPOINTS: u64 = 2;

impl Engine {
    /// How many live blocks are in the segments that are to be emptied, and whether that may still change. If not, and some are left,
    /// the heads have to leave these segments, or the blocks cannot be read.
    #[must_use]
    pub fn left_behind(&self) -> (u64, bool) {
        let live = self.state.live().of_all().iter();
        let left = live.skip(self.segments.staying() as usize);
        let left = left.map(|&blocks| u64::from(blocks)).sum();
        if self.state.is_in_census() {
            // Perhaps more than are counted yet.
            return (u64::max(left, 1), true);
        }
        (left, !self.is_quiet())
    }

    /// Makes map checkpoints once the last segments are empty.
    pub(super) fn forget_places(&mut self) {
        let is_ready = self.segments.is_vacating()
            && self.collector.is_idle()
            && self.checkpoint.is_idle()
            && self.front.course.is_running();
        if !is_ready || self.left_behind().0 > 0 {
            return;
        }
        let now = self.checkpoint.generation();
        let Generation(first) = self.collector.on_vacated(now);
        self.checkpoint.due_if(now.0 < first + CHECKPOINTS);
    }
}
