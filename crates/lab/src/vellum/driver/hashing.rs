//! A controller's hash engine: it looks at one block after the other, and what it has not looked at yet waits in the write buffer.
//!
//! A write is answered when it is in the buffer, as in CAFTL (§4.1), and handed to the engine when its blocks are hashed; a
//! flush, a durable write and a read of what waits come after it.

use super::{COLLECTOR_BUFS, Vellum};
use crate::base::Io;
use crate::timeline::Tag;
use crate::trace::Op;
use crate::vellum::Asked;
use std::collections::VecDeque;

/// Requests that were answered before the engine saw them have numbers of their own from here on.
const ANSWERED: u32 = 1 << 31;

/// How fast it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashing {
    /// Nanoseconds a block that is written: for the hash that proposes.
    pub check_ns: u64,
    /// Nanoseconds for the hash that decides.
    pub print_ns: u64,
    /// Whether nothing is hashed from the moment the buffer is 95% full until it is half empty (CAFTL §3.4.3).
    pub switch: bool,
}

pub(super) struct Unit {
    how: Hashing,
    /// When it has done what it was asked.
    free_at: u64,
    queue: VecDeque<Asked>,
    /// Buffers for the blocks in the queue.
    pub reserved: usize,
    answered: u32,
    /// Nanoseconds that it has hashed for.
    busy_ns: u64,
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

    /// What a block costs when so many buffers are free of all.
    fn check_ns(&mut self, free: usize, all: usize) -> u64 {
        let used = (all - free) * 100;
        self.off = self.how.switch && (used >= 95 * all || (self.off && used > 50 * all));
        match self.off {
            true => 0,
            false => self.how.check_ns,
        }
    }

    fn holds(&self, asked: &Asked) -> bool {
        let end = |asked: &Asked| asked.lba + u64::from(asked.blocks);
        let writes = |other: &&Asked| matches!(other.op, Op::Write { .. } | Op::Discard);
        let mut writes = self.queue.iter().filter(writes);
        writes.any(|other| other.lba < end(asked) && asked.lba < end(other))
    }
}

/// Whether a request has been answered already.
pub(super) fn is_answered(id: u32) -> bool {
    id >= ANSWERED
}

impl Vellum {
    /// Nanoseconds that the hash engine has worked for, where there is one.
    #[must_use]
    pub fn hash_ns(&self) -> Option<u64> {
        self.hashing.as_ref().map(|unit| unit.busy_ns)
    }

    /// Takes a request into the buffer.
    pub(super) fn take_in(&mut self, io: &mut Io<'_>, mut asked: Asked) {
        let (free, all) = (self.free.len(), self.bufs.len() - COLLECTOR_BUFS as usize);
        let Some(unit) = &mut self.hashing else {
            return self.hand_over(io, &asked);
        };
        if io.time.is_instant() || (asked.op == Op::Read && !unit.holds(&asked)) {
            return self.hand_over(io, &asked);
        }
        unit.free_at = unit.free_at.max(io.time.now());
        if let Op::Write { fua } = asked.op {
            let each = unit.check_ns(free.saturating_sub(unit.reserved), all);
            let looked_for = if asked.admitted.dedup {
                asked.contents.len()
            } else {
                0
            };
            let takes = each * looked_for as u64;
            unit.free_at += takes;
            unit.busy_ns += takes;
            unit.reserved += asked.contents.len();
            if !fua {
                self.answers.push_back((asked.id, Ok(())));
                asked.id = ANSWERED | unit.answered;
                unit.answered = (unit.answered + 1) % ANSWERED;
            }
        }
        io.time.at(unit.free_at, Tag::Hashed);
        unit.queue.push_back(asked);
    }

    /// The next request in the queue has been looked at.
    pub fn hashed(&mut self, io: &mut Io<'_>) {
        let next = self.hashing.as_mut().and_then(|unit| {
            let asked = unit.queue.pop_front()?;
            unit.reserved -= asked.contents.len();
            Some(asked)
        });
        if let Some(asked) = next {
            self.hand_over(io, &asked);
            self.admit(io);
        }
    }

    /// Lets `tag` be told when a block's deciding hash has been computed.
    pub(super) fn print(&mut self, io: &mut Io<'_>, tag: Tag) {
        match &mut self.hashing {
            Some(unit) if !io.time.is_instant() => {
                unit.free_at = unit.free_at.max(io.time.now()) + unit.how.print_ns;
                unit.busy_ns += unit.how.print_ns;
                io.time.at(unit.free_at, tag);
            }
            _ => io.time.done(tag),
        }
    }
}
