//! Which chunks are on stable storage, and which requests wait for that.
//!
//! Chunks are sealed in one order, and a chunk counts as durable only when all before it do: so a crash leaves a prefix. One sync
//! serves all waiters (OFTL's single barrier): those that arrive while it is in flight share the next.

use super::head::Head;
use crate::addr::{RequestId, Seq};
use crate::front::{Waiter, Waiters};
use alloc::collections::VecDeque;

/// The chunk of a waiter that waits for an open chunk, which has no number yet: later than every chunk.
const NOT_SEALED: Seq = Seq(u64::MAX);

/// A sealed chunk that is not known to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub seq: Seq,
    pub head: Head,
    /// Counts its head's chunks.
    pub ordinal: u64,
    pub written: bool,
    /// True if its write, or a sync since, makes it durable.
    pub durable: bool,
}

/// The sealed chunks that are not durable yet, and the requests that wait for them.
#[derive(Debug)]
pub(crate) struct Durability {
    order: VecDeque<Sealed>,
    durable: Seq,
    /// A FLUSH waits until this chunk is durable. Later chunks only repeat pledges.
    flush_target: Seq,
    /// How far the sync in flight reaches.
    sync: Option<Seq>,
    wanted: Seq,
    /// Each waits until everything up to a chunk is durable.
    waiters: Waiters<Seq>,
    /// The link to the newest segment may not be durable: a segment was left, or its summary was written, and no sync has begun since. Only
    /// that summary and the segment's last header name the next segment. So a chunk in the next segment, even if written durably,
    /// would be lost together with that one header.
    has_unsynced_link: bool,
}

impl Durability {
    /// For a recovery that ended at chunk `last`; chunks newer than the map checkpoint's `root` may not be synced yet.
    pub fn recovered(last: Seq, root: Seq) -> Self {
        let replayed = Sealed {
            seq: last,
            head: Head::Hot,
            ordinal: 0,
            written: true,
            durable: false,
        };
        Self {
            order: (last > root).then_some(replayed).into_iter().collect(),
            durable: last.min(root),
            flush_target: last,
            sync: None,
            wanted: Seq(0),
            waiters: Waiters::default(),
            has_unsynced_link: false,
        }
    }

    /// The newest chunk that is durable with all before it.
    pub fn durable(&self) -> Seq {
        self.durable
    }

    /// True if all chunks are durable.
    pub fn is_all_durable(&self) -> bool {
        self.order.is_empty()
    }

    /// True if a chunk that is written durably now needs no sync: no sync is in flight, all chunks before it are durable, and it can be
    /// found even if a header is lost.
    pub(super) fn may_write_durably(&self) -> bool {
        !self.has_unsynced_link
            && self.sync.is_none()
            && self.order.iter().all(|sealed| sealed.durable)
    }

    /// Notes that a segment was left, or that the summary of one is written.
    pub(super) fn on_left(&mut self) {
        self.has_unsynced_link = true;
    }

    /// Notes that a chunk was sealed; `delays_flush`: a FLUSH has to wait for it.
    pub(super) fn on_sealed(&mut self, sealed: Sealed, delays_flush: bool) {
        debug_assert!(self.order.back().is_none_or(|last| last.seq < sealed.seq));
        if delays_flush {
            self.flush_target = sealed.seq;
        }
        self.order.push_back(sealed);
    }

    /// Notes that a chunk is on the medium.
    pub(super) fn on_written(&mut self, seq: Seq) {
        if let Some(sealed) = self.find(seq) {
            sealed.written = true;
        }
    }

    /// Notes that a chunk is rewritten, and not durably.
    pub(super) fn on_written_again(&mut self, seq: Seq) {
        if let Some(sealed) = self.find(seq) {
            sealed.durable = false;
        }
    }

    fn find(&mut self, seq: Seq) -> Option<&mut Sealed> {
        self.order.iter_mut().find(|sealed| sealed.seq == seq)
    }

    /// True if a FLUSH of all sealed chunks has something to wait for.
    pub fn has_to_wait(&self) -> bool {
        self.flush_target > self.durable
    }

    /// Makes a request wait for all that a FLUSH has to wait for by now.
    pub fn wait(&mut self, request: RequestId, flush: bool) {
        self.waiters.push(self.flush_target, request, flush);
    }

    /// The same, and the request also waits for the open chunk, which cannot be sealed now. Its number is not known yet. No other chunk
    /// of the host's head can come before it, but the collector's chunks may.
    pub fn wait_for_open(&mut self, request: RequestId, flush: bool) {
        self.waiters.push(NOT_SEALED, request, flush);
    }

