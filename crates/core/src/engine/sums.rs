//! Has the checksums of a segment read that are not in memory.

use super::{Engine, Pending};
use crate::addr::Segment;
use crate::seam::Effect;

impl Engine {
    /// Has a segment's checksums read, unless they are in memory or being read.
    #[inline]
    pub(super) fn want_sums(&mut self, segment: Segment) {
        if self.sums.wants_load(segment) {
            // Loading the sums counts as a reader itself: the read that caused it may fail and end first.
            self.segments.begin_reader(segment);
            self.load_sums(segment, None);
        }
    }

    /// Reads a segment's summary, or from `offset` on one chunk header after another where the summary is damaged or doubted.
    // Out of the way of the many reads whose checksums are in memory.
    #[cold]
    pub(super) fn load_sums(&mut self, segment: Segment, offset: Option<u32>) {
        self.stats.summary_reads += 1;
        let (at, blocks) = self.sums.begin_load(segment, offset);
        let pending = Pending::Sums(segment, offset);
        self.front
            .ask(pending, |id| Effect::ReadMeta { id, at, blocks });
    }
}
