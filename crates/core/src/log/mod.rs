//! The log: where the next chunk goes, the numbers of chunks, and which are open, on their way, and durable.
//!
//! What must hold:
//! 1. A head has at most one open chunk, and it starts at the head's place. A sealed one moves that place behind itself.
//! 2. Numbers (`Seq`) are given when chunks are sealed, one after another, over both heads. Each chunk names the life that the
//!    one before it was sealed in.
//! 3. The last chunk of a segment names the one that its head goes on in. So a head knows that one before it opens a chunk that
//!    may be the last, and no seal has to wait for a segment.
//! 4. A chunk is in memory, with its buffers, until it is on the medium.
//!
//! It takes no segments and asks for no effects: the engine does, and says here what came of it.

mod chunks;
mod durability;
mod expected;
mod head;
mod position;

use crate::addr::{Buf, Life, Nanos, Pba, Segment, Seq};
use crate::format::{names::Names, root::Cursor};
use crate::limits;
use chunks::{Chunk, Chunks, Seal};
pub(crate) use chunks::{ChunkId, Held, PartSlot, Parts};
use durability::{Durability, Sealed};
use expected::Expected;
pub(crate) use head::{HEADS, Head};
use position::Position;

/// How far each head has opened chunks, by its own count: those that hold what took the place of something.
pub(crate) type Marks = [u64; 2];

/// See the module.
pub(crate) struct Log {
    /// Blocks of a segment that chunks may take.
    usable: u32,
    heads: [Position; 2],
    chunks: Chunks,
    expected: Expected,
    writing: usize,
    /// Buffers of clients that the chunks on their way are of.
    on_their_way: u32,
    /// Blocks that were replaced in a chunk that still took blocks: their places have not changed, but
    /// their bytes have.
    absorptions: u64,
    last_seq: Seq,
    last_life: Life,
    durability: Durability,
}

/// A chunk that has been sealed, and is to be written.
pub(crate) struct ToWrite {
    pub id: ChunkId,
    pub seq: Seq,
    pub segment: Segment,
    pub at: Pba,
    pub blocks: u32,
    pub durable: bool,
    /// Whether it is the last one of its segment.
    pub ends_segment: bool,
}

impl Log {
    /// Goes on where recovery ended: at chunk `last` of a life, and what its records are about if headers tell.
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

    /// The number of the chunk that was sealed last.
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// The life in which it was.
    pub fn last_life(&self) -> Life {
        self.last_life
    }

    /// Where the next chunk of each head will start, once what is open is sealed.
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

    /// The chunk of a head that still takes blocks.
    #[inline]
    pub fn open(&self, head: Head) -> Option<&Chunk> {
        self.heads[head as usize].open.map(|id| self.chunks.get(id))
    }

    #[inline]
    pub fn open_mut(&mut self, head: Head) -> Option<&mut Chunk> {
        let id = self.heads[head as usize].open?;
        Some(self.chunks.get_mut(id))
    }

    /// That chunk, if it has room for a record of `len` bytes and, with `data`, a data block.
    #[inline]
    pub fn open_with_room(&self, head: Head, len: usize, data: bool) -> Option<ChunkId> {
        let id = self.heads[head as usize].open?;
        self.chunks.get(id).has_room(len, data).then_some(id)
    }

    /// Whether nothing is open.
    pub fn is_all_sealed(&self) -> bool {
        self.heads.iter().all(|head| head.open.is_none())
    }

    /// When the host's open chunk is sealed if nothing else seals it.
    pub fn seal_due(&self) -> Option<Nanos> {
        let open = self.open(Head::Host)?;
        Some(Nanos(open.opened_at.0 + limits::SEAL_AFTER_NANOS))
    }

    /// Whether a chunk in memory holds the block at `pba`.
    pub fn holds(&self, pba: Pba) -> bool {
        self.chunks.holds(pba)
    }

    /// In which buffer what is at `pba` is, if a chunk in memory holds it; `slot`: that part of it.
    pub fn held(&self, pba: Pba, slot: Option<u8>) -> Option<Held> {
        self.chunks.held(pba, slot).map(|(held, _)| held)
    }

    /// Bytes of the header to leave to the records that are still to come into an open chunk.
    pub fn expected(&self, id: ChunkId) -> usize {
        self.expected.left(self.chunks.get(id).record_bytes())
    }

    /// A block was replaced in a chunk that still takes blocks.
    pub fn on_absorbed(&mut self) {
        self.absorptions += 1;
    }

    /// Of a block in a chunk that still takes blocks: how many have been replaced in such chunks by now. As long as there are no
    /// more, what is there is the same.
    pub fn absorptions_at(&self, pba: Pba, slot: Option<u8>) -> Option<u64> {
        let (_, is_open) = self.chunks.held(pba, slot)?;
        is_open.then_some(self.absorptions)
    }

    /// Whether none have been replaced since then.
    pub fn is_as_at(&self, absorptions: u64) -> bool {
        self.absorptions == absorptions
    }

    /// Data blocks that the next chunk of a head may have.
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

    /// Whether a head must know where it goes on before it opens a chunk: that may be its segment's last, and a map checkpoint,
    /// which frees segments, has to seal it.
    pub fn wants_next(&self, head: Head) -> bool {
        let is_known = self.heads[head as usize].next.is_some();
        !is_known && self.left(head) - (self.longest(head) + 1) < 2
    }

