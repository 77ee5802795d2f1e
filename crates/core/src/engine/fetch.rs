//! Requests that need leaves not in memory wait here. The leaves are read from the medium concurrently
//! ([0058](../../../../docs/decisions/0058-a-map-within-bounds.md)).
//!
//! A read waits by itself. A write waits in the queue, and so do the requests after it, because they take effect later. Each of them asks
//! for its leaves when it arrives, so the leaves of all are read together. The collector waits with a part of its victim.
//!
//! A fetched leaf may have been evicted again before the waiter runs, and it may be damaged. So a waiter retries a few times, and
//! then reads what is still missing synchronously.

use super::residency::{Needs, TRIES, WaitingRead, Who};
use super::verdict::Waiting;
use super::{Engine, Pending};
use crate::addr::{Lba, Leaf, RequestId};
use crate::seam::Effect;
use alloc::vec::Vec;
use core::ops::Range;

impl Engine {
    /// Returns what a read needs that has waited `tries` times. While its leaves are being read, the read waits here.
    pub(super) fn read_needs(&mut self, id: RequestId, lba: Lba, blocks: u32, tries: u8) -> Needs {
        if tries >= TRIES || self.front.course.is_poisoned() {
            return Needs::Pull;
        }
        let mut missing = self.residency.list();
        self.state.missing(lba, blocks, &mut missing);
        let missed = missing.last().copied();
        let missed = missed.filter(|leaf| !self.residency.is_under_way(*leaf));
        let needs = self.ask_for(missing);
        if let Some(leaf) = missed {
            self.read_ahead(leaf);
        }
        if let Needs::Coming(leaf) = needs {
            self.residency.wait(WaitingRead {
                leaf,
                id,
                lba,
                blocks,
                tries: tries + 1,
            });
        }
        needs
    }

    /// If reads are sequential, also requests the leaves after the one that a read misses.
    fn read_ahead(&mut self, missed: Leaf) {
        let ahead = self.residency.ahead_of(missed);
        let end = (missed.0 + 1 + ahead).min(self.superblock.first_parity());
        for leaf in (missed.0 + 1..end).map(Leaf) {
            if self.state.is_away(leaf) {
                self.ask_for_leaf(leaf);
            }
        }
    }

    /// Requests the leaves that a write of some blocks needs.
    pub(super) fn ask_for_leaves(&mut self, lba: Lba, blocks: u32) -> Needs {
        let mut missing = self.residency.list();
        self.state.missing_to_change(lba, blocks, &mut missing);
        self.ask_for(missing)
    }

    /// Requests the leaves that say which of some of a victim's blocks are live.
    fn ask_for_owners(&mut self, blocks: Range<u32>) -> Needs {
        let mut missing = self.residency.list();
        let tags = &self.collector.tags()[blocks.start as usize..blocks.end as usize];
        let owners = tags.iter().map(|tag| tag.owner);
        self.state.missing_of_owners(owners, &mut missing);
        self.ask_for(missing)
    }

    fn ask_for(&mut self, missing: Vec<Leaf>) -> Needs {
        missing.iter().for_each(|leaf| self.ask_for_leaf(*leaf));
        self.residency.needs(missing)
    }

    /// True if the first request of the queue has to wait for leaves, which are then requested.
    pub(super) fn first_waits_for_leaves(&mut self, first: &Waiting) -> bool {
        let Waiting::Write(write) = first else {
            return false;
        };
        let (lba, blocks) = (
            write.lba.plus(write.placed as u64),
            write.blocks.len() - write.placed,
        );
        self.request_and_wait(Who::First, |engine| {
            engine.ask_for_leaves(lba, blocks as u32)
        })
    }

    /// True if a victim has to wait for leaves that say which of some of its blocks are live; they are then requested.
    pub(super) fn victim_waits_for_leaves(&mut self, blocks: Range<u32>) -> bool {
        let waits = self.request_and_wait(Who::Victim, |engine| engine.ask_for_owners(blocks));
        if !waits {
            // The next blocks may wait as long again.
            self.residency.start_again(Who::Victim);
        }
        waits
    }

    /// Requests the leaves that `who` needs, by `request`. Returns true if `who` has to wait for one of them. Nobody waits without end, nor
    /// on a poisoned volume: what is missing then is read when it is used.
    fn request_and_wait(&mut self, who: Who, request: impl FnOnce(&mut Self) -> Needs) -> bool {
        if self.residency.is_waiting(who) {
            return true;
        }
        if self.residency.has_waited(who) || self.front.course.is_poisoned() {
            return false;
        }
        let needs = request(self);
        self.residency.begin_to_wait(who, needs)
    }

    fn ask_for_leaf(&mut self, leaf: Leaf) {
        if !self.residency.may_fetch(leaf) {
            return;
        }
        let Some(at) = self.state.place_of_leaf(leaf) else {
            return;
        };
        self.residency
            .begin_fetch(leaf, self.checkpoint.generation());
        self.front.ask(Pending::Fetch(leaf), |id| Effect::ReadMeta {
            id,
            at,
            blocks: 1,
        });
    }
}
