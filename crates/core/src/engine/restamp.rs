//! Strays: pages whose owner is not the one that their segment's summary names, WOJ's reverse map (§3.4).
//!
//! A journal copy that was remapped stays with its home address alone when the journal uses its space
//! again. Its chunk header and the summary go on naming the journal. The collector must know better, and so
//! do strays: in memory, bounded by a quarter of the journal. Beyond that a summary is written anew with the owners
//! of today. One that a crash tears is as good as none: the headers say what it said, and the collector
//! searches the map for owners that nothing names.

use super::segments::{SegmentState, locate};
use super::{Engine, Pending};
use crate::addr::{Pba, Segment};
use crate::format::summary::{self, Owner};
use crate::seam::{Effect, Outcome};

/// Segments that are looked at for one to restamp, at most: the others are looked at next time.
const TRIES: usize = 8;

impl Engine {
    fn pages_of(&self, segment: Segment) -> core::ops::Range<Pba> {
        let start = self.superblock.segment_start(segment);
        start..start.plus(self.superblock.usable_blocks().into())
    }

    /// Starts the rewriting of a summary when there are more strays than may be.
    pub(super) fn restamp(&mut self) {
        let most = self
            .options
            .strays
            .max(self.proposers.once().pool().blocks() / 4);
        if self.state.strays().len() <= most
            || self.sums.is_rewriting()
            || !self.course.is_running()
        {
            return;
        }
        for _ in 0..TRIES {
            let Some(pba) = self.state.next_stray() else {
                continue;
            };
            let (segment, _) = locate(&self.superblock, pba);
            if self.segments.get(segment).state == SegmentState::Closed && self.may_rewrite(segment)
            {
                self.sums.begin_rewrite(segment);
                self.segments.begin_reader(segment);
                let usable = self.superblock.usable_blocks();
                let at = self.superblock.segment_start(segment).plus(usable.into());
                let blocks = self.superblock.segment_blocks() - usable;
                self.outbox
                    .ask(Pending::Restamp(segment), |id| Effect::ReadMeta {
                        id,
                        at,
                        blocks,
                    });
                return;
            }
        }
    }

    /// Whether nobody else reads or writes the segment's summary, or will while it is rewritten.
    fn may_rewrite(&self, segment: Segment) -> bool {
        !self.sums.awaits_summary(segment)
            && !self.sums.is_loading(segment)
            && !self.collector.is_collecting(segment)
    }

    pub(super) fn restamp_read(&mut self, segment: Segment, outcome: Outcome<'_>) {
        self.segments.end_reader(segment);
        self.sums.end_rewrite(segment);
        // Emptied meanwhile, or being moved: it will not be needed.
        if self.segments.get(segment).state != SegmentState::Closed || !self.may_rewrite(segment) {
            return;
        }
        let bytes = match outcome {
            Outcome::Bytes(bytes) => bytes,
            _ => &[],
        };
        let signature = self.superblock.signature();
        let usable = self.superblock.usable_blocks() as usize;
        let read = summary::decode(&signature, segment, usable, bytes, self.superblock.crc())
            .and_then(|tags| {
                let last =
                    summary::last_seq(&signature, segment, usable, bytes, self.superblock.crc())?;
                Ok((tags, last))
            });
        let Ok((tags, last_seq)) = read else {
            // A damaged one is left as it is, and will not be tried again: the collector searches the map.
            let pages = self.pages_of(segment);
            for pba in (pages.start.0..pages.end.0).map(Pba) {
                self.state.is_no_stray(pba);
            }
            return;
        };
        let info = self.segments.get_mut(segment);
        info.last_seq = info.last_seq.max(last_seq);
        self.sums.begin_rewrite(segment);
        self.sums.restore(segment, tags);
        let blocks = self.superblock.segment_blocks() - self.superblock.usable_blocks();
        self.stats.medium_restamped += u64::from(blocks);
        self.write_summary(segment);
    }

    /// The summary that is about to be written names the owners of today.
    pub(super) fn stamp(&mut self, segment: Segment) {
        for (pba, lba) in self.state.strays().of(self.pages_of(segment)) {
            self.sums.set_owner(pba, Owner::Lba(lba));
        }
    }

    /// The summary is written: what it says need not be remembered.
    pub(super) fn stamped(&mut self, segment: Segment) {
        let pages = self.pages_of(segment);
        if let Some(tags) = self.sums.tags(segment) {
            for (pba, tag) in (pages.start.0..).map(Pba).zip(tags) {
                if let (Owner::Lba(said), Some(owner)) = (tag.owner, self.state.strays().owner(pba))
                    && said == owner
                {
                    self.state.is_no_stray(pba);
                }
            }
        }
    }
}
