//! Carries out what [`Restamp`] decides: rewrites summaries with the current owners.

use super::{Engine, Pending};
use crate::addr::{Pba, Segment};
use crate::log::{Collector, ReadSummary, Restamp, SegmentState, Segments, Sums};
use crate::seam::{Effect, Outcome};

/// True if the segment has a summary on the medium, and nothing else reads or writes it, now or while it is being rewritten.
fn may_rewrite(segments: &Segments, sums: &Sums, collector: &Collector, segment: Segment) -> bool {
    segments.get(segment).state == SegmentState::Closed
        && !sums.awaits_summary(segment)
        && !sums.is_loading(segment)
        && !collector.is_collecting(segment)
}

impl Engine {
    /// Starts to rewrite a summary when there are too many strays, and no other is being rewritten. A census finds strays all over: they
    /// wait for its end, as all that is done to segments.
    pub(super) fn restamp(&mut self) {
        let pool = self.proposers.once().pool().blocks();
        let is_wanted = self.restamp.is_wanted(self.state.strays().len(), pool);
        let may_be = self.front.course.is_running() && !self.state.is_in_census();
        if !is_wanted || self.sums.is_rewriting() || !may_be {
            return;
        }
        let (segments, sums, collector) = (&self.segments, &self.sums, &self.collector);
        let may = |segment| may_rewrite(segments, sums, collector, segment);
        let next_stray = || self.state.next_stray();
        let Some(segment) = self.restamp.poll(&self.superblock, next_stray, may) else {
            return;
        };
        self.sums.begin_rewrite(segment);
        self.segments.begin_reader(segment);
        let at = Restamp::pages(&self.superblock, segment).end;
        let blocks = self.superblock.segment_blocks() - self.superblock.usable_blocks();
        let read = |id| Effect::ReadMeta { id, at, blocks };
        self.front.ask(Pending::Restamp(segment), read);
    }

    pub(super) fn restamp_read(&mut self, segment: Segment, outcome: Outcome<'_>) {
        self.segments.end_reader(segment);
        self.sums.end_rewrite(segment);
        // The segment was emptied meanwhile, or is being moved: its summary will not be needed.
        if !may_rewrite(&self.segments, &self.sums, &self.collector, segment) {
            return;
        }
        let read = ReadSummary {
            segment,
            bytes: match outcome {
                Outcome::Bytes(bytes) => bytes,
                _ => &[],
            },
            chunks: self.segments.get(segment).last_seq..=self.log.last_seq(),
        };
        let agree = |tags: &[_]| self.sums.agree(segment, tags);
        let crc = self.superblock.crc();
        let Some((tags, last_seq)) = self.restamp.on_read(&self.superblock, crc, &read, agree)
        else {
            let pages = Restamp::pages(&self.superblock, segment);
            for pba in (pages.start.0..pages.end.0).map(Pba) {
                self.state.forget_stray(pba);
            }
            return;
        };
        self.segments.on_summary_read(segment, last_seq);
        self.sums.begin_rewrite(segment);
        self.sums.restore(segment, tags);
        let blocks = self.superblock.segment_blocks() - self.superblock.usable_blocks();
        self.stats.medium_restamped += u64::from(blocks);
        self.write_summary(segment);
    }
}
