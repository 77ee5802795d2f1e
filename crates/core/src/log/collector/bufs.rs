//! The collector's buffers.

use crate::addr::Buf;
use alloc::vec::Vec;

/// Buffers that only the collector uses, and which of them are in use.
pub(super) struct Bufs {
    first: Buf,
    used: Vec<bool>,
    free: usize,
    /// Where to look for the next free run.
    hand: usize,
}

impl Bufs {
    /// `count` buffers from `first` on, all free.
    pub fn new(first: Buf, count: u32) -> Self {
        Self {
            first,
            used: alloc::vec![false; count as usize],
            free: count as usize,
            hand: 0,
        }
    }

    /// True if fewer than half are free.
    pub fn are_few(&self) -> bool {
        self.free * 2 < self.used.len()
    }

    /// True if a buffer is one of these.
    #[inline]
    pub fn owns(&self, buf: Buf) -> bool {
        (self.first.0..self.first.0 + self.used.len() as u32).contains(&buf.0)
    }

    /// Takes a buffer back if it is one of these.
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
    pub fn free_run(&self, most: u32) -> (usize, u32) {
        if self.free == 0 {
            return (0, 0);
        }
        let free = |used: &[bool]| used.iter().position(|used| !used);
        let hand = self.hand.min(self.used.len());
        let (before, after) = self.used.split_at(hand);
        let Some(start) = free(after).map(|i| hand + i).or_else(|| free(before)) else {
            return (0, 0);
        };
        let row = &self.used[start..self.used.len().min(start + most as usize)];
        let run = row.iter().position(|used| *used).unwrap_or(row.len());
        (start, run as u32)
    }

    /// Takes the first buffers of a free run.
    pub fn take(&mut self, start: usize, blocks: u32) -> Buf {
        self.used[start..start + blocks as usize].fill(true);
        self.free -= blocks as usize;
        self.hand = start + blocks as usize;
        Buf(self.first.0 + start as u32)
    }
}
