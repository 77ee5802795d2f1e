//! The log: where the next chunk goes, the numbers of chunks, and which are open, being written, and durable.
//!
//! What must hold:
//! 1. A head has at most one open chunk, which starts at the head's place. Sealing moves that place past the chunk.
//! 2. Numbers (`Seq`) are given when chunks are sealed, one after another, over both heads. Each chunk names the life that the
//!    previous one was sealed in.
//! 3. The last chunk of a segment names the segment that its head continues in. So a head knows that segment before it opens a
//!    chunk that may be the last, and no seal has to wait for a segment.
//! 4. A chunk is in memory, with its buffers, until it is on the medium.
//!
//! The log issues no effects: the engine does, and reports the results here. The same holds for the other machines of this folder:
//! [`Durability`], the map [`Checkpoint`], the table of [`Segments`], the [`Collector`] and the choice of its victim, what rewrites
//! summaries ([`Restamp`]), and what is known of the blocks on the medium ([`Sums`]).

pub(crate) mod checkpoint;
mod chunks;
pub(crate) mod collector;
mod durability;
mod expected;
mod head;
mod position;
mod restamp;
mod segments;
mod sums;
mod victim;

use crate::addr::{Buf, Life, Nanos, Pba, Segment, Seq};
use crate::format::{names::Names, root::Cursor};
use crate::limits;
pub(crate) use checkpoint::Checkpoint;
pub use chunks::PutPart;
pub(crate) use chunks::{Chunk, ChunkId, Held};
use chunks::{Chunks, Opening, Seal};
pub(crate) use collector::Collector;
use durability::{Durability, Sealed};
use expected::Expected;
pub(crate) use head::{HEADS, Head, Marks};
use position::Position;
pub(crate) use restamp::{ReadSummary, Restamp};
pub(crate) use segments::{SegmentInfo, SegmentState, Segments, locate};
pub(crate) use sums::{Judged, Sums};
pub(crate) use victim::Among;
pub use victim::VictimPolicy;

/// The heads of the log, and its chunks in memory.
pub(crate) struct Log {
    /// Blocks of a segment that chunks may take.
    usable: u32,
    heads: [Position; 2],
    chunks: Chunks,
    expected: Expected,
    writing: usize,
    /// The number of clients' buffers in chunks being written.
    on_their_way: u32,
    /// The number of blocks replaced in open chunks: their places have not changed, but their bytes have.
    absorptions: u64,
    last_seq: Seq,
    last_life: Life,
    durability: Durability,
}

/// A sealed chunk to be written.
pub(crate) struct ToWrite {
    pub id: ChunkId,
    pub seq: Seq,
    pub segment: Segment,
    pub blocks: u32,
    pub durable: bool,
    /// True if it is the last of its segment.
    pub ends_segment: bool,
}

impl Log {
    /// Continues where recovery ended: at chunk `last` of a life, with the names of what its records concern if headers have
    /// them.
    pub fn recovered(
        usable: u32,
        cursors: [Cursor; 2],
        last: (Seq, Life),
        names: Option<Names>,
        root: Seq,
    ) -> Self {
        Self {
            usable,
            heads: cursors.map(Position::found),
            chunks: Chunks::new(names),
            expected: Expected::default(),
            writing: 0,
            on_their_way: 0,
            absorptions: 0,
            last_seq: last.0,
            last_life: last.1,
            durability: Durability::recovered(last.0, root),
        }
    }

    /// The number of the last sealed chunk.
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// The life in which that chunk was sealed.
    pub fn last_life(&self) -> Life {
        self.last_life
    }

    /// Where the next chunk of each head will start, once the open ones are sealed.
    pub fn cursors(&self) -> [Cursor; 2] {
        HEADS.map(|head| Cursor {
            segment: self.heads[head as usize].segment,
            offset: self.heads[head as usize].offset,
        })
    }

    /// The segment that a head is in.
    pub fn segment(&self, head: Head) -> Segment {
        self.heads[head as usize].segment
    }

    #[inline]
    pub fn get(&self, id: ChunkId) -> &Chunk {
        self.chunks.get(id)
    }

    #[inline]
    pub fn get_mut(&mut self, id: ChunkId) -> &mut Chunk {
        self.chunks.get_mut(id)
    }

    /// Returns a head's open chunk.
    #[inline]
    pub fn open(&self, head: Head) -> Option<&Chunk> {
        self.heads[head as usize].open.map(|id| self.chunks.get(id))
    }

    #[inline]
    pub fn open_mut(&mut self, head: Head) -> Option<&mut Chunk> {
        let id = self.heads[head as usize].open?;
        Some(self.chunks.get_mut(id))
    }

