//! The collector: moves the live blocks of a segment together, so that it can be erased.
//!
//! Moved blocks have outlived their neighbours, so they go to a separate head: cold apart from hot. The collector runs ahead of
//! need, and from a reserve that only it may use, so that it can always finish. A block is looked up again at the moment of its
//! move: if a client has overwritten it meanwhile, it is dropped. If fewer live blocks are found than the segment is known to
//! hold, the rest is searched for in the whole map: a page may leak, but is never lost (promise 5).
//!
//! The engine asks for the next step, carries it out, and reports what came of it.

mod bufs;

use super::head::{HEADS, Marks};
use super::segments::{Segments, locate};
use crate::addr::{Buf, Generation, Pba, Segment, Seq};
use crate::format::chunk::{self, Record};
use crate::format::summary::{self, Owner, Tag};
use crate::format::{Crc, superblock::Superblock};
use crate::limits;
use crate::seam::Outcome;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bufs::Bufs;

/// What the collector asks about the volume's contents.
pub(crate) trait Contents {
    /// The number of live blocks of a segment.
    fn live(&self, segment: Segment) -> u32;
    /// The owner of the block at a place, if it is live; `tag`: its owner when it was written.
    fn owner_of(&self, pba: Pba, tag: Owner) -> Option<Owner>;
    /// True if leaves that say so are not in memory.
    fn has_away(&self) -> bool;
}

/// What to do next. `poll` returns a step again until what it asks for is reported; a read it returns once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is no victim: choose one, and report [`Collector::on_chosen`].
    Choose,
    /// Get the leaves into memory that say which blocks from this one on are live. Then report [`Collector::on_known`].
    LookUp(u32),
    /// Read these live blocks into these buffers, and report [`Collector::on_gathered`].
    Gather { at: Pba, blocks: u32, to: Buf },
    /// All buffers wait in the cold head's open chunk: seal it.
    SealCold,
    /// Neither the tags nor the strays name the owners of these many live blocks: search the whole map for them.
    Search { segment: Segment, left: u32 },
    /// The victim is done. If live blocks are left, they cannot be read.
    Done { segment: Segment, are_left: bool },
}

/// A block to append to the cold head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub tag: Tag,
    pub from: Pba,
    pub buf: Buf,
}

impl Place {
    /// The record of its move.
    #[inline]
    pub fn record(&self) -> Record {
        let (sum, from) = (self.tag.sum, self.from);
        match self.tag.owner {
            Owner::Lba(lba) => Record::Move { lba, sum, from },
            Owner::Vba(vba) => Record::MoveShared { vba, sum, from },
            Owner::None => unreachable!("a live block has an owner"),
        }
    }
}

/// What frees emptied segments sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Press {
    /// For each head, true if its open chunk is to be sealed.
    pub seal: [bool; 2],
    /// True if sealed chunks have to become durable.
    pub sync: bool,
    /// True if a map checkpoint is due.
    pub checkpoint: bool,
}

struct Move {
    buf: Buf,
    pba: Pba,
    sum: u32,
}

struct Victim {
    segment: Segment,
    tags: Vec<Tag>,
    /// Where tags are read from next: the header of a chunk, or behind all blocks the summary. `None`: all are known.
    unread: Option<u32>,
    /// True if they are being read from there.
    is_reading: bool,
    /// Blocks before this one were read, or are dead.
    next: u32,
    /// The leaves that say which blocks before this one are live are in memory.
    known: u32,
    bad: bool,
    searched: bool,
}

/// The state of the collector.
pub(crate) struct Collector {
    bufs: Bufs,
    victim: Option<Victim>,
    /// Reads in flight.
    gathering: u32,
    /// Blocks that were read.
    moves: VecDeque<Move>,
    /// Reused for the next victim's tags.
    spare: Vec<Tag>,
    /// With fewer free segments than this, it collects.
    low: usize,
    /// The newest map checkpoint when the last segments had been emptied, if they are to be.
    vacated: Option<Generation>,
}

impl Collector {
    /// `segments`: how many stay in use. `count` buffers from `first` on are the collector's.
    pub fn new(segments: u32, first: Buf, count: u32) -> Self {
        assert!(
            count >= limits::GATHER_BLOCKS,
            "the collector needs {} buffers",
            limits::GATHER_BLOCKS
        );
        Self {
            bufs: Bufs::new(first, count),
            victim: None,
            gathering: 0,
            moves: VecDeque::new(),
            spare: Vec::new(),
            low: limits::COLLECTOR_SEGMENTS + 2 + segments as usize / 512,
            vacated: None,
        }
    }

    #[inline]
    pub fn is_collecting(&self, segment: Segment) -> bool {
        self.victim
            .as_ref()
            .is_some_and(|victim| victim.segment == segment)
    }

    #[inline]
    pub fn is_idle(&self) -> bool {
        self.victim.is_none()
    }

    /// True if free segments are short, even with those that will be free soon.
    pub fn is_short(&self, segments: &Segments) -> bool {
        segments.free() + segments.free_soon() < self.low
    }

