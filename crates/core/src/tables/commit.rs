//! Commits make facts durable in groups. Each group is carried to the medium stage by stage.
//!
//! ```text
//! ordered:  data, counts up, fingerprints given up | sync | links | sync | (later) counts down, fingerprints
//! shadow:   data, table blocks into their other slots | directory | sync | root, durable
//! ```
//!
//! A group collects clients' changes until its commit begins: when a request waits for the group, or after a second (OrderMergeDedup §3).
//! All changes to one table block are one write. Changes that no answer waits for are held back for up to 30 s, to be merged with changes
//! that must be written. When single writes wait for the group, and they arrive so fast that another is likely within a millisecond, the
//! commit is held back that long (§2.2).

mod run;

use super::group::Group;
use super::pending::Pending;
use crate::format::table::Link;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The number of the group that commits corrections by recovery. Groups of clients' changes have higher numbers.
const FOUND: u64 = 0;

/// The stage of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Ground,
    GroundSync,
    Links,
    LinksSync,
    Directory,
    DirectorySync,
    Root,
}

/// A group that is being committed.
pub(super) struct Commit {
    group: Group,
    at: At,
    /// Writes that have not ended, including those in the queue.
    under_way: usize,
    /// Table blocks that wait to be written.
    queue: VecDeque<Pending>,
    /// Blocks that links on the medium led to before, but not any more.
    unlinked: Vec<u32>,
}

impl Commit {
    /// Starts the commit of a group; `under_way` of its writes have not ended.
    pub fn new(group: Group, writes: usize) -> Self {
        Self {
            group,
            at: At::Ground,
            under_way: writes,
            queue: VecDeque::new(),
            unlinked: Vec::new(),
        }
    }

    /// Starts a commit of recovery's corrections at this stage.
    pub fn of_found(at: At) -> Self {
        Self {
            at,
            ..Self::new(Group::new(FOUND), 0)
        }
    }

    pub fn is_of_found(&self) -> bool {
        self.group.number() == FOUND
    }

    #[inline]
    pub fn group(&self) -> &Group {
        &self.group
    }

    pub fn at(&self) -> At {
        self.at
    }

    /// Goes on to another stage, when all writes of this one have ended.
    pub fn go_to(&mut self, at: At) {
        debug_assert!(self.at != at, "a stage ends");
        self.at = at;
    }

    /// True if no write of the stage has to end.
    pub fn is_over(&self) -> bool {
        self.under_way == 0
    }

    /// Queues blocks that are to be written in this stage.
    pub fn queue(&mut self, writes: impl Iterator<Item = Pending>) {
        let queued = self.queue.len();
        self.queue.extend(writes);
        self.under_way += self.queue.len() - queued;
    }

    /// Takes the next of them, which counts as under way until it ends.
    pub fn next_write(&mut self) -> Option<Pending> {
        self.queue.pop_front()
    }

    /// Notes that a write that was not queued begins.
    pub fn begin_write(&mut self) {
        self.under_way += 1;
    }

    /// Notes that a write has ended.
    pub fn end_write(&mut self) {
        debug_assert!(self.under_way > self.queue.len(), "no write was requested");
        self.under_way -= 1;
    }

    /// Applies the group's links. `replace` sets the link of an LBA, and returns the one before.
    pub fn apply_links(&mut self, mut replace: impl FnMut(u32, Link) -> Link) {
        for (key, link) in self.group.links() {
            self.unlinked.extend(replace(key, link).index());
        }
    }

    /// Takes the group's fingerprints, to be set.
    pub fn take_prints(&mut self) -> impl Iterator<Item = (u32, u32)> + use<> {
        self.group.take_prints().into_iter()
    }

    /// The blocks to be counted down once everything in the group is durable: those that links led to, and those that have lost
    /// their fingerprint.
    pub fn into_lost(mut self) -> impl Iterator<Item = u32> {
        debug_assert!(self.queue.is_empty(), "something was not written");
        let unprinted = self.group.take_unprinted();
        self.unlinked.into_iter().chain(unprinted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Nanos;
    use crate::format::table::Kind;

    #[test]
    fn a_stage_is_over_when_all_its_writes_have_ended() {
        let mut commit = Commit::new(Group::new(4), 1);
        assert_eq!((commit.at(), commit.group().number()), (At::Ground, 4));
        commit.queue((0..2).map(|block| Pending::Table(Kind::Counts, block)));
        commit.end_write();
        assert!(matches!(commit.next_write(), Some(Pending::Table(_, 0))));
        assert!(matches!(commit.next_write(), Some(Pending::Table(_, 1))));
        assert!(commit.next_write().is_none());
        commit.end_write();
        assert!(!commit.is_over());
        commit.end_write();
        assert!(commit.is_over());
    }

    #[test]
    fn blocks_that_links_led_to_are_counted_down() {
        let mut group = Group::first([9].to_vec());
        group.set_link(1, Link::to(5, 0), Nanos(0));
        group.set_link(2, Link::NONE, Nanos(0));
        let mut commit = Commit::new(group, 0);
        commit.apply_links(|key, _| match key {
            1 => Link::NONE,
            _ => Link::to(6, 0),
        });
        assert!(!commit.is_of_found() && Commit::of_found(At::Root).is_of_found());
        assert!(commit.into_lost().eq([6, 9]));
    }
}