    /// Where a head goes on, behind the segment that it is in.
    pub fn go_on_in(&mut self, head: Head, next: Segment) {
        self.heads[head as usize].next = Some(next);
    }

    /// Data blocks that the next chunk of a head may have, now that it knows where it goes on if it wants to. If it does not, for no
    /// segment is free: a shorter chunk that is surely not the last, or `None`. With this the collector can use what its own segment
    /// still has, and so win the first segment back. `data`: it is to have a block.
    pub fn longest_now(&self, head: Head, data: bool) -> Option<usize> {
        if !self.wants_next(head) {
            return Some(self.longest(head));
        }
        let left = self.left(head);
        (left > 3 || (left == 3 && !data)).then(|| left - 3)
    }

    /// Opens a head's next chunk, of at most so many data blocks; `start`: that of its segment.
    pub fn begin(&mut self, head: Head, start: Pba, max_data: usize, now: Nanos) -> ChunkId {
        let position = &mut self.heads[head as usize];
        debug_assert!(position.open.is_none());
        position.opened += 1;
        let at = start.plus(u64::from(position.offset));
        let (segment, ordinal) = (position.segment, position.opened);
        let id = self.chunks.open(head, segment, at, ordinal, max_data, now);
        position.open = Some(id);
        id
    }

    /// Whether one more chunk may be on its way.
    pub fn may_write(&self) -> bool {
        self.writing < limits::CHUNKS_IN_FLIGHT
    }

    /// Seals a head's open chunk, in this life. With `urgent`, because of a FLUSH, it is to be written durably where that saves a
    /// sync.
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
        if head == Head::Host {
            self.expected.sealed(chunk.record_bytes(), urgent);
        }
        let (at, segment, blocks) = (chunk.at, chunk.segment, chunk.blocks());
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
            ordinal: chunk.ordinal,
            written: false,
            durable,
        };
        self.durability.on_sealed(sealed, chunk.tells);
        self.writing += 1;
        self.on_their_way += chunk.bufs().filter(|&buf| is_clients(buf)).count() as u32;
        self.chunks.seal(id, seal);
        Some(ToWrite {
            id,
            seq: self.last_seq,
            segment,
            at,
            blocks,
            durable,
            ends_segment: is_last,
        })
    }

    /// A chunk could not be written. Its blocks stay in memory, so that they can still be read.
    pub fn on_lost(&mut self) {
        self.writing -= 1;
    }

    /// A chunk is on the medium, in this segment. `release` gives each of its buffers back, and tells whether it was a client's.
    pub fn on_written(&mut self, id: ChunkId, release: impl FnMut(Buf) -> bool) -> Segment {
        self.writing -= 1;
        let chunk = self.chunks.get(id);
        let segment = chunk.segment;
        let seq = chunk.sealed.map(|seal| seal.seq);
        let clients = chunk.bufs().map(release).filter(|&is| is).count();
        self.on_their_way -= clients as u32;
        self.chunks.close(id);
        if let Some(seq) = seq {
            self.durability.on_written(seq);
        }
        segment
    }

    /// It is to be written once more, and not durably.
    pub fn on_written_again(&mut self, id: ChunkId) {
        if let Some(seal) = self.chunks.get(id).sealed {
            self.durability.on_written_again(seal.seq);
        }
    }

    /// Buffers of clients that the chunks on their way are of.
    pub fn clients_on_their_way(&self) -> u32 {
        self.on_their_way
    }

    /// Who waits for what to be durable, and how far it is.
    pub fn durability(&self) -> &Durability {
        &self.durability
    }

    /// The same.
    pub fn durability_mut(&mut self) -> &mut Durability {
        &mut self.durability
    }

    /// All that is sealed is to become durable, whoever waits.
    pub fn want_all_durable(&mut self) {
        self.durability.want(self.last_seq);
    }

    /// The open chunk that somebody waits for has been sealed, as the newest one.
    pub fn on_open_sealed(&mut self) {
        self.durability.on_open_sealed(self.last_seq);
    }

    /// Whether one more chunk has become durable, in their order.
    pub fn poll_durable(&mut self) -> bool {
        let Some(sealed) = self.durability.poll_durable() else {
            return false;
        };
        let head = &mut self.heads[sealed.head as usize];
        head.durable = head.durable.max(sealed.ordinal);
        true
    }

    /// Begins the next sync, if one is needed and none is under way. How far it reaches.
    pub fn poll_sync(&mut self) -> Option<Seq> {
        self.durability.poll_sync(self.last_seq)
    }

    /// What has to be durable before what has just lost its place is let go.
    pub fn marks(&self) -> Marks {
        HEADS.map(|head| self.heads[head as usize].opened)
    }

    /// Whether all of it is.
    pub fn are_durable(&self, marks: Marks) -> bool {
        let mut heads = self.heads.iter().zip(marks);
        heads.all(|(head, mark)| head.durable >= mark)
    }

    /// Whether something of it is in a head's open chunk.
    pub fn is_in_open(&self, head: Head, marks: Marks) -> bool {
        let position = &self.heads[head as usize];
        position.open.is_some() && marks[head as usize] >= position.opened
    }
}

#[cfg(test)]
mod tests;
