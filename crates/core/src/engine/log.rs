//! The log: opening, sealing and writing chunks, closing segments, freeing them.

use super::volume::give_back;
use super::{Engine, Pending};
use crate::addr::{Buf, EffectId, Segment, Seq};
use crate::format::chunk::Record;
use crate::format::summary::Tag;
use crate::limits;
use crate::log::{ChunkId, Head, ToWrite};
use crate::seam::{ChunkBlock, Effect};
use crate::state::Origin;

impl Engine {
    /// Returns the head's open chunk if it has room for a record of `len` bytes and, with `data`, a data block. Otherwise opens a
    /// new one, after sealing a full one. `None`: the caller must wait for the medium or for a free segment.
    #[inline]
    pub(super) fn chunk_with_room(
        &mut self,
        head: Head,
        len: usize,
        data: bool,
    ) -> Option<ChunkId> {
        let open = self.log.open_with_room(head, len, data);
        open.or_else(|| self.next_chunk(head, data))
    }

    /// Opens the head's next chunk, after sealing the one that is open.
    #[inline(never)]
    fn next_chunk(&mut self, head: Head, data: bool) -> Option<ChunkId> {
        if !self.seal(head, false) {
            return None;
        }
        if self.log.wants_next(head)
            && let Some(next) = self.take_segment(head, data)
        {
            self.log.go_on_in(head, next);
        }
        let max_data = self.log.longest_now(head, data)?;
        let start = self.superblock.segment_start(self.log.segment(head));
        Some(
            self.log
                .begin(head, start, max_data, self.front.course.now()),
        )
    }

    /// Puts a data block into a chunk with room, and applies its record.
    pub(super) fn append(&mut self, id: ChunkId, record: Record, tag: Tag, buf: Buf) {
        let chunk = self.log.get_mut(id);
        let segment = chunk.opening().segment;
        let pba = chunk.push_data(record, ChunkBlock::Whole(buf));
        let offset = pba.0 - self.superblock.segment_start(segment).0;
        self.sums.tag(segment, offset as u32, tag);
        self.apply(Origin::of_block(pba), &record);
    }

    /// Seals the head's open chunk and starts its write. `false`: not now (too many writes in flight, or the medium is full). With
    /// `urgent` the write is a durable one, where that saves a sync.
    pub(super) fn seal(&mut self, head: Head, urgent: bool) -> bool {
        if self.log.open(head).is_none() {
            return true;
        }
        if !self.log.may_write() || self.front.outbox.holds_writes() {
            return false;
        }
        let (life, collector) = (self.superblock.life(), &self.collector);
        let is_clients = |buf| !collector.owns(buf);
        let Some(sealed) = self.log.seal(head, urgent, life, is_clients) else {
            return true;
        };
        let ToWrite {
            segment, blocks, ..
        } = sealed;
        self.segments.on_sealed(segment, sealed.seq);
        self.checkpoint.on_sealed(blocks);
        self.stats.medium_headers += 1;
        match head {
            Head::Hot => {
                self.placing.pack.on_sealed();
                self.stats.host_chunks += 1;
                self.stats.medium_data += u64::from(blocks - 1);
            }
            Head::Cold => {
                self.stats.collector_chunks += 1;
                self.stats.medium_moved += u64::from(blocks - 1);
            }
        }
        self.stats.durable_chunks += u64::from(sealed.durable);
        let id = self.front.begin(Pending::Chunk(sealed.id));
        let effect = self.write_effect(id, sealed.durable);
        self.front.tell(effect);
        if sealed.ends_segment {
            self.close_segment(segment);
        }
        true
    }

    fn take_segment(&mut self, head: Head, data: bool) -> Option<Segment> {
        let reserve = match head {
            Head::Hot if data => limits::COLLECTOR_SEGMENTS,
            // A discard must work when the volume is full (promise 7): it makes room.
            Head::Hot => limits::COLLECTOR_SEGMENTS - 2,
            Head::Cold => 0,
        };
        let segment = match self.segments.free() <= reserve {
            true if head == Head::Cold => self.segments.open_spare()?,
            true => return None,
            false => self.segments.open()?,
        };
        self.sums.open(segment);
        Some(segment)
    }

