//! What a scrub reads from the log's state, and what it makes the log rewrite. Neither changes what a client reads.

use super::Engine;
use crate::addr::{Generation, Lba, Pba, Segment};
use crate::entry::Entry;
use crate::format::summary::{Owner, Tag};
use crate::log::{SegmentState, locate};
use crate::seam::Mend;
use alloc::vec::Vec;

impl Engine {
    /// True if the map leads from `lba` to `pba` now, and no waiting request would change that.
    #[must_use]
    pub fn leads_to(&self, lba: Lba, pba: Pba) -> bool {
        lba.0 < self.state.map().blocks()
            && !self.front.queue.will_change(lba, 1)
            && self.state.physical(self.state.map().get(lba)) == Some(pba)
    }

    /// Returns where the whole block at `lba` is, and its checksum. `None` if the block is a part of a page, or its checksum is not known
    /// now.
    pub fn whole_at(&mut self, lba: Lba) -> Option<(Pba, u32)> {
        let entry = (lba.0 < self.state.map().blocks()).then(|| self.state.map().get(lba))?;
        if matches!(entry, Entry::Packed(..)) {
            return None;
        }
        let pba = self.state.physical(entry)?;
        let (segment, offset) = locate(&self.superblock, pba);
        Some((pba, self.sums.sum(segment, offset)?))
    }

    /// Returns how often a segment was opened for writing in this life, if its summary must be whole on the medium now.
    #[must_use]
    pub fn is_summarised(&self, segment: Segment) -> Option<u32> {
        let info = self.segments.get(segment);
        let is_there = info.state == SegmentState::Closed
            && self.state.live().valid(segment) > 0
            && self.sums.tags(segment).is_none()
            && !self.sums.awaits_summary(segment)
            && !self.sums.rewrites(segment);
        is_there.then_some(info.uses)
    }

    /// Returns the tags of the blocks already on the medium, for a segment whose tags are in memory.
    #[must_use]
    pub fn written_tags(&self, segment: Segment) -> Option<Vec<Tag>> {
        let start = self.superblock.segment_start(segment);
        let tags = self.sums.tags(segment)?.iter().zip(start.0..);
        let written = |(tag, pba): (&Tag, u64)| match self.log.holds(Pba(pba)) {
            true => Tag {
                owner: Owner::None,
                sum: 0,
            },
            false => *tag,
        };
        Some(tags.map(written).collect())
    }

    /// The generation of the durable map checkpoint.
    #[must_use]
    pub fn root_generation(&self) -> Generation {
        self.checkpoint.generation()
    }

    /// True if no map checkpoint is being written.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        self.checkpoint.is_idle() && self.superblock.is_written()
    }

    /// How far an unfinished scrub has come.
    #[must_use]
    pub fn scrubbed(&self) -> u32 {
        self.checkpoint.scrubbed()
    }

    pub(super) fn mend(&mut self, what: Mend<'_>) {
        if !self.front.course.is_sound() {
            return;
        }
        match what {
            Mend::Checkpoint => {
                self.checkpoint.write_whole_roots();
                self.checkpoint.due_if(true);
            }
            Mend::Leaf(leaf) => {
                self.write_anew(leaf);
                self.checkpoint.due_if(true);
            }
            Mend::Summary {
                segment,
                uses,
                tags,
                last_seq,
            } => {
                let usable = self.superblock.usable_blocks() as usize;
                if self.is_summarised(segment) == Some(uses)
                    && !self.sums.is_loading(segment)
                    && !self.collector.is_collecting(segment)
                    && tags.len() == usable
                {
                    self.segments.on_summary_read(segment, last_seq);
                    self.sums.restore(segment, tags.to_vec());
                    self.write_summary(segment);
                    // The mended summary is durable when the next map checkpoint is.
                    self.checkpoint.due_if(true);
                }
            }
            Mend::Mirror(index) => self.superblock.write_anew(usize::from(index > 0)),
            Mend::Table(_) => {}
            Mend::Scrubbed { to, keep } => self.checkpoint.on_scrubbed(to, keep),
        }
    }
}