    /// True if enough blocks were read to be moved, or no more reads are in flight: many short runs complete one by one.
    #[inline]
    pub fn has_gathered(&self) -> bool {
        self.gathering == 0 || self.moves.len() >= limits::GATHER_BLOCKS as usize
    }

    /// Takes a free buffer, unless few are free.
    #[inline]
    pub fn spare_buf(&mut self) -> Option<Buf> {
        if self.bufs.are_few() {
            return None;
        }
        let (start, run) = self.bufs.free_run(1);
        (run == 1).then(|| self.bufs.take(start, 1))
    }

    /// True if a buffer belongs to the collector.
    #[inline]
    pub fn owns(&self, buf: Buf) -> bool {
        self.bufs.owns(buf)
    }

    /// Takes a buffer back if it belongs to the collector.
    #[inline]
    pub fn take_back(&mut self, buf: Buf) -> bool {
        self.bufs.take_back(buf)
    }

    /// Takes the victim that was chosen; `known`: its tags, if they are in memory.
    pub fn on_chosen(&mut self, superblock: &Superblock, segment: Segment, known: Option<&[Tag]>) {
        let mut tags = core::mem::take(&mut self.spare);
        tags.clear();
        tags.extend_from_slice(known.unwrap_or_default());
        self.victim = Some(Victim {
            segment,
            tags,
            unread: known.is_none().then(|| superblock.usable_blocks()),
            is_reading: false,
            next: 0,
            known: 0,
            bad: false,
            searched: false,
        });
    }

    /// Returns what to read next for the victim's tags: where, and how many blocks. Then report [`Self::on_tags_read`].
    pub fn poll_tags(&mut self, superblock: &Superblock) -> Option<(Pba, u32)> {
        let victim = self.victim.as_mut()?;
        let offset = victim.unread.filter(|_| !victim.is_reading)?;
        victim.is_reading = true;
        let blocks = match offset == superblock.usable_blocks() {
            true => superblock.segment_blocks() - offset,
            false => 1,
        };
        let start = superblock.segment_start(victim.segment);
        Some((start.plus(u64::from(offset)), blocks))
    }

    /// Takes what was read: nothing if it cannot be read.
    pub fn on_tags_read(&mut self, superblock: &Superblock, crc: Crc, bytes: &[u8]) {
        let Some(victim) = &mut self.victim else {
            return;
        };
        let Some(offset) = victim.unread else {
            unreachable!("tags are read when they are asked for")
        };
        let (segment, tags) = (victim.segment, &mut victim.tags);
        let usable = superblock.usable_blocks();
        victim.is_reading = false;
        victim.unread = if offset == usable {
            let (signature, count) = (superblock.signature(), usable as usize);
            let read = summary::decode_into(&signature, segment, count, bytes, crc, tags);
            read.is_err().then(|| {
                let (owner, sum) = (Owner::None, 0);
                tags.clear();
                tags.resize(count, Tag { owner, sum });
                0
            })
        } else {
            let at = superblock.segment_start(segment).plus(u64::from(offset));
            // After a header that cannot be read, the next one is searched for block by block.
            chunk::try_tags(bytes, superblock, at, crc, offset, tags)
                .unwrap_or(Some(offset + 1))
                .filter(|&next| next < usable - 1)
        };
    }

    /// The victim's tags.
    pub fn tags(&self) -> &[Tag] {
        self.victim.as_ref().map_or(&[], |victim| &victim.tags)
    }

    /// Notes that the leaves are in memory that say which blocks before this one are live.
    pub fn on_known(&mut self, end: u32) {
        if let Some(victim) = &mut self.victim {
            victim.known = end;
        }
    }

    /// Takes blocks that were read, and returns how many of them are bad.
    pub fn on_gathered(
        &mut self,
        superblock: &Superblock,
        (at, blocks, to): (Pba, u32, Buf),
        outcome: Outcome<'_>,
    ) -> u32 {
        self.gathering -= 1;
        let Some(victim) = &mut self.victim else {
            unreachable!("a victim waits for its reads")
        };
        let (_, offset) = locate(superblock, at);
        let mut bad = 0;
        for index in 0..blocks {
            let buf = Buf(to.0 + index);
            let sum = victim.tags[(offset + index) as usize].sum;
            if matches!(outcome, Outcome::Sums(sums) if sums.get(index as usize) == Some(&sum)) {
                let pba = at.plus(u64::from(index));
                self.moves.push_back(Move { buf, pba, sum });
            } else {
                bad += 1;
                self.bufs.take_back(buf);
            }
        }
        victim.bad |= bad > 0;
        bad
    }

    /// Takes back a block that found no room: it is the next one again.
    pub fn on_no_room(&mut self, place: Place) {
        let (buf, pba, sum) = (place.buf, place.from, place.tag.sum);
        self.moves.push_front(Move { buf, pba, sum });
    }

    /// Returns the next step, once as many blocks were placed as there is room for; `None`: it has to wait.
    pub fn poll(&mut self, superblock: &Superblock, contents: &impl Contents) -> Option<Step> {
        let Some(victim) = &self.victim else {
            return Some(Step::Choose);
        };
        if victim.unread.is_some() {
            return None;
        }
        let usable = superblock.usable_blocks();
        self.poll_gather(superblock.segment_start(victim.segment), usable, contents)
            .or_else(|| self.poll_end(usable, contents))
    }

