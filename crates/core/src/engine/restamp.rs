//! Strays: pages whose owner is not the one that their segment's summary names, WOJ's reverse map (§3.4).
//!
//! When the journal reuses its space, a remapped journal copy belongs to its home address alone. Its chunk header and the summary still
//! name the journal. The collector must know the real owner, and strays record it: in memory, bounded by a quarter of the journal. If
//! there are more, a summary is rewritten with the current owners. If a crash tears the rewritten summary, nothing is lost: the headers
//! hold the same information, and the collector searches the map for owners that nothing names.

use super::segments::SegmentState;
use super::{Engine, Pending};
use crate::addr::{Pba, Segment, Seq};
use crate::format::summary::{self, Owner, Tag};
use crate::log::locate;
use crate::seam::{Effect, Outcome};
use alloc::vec::Vec;

/// The most segments that one call examines for a summary to rewrite; the next call examines others.
const TRIES: usize = 8;

impl Engine {
    fn pages_of(&self, segment: Segment) -> core::ops::Range<Pba> {
        let start = self.superblock.segment_start(segment);
        start..start.plus(self.superblock.usable_blocks().into())
    }

    /// True if there are too many strays, and no summary is being rewritten.
    fn wants_restamp(&self) -> bool {
        let of_journals = self.proposers.once().pool().blocks() / 4;
        let most = self.options.strays.max(of_journals);
        self.state.strays().len() > most && !self.sums.is_rewriting() && self.course.is_running()
    }

    /// Starts to rewrite a summary when there are too many strays.
    pub(super) fn restamp(&mut self) {
        if !self.wants_restamp() {
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

    /// True if nothing else reads or writes the segment's summary, now or while it is being rewritten.
    fn may_rewrite(&self, segment: Segment) -> bool {
        !self.sums.awaits_summary(segment)
            && !self.sums.is_loading(segment)
            && !self.collector.is_collecting(segment)
    }

    pub(super) fn restamp_read(&mut self, segment: Segment, outcome: Outcome<'_>) {
        self.segments.end_reader(segment);
        self.sums.end_rewrite(segment);
        // The segment was emptied meanwhile, or is being moved: its summary will not be needed.
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
        // A summary that is whole may be from an older use of the segment, if the drive lost a later write of it. Then it covers fewer
        // chunks than are known, or contradicts known sums.
        let (known, newest) = (self.segments.get(segment).last_seq, self.log.last_seq());
        let is_current = |(tags, last): &(Vec<Tag>, Seq)| {
            (known..=newest).contains(last) && self.sums.agree(segment, tags)
        };
        let Some((tags, last_seq)) = read.ok().filter(is_current) else {
            // A damaged summary is left as it is, and not tried again: the collector searches the map instead.
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

    /// Makes the summary that is about to be written name the current owners.
    pub(super) fn stamp(&mut self, segment: Segment) {
        for (pba, lba) in self.state.strays().of(self.pages_of(segment)) {
            self.sums.set_owner(pba, Owner::Lba(lba));
        }
    }

    /// Forgets strays that the written summary names correctly.
    pub(super) fn stamped(&mut self, segment: Segment) {
        let pages = self.pages_of(segment);
        if let Some(tags) = self.sums.tags(segment) {
            for (pba, owner) in self.state.strays().of(pages.clone()) {
                let tag = tags.get((pba.0 - pages.start.0) as usize);
                if tag.is_some_and(|tag| tag.owner == Owner::Lba(owner)) {
                    self.state.is_no_stray(pba);
                }
            }
        }
    }
}
