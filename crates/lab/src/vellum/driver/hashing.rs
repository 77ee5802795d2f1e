//! A controller's hash unit. It hashes one block after the other; blocks not hashed yet wait in the write buffer.
//!
//! A write is answered when it is in the buffer, as in CAFTL (§4.1), and handed to the engine when its blocks are
//! hashed. A flush, a durable write and a read of waiting blocks queue after it.

use super::submitted::Submitted;
use crate::trace::Op;
use std::collections::VecDeque;
use vellum_watch::is_near;

/// First number of the requests that were answered before the engine saw them.
pub(super) const ANSWERED: u32 = 1 << 31;

/// The speed of the hash unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashing {
    /// Nanoseconds for the hash of each written block that proposes duplicates.
    pub check_ns: u64,
    /// Nanoseconds for the hash that decides.
    pub print_ns: u64,
    /// True if hashing is switched off from when the buffer is 95% full until it is half empty (CAFTL §3.4.3).
    pub switch: bool,
}

pub(super) struct Unit {
    pub how: Hashing,
    /// When it has finished its queue.
    pub free_at: u64,
    pub queue: VecDeque<Submitted>,
    /// Buffers for the blocks in the queue.
    pub reserved: usize,
    pub answered: u32,
    /// Nanoseconds spent hashing.
    pub busy_ns: u64,
    /// Switched off.
    off: bool,
}

impl Unit {
    pub fn new(how: Hashing) -> Self {
        Self {
            how,
            free_at: 0,
            queue: VecDeque::new(),
            reserved: 0,
            answered: 0,
            busy_ns: 0,
            off: false,
        }
    }

    /// The time for a block while `free` of `all` buffers are free.
    pub fn check_ns(&mut self, free: usize, all: usize) -> u64 {
        let used = (all - free) * 100;
        self.off = self.how.switch && (used >= 95 * all || (self.off && used > 50 * all));
        match self.off {
            true => 0,
            false => self.how.check_ns,
        }
    }

    pub fn holds(&self, submitted: &Submitted) -> bool {
        let writes = |other: &&Submitted| matches!(other.op, Op::Write { .. } | Op::Discard { .. });
        let mut writes = self.queue.iter().filter(writes);
        writes.any(|other| is_near(other.run(), submitted.run()))
    }
}

/// True if a request has been answered already.
pub(super) fn is_answered(id: u32) -> bool {
    id >= ANSWERED
}
