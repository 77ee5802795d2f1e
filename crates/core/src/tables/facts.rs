//! The current facts about blocks: links, counts, and which LBA leads where.

use super::Tables;
use super::order::{Stage, Step};
use super::table::Table;
use crate::addr::{Buf, Lba};
use crate::format::table::{Kind, Link};
use crate::{front, limits};
use alloc::vec::Vec;

impl Tables {
    /// Where an LBA leads now.
    pub(super) fn link(&self, lba: Lba) -> Link {
        let key = lba.0 as u32;
        self.groups.link(key).unwrap_or_else(|| self.map.get(key))
    }

    /// The first LBA from `from` on, before `end`, that leads somewhere.
    pub(super) fn next_mapped(&self, from: Lba, end: Lba) -> Option<(Lba, Link)> {
        let (mut from, end) = (from.0 as u32, end.0 as u32);
        while from < end {
            let near = self.groups.next_link(from, end);
            // Past what the groups name the map need not be searched.
            let until = near.map_or(end, |near| near + 1);
            let key = self.map.next(from, until).or(near)?;
            let lba = Lba(key.into());
            let link = self.link(lba);
            if link != Link::NONE {
                return Some((lba, link));
            }
            from = key + 1;
        }
        None
    }

    /// What is mapped from `lba` on: runs of blocks with data on the medium, or without. At least one extent and at most `max`,
    /// over at most `blocks` blocks, or over only the first of them: looking at all could take long, and the caller can call
    /// again for the rest.
    #[must_use]
    pub fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<(u64, bool)> {
        let end = Lba(lba
            .0
            .saturating_add(blocks.min(limits::EXTENT_BLOCKS))
            .min(self.superblock.logical_blocks()));
        front::extents(lba..end, max, |at| match self.next_mapped(at, end) {
            None => (end.0 - at.0, false),
            Some((next, _)) if next > at => (next.0 - at.0, false),
            Some(_) => (1, true),
        })
    }

    /// Makes an LBA lead somewhere else. The block must have been counted for it.
    pub(super) fn relink(&mut self, lba: Lba, link: Link) {
        let key = lba.0 as u32;
        let old = self.link(lba);
        if old == Link::NONE && link == Link::NONE {
            return;
        }
        if let Some(index) = link.index() {
            self.blocks.refer(index, &mut self.stats);
        }
        let now = self.front.course.now();
        let before = self.groups.running_mut().set_link(key, link, now);
        if let Some(index) = old.index() {
            self.blocks.unrefer(index, &mut self.stats);
        }
        // A link that this group has not committed is not on the medium: its count may go down at once.
        if let Some(index) = before.and_then(Link::index) {
            if self.blocks.refs(index) == 0 && self.groups.running_mut().drop_print(index) {
                self.lower(index);
            }
            self.lower(index);
        }
    }

    /// Lowers a count, after the link or fingerprint that it was raised for is gone from the medium, or never was there.
    #[inline]
    pub(super) fn lower(&mut self, index: u32) {
        let is_over = self.blocks.lower(index);
        self.mark(Step::CountDown, Table::<u16>::block_of(index));
        if is_over {
            self.free(index);
        }
    }

    /// Takes one pin off a block.
    #[inline]
    pub(super) fn unpin(&mut self, index: u32) {
        if self.blocks.unpin(index) {
            self.free(index);
        }
    }

    /// Frees a block that nothing keeps.
    fn free(&mut self, index: u32) {
        if let Some(buf) = self.buffers.drop_queued(index) {
            // Written by a client, and gone before it reached the medium.
            self.stats.absorbed_blocks += 1;
            self.release(buf);
        }
        self.blocks.free(index);
    }

    /// Notes that a step has changed a table block.
    pub(super) fn mark(&mut self, step: Step, block: u32) {
        let kind = match step {
            Step::CountUp | Step::CountDown => Kind::Counts,
            Step::Print | Step::Unprint => Kind::Prints,
            Step::Link | Step::Data => unreachable!("these are marked by the commit itself"),
        };
        match step.stage() {
            Stage::Later => self.mark_later(kind, block),
            _ => self.groups.running_mut().add_ground(kind, block),
        }
    }

    pub(super) fn mark_later(&mut self, kind: Kind, block: u32) {
        self.backlog.hold_back(kind, block, self.front.course.now());
    }

    pub(super) fn release(&mut self, buf: Buf) {
        self.front.outbox.release(buf);
    }
}
