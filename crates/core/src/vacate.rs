//! Moves the heads of a log out of the segments at the end of its medium, so that the collector can empty these.
//!
//! A head leaves a segment when the segment is full. A volume at rest need not fill it: a root says where the log goes on, and no chunk
//! follows it. So the next root names other segments, and each segment that is left gets its summary.

use crate::addr::{BLOCK_BYTES, Generation, Pba, Segment, Seq};
use crate::format::root::{self, Cursor};
use crate::format::{Crc, summary};
use crate::limits::COLLECTOR_SEGMENTS;
use crate::recovery::{Recovered, Source, Unreadable};
use crate::shorten::{ShortenError, is_at_rest};
use alloc::{vec, vec::Vec};

/// Blocks to write, in order.
type Writes = Vec<(Pba, Vec<u8>)>;

/// A volume whose heads are about to leave the segments from `end` on.
pub struct Leaving<'a> {
    recovered: &'a Recovered,
    cursors: [Cursor; 2],
}

impl<'a> Leaving<'a> {
    /// Finds other segments for the heads, as far as some are free that the collector does not need. `None` if no head has to move,
    /// or none can: then the collector has to free segments first.
    ///
    /// # Errors
    /// When the volume was not stopped cleanly.
    pub fn new(recovered: &'a Recovered, end: u32) -> Result<Option<Self>, ShortenError> {
        is_at_rest(recovered)?;
        let live = recovered.state.live();
        let is_head =
            |segment: &Segment| recovered.heads.iter().any(|head| head.segment == *segment);
        let is_free = |segment: &Segment| live.valid(*segment) == 0 && !is_head(segment);
        let all = (0..recovered.superblock.segment_count()).map(Segment);
        let spare = all
            .filter(is_free)
            .count()
            .saturating_sub(COLLECTOR_SEGMENTS + 1);
        let mut free = (0..end).map(Segment).filter(is_free).take(spare);
        let cursors = recovered.heads.map(|head| match head.segment.0 < end {
            true => head,
            false => (free.next()).map_or(head, |segment| Cursor { segment, offset: 0 }),
        });
        Ok((cursors != recovered.heads).then_some(Self { recovered, cursors }))
    }

    /// What to write: three times, with a sync after each. A crash in between leaves the heads where they were.
    ///
    /// # Errors
    /// When something of the volume cannot be read.
    pub fn writes(&self, source: &mut dyn Source, crc: Crc) -> Result<[Writes; 3], Unreadable> {
        let volume = &self.recovered.superblock;
        let mut header = self.recovered.root;
        header.generation = Generation(header.generation.0 + 1);
        header.cursors = self.cursors;
        let mut bytes = vec![0; volume.root_blocks() as usize * BLOCK_BYTES];
        let mut free = self.recovered.free_at_rest(volume);
        self.cursors
            .iter()
            .for_each(|head| free.remove(head.segment));
        let slots = self.recovered.slots.all_from(0);
        root::encode_with(&header, slots, &free, crc, &mut bytes);
        let first = (volume.root_place(header.generation), bytes.clone());
        // Nothing is said of a segment in which nothing has been written.
        let before = self.recovered.root.generation;
        for (head, was) in (0..).zip(self.recovered.heads) {
            let mut open = vec![0; volume.open_summary_blocks() as usize * BLOCK_BYTES];
            if let Some(at) = volume.open_summary(before, head)
                && self.cursors[head as usize] == was
            {
                source.read(at, &mut open)?;
            }
            bytes.extend(open);
        }
        let twin = volume.root_twin(header.generation).map(|at| (at, bytes));
        let twins = twin.into_iter().collect();
        Ok([self.summaries(crc), vec![first], twins])
    }

    /// Summaries of the segments that are left, and an empty block behind the last chunk there, where an older chunk may be.
    fn summaries(&self, crc: Crc) -> Writes {
        let volume = &self.recovered.superblock;
        let usable = volume.usable_blocks();
        let mut writes = Vec::new();
        for (was, now) in self.recovered.heads.iter().zip(&self.cursors) {
            let tags = &mut self.recovered.tags.iter().rev();
            let tags = tags.find(|(segment, _)| *segment == was.segment);
            let (true, Some((_, tags))) = (was != now, tags) else {
                continue;
            };
            let start = volume.segment_start(was.segment);
            let mut bytes = vec![0; (volume.segment_blocks() - usable) as usize * BLOCK_BYTES];
            let last: Seq = self.recovered.last_seq;
            summary::encode(
                &volume.signature(),
                was.segment,
                last,
                tags,
                crc,
                &mut bytes,
            );
            writes.push((start.plus(was.offset.into()), vec![0; BLOCK_BYTES]));
            writes.push((start.plus(usable.into()), bytes));
        }
        writes
    }
}
