//! Clients' buffers of data blocks that are not on the medium yet.
//!
//! The write of such a block has not begun, or is in flight. Before it begins, the block may be replaced or dropped in memory.

use crate::addr::Buf;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// See the module.
#[derive(Default)]
pub(super) struct Buffers {
    /// The buffer of each such data block.
    held: BTreeMap<u32, Buf>,
    /// Those among them whose write has not begun.
    queued: BTreeSet<u32>,
}

impl Buffers {
    /// The buffer of a data block, if the block is not on the medium yet.
    #[inline]
    pub fn get(&self, index: u32) -> Option<Buf> {
        self.held.get(&index).copied()
    }

    #[inline]
    pub fn has(&self, index: u32) -> bool {
        self.held.contains_key(&index)
    }

    /// True if a block is to be written, and its write has not begun.
    #[inline]
    pub fn is_queued(&self, index: u32) -> bool {
        self.queued.contains(&index)
    }

    /// How many blocks are to be written.
    #[inline]
    pub fn queued(&self) -> usize {
        self.queued.len()
    }

    /// How many blocks are being written.
    pub fn on_their_way(&self) -> u32 {
        (self.held.len() - self.queued.len()) as u32
    }

    /// Queues a data block.
    pub fn queue(&mut self, index: u32, buf: Buf) {
        let before = self.held.insert(index, buf);
        debug_assert!(before.is_none(), "data block {index} is queued twice");
        self.queued.insert(index);
    }

    /// Replaces the buffer of a queued block, and returns the one that it had.
    pub fn replace(&mut self, index: u32, buf: Buf) -> Option<Buf> {
        debug_assert!(self.is_queued(index), "data block {index} is being written");
        self.held.insert(index, buf)
    }

    /// Drops a queued block, and returns its buffer; does nothing if the block is not queued.
    pub fn drop_queued(&mut self, index: u32) -> Option<Buf> {
        match self.queued.remove(&index) {
            true => self.held.remove(&index),
            false => None,
        }
    }

    /// Begins to write the next queued blocks that follow each other, at most `most` of them.
    pub fn begin_run(&mut self, most: usize) -> Option<(u32, Vec<Buf>)> {
        let first = self.queued.pop_first()?;
        let mut bufs = Vec::new();
        let mut next = first;
        loop {
            bufs.push(self.held[&next]);
            next += 1;
            if bufs.len() == most || !self.queued.remove(&next) {
                return Some((first, bufs));
            }
        }
    }

    /// Notes that a block is on the medium.
    pub fn on_written(&mut self, index: u32) {
        debug_assert!(
            !self.is_queued(index),
            "the write of data block {index} has begun"
        );
        self.held.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_written_in_runs() {
        let mut buffers = Buffers::default();
        for index in [9, 3, 4, 5, 6] {
            buffers.queue(index, Buf(index));
        }
        assert_eq!(buffers.begin_run(3), Some((3, [3, 4, 5].map(Buf).to_vec())));
        assert_eq!(buffers.begin_run(3), Some((6, [Buf(6)].to_vec())));
        assert_eq!((buffers.queued(), buffers.on_their_way()), (1, 4));
        assert_eq!(buffers.begin_run(3), Some((9, [Buf(9)].to_vec())));
        assert_eq!(buffers.begin_run(3), None);
        buffers.on_written(4);
        assert!(buffers.get(4).is_none() && buffers.get(5) == Some(Buf(5)));
        assert_eq!(buffers.on_their_way(), 4);
    }

    #[test]
    fn a_queued_block_may_be_replaced_or_dropped() {
        let mut buffers = Buffers::default();
        buffers.queue(1, Buf(10));
        buffers.queue(2, Buf(20));
        assert_eq!(buffers.replace(1, Buf(11)), Some(Buf(10)));
        assert_eq!(buffers.drop_queued(1), Some(Buf(11)));
        assert!(!buffers.has(1) && buffers.drop_queued(1).is_none());
        assert!(buffers.begin_run(8).is_some());
        assert_eq!(buffers.drop_queued(2), None, "its write has begun");
        assert!(buffers.has(2) && !buffers.is_queued(2));
    }
}