    /// True if any request waits.
    pub fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// True if any request waits for the open chunk.
    pub fn waits_for_open(&self) -> bool {
        self.waiters.marks().any(|mark| mark == NOT_SEALED)
    }

    /// Notes that the open chunk was sealed, with this number.
    pub(super) fn on_open_sealed(&mut self, seq: Seq) {
        let open = self.waiters.marks_mut().filter(|mark| **mark == NOT_SEALED);
        open.for_each(|mark| *mark = seq);
    }

    /// Makes all up to this chunk become durable, even if nothing waits for it.
    pub(super) fn want(&mut self, seq: Seq) {
        self.wanted = seq;
    }

    /// Returns the next chunk that has become durable, in order.
    pub(super) fn poll_durable(&mut self) -> Option<Sealed> {
        let next = *self.order.front()?;
        if !(next.written && next.durable) {
            return None;
        }
        self.durable = next.seq;
        self.order.pop_front()
    }

    /// Takes the next waiter whose chunk is durable.
    pub fn poll_waiter(&mut self) -> Option<Waiter> {
        self.waiters.pop_by(self.durable)
    }

    /// Takes a waiter to refuse it: nothing will become durable any more, or not soon.
    pub fn give_up_waiter(&mut self) -> Option<Waiter> {
        self.waiters.pop()
    }

    /// Begins the next sync, if one is needed and none is in flight, and returns how far it reaches: up to the first chunk that is not
    /// written. `last`: the newest chunk.
    pub(super) fn poll_sync(&mut self, last: Seq) -> Option<Seq> {
        let awaited = self.waiters.marks().next().unwrap_or(Seq(0));
        let target = awaited.max(self.wanted);
        if target <= self.durable || self.sync.is_some() {
            return None;
        }
        let written = self.order.iter().take_while(|sealed| sealed.written);
        let (mut through, mut is_needed) = (self.durable, false);
        for sealed in written {
            through = sealed.seq;
            is_needed |= !sealed.durable;
        }
        self.sync = (is_needed && through >= target.min(last)).then_some(through);
        self.has_unsynced_link &= self.sync.is_none();
        self.sync
    }

    /// Begins a sync for a map checkpoint, if all chunks up to `seq` are written and none is in flight. It is needed even if
    /// every chunk is durable: leaves and summaries are not.
    pub fn poll_sync_of_checkpoint(&mut self, seq: Seq) -> Option<Seq> {
        let mut needed = self.order.iter().take_while(|sealed| sealed.seq <= seq);
        if self.sync.is_some() || !needed.all(|sealed| sealed.written) {
            return None;
        }
        let written = self.order.iter().take_while(|sealed| sealed.written);
        self.sync = Some(written.last().map_or(self.durable, |sealed| sealed.seq));
        self.has_unsynced_link = false;
        self.sync
    }

    /// Notes that the sync up to `through` has ended.
    pub fn on_synced(&mut self, through: Seq) {
        self.sync = None;
        for sealed in &mut self.order {
            sealed.durable |= sealed.seq <= through;
        }
    }

