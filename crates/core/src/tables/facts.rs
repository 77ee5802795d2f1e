//! What is known of blocks, as of now: links, counts, who leads where.

use super::Tables;
use super::commit::Group;
use super::order::Step;
use super::table::Table;
use crate::addr::Lba;
use crate::format::table::Link;
use crate::limits;
use alloc::vec::Vec;

impl Tables {
    /// Where an LBA leads now.
    pub(super) fn link(&self, lba: Lba) -> Link {
        let key = lba.0 as u32;
        if let Some(link) = self.running.links.get(&key) {
            return *link;
        }
        match self
            .committing
            .as_ref()
            .and_then(|c| c.group.links.get(&key))
        {
            Some(link) => *link,
            None => self.map.get(key),
        }
    }

    /// The first LBA from `from` on, before `end`, that leads somewhere.
    pub(super) fn next_mapped(&self, from: Lba, end: Lba) -> Option<(Lba, Link)> {
        let (mut from, end) = (from.0 as u32, end.0 as u32);
        while from < end {
            let overlay = |group: &Group| group.links.range(from..end).next().map(|(key, _)| *key);
            let groups = [
                overlay(&self.running),
                self.committing.as_ref().and_then(|c| overlay(&c.group)),
            ];
            let near = groups.into_iter().flatten().min();
            // Behind what the groups say the map need not be searched.
            let until = near.map_or(end, |near| near + 1);
            let mapped = self.map.next(from, until).map(|(key, _)| key);
            let key = mapped.or(near)?;
            let lba = Lba(key.into());
            let link = self.link(lba);
            if link != Link::NONE {
                return Some((lba, link));
            }
            from = key + 1;
        }
        None
    }

    /// What is mapped from `lba` on: runs of blocks with data on the medium, or without. At least one
    /// extent, at most `max`, over at most `blocks` blocks, or over the first of them: looking at all
    /// could take long, and whoever wants the rest asks again.
    #[must_use]
    pub fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<(u64, bool)> {
        let end = Lba(lba
            .0
            .saturating_add(blocks.min(limits::EXTENT_BLOCKS))
            .min(self.superblock.logical_blocks()));
        let mut extents: Vec<(u64, bool)> = Vec::new();
        let mut at = lba;
        for _ in 0..limits::EXTENT_LOOKS {
            if at >= end {
                break;
            }
            let (run, mapped) = match self.next_mapped(at, end) {
                None => (end.0 - at.0, false),
                Some((next, _)) if next > at => (next.0 - at.0, false),
                Some(_) => (1, true),
            };
            let count = extents.len();
            match extents.last_mut() {
                Some(last) if last.1 == mapped => last.0 += run,
                Some(_) if count == max => break,
                _ => extents.push((run, mapped)),
            }
            at = at.plus(run);
        }
        extents
    }

    /// Lets an LBA lead somewhere else. The block must have been counted for it.
    pub(super) fn relink(&mut self, lba: Lba, link: Link) {
        let key = lba.0 as u32;
        let old = self.link(lba);
        if old == Link::NONE && link == Link::NONE {
            return;
        }
        if let Some(index) = link.index() {
            self.refer(index);
        }
        if self.running.links.is_empty() {
            self.running.began = self.course.now();
        }
        let before = self.running.links.insert(key, link);
        if let Some(index) = old.index() {
            self.unrefer(index);
        }
        // A link that this group had not committed is on no medium: its count may go at once.
        if let Some(index) = before.and_then(Link::index) {
            if self.refs.get(index) == 0 && self.running.prints.remove(&index).is_some() {
                self.lower(index);
            }
            self.lower(index);
        }
    }

    /// A count goes up: before the link for which it does.
    pub(super) fn raise(&mut self, index: u32) {
        let count = self.counts.get(index);
        assert!(count < u16::MAX, "the count of data block {index} has room");
        self.counts.set(index, count + 1);
    }

    /// A count goes down: after that for which it was raised is gone from the medium, or never was there.
    pub(super) fn lower(&mut self, index: u32) {
        let count = self.counts.get(index);
        assert!(count > 0, "the count of data block {index} is too low");
        self.counts.set(index, count - 1);
        self.mark(Step::CountDown, Table::<u16>::block_of(index));
        if count == 1 {
            self.free_if_unused(index);
        }
    }

    fn free_if_unused(&mut self, index: u32) {
        if self.counts.get(index) > 0 || self.pins.contains_key(&index) {
            return;
        }
        if self.queued.remove(&index)
            && let Some(buf) = self.held.remove(&index)
        {
            // Written by a client, and gone before it reached the medium.
            self.stats.absorbed_blocks += 1;
            self.release(buf);
        }
        self.space.free(index);
    }

    fn refer(&mut self, index: u32) {
        let refs = self.refs.get(index);
        self.refs.set(index, refs + 1);
        match refs {
            0 => self.stats.live_blocks += 1,
            1 => {
                self.stats.shared_pages += 1;
                self.stats.shared_owners += 2;
            }
            _ => self.stats.shared_owners += 1,
        }
    }

    fn unrefer(&mut self, index: u32) {
        let refs = self.refs.get(index);
        self.refs.set(index, refs - 1);
        match refs {
            1 => self.stats.live_blocks -= 1,
            2 => {
                self.stats.shared_pages -= 1;
                self.stats.shared_owners -= 2;
            }
            _ => self.stats.shared_owners -= 1,
        }
    }

    /// Nobody writes over a pinned block.
    pub(super) fn pin(&mut self, index: u32) {
        *self.pins.entry(index).or_default() += 1;
    }

    pub(super) fn unpin(&mut self, index: u32) {
        let Some(pins) = self.pins.get_mut(&index) else {
            unreachable!("data block {index} is pinned")
        };
        *pins -= 1;
        if *pins == 0 {
            self.pins.remove(&index);
            self.free_if_unused(index);
        }
    }
}
