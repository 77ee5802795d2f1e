//! Which commit blocks wait for the blocks they commit, decided by the same code as on the device ([`CommitOrder`]).

use super::{Read, Watching, Written};
use std::cell::OnceCell;
use vellum_core::addr::{Buf, Nanos};
use vellum_core::seam::{Digest, Payload};
use vellum_ext4::journal::Commits;
use vellum_watch::{Change, Stop, Wait};

impl Watching {
    /// True if there is a journal whose commit blocks wait.
    #[must_use]
    pub fn orders_commits(&self) -> bool {
        let mut found = self.findings.commits().iter();
        found.any(Commits::is_asynchronous)
    }

    /// Why a write must not go on. `None`: it may, and is noted for the journals. `waits`: what waits before it.
    pub fn stop<'a>(
        &mut self,
        written: &Written<'_>,
        has_room: bool,
        waits: impl Iterator<Item = &'a Wait> + Clone,
    ) -> Option<Stop> {
        let count = written.contents.len();
        if !(0..count).any(|index| written.is_journals(index)) {
            return None;
        }
        let blocks = Read {
            written: *written,
            made: vec![OnceCell::new(); count],
        };
        let change = Change {
            first: written.first,
            blocks: count as u64,
            written: Some(&blocks),
        };
        let payload = |index| Payload {
            buf: Buf(0),
            digest: Digest {
                first: written.beginning(index),
                ..Digest::default()
            },
        };
        let payloads: Vec<Payload> = (0..count).map(payload).collect();
        // Nothing is scanned again: no other journal is made.
        let order = &mut self.order;
        let stop = order.stop(&change, &payloads, |_| has_room, || false, waits);
        stop.map(|(_, stop)| stop)
    }

    /// Notes that a change has taken effect, or never will.
    pub fn ended(&mut self, now: u64, (first, blocks): (u64, u64), is_done: bool) {
        let change = Change {
            first,
            blocks,
            written: None,
        };
        self.order.ended(Nanos(now), &change, is_done);
    }

    /// When a wait must end or be answered.
    #[must_use]
    pub fn deadline(&self, wait: &Wait) -> Option<u64> {
        self.order.deadline(wait).map(|at| at.0)
    }

    /// True if something may go on now that could not before. Resets it.
    pub fn take_due(&mut self) -> bool {
        self.order.take_due()
    }

    /// Gives up a guess about a journal's next transaction.
    pub fn give_up(&mut self, journal: Option<usize>) {
        self.order.give_up(journal);
    }

    /// Notes that a waiting write goes on, whatever it waits for.
    pub fn let_through(&mut self, written: &Written<'_>) {
        // As if there were no room to wait in.
        self.stop(written, false, std::iter::empty());
    }

    /// Commit blocks that went on after everything they commit, and those that went on without a check.
    #[must_use]
    pub fn judged(&self) -> (u64, u64) {
        self.order.counts()
    }
}

#[cfg(test)]
mod tests;
