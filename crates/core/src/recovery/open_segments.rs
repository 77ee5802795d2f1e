//! Finds the owners of blocks in the segments that the heads were in at the map checkpoint. These segments have no summary yet, or it may
//! not be there.

use super::replay::Replay;
use crate::addr::{BLOCK_BYTES, Seq};
use crate::format::root::Cursor;
use crate::format::summary::Tag;
use crate::format::{chunk, open_summary};
use alloc::{vec, vec::Vec};

impl Replay<'_> {
    /// Collects the tags of the blocks before the cursors in their segments.
    pub(super) fn walk_open_segments(&mut self) {
        for (head, cursor) in (0..).zip(self.heads) {
            match self.open_summary(head, cursor) {
                Some(tags) => self.tags.push((cursor.segment, tags)),
                None => self.walk_segment(cursor),
            }
        }
    }

    /// The tags of the blocks before a cursor. The map checkpoint repeats them from the headers. If the head has left the segment since,
    /// its own summary has them.
    fn open_summary(&mut self, head: u32, cursor: Cursor) -> Option<Vec<Tag>> {
        let at = self.superblock.open_summary(self.root.generation, head)?;
        let mut bytes = vec![0; self.superblock.open_summary_blocks() as usize * BLOCK_BYTES];
        self.source.read(at, &mut bytes).ok()?;
        let mut tags =
            open_summary::decode(&self.superblock, &self.root, head, &bytes, self.crc).ok()?;
        if tags.is_none() && cursor.offset > 0 {
            let own = self.superblock.segment_start(cursor.segment);
            let own = own.plus(self.superblock.usable_blocks().into());
            self.source.read(own, &mut bytes).ok()?;
            let seq =
                open_summary::whole(&self.superblock, cursor.segment, &bytes, self.crc).ok()?;
            tags = Some(seq)
                .filter(|(seq, _)| *seq > self.root.seq)
                .map(|(_, tags)| tags);
        }
        let mut tags = tags?;
        let fresh = self.fresh_tags();
        let from = cursor.offset as usize;
        tags[from..].copy_from_slice(&fresh[from..]);
        Some(tags)
    }

    /// Collects the tags of the blocks before a place in its segment.
    pub(super) fn walk_segment(&mut self, end: Cursor) {
        let mut block = [0; BLOCK_BYTES];
        let mut tags = self.fresh_tags();
        let (mut offset, mut newest) = (0, Seq(0));
        while offset < end.offset {
            let at = self
                .superblock
                .segment_start(end.segment)
                .plus(u64::from(offset));
            // If a header here is damaged, the checksums of its blocks are lost, so these blocks cannot be read; the walk continues at
            // the next header. If a header cannot be read now, it may be readable later. But the segment's summary is made from these
            // tags, and would leave the header's blocks out for good.
            if let Err(unread) = self.source.read(at, &mut block) {
                self.unread.get_or_insert(unread);
                block.fill(0);
            }
            // Chunk numbers rise within a segment, and no chunk before the cursor reaches past it. A header that violates this is stale:
            // a write over it was lost.
            let header = chunk::decode(&block, self.crc).ok();
            let room = end.offset - offset;
            let header =
                header.filter(|(header, _)| header.seq > newest && header.data_blocks < room);
            let next = header.and_then(|(header, _)| {
                let next =
                    chunk::try_tags(&block, &self.superblock, at, self.crc, offset, &mut tags);
                newest = next.map_or(newest, |_| header.seq);
                next.ok()
            });
            match next {
                Some(Some(next)) => offset = next,
                Some(None) => break,
                None => offset += 1,
            }
        }
        self.tags.push((end.segment, tags));
    }
}
