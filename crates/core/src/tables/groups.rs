//! Clients' changes that are not durable yet: the running group, and the group that is being committed.
//!
//! A link or a fingerprint of the running group is newer than one of the group that is being committed, and that is newer than
//! the image of the tables.

use super::arrivals::Arrivals;
use super::commit::Commit;
use super::group::Group;
use super::options::Options;
use crate::addr::Nanos;
use crate::format::table::{Kind, Link};
use crate::front::Waiters;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// See the module.
pub(super) struct Groups {
    running: Group,
    /// Writes of data for the running group that have not ended.
    writes: usize,
    committing: Option<Commit>,
    /// Whether something was written since the last sync was requested.
    unsynced: bool,
    arrivals: Arrivals,
    /// Each waits until the group of a number is durable.
    waiters: Waiters<u64>,
}

impl Groups {
    /// A first group, which commits that these blocks have lost their fingerprints.
    pub fn new(unprinted: Vec<u32>) -> Self {
        Self {
            running: Group::first(unprinted),
            writes: 0,
            committing: None,
            unsynced: false,
            arrivals: Arrivals::default(),
            waiters: Waiters::default(),
        }
    }

    /// The group that runs.
    #[inline]
    pub fn running(&self) -> &Group {
        &self.running
    }

    /// The same, for changing it.
    #[inline]
    pub fn running_mut(&mut self) -> &mut Group {
        &mut self.running
    }

    /// The group that is being committed.
    #[inline]
    pub fn commit(&self) -> Option<&Commit> {
        self.committing.as_ref()
    }

    /// The same, for carrying it out.
    #[inline]
    pub fn commit_mut(&mut self) -> Option<&mut Commit> {
        self.committing.as_mut()
    }

    /// The requests that wait until a group is durable.
    #[inline]
    pub fn waiters(&self) -> &Waiters<u64> {
        &self.waiters
    }

    /// The same, for changing it.
    #[inline]
    pub fn waiters_mut(&mut self) -> &mut Waiters<u64> {
        &mut self.waiters
    }

    /// True while what recovery found is being committed.
    #[inline]
    pub fn are_doubling(&self) -> bool {
        self.commit().is_some_and(Commit::is_of_found)
    }

    /// True if everything that clients have changed is durable, and so is all that was written.
    pub fn are_clean(&self) -> bool {
        self.committing.is_none() && self.running.is_empty() && !self.unsynced
    }

    /// The link of an LBA, if it is not durable yet.
    #[inline]
    pub fn link(&self, key: u32) -> Option<Link> {
        let committing = || self.commit().and_then(|commit| commit.group().link(key));
        self.running.link(key).or_else(committing)
    }

    /// The first LBA from `from` on, and before `end`, whose link is not durable yet.
    pub fn next_link(&self, from: u32, end: u32) -> Option<u32> {
        let running = self.running.next_link(from, end);
        let commit = self.commit();
        let committing = commit.and_then(|commit| commit.group().next_link(from, end));
        running.into_iter().chain(committing).min()
    }

    /// The checksum of a data block whose fingerprint is not in the table yet.
    pub fn print(&self, index: u32) -> Option<u32> {
        let committing = || self.commit().and_then(|commit| commit.group().print(index));
        self.running.print(index).or_else(committing)
    }

    /// Notes that a request arrives that changes something.
    #[inline]
    pub fn count_arrival(&mut self, now: Nanos) {
        self.arrivals.note(now);
        self.running.count_request();
    }

    /// Notes that a request waits for the running group. Returns true if the group is held back, because another write is
    /// likely within `anticipation`.
    pub fn want(&mut self, flush: bool, now: Nanos, anticipation: u64) -> bool {
        let hold = match self.arrivals.are_within(anticipation) {
            true => anticipation,
            false => 0,
        };
        self.running.want(flush, now, hold)
    }

    /// When the running group is due. A volume that is stopping commits at once, even if there is only written data that needs a sync.
    pub fn due(&self, now: Nanos, runs: bool, options: &Options) -> Option<Nanos> {
        let ends = !runs && self.unsynced;
        if self.running.is_empty() && !ends {
            return None;
        }
        let at_once = !runs || self.running.is_full(options.group_links);
        Some(match at_once {
            true => now,
            false => self.running.due(now, options.commit_requests),
        })
    }

    /// Begins to commit the running group; another one runs from now on. Returns the table blocks that are written before the
    /// group's links.
    pub fn begin_commit(&mut self) -> BTreeSet<(Kind, u32)> {
        let next = Group::new(self.running.number() + 1);
        let mut group = core::mem::replace(&mut self.running, next);
        let ground = group.take_ground();
        let writes = core::mem::take(&mut self.writes);
        self.begin(Commit::new(group, writes));
        ground
    }

