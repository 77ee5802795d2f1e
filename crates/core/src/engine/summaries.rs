//! Writes the summaries of closed segments: who owns each block, as of now.

use super::{Engine, Pending};
use crate::addr::Segment;
use crate::format::summary::Owner;
use crate::log::Restamp;

impl Engine {
    pub(super) fn write_summary(&mut self, segment: Segment) {
        let last_seq = self.segments.get(segment).last_seq;
        self.checkpoint.on_summary_begun(segment, last_seq);
        self.emit_summary(segment);
    }

    pub(super) fn emit_summary(&mut self, segment: Segment) {
        self.stamp(segment);
        let blocks = self.superblock.segment_blocks() - self.superblock.usable_blocks();
        self.stats.medium_summaries += u64::from(blocks);
        self.start_write(Pending::Summary(segment));
    }

    pub(super) fn summary_written(&mut self, segment: Segment, failed: bool) {
        if failed {
            return self.poison();
        }
        self.log.on_summary_written();
        self.checkpoint.on_summary_written(segment);
        self.stamped(segment);
        let last_seq = self.segments.get(segment).last_seq;
        self.sums.summarised(segment, last_seq);
        self.segments.look_again();
    }

    /// Makes the summary that is about to be written name the current owners.
    fn stamp(&mut self, segment: Segment) {
        let pages = Restamp::pages(&self.superblock, segment);
        for (pba, lba) in self.state.strays().of(pages) {
            self.sums.set_owner(pba, Owner::Lba(lba));
        }
    }

    /// Forgets strays that the written summary names correctly.
    fn stamped(&mut self, segment: Segment) {
        let pages = Restamp::pages(&self.superblock, segment);
        let Some(tags) = self.sums.tags(segment) else {
            return;
        };
        for stray in self.state.strays().of(pages.clone()) {
            if Restamp::is_named(&pages, tags, stray) {
                self.state.forget_stray(stray.0);
            }
        }
    }
}
