//! Passes requests through the hash unit.

use super::hashing::ANSWERED;
use super::{COLLECTOR_BUFS, Submitted, Vellum};
use crate::base::Io;
use crate::timeline::Tag;
use crate::trace::Op;

impl Vellum {
    /// Nanoseconds that the hash unit has worked; none without one.
    #[must_use]
    pub fn hash_ns(&self) -> Option<u64> {
        self.hashing.as_ref().map(|unit| unit.busy_ns)
    }

    /// Takes a request into the buffer.
    pub(super) fn take_in(&mut self, io: &mut Io<'_>, mut submitted: Submitted) {
        let (free, all) = (self.free.len(), self.bufs.len() - COLLECTOR_BUFS as usize);
        let Some(unit) = &mut self.hashing else {
            return self.hand_over(io, &submitted);
        };
        if io.time.is_instant() || (submitted.op == Op::Read && !unit.holds(&submitted)) {
            return self.hand_over(io, &submitted);
        }
        unit.free_at = unit.free_at.max(io.time.now());
        if let Op::Write { fua } = submitted.op {
            let each = unit.check_ns(free.saturating_sub(unit.reserved), all);
            let looked_for = if submitted.admitted.dedup {
                submitted.contents.len()
            } else {
                0
            };
            let takes = each * looked_for as u64;
            unit.free_at += takes;
            unit.busy_ns += takes;
            unit.reserved += submitted.contents.len();
            if !fua {
                self.answers.push_back((submitted.id, Ok(())));
                submitted.id = ANSWERED | unit.answered;
                unit.answered = (unit.answered + 1) % (ANSWERED / 2);
            }
        }
        io.time.at(unit.free_at, Tag::Hashed);
        unit.queue.push_back(submitted);
    }

    /// Hands over the next request in the queue, which has been hashed.
    pub fn hashed(&mut self, io: &mut Io<'_>) {
        let next = self.hashing.as_mut().and_then(|unit| {
            let submitted = unit.queue.pop_front()?;
            unit.reserved -= submitted.contents.len();
            Some(submitted)
        });
        if let Some(submitted) = next {
            self.hand_over(io, &submitted);
            self.admit(io);
        }
    }

    /// Completes `tag` when a block's deciding hash has been computed.
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