    /// Returns that chunk, if it has room for a record of `len` bytes and, with `data`, a data block.
    #[inline]
    pub fn open_with_room(&self, head: Head, len: usize, data: bool) -> Option<ChunkId> {
        let id = self.heads[head as usize].open?;
        self.chunks.get(id).has_room(len, data).then_some(id)
    }

    /// True if nothing is open.
    pub fn is_all_sealed(&self) -> bool {
        self.heads.iter().all(|head| head.open.is_none())
    }

    /// When the host's open chunk is sealed if nothing else seals it.
    pub fn seal_due(&self) -> Option<Nanos> {
        let open = self.open(Head::Hot)?;
        Some(Nanos(open.opening().now.0 + limits::SEAL_AFTER_NANOS))
    }

    /// True if a chunk in memory holds the block at `pba`.
    pub fn holds(&self, pba: Pba) -> bool {
        self.chunks.holds(pba)
    }

    /// Returns the buffer of what is at `pba`, if a chunk in memory holds it; `slot`: of that part.
    pub fn held(&self, pba: Pba, slot: Option<u8>) -> Option<Held> {
        self.chunks.held(pba, slot).map(|(held, _)| held)
    }

    /// The bytes of an open chunk's header that records still to come will probably not need.
    pub fn spare(&self, id: ChunkId) -> usize {
        let chunk = self.chunks.get(id);
        let expected = self.expected.left(chunk.record_bytes());
        chunk.room().saturating_sub(expected)
    }

    /// Notes that the summary of a segment that was left is written.
    pub fn on_summary_written(&mut self) {
        self.durability.on_left();
    }

    /// Notes that a block was replaced in an open chunk.
    pub fn on_absorbed(&mut self) {
        self.absorptions += 1;
    }

    /// For a block in an open chunk, returns how many blocks were replaced in open chunks by now. While that number does not
    /// change, the block is the same.
    pub fn absorptions_at(&self, pba: Pba, slot: Option<u8>) -> Option<u64> {
        let (_, is_open) = self.chunks.held(pba, slot)?;
        is_open.then_some(self.absorptions)
    }

    /// True if no block in an open chunk was replaced since then.
    pub fn is_as_at(&self, absorptions: u64) -> bool {
        self.absorptions == absorptions
    }

    /// The most data blocks that a head's next chunk may have.
    fn longest(&self, head: Head) -> usize {
        limits::CHUNK_DATA_BLOCKS.min(self.left(head) - 1)
    }

    fn left(&self, head: Head) -> usize {
        let left = (self.usable - self.heads[head as usize].offset) as usize;
        debug_assert!(
            left >= 2,
            "a head's segment always has room for a header and a block"
        );
        left
    }

    /// True if a head's next chunk may be the last of its segment. Then the head needs its next segment before it opens the chunk: a seal
    /// must not wait for a free segment, because the map checkpoint that frees segments has to seal the chunk.
    pub fn wants_next(&self, head: Head) -> bool {
        let is_known = self.heads[head as usize].next.is_some();
        !is_known && self.left(head) - (self.longest(head) + 1) < 2
    }

    /// Sets the segment in which a head continues after its current one.
    pub fn go_on_in(&mut self, head: Head, next: Segment) {
        self.heads[head as usize].next = Some(next);
    }

    /// Returns the most data blocks that a head's next chunk may have, after the caller tried to give the head the segment it wants. If
    /// no segment was free, this is a shorter chunk that is surely not the segment's last, or `None`. So the collector can use the rest
    /// of its own segment, and that may free the first segment. `data`: the chunk must take a block.
    pub fn longest_now(&self, head: Head, data: bool) -> Option<usize> {
        if !self.wants_next(head) {
            return Some(self.longest(head));
        }
        let left = self.left(head);
        (left > 3 || (left == 3 && !data)).then(|| left - 3)
    }

    /// Opens a head's next chunk, of at most `max_data` data blocks; `start`: its segment's first block.
    pub fn begin(&mut self, head: Head, start: Pba, max_data: usize, now: Nanos) -> ChunkId {
        let position = &mut self.heads[head as usize];
        debug_assert!(position.open.is_none());
        position.opened += 1;
        let id = self.chunks.open(Opening {
            head,
            segment: position.segment,
            at: start.plus(u64::from(position.offset)),
            ordinal: position.opened,
            max_data,
            now,
        });
        position.open = Some(id);
        id
    }

    /// True if one more chunk may be written now.
    pub fn may_write(&self) -> bool {
        self.writing < limits::CHUNKS_IN_FLIGHT
    }