    /// Returns the next block that was read, to append it to the cold head. If there is no room, report [`Self::on_no_room`].
    /// Drops blocks that have been overwritten meanwhile.
    #[inline]
    pub fn poll_move(
        &mut self,
        superblock: &Superblock,
        contents: &impl Contents,
    ) -> Option<Place> {
        let victim = self.victim.as_ref()?;
        while let Some(Move { buf, pba, sum }) = self.moves.pop_front() {
            let (_, offset) = locate(superblock, pba);
            let Some(owner) = contents.owner_of(pba, victim.tags[offset as usize].owner) else {
                self.bufs.take_back(buf);
                continue;
            };
            let (tag, from) = (Tag { owner, sum }, pba);
            return Some(Place { tag, from, buf });
        }
        None
    }

    /// Reads live blocks as long as buffers are free.
    fn poll_gather(&mut self, start: Pba, usable: u32, contents: &impl Contents) -> Option<Step> {
        let victim = self.victim.as_mut()?;
        while victim.next < usable && contents.live(victim.segment) > 0 {
            let known = match contents.has_away() {
                true => victim.known,
                false => usable,
            };
            if victim.next >= known {
                return Some(Step::LookUp(victim.next));
            }
            let (start_buf, room) = self.bufs.free_run(limits::GATHER_BLOCKS);
            if room == 0 {
                let waits_in_chunk = self.gathering == 0 && self.moves.is_empty();
                return waits_in_chunk.then_some(Step::SealCold);
            }
            let live = |offset: u32| {
                let tag = victim.tags[offset as usize].owner;
                let pba = start.plus(u64::from(offset));
                contents.owner_of(pba, tag).is_some()
            };
            let mut blocks = 0;
            while victim.next < known && blocks < room {
                match live(victim.next) {
                    true => blocks += 1,
                    false if blocks > 0 => break,
                    false => {}
                }
                victim.next += 1;
            }
            if blocks > 0 {
                self.gathering += 1;
                let at = start.plus(u64::from(victim.next - blocks));
                let to = self.bufs.take(start_buf, blocks);
                return Some(Step::Gather { at, blocks, to });
            }
        }
        None
    }

    /// Ends the victim once all of its live blocks have been moved, or cannot be.
    fn poll_end(&mut self, usable: u32, contents: &impl Contents) -> Option<Step> {
        let victim = self.victim.as_mut()?;
        let segment = victim.segment;
        let left = contents.live(segment);
        let is_scanned = victim.next >= usable || left == 0;
        if !is_scanned || self.gathering > 0 || !self.moves.is_empty() {
            return None;
        }
        // Blocks that are bad stay live, and no search finds more.
        if left > 0 && !core::mem::replace(&mut victim.searched, true) && !victim.bad {
            (victim.next, victim.known) = (0, 0);
            return Some(Step::Search { segment, left });
        }
        self.spare = self.victim.take()?.tags;
        let are_left = left > 0;
        Some(Step::Done { segment, are_left })
    }

    /// Leaves a victim half moved, and returns it; moved blocks stay moved.
    pub fn abandon(&mut self) -> Option<Segment> {
        while let Some(Move { buf, .. }) = self.moves.pop_front() {
            self.bufs.take_back(buf);
        }
        self.victim.take().map(|victim| victim.segment)
    }

    /// If free segments run short, says what frees emptied ones sooner: to seal and sync the chunks that their blocks moved to, or a map
    /// checkpoint, after which replay does not need their headers. `look` says if all chunks up to these marks are durable, and for
    /// each head, if one is its open chunk.
    pub fn press(
        &self,
        segments: &Segments,
        root_seq: Seq,
        look: impl Fn(Marks) -> (bool, [bool; 2]),
    ) -> Option<Press> {
        let free = segments.free();
        if segments.emptied().is_empty() || free >= self.low {
            return None;
        }
        let mut unsealed = [false; 2];
        let mut sync = false;
        let mut pinned = 0;
        for &segment in segments.emptied() {
            let info = segments.get(segment);
            let (are_durable, in_open) = look(info.marks);
            pinned += u64::from(info.last_seq > root_seq);
            sync |= !are_durable;
            for head in HEADS {
                unsealed[head as usize] |= in_open[head as usize];
            }
        }
        let short = free <= limits::COLLECTOR_SEGMENTS + 1;
        // A map checkpoint writes every dirty leaf, however little it frees: it waits until it frees enough.
        let enough = limits::PINNED_SEGMENTS + u64::from(segments.count()) / 64;
        Some(Press {
            seal: unsealed.map(|unsealed| unsealed && short && sync),
            sync,
            checkpoint: pinned > 0 && (short || pinned >= enough),
        })
    }

    /// Notes that the last segments are empty, and returns the newest map checkpoint of when they first were.
    pub fn on_vacated(&mut self, now: Generation) -> Generation {
        *self.vacated.get_or_insert(now)
    }
}

#[cfg(test)]
mod tests;
