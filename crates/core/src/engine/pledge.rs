//! Pledges: the flush that follows home writes costs nothing.
//!
//! Under `data=journal` each fsync commits, and then writes home what it committed and flushes again. Those home writes
//! are remaps (WOJ §3), and all that the second flush waits for is that the log says so. If the log said at the commit
//! already what would be put home, it need not say it again: the records of the remaps stay in the open chunk and go
//! with what comes next. See [`state::pledges`](crate::state::Pledges) for what a pledge is and how long it lasts.
//!
//! What must hold:
//! 1. The state's pledges are what replay would have at this point of the log, or less.
//! 2. A record that ends a pledge stands behind it: what a pledge concerns is not absorbed.
//! 3. A map checkpoint ends them all, for replay begins behind them: no FLUSH is free by one from its beginning on, and until
//!    it is durable they are still what a crash finds (`ending`).
//! 4. What recovery redeems has no record. So nothing else is added to the log before it is in a map checkpoint.

use super::Engine;
use super::waiting::Waiting;
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
    /// A transaction is complete. What waits is not in the log yet, and the commit block may be of it: this keeps its place in
    /// the queue, so that a block which waits for a comparison does not cost its transaction the pledge.
    pub(super) fn committed(&mut self, pairs: &[(Lba, Lba)]) {
        match self.queue.is_empty() && !self.state.is_redeeming() {
            true => self.pledge(pairs),
            false => {
                let pairs = pairs.to_vec();
                self.queue.push(Waiting::Committed { pairs });
            }
        }
    }

    /// All of a transaction is in the log: its blocks are pledged to their homes.
    pub(super) fn pledge(&mut self, pairs: &[(Lba, Lba)]) {
        let open = self.course.is_sound() && !self.outbox.holds_writes();
        if !open {
            return;
        }
        // A commit block that was written with FUA is on its way already.
        let is_to_be_flushed = self.tells_something();
        for &(home, journal) in pairs {
            if !self.may_be_pledged(home, journal) {
                continue;
            }
            let record = Record::Pledge { home, journal };
            let pledged = self.pledged();
            let room = pledged < limits::PLEDGES && self.state.reserve_numbers(pledged as u32 + 1);
            let chunk = match room {
                true => self.chunk_with_room(Head::Host, record.encoded_len(), false),
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

    /// It was looked anew where journals are: one may have been emptied, or thrown away, and what it held is not to come
    /// home any more. A map checkpoint ends that.
    pub(super) fn end_pledges(&mut self) {
        self.checkpoint.due |= !self.state.pledges().is_empty();
    }

    fn may_be_pledged(&self, home: Lba, journal: Lba) -> bool {
        let is_there = || match self.state.map().get(journal) {
            Entry::Unmapped => false,
            Entry::Zero => self.pledges_zeros(),
            Entry::Plain(_) | Entry::Shared(_) | Entry::Packed(..) => true,
        };
        self.in_range(home, 1) && self.proposers.once().may_pledge(home, journal) && is_there()
    }

    /// Programs from before zeros were pledged pass over such a pledge; they cannot open a volume with these sums.
    fn pledges_zeros(&self) -> bool {
        self.superblock.sums() == SumKind::Xxh3
    }

    /// Whether zeros are pledged to a home block.
    pub(super) fn are_zeros_pledged(&self, home: Lba) -> bool {
        let journal = self.state.pledges().journal_of(home);
        journal.is_some_and(|journal| self.state.map().get(journal) == Entry::Zero)
    }

    /// What is pledged to a block that is written home: the journal block's number in the pool, and where it is.
    pub(super) fn propose_pledged(&mut self, home: Lba) -> Option<(u32, Lba)> {
        let journal = self.state.pledges().journal_of(home)?;
        // Zeros are not compared with anything: another block of the journal may have what is written.
        if self.state.map().get(journal) == Entry::Zero {
            return None;
        }
        let index = self.proposers.once().pledged(journal)?;
        self.stats.checkpoint_writes += 1;
        Some((index, journal))
    }

    /// How many are in force, or a crash may find in force.
    pub(super) fn pledged(&self) -> usize {
        self.state.pledges().len() + self.state.ending_pledges().len()
    }

    /// The home addresses that a crash may find changed, though nobody has written there.
    #[must_use]
    pub fn pledged_homes(&self) -> Vec<Lba> {
        let pledges = [self.state.pledges(), self.state.ending_pledges()];
        let homes = pledges.into_iter().flat_map(Pledges::iter);
        homes.map(|(home, _)| home).collect()
    }

    /// Adds a record that owns no block to a chunk with room, and does what it says.
    pub(super) fn log(&mut self, chunk: ChunkId, record: Record) {
        self.log.get_mut(chunk).push(record);
        self.apply(Origin::NONE, &record);
    }

    /// The same, of a link: no FLUSH waits for it if it says what is pledged.
    pub(super) fn log_link(&mut self, chunk: ChunkId, record: Record, pledged: bool) {
        self.push_link(chunk, record, pledged);
        self.apply(Origin::NONE, &record);
    }

    /// Adds a link, or zeros, to a chunk with room.
    pub(super) fn push_link(&mut self, chunk: ChunkId, record: Record, pledged: bool) {
        let chunk = self.log.get_mut(chunk);
        let tells = chunk.tells;
        chunk.push(record);
        if pledged {
            chunk.tells = tells;
        }
    }

    /// Whether a block's link to what `of` has says what is pledged.
    pub(super) fn is_pledged(&self, lba: Lba, of: Holder) -> bool {
        self.state
            .pledges()
            .journal_of(lba)
            .is_some_and(|journal| of == Holder::Lba(journal))
    }

    /// Whether a crash may find something else there.
    pub(super) fn is_pledged_else(&self, lba: Lba, of: Holder) -> bool {
        let else_than = |pledges: &Pledges| {
            let journal = pledges.journal_of(lba);
            journal.is_some_and(|journal| of != Holder::Lba(journal))
        };
        else_than(self.state.pledges()) || else_than(self.state.ending_pledges())
    }

    /// Whether a crash may find something else there, or something that is here elsewhere.
    pub(super) fn has_pledge(&self, lba: Lba) -> bool {
        self.state.pledges().concern(lba) || self.state.ending_pledges().concern(lba)
    }

    /// The first address from `from` to before `end` where a crash may find something else.
    pub(super) fn next_pledged(&self, from: Lba, end: Lba) -> Option<Lba> {
        let next = |pledges: &Pledges| pledges.next_home(from, end);
        next(self.state.pledges())
            .into_iter()
            .chain(next(self.state.ending_pledges()))
            .min()
    }

    /// After a crash: each home address is mapped to what its journal's block is.
    pub(super) fn redeem(&mut self) {
        let redeemed = self.state.redeem();
        self.hear_of_events();
        self.stats.redeemed_blocks += redeemed;
        self.checkpoint.due |= redeemed > 0;
    }
}