    /// Seals a head's open chunk, in this life. With `urgent`, because of a FLUSH, it is written durably where that saves a sync.
    pub fn seal(
        &mut self,
        head: Head,
        urgent: bool,
        life: Life,
        is_clients: impl Fn(Buf) -> bool,
    ) -> Option<ToWrite> {
        let position = &mut self.heads[head as usize];
        let id = position.open.take()?;
        let chunk = self.chunks.get(id);
        if head == Head::Hot {
            self.expected.sealed(chunk.record_bytes(), urgent);
        }
        let Opening {
            segment, ordinal, ..
        } = *chunk.opening();
        let blocks = chunk.blocks();
        position.offset += blocks;
        let is_last = self.usable - position.offset < 2;
        let next = if is_last { position.next.take() } else { None };
        debug_assert_eq!(is_last, next.is_some());
        if let Some(next) = next {
            (position.segment, position.offset) = (next, 0);
        }
        self.last_seq = self.last_seq.next();
        let seal = Seal {
            seq: self.last_seq,
            prev_life: core::mem::replace(&mut self.last_life, life),
            durable: self.durability.durable(),
            next,
        };
        let durable = urgent && self.durability.may_write_durably();
        let sealed = Sealed {
            seq: self.last_seq,
            head,
            ordinal,
            written: false,
            durable,
        };
        self.durability.on_sealed(sealed, chunk.delays_flush());
        if is_last {
            self.durability.on_left();
        }
        self.writing += 1;
        self.on_their_way += chunk.bufs().filter(|&buf| is_clients(buf)).count() as u32;
        self.chunks.seal(id, seal);
        Some(ToWrite {
            id,
            seq: self.last_seq,
            segment,
            blocks,
            durable,
            ends_segment: is_last,
        })
    }

    /// Notes that a chunk could not be written. Its blocks stay in memory, so that they can still be read.
    pub fn on_lost(&mut self) {
        self.writing -= 1;
    }

    /// Notes that a chunk is on the medium, and returns its segment. `release` returns each of its buffers, and says whether it
    /// was a client's.
    pub fn on_written(&mut self, id: ChunkId, release: impl FnMut(Buf) -> bool) -> Segment {
        self.writing -= 1;
        let chunk = self.chunks.get(id);
        let segment = chunk.opening().segment;
        let seq = chunk.seal().map(|seal| seal.seq);
        let clients = chunk.bufs().map(release).filter(|&is| is).count();
        self.on_their_way -= clients as u32;
        self.chunks.close(id);
        if let Some(seq) = seq {
            self.durability.on_written(seq);
        }
        segment
    }

    /// Notes that a chunk is rewritten, and not durably.
    pub fn on_written_again(&mut self, id: ChunkId) {
        if let Some(seal) = self.chunks.get(id).seal() {
            self.durability.on_written_again(seal.seq);
        }
    }

    /// The number of clients' buffers in chunks being written.
    pub fn clients_on_their_way(&self) -> u32 {
        self.on_their_way
    }

    /// The durability of chunks, and the requests that wait for it.
    pub fn durability(&self) -> &Durability {
        &self.durability
    }

    /// The same, mutable.
    pub fn durability_mut(&mut self) -> &mut Durability {
        &mut self.durability
    }

    /// Makes all sealed chunks become durable, even if nothing waits for it.
    pub fn want_all_durable(&mut self) {
        self.durability.want(self.last_seq);
    }

    /// Notes that the open chunk that a request waits for was sealed, as the newest one.
    pub fn on_open_sealed(&mut self) {
        self.durability.on_open_sealed(self.last_seq);
    }

    /// True if one more chunk has become durable, in order.
    pub fn poll_durable(&mut self) -> bool {
        let Some(sealed) = self.durability.poll_durable() else {
            return false;
        };
        let head = &mut self.heads[sealed.head as usize];
        head.durable = head.durable.max(sealed.ordinal);
        true
    }

    /// Begins the next sync, if one is needed and none is in flight. Returns how far it reaches.
    pub fn poll_sync(&mut self) -> Option<Seq> {
        self.durability.poll_sync(self.last_seq)
    }

    /// The chunks that have to be durable before a block that was just replaced is freed.
    pub fn marks(&self) -> Marks {
        HEADS.map(|head| self.heads[head as usize].opened)
    }

    /// True if all chunks up to these marks are durable.
    pub fn are_durable(&self, marks: Marks) -> bool {
        let mut heads = self.heads.iter().zip(marks);
        heads.all(|(head, mark)| head.durable >= mark)
    }

    /// True if one of these chunks is a head's open chunk.
    pub fn is_in_open(&self, head: Head, marks: Marks) -> bool {
        let position = &self.heads[head as usize];
        position.open.is_some() && marks[head as usize] >= position.opened
    }
}

#[cfg(test)]
mod tests;