    /// Notes that the sync has failed: it made nothing durable.
    pub fn on_sync_failed(&mut self) {
        self.sync = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(seq: u64) -> Sealed {
        Sealed {
            seq: Seq(seq),
            head: Head::Hot,
            ordinal: seq,
            written: false,
            durable: false,
        }
    }

    /// With chunks 1 to `last` being written.
    fn with_chunks(last: u64) -> Durability {
        let mut durability = Durability::recovered(Seq(0), Seq(0));
        for seq in 1..=last {
            durability.on_sealed(sealed(seq), true);
        }
        durability
    }

    fn answered(durability: &mut Durability) -> Vec<u32> {
        while durability.poll_durable().is_some() {}
        core::iter::from_fn(|| durability.poll_waiter())
            .map(|waiter| waiter.request.0)
            .collect()
    }

    use alloc::vec::Vec;

    #[test]
    fn nobody_is_answered_before_all_that_came_before_is_durable() {
        let mut durability = with_chunks(2);
        durability.wait(RequestId(7), true);
        durability.on_written(Seq(2));
        assert_eq!(durability.poll_sync(Seq(2)), None, "chunk 1 is not written");
        durability.on_written(Seq(1));
        assert_eq!(durability.poll_sync(Seq(2)), Some(Seq(2)));
        assert_eq!(durability.poll_sync(Seq(2)), None, "one sync at a time");
        assert_eq!(answered(&mut durability), []);
        durability.on_synced(Seq(2));
        assert_eq!(answered(&mut durability), [7]);
        assert!(durability.is_all_durable() && durability.may_write_durably());
    }

    #[test]
    fn a_sync_reaches_what_was_written_when_it_began() {
        let mut durability = with_chunks(1);
        durability.on_written(Seq(1));
        durability.wait(RequestId(1), true);
        let through = durability
            .poll_sync(Seq(1))
            .expect("a request waits for a sync");
        durability.on_sealed(sealed(2), true);
        durability.on_written(Seq(2));
        durability.wait(RequestId(2), true);
        assert!(!durability.may_write_durably());
        durability.on_synced(through);
        assert_eq!(answered(&mut durability), [1]);
        assert_eq!(durability.poll_sync(Seq(2)), Some(Seq(2)));
        durability.on_sync_failed();
        assert_eq!(answered(&mut durability), []);
        assert_eq!(
            durability.give_up_waiter().map(|w| w.request),
            Some(RequestId(2))
        );
    }

    #[test]
    fn a_chunk_that_was_written_durably_needs_no_sync() {
        let mut durability = Durability::recovered(Seq(4), Seq(4));
        let durably = Sealed {
            durable: true,
            ..sealed(5)
        };
        durability.on_sealed(durably, true);
        durability.wait(RequestId(3), false);
        durability.on_written(Seq(5));
        assert_eq!(answered(&mut durability), [3]);
        assert_eq!(durability.poll_sync(Seq(5)), None);
        durability.on_sealed(
            Sealed {
                durable: true,
                ..sealed(6)
            },
            true,
        );
        durability.on_written_again(Seq(6));
        durability.on_written(Seq(6));
        assert!(answered(&mut durability).is_empty() && !durability.is_all_durable());
    }

    #[test]
    fn a_sync_follows_when_a_segment_is_left() {
        let mut durability = with_chunks(0);
        assert!(durability.may_write_durably());
        durability.on_left();
        assert!(!durability.may_write_durably());
        durability.on_sealed(sealed(1), true);
        durability.wait(RequestId(1), true);
        durability.on_written(Seq(1));
        let through = durability.poll_sync(Seq(1)).expect("a sync is needed");
        // The summary is written after the sync has begun.
        durability.on_left();
        durability.on_synced(through);
        assert_eq!(answered(&mut durability), [1]);
        assert!(!durability.may_write_durably());
        assert!(durability.poll_sync_of_checkpoint(Seq(1)).is_some());
        durability.on_synced(Seq(1));
        assert!(durability.may_write_durably());
    }

    #[test]
    fn a_flush_does_not_wait_for_a_chunk_that_only_repeats_pledges() {
        let mut durability = with_chunks(0);
        durability.on_sealed(sealed(1), false);
        assert!(!durability.has_to_wait());
        durability.on_sealed(sealed(2), true);
        assert!(durability.has_to_wait());
    }

    #[test]
    fn a_waiter_for_the_open_chunk_waits_until_it_has_a_number() {
        let mut durability = with_chunks(1);
        durability.wait_for_open(RequestId(9), true);
        durability.on_written(Seq(1));
        let first = durability
            .poll_sync(Seq(1))
            .expect("the request waits for the sealed chunks");
        durability.on_synced(first);
        assert!(answered(&mut durability).is_empty() && durability.waits_for_open());
        durability.on_sealed(sealed(2), true);
        durability.on_open_sealed(Seq(2));
        durability.on_written(Seq(2));
        let second = durability
            .poll_sync(Seq(2))
            .expect("the request still waits");
        durability.on_synced(second);
        assert_eq!(answered(&mut durability), [9]);
    }

    #[test]
    fn chunks_that_recovery_replayed_may_not_be_durable() {
        let mut durability = Durability::recovered(Seq(9), Seq(5));
        assert_eq!(
            (durability.durable(), durability.has_to_wait()),
            (Seq(5), true)
        );
        durability.wait(RequestId(1), true);
        assert_eq!(durability.poll_sync(Seq(9)), Some(Seq(9)));
    }

    #[test]
    fn a_map_checkpoint_has_a_sync_of_its_own() {
        let mut durability = with_chunks(2);
        durability.on_written(Seq(1));
        assert_eq!(durability.poll_sync_of_checkpoint(Seq(2)), None);
        assert_eq!(durability.poll_sync_of_checkpoint(Seq(1)), Some(Seq(1)));
        assert_eq!(
            durability.poll_sync_of_checkpoint(Seq(1)),
            None,
            "one sync is in flight"
        );
        durability.on_synced(Seq(1));
        while durability.poll_durable().is_some() {}
        assert_eq!(durability.poll_sync_of_checkpoint(Seq(1)), Some(Seq(1)));
    }
}