    fn close_segment(&mut self, segment: Segment) {
        let last_seq = self.segments.close(segment);
        self.checkpoint.on_summary_begun(segment, last_seq);
        if !self.state.is_in_census() && self.state.live().valid(segment) == 0 {
            self.emptied(segment);
        }
    }

    /// Encodes the bytes of a metadata write that is being carried out.
    pub fn encode(&mut self, id: EffectId, out: &mut [u8]) {
        match self.front.outbox.get(id).copied() {
            Some(Pending::Summary(segment)) => {
                let last_seq = self.segments.get(segment).last_seq;
                self.sums.encode_summary(
                    &self.superblock,
                    segment,
                    last_seq,
                    self.superblock.crc(),
                    out,
                );
            }
            Some(Pending::Leaf(leaf)) => out.copy_from_slice(self.checkpoint.blocks().get(leaf)),
            Some(Pending::Root(piece)) => {
                let crc = self.superblock.crc();
                self.checkpoint
                    .encode_root(&self.superblock, crc, piece, out);
            }
            Some(Pending::Mirror(_)) => self.superblock.encode(out),
            other => unreachable!("effect {id} ({other:?}) writes nothing"),
        }
    }

    pub(super) fn chunk_written(&mut self, id: ChunkId, failed: bool) {
        if failed {
            self.log.on_lost();
            return self.poison();
        }
        let (collector, outbox) = (&mut self.collector, &mut self.front.outbox);
        let segment = self
            .log
            .on_written(id, |buf| give_back(collector, outbox, buf));
        if self.segments.on_written(segment) {
            self.emit_summary(segment);
        }
    }

    /// Frees emptied segments that nothing needs any more.
    pub(super) fn reclaim_segments(&mut self) {
        // Redeemed pledges are not durable yet. Until they are, the blocks that they replace stay.
        if self.state.is_redeeming() || !self.segments.take_news() {
            return;
        }
        self.erase_stale();
        let root_seq = self.checkpoint.durable_seq();
        let mut index = 0;
        while let Some(&segment) = self.segments.emptied().get(index) {
            if !self.segments.may_erase() {
                return;
            }
            let info = *self.segments.get(segment);
            let needed = !self.log.are_durable(info.marks)
                || info.last_seq > root_seq
                || info.readers > 0
                || self.sums.awaits_summary(segment)
                || self.collector.is_collecting(segment);
            if needed {
                index += 1;
                continue;
            }
            self.segments.begin_erase(index);
            self.sums.forget(segment);
            if self.options.discard {
                let at = self.superblock.segment_start(segment);
                let blocks = self.superblock.segment_blocks();
                self.front.ask(Pending::Erase(segment), |id| Effect::Erase {
                    id,
                    at,
                    blocks,
                });
            } else {
                self.segments.erased(segment);
            }
        }
    }

    /// Erases the next run of segments that were found empty, if no such run is being erased.
    fn erase_stale(&mut self) {
        let blocks = self.superblock.segment_blocks();
        let most = (self.options.erase_blocks_max / blocks).max(1);
        while let Some((first, count)) = self.segments.take_stale(most) {
            if !self.options.discard {
                self.segments.erased_stale(first, count);
                continue;
            }
            let at = self.superblock.segment_start(first);
            self.front
                .ask(Pending::EraseStale(first, count), |id| Effect::Erase {
                    id,
                    at,
                    blocks: blocks * count,
                });
        }
    }

    /// Issues a sync.
    pub(super) fn sync(&mut self, through: Seq) {
        self.stats.syncs += 1;
        self.front
            .ask(Pending::Sync { through }, |id| Effect::Sync { id });
    }
}