    /// Begins a commit.
    pub fn begin(&mut self, commit: Commit) {
        debug_assert!(self.committing.is_none(), "one group after another");
        self.committing = Some(commit);
    }

    /// Ends the commit.
    pub fn end_commit(&mut self) -> Option<Commit> {
        self.committing.take()
    }

    /// Notes that data of this group is about to be written.
    pub fn begin_data(&mut self, group: u64) {
        match &mut self.committing {
            Some(commit) if commit.group().number() == group => commit.begin_write(),
            _ => self.writes += 1,
        }
    }

    /// Notes that a write of data of this group has ended.
    pub fn end_data(&mut self, group: u64) {
        match &mut self.committing {
            Some(commit) if commit.group().number() == group => commit.end_write(),
            _ => self.writes -= 1,
        }
    }

    /// Notes that something is written that is durable only after a sync.
    #[inline]
    pub fn on_write(&mut self) {
        self.unsynced = true;
    }

    /// Notes that a sync, or a write that is durable by itself, is requested. It may not cover data that is being written for the running
    /// group meanwhile.
    pub fn on_sync(&mut self) {
        self.unsynced = self.writes > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::commit::At;
    use super::super::options::Persistence;
    use super::*;
    use crate::limits;
    use crate::policy::zero::Zero;

    const OPTIONS: Options = Options {
        persistence: Persistence::Weak,
        later_nanos: 0,
        anticipation_nanos: 0,
        commit_requests: 0,
        group_links: 2,
        discard_blocks_min: 0,
        zero: Zero::new(true),
        write_buffers: 0,
    };

    fn with_link(key: u32) -> Groups {
        let mut groups = Groups::new(Vec::new());
        let running = groups.running_mut();
        running.set_link(key, Link::to(1, 0), Nanos(5));
        running.add_print(1, 70);
        running.add_ground(Kind::Counts, 0);
        groups
    }

    #[test]
    fn the_running_group_is_newer_than_the_one_that_is_committed() {
        let mut groups = with_link(8);
        let ground = groups.begin_commit();
        assert_eq!(ground, BTreeSet::from([(Kind::Counts, 0)]));
        assert_eq!(groups.running().number(), 2);
        assert_eq!(
            (groups.link(8), groups.print(1)),
            (Some(Link::to(1, 0)), Some(70))
        );
        groups.running_mut().set_link(9, Link::NONE, Nanos(6));
        assert_eq!(groups.next_link(0, 10), Some(8));
        groups.running_mut().set_link(8, Link::NONE, Nanos(6));
        assert_eq!(groups.link(8), Some(Link::NONE));
        groups.end_commit();
        assert_eq!((groups.link(8), groups.print(1)), (Some(Link::NONE), None));
        assert!(!groups.are_clean());
    }

    #[test]
    fn data_belongs_to_its_group() {
        let mut groups = with_link(0);
        groups.begin_data(1);
        groups.begin_commit();
        groups.begin_data(2);
        groups.on_write();
        groups.on_sync();
        groups.end_data(1);
        assert!(groups.commit().is_some_and(Commit::is_over));
        groups.end_commit();
        assert!(
            !groups.are_clean(),
            "the sync did not cover the second write"
        );
        groups.end_data(2);
        groups.on_sync();
        assert!(groups.are_clean());
    }

    #[test]
    fn a_group_is_due_when_it_is_full_or_the_volume_stops() {
        let mut groups = Groups::new(Vec::new());
        assert_eq!(groups.due(Nanos(9), true, &OPTIONS), None);
        groups.on_write();
        assert_eq!(groups.due(Nanos(9), true, &OPTIONS), None);
        assert_eq!(groups.due(Nanos(9), false, &OPTIONS), Some(Nanos(9)));
        let mut groups = with_link(0);
        let after = Nanos(5 + limits::COMMIT_AFTER_NANOS);
        assert_eq!(groups.due(Nanos(9), true, &OPTIONS), Some(after));
        groups.running_mut().set_link(1, Link::NONE, Nanos(5));
        assert_eq!(groups.due(Nanos(9), true, &OPTIONS), Some(Nanos(9)));
    }

    #[test]
    fn corrections_by_recovery_are_committed_first() {
        let mut groups = Groups::new(Vec::new());
        groups.begin(Commit::of_found(At::Links));
        assert!(groups.are_doubling() && groups.running().number() == 1);
        groups.end_commit();
        assert!(!groups.are_doubling());
    }
}
