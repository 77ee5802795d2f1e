//! The path of a write, a discard and a flush: into memory, and into the running group.

use super::Tables;
use super::order::Step;
use super::table::Table;
use super::twin::Sharing;
use super::verdict::Verdict;
use crate::addr::{Lba, RequestId};
use crate::format::table::Link;
use crate::front::Placed;
use crate::limits;
use crate::policy::once::Once;
use crate::reserve::Need;
use crate::seam::{Class, Payload};

impl Tables {
    /// Places one block: shared, zero, absorbed, or stored.
    pub(super) fn place_block(&mut self, lba: Lba, payload: &Payload, verdict: &Verdict) -> Placed {
        if self.group_is_full() {
            self.groups.running_mut().hurry();
            return Placed::Wait;
        }
        let old = self.link(lba);
        match *verdict {
            Verdict::Write => {}
            Verdict::Asked(_) => return Placed::Wait,
            Verdict::Same(twin) => {
                if let Sharing::Done = self.share(lba, payload, twin) {
                    self.note(lba, payload);
                    self.release(payload.buf);
                    return Placed::Done;
                }
            }
        }
        if self.options.zero.takes(payload) {
            self.proposers.once_mut().forget(lba, 1);
            self.relink(lba, Link::NONE);
            self.release(payload.buf);
            self.stats.zero_blocks += 1;
            return Placed::Done;
        }
        if self.absorb(lba, old, payload) {
            self.note(lba, payload);
            return Placed::Done;
        }
        // An overwrite certainly frees a block only if nothing else leads to that block.
        let gives_back = old
            .index()
            .is_some_and(|index| self.blocks.refs(index) == 1);
        if !gives_back {
            let (need, room) = (self.need(lba, old, payload.digest.class), self.room());
            if !self.reserve.admits(self.front.course.now(), need, room) {
                return Placed::Full;
            }
        }
        let before = match lba.0 {
            0 => None,
            _ => self.link(Lba(lba.0 - 1)).index(),
        };
        if u64::from(self.blocks.free_blocks()) < limits::FREE_BLOCKS_LOW || self.too_many_unused()
        {
            self.give_up_prints();
        }
        let Some(index) = self.blocks.take(before) else {
            self.groups.running_mut().hurry();
            return Placed::Wait;
        };
        self.buffers.queue(index, payload.buf);
        self.blocks.raise(index);
        let is_known = self.proposers.dedup().is_on() && !self.proposers.dedup().is_critical(lba);
        if is_known {
            // The fingerprint's own reference (OrderMergeDedup §2.1).
            self.blocks.raise(index);
            let running = self.groups.running_mut();
            running.add_print(index, payload.digest.sum);
        }
        self.mark(Step::CountUp, Table::<u16>::block_of(index));
        self.relink(lba, Link::to(index, payload.digest.sum));
        self.stats.stored_whole(payload.digest.class);
        self.note(lba, payload);
        if self.buffers.queued() >= limits::QUEUED_BLOCKS && !self.groups.are_doubling() {
            let running = self.groups.running().number();
            self.write_queued(running);
        }
        Placed::Done
    }

    /// Classifies a block for the space reserve.
    fn need(&self, lba: Lba, old: Link, class: Class) -> Need {
        match old.index().is_none() && class == Class::Data && !self.proposers.once().has(lba) {
            true => Need::New,
            false => Need::Upkeep,
        }
    }

    pub(crate) fn once_mut(&mut self) -> &mut Once {
        self.proposers.once_mut()
    }

    fn group_is_full(&self) -> bool {
        self.groups.running().is_full(self.options.group_links)
    }

    /// Replaces in memory a block that is not being written yet, and that nothing else leads to.
    fn absorb(&mut self, lba: Lba, old: Link, payload: &Payload) -> bool {
        let Some(index) = old.index() else {
            return false;
        };
        let key = lba.0 as u32;
        let own = self.buffers.is_queued(index)
            && self.blocks.refs(index) == 1
            && !self.blocks.is_pinned(index)
            && self.groups.running().link(key) == Some(old);
        if !own {
            return false;
        }
        if let Some(before) = self.buffers.replace(index, payload.buf) {
            self.release(before);
        }
        let sum = payload.digest.sum;
        let running = self.groups.running_mut();
        running.change_print(index, sum);
        running.set_link(key, Link::to(index, sum), self.front.course.now());
        self.stats.absorbed_blocks += 1;
        true
    }

    /// Tells the policies about a block that is stored.
    fn note(&mut self, lba: Lba, payload: &Payload) {
        self.proposers.note(lba, payload, &mut self.stats);
        if self
            .proposers
            .dedup()
            .takes_note_of(lba, payload.digest.class)
            && let Some(index) = self.link(lba).index()
        {
            self.met(index, payload.digest.sum);
        }
    }

    /// Unlinks the links from `lba` on. Under a root all of them go into one group, because a discard is one step (promise 3): a group
    /// may exceed its bound by one discard. Without a root a discard is not one step, so it may continue in the next group.
    pub(super) fn place_unmap(&mut self, lba: Lba, blocks: u64) -> bool {
        let end = lba.plus(blocks);
        let mut next = self.next_mapped(lba, end);
        if next.is_some() && self.group_is_full() {
            self.groups.running_mut().hurry();
            return false;
        }
        while let Some((mapped, _)) = next {
            if self.shadow.is_none() && self.group_is_full() {
                self.groups.running_mut().hurry();
                return false;
            }
            self.proposers.once_mut().forget(mapped, 1);
            self.relink(mapped, Link::NONE);
            next = self.next_mapped(mapped.plus(1), end);
        }
        true
    }

    /// Like [`Engine::nothing_waits`](crate::engine::Engine::nothing_waits).
    #[must_use]
    pub fn nothing_waits(&self) -> bool {
        self.front.queue.is_empty()
    }

    /// Answers `request` once everything placed so far is durable.
    pub(super) fn wait_for_group(&mut self, request: RequestId, flush: bool) {
        // Blocks that recovery found in one copy only do not count as durable yet.
        let takes_anew = self.groups.commit().is_none() || self.groups.are_doubling();
        let has_links = self.groups.running().has_links();
        let group = if has_links || takes_anew && self.backlog.has_anew() {
            self.want_group(flush);
            self.groups.running().number()
        } else if let Some(commit) = self.groups.commit() {
            commit.group().number()
        } else {
            self.stats.flushes_free += u64::from(flush);
            return self.front.reply(request, Ok(()));
        };
        self.proposers.once_mut().awaits(flush, &mut self.stats);
        self.groups.waiters_mut().push(group, request, flush);
    }
}
