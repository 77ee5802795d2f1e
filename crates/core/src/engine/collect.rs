//! The collector: moves the live blocks of a segment together, so that it can be erased.
//!
//! Moved blocks have outlived their neighbours, so they go to a separate head: cold apart from hot. The collector runs ahead of
//! need, and from a reserve that only it may use, so that it can always finish. A block is looked up again at the moment of its
//! move: if a client has overwritten it meanwhile, it is dropped. If fewer live blocks are found than the segment is known to
//! hold, the rest is searched for in the whole map: a page may leak, but is never lost (promise 5).

mod run;

use super::fetches::Patience;
use super::options::Buffers;
use crate::addr::{Buf, Generation, Pba, Segment};
use crate::format::summary::Tag;
use crate::limits;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A segment that waits for a map checkpoint counts as fuller by one in this many of its blocks.
const PINNED_PENALTY: u32 = 4;

struct Move {
    buf: Buf,
    pba: Pba,
    sum: u32,
}

struct Victim {
    segment: Segment,
    tags: Vec<Tag>,
    loaded: bool,
    next: u32,
    bad: bool,
    searched: bool,
    /// For blocks before `known`, the leaves that say if they are live are in memory. `patience`: how long the victim has waited for more
    /// leaves.
    known: u32,
    patience: Patience,
}

pub(super) struct Collector {
    first: Buf,
    /// Which of the collector's buffers are in use, and where to look for the next free run of them.
    used: Vec<bool>,
    free: usize,
    hand: usize,
    victim: Option<Victim>,
    gathering: u32,
    moves: VecDeque<Move>,
    spare: Vec<Tag>,
    low: usize,
    /// The newest map checkpoint when the last segments had been emptied, if they are to be.
    pub vacated: Option<Generation>,
}

impl Collector {
    /// `segments`: how many stay in use.
    pub fn new(segments: u32, buffers: Buffers) -> Self {
        assert!(
            buffers.count >= limits::GATHER_BLOCKS,
            "the collector needs {} buffers",
            limits::GATHER_BLOCKS
        );
        Self {
            first: buffers.first,
            used: alloc::vec![false; buffers.count as usize],
            free: buffers.count as usize,
            hand: 0,
            victim: None,
            gathering: 0,
            moves: VecDeque::new(),
            spare: Vec::new(),
            vacated: None,
            low: limits::COLLECTOR_SEGMENTS + 2 + segments as usize / 512,
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

    /// True if enough blocks were read to be moved, or no more reads are in flight: many short runs complete one by one.
    #[inline]
    pub fn has_gathered(&self) -> bool {
        self.gathering == 0 || self.moves.len() >= limits::GATHER_BLOCKS as usize
    }

    /// Takes a free buffer, unless few are free.
    #[inline]
    pub fn spare_buf(&mut self) -> Option<Buf> {
        if self.free * 2 < self.used.len() {
            return None;
        }
        let (start, run) = self.free_run(1);
        (run == 1).then(|| self.take(start, 1))
    }

    /// True if a buffer belongs to the collector.
    #[inline]
    pub fn owns(&self, buf: Buf) -> bool {
        (self.first.0..self.first.0 + self.used.len() as u32).contains(&buf.0)
    }

    /// Takes a buffer back if it belongs to the collector.
    #[inline]
    pub fn take_back(&mut self, buf: Buf) -> bool {
        let Some(index) = buf.0.checked_sub(self.first.0) else {
            return false;
        };
        let Some(used) = self.used.get_mut(index as usize) else {
            return false;
        };
        debug_assert!(*used, "buffer {buf} was taken back twice");
        *used = false;
        self.free += 1;
        true
    }

    /// Finds free buffers in a row, at most `most`. Returns the first and how many (0 if none is free).
    fn free_run(&mut self, most: u32) -> (usize, u32) {
        if self.free == 0 {
            return (0, 0);
        }
        let free = |used: &[bool]| used.iter().position(|used| !used);
        let hand = self.hand.min(self.used.len());
        let (before, after) = self.used.split_at(hand);
        let Some(start) = free(after).map(|i| hand + i).or_else(|| free(before)) else {
            return (0, 0);
        };
        let run = self.used[start..]
            .iter()
            .take(most as usize)
            .take_while(|used| !**used)
            .count();
        (start, run as u32)
    }

    fn take(&mut self, start: usize, blocks: u32) -> Buf {
        self.used[start..start + blocks as usize].fill(true);
        self.free -= blocks as usize;
        self.hand = start + blocks as usize;
        Buf(self.first.0 + start as u32)
    }
}
