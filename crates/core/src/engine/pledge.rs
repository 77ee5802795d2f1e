//! Pledges: the flush that follows home writes costs nothing.
//!
//! Under `data=journal` each fsync commits a transaction, writes its blocks home, and flushes again. Those home writes are remaps (WOJ
//! §3), and the second flush waits only for their records. If the log already says at the commit what will be written home, the flush
//! need not wait: the records of the remaps stay in the open chunk and are written later with it. See
//! [`state::pledges`](crate::state::Pledges) for what a pledge is and how long it lasts.
//!
//! What must hold:
//! 1. The state's pledges are what replay would have at this point of the log, or fewer.
//! 2. The record that ends a pledge comes after the pledge in the log. So a block that a pledge concerns is not absorbed.
//! 3. A map checkpoint ends all pledges, because replay begins after them. Once it has begun, they make no FLUSH free. Until it is
//!    durable, a crash still finds them (`ending`).
//! 4. A pledge that recovery redeems has no record. So nothing is added to the log before a map checkpoint includes the redeemed pledges.

use super::Engine;
use super::verdict::Waiting;
use crate::addr::Lba;
use crate::entry::Entry;
use crate::format::SumKind;
use crate::format::chunk::Record;
use crate::index::Holder;
use crate::limits;
use crate::log::{ChunkId, Head};
use crate::state::{Origin, Pledges};
use alloc::vec::Vec;

impl Engine {
    /// Handles a complete transaction. Waiting writes are not in the log yet, and the commit block may be one of them. So the transaction
    /// gets its own place in the queue: a block that waits for a comparison does not cost its transaction the pledge.
    pub(super) fn committed(&mut self, pairs: &[(Lba, Lba)]) {
        match self.front.queue.is_empty() && !self.state.is_redeeming() {
            true => self.pledge_homes(pairs),
            false => {
                let pairs = pairs.to_vec();
                self.front.queue.push(Waiting::Committed { pairs });
            }
        }
    }

    /// Pledges a transaction's blocks to their homes, once all of it is in the log.
    pub(super) fn pledge_homes(&mut self, pairs: &[(Lba, Lba)]) {
        let open = self.front.course.is_sound() && !self.front.outbox.holds_writes();
        if !open {
            return;
        }
        // A commit block that was written with FUA is already being written.
        let is_to_be_flushed = self.open_chunk_delays_flush();
        for &(home, journal) in pairs {
            if !self.may_be_pledged(home, journal) {
                continue;
            }
            let record = Record::Pledge { home, journal };
            let pledged = self.pledged();
            let room = pledged < limits::PLEDGES && self.state.reserve_numbers(pledged as u32 + 1);
            let chunk = match room {
                true => self.chunk_with_room(Head::Hot, record.encoded_len(), false),
                false => None,
            };
            let Some(chunk) = chunk else {
                break;
            };
            self.log(chunk, record);
            self.stats.pledged_blocks += 1;
        }
        self.state.reserve_numbers(self.pledged() as u32);
        if is_to_be_flushed {
            self.begin_before_flush();
        }
    }

    /// Ends all pledges by a map checkpoint, after the journals were looked up again. A journal may have been emptied or discarded; then
    /// its blocks must not come home after a crash.
    pub(super) fn end_pledges(&mut self) {
        self.checkpoint.due_if(!self.state.pledges().is_empty());
    }

    fn may_be_pledged(&self, home: Lba, journal: Lba) -> bool {
        let is_there = || match self.state.map().get(journal) {
            Entry::Unmapped => false,
            Entry::Zero => self.pledges_zeros(),
            Entry::Plain(_) | Entry::Shared(_) | Entry::Packed(..) => true,
        };
        self.in_range(home, 1) && self.proposers.once().may_pledge(home, journal) && is_there()
    }

    /// True if zeros may be pledged. Programs from before zeros were pledged would skip such a pledge, but they cannot open a volume with
    /// these sums.
    fn pledges_zeros(&self) -> bool {
        self.superblock.sums() == SumKind::Xxh3
    }

    /// True if zeros are pledged to a home block.
    pub(super) fn are_zeros_pledged(&self, home: Lba) -> bool {
        let journal = self.state.pledges().journal_of(home);
        journal.is_some_and(|journal| self.state.map().get(journal) == Entry::Zero)
    }

    /// Returns the journal block that is pledged to a home address: its number in the pool, and its address.
    pub(super) fn propose_pledged(&mut self, home: Lba) -> Option<(u32, Lba)> {
        let journal = self.state.pledges().journal_of(home)?;
        // Zeros are not compared: another block of the journal may hold what is written.
        if self.state.map().get(journal) == Entry::Zero {
            return None;
        }
        let index = self.proposers.once().pledged(journal)?;
        self.stats.home_writes += 1;
        Some((index, journal))
    }

    /// The number of pledges in force, or that a crash may find in force.
    pub(super) fn pledged(&self) -> usize {
        self.state.pledges().len() + self.state.ending_pledges().len()
    }

    /// Returns the home addresses that may be changed after a crash, although no client has written there.
    #[must_use]
    pub fn pledged_homes(&self) -> Vec<Lba> {
        let pledges = [self.state.pledges(), self.state.ending_pledges()];
        let homes = pledges.into_iter().flat_map(Pledges::iter);
        homes.map(|(home, _)| home).collect()
    }

    /// Adds a record that owns no block to a chunk with room, and applies it.
    pub(super) fn log(&mut self, chunk: ChunkId, record: Record) {
        self.log.get_mut(chunk).push(record);
        self.apply(Origin::NONE, &record);
    }

    /// The same for a link. No FLUSH waits for the link if it says what is pledged anyway.
    pub(super) fn log_link(&mut self, chunk: ChunkId, record: Record, pledged: bool) {
        self.log.get_mut(chunk).push_link(record, pledged);
        self.apply(Origin::NONE, &record);
    }

    /// True if a block's link to what `of` holds says what is pledged.
    pub(super) fn is_pledged(&self, lba: Lba, of: Holder) -> bool {
        self.state
            .pledges()
            .journal_of(lba)
            .is_some_and(|journal| of == Holder::Lba(journal))
    }

    /// True if a crash may give this block another content than `of` holds.
    pub(super) fn is_pledged_else(&self, lba: Lba, of: Holder) -> bool {
        let else_than = |pledges: &Pledges| {
            let journal = pledges.journal_of(lba);
            journal.is_some_and(|journal| of != Holder::Lba(journal))
        };
        else_than(self.state.pledges()) || else_than(self.state.ending_pledges())
    }

    /// True if a crash may change this block's content, or bring it to another address.
    pub(super) fn has_pledge(&self, lba: Lba) -> bool {
        self.state.pledges().concern(lba) || self.state.ending_pledges().concern(lba)
    }

    /// Returns the first address in `from..end` whose content a crash may change.
    pub(super) fn next_pledged(&self, from: Lba, end: Lba) -> Option<Lba> {
        let next = |pledges: &Pledges| pledges.next_home(from, end);
        next(self.state.pledges())
            .into_iter()
            .chain(next(self.state.ending_pledges()))
            .min()
    }

    /// Maps each home address to its journal block, after a crash.
    pub(super) fn redeem(&mut self) {
        let redeemed = self.state.redeem();
        self.hear_of_events();
        self.stats.redeemed_blocks += redeemed;
        self.checkpoint.due_if(redeemed > 0);
    }
}
