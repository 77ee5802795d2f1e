//! A group: the changes by clients since the last commit began.

use crate::addr::Nanos;
use crate::format::table::{Kind, Link};
use crate::limits;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// See the module.
pub(super) struct Group {
    number: u64,
    /// The new links, by LBA.
    links: BTreeMap<u32, Link>,
    /// Table blocks that must be on the medium before the group's links.
    ground: BTreeSet<(Kind, u32)>,
    /// Fingerprints of blocks that the group has stored.
    prints: BTreeMap<u32, u32>,
    /// Blocks whose fingerprint was given up.
    unprinted: Vec<u32>,
    /// Such blocks have been looked for.
    gave_up: bool,
    requests: u32,
    began: Nanos,
    /// A request waits for it.
    wanted: bool,
    /// Requests cannot go on before its commit.
    urgent: bool,
    /// Until when the group is held back for more writes.
    held_until: Nanos,
}

impl Group {
    pub fn new(number: u64) -> Self {
        Self {
            number,
            links: BTreeMap::new(),
            ground: BTreeSet::new(),
            prints: BTreeMap::new(),
            unprinted: Vec::new(),
            gave_up: false,
            requests: 0,
            began: Nanos(0),
            wanted: false,
            urgent: false,
            held_until: Nanos(0),
        }
    }

    /// The first group of a life, which commits that these blocks have lost their fingerprints.
    pub fn first(unprinted: Vec<u32>) -> Self {
        Self {
            unprinted,
            ..Self::new(1)
        }
    }

    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn is_empty(&self) -> bool {
        self.links.is_empty() && self.unprinted.is_empty()
    }

    /// Notes that one more request changes something.
    #[inline]
    pub fn count_request(&mut self) {
        self.requests += 1;
    }

    // Links.

    /// The new link of an LBA, if the group has one.
    #[inline]
    pub fn link(&self, key: u32) -> Option<Link> {
        self.links.get(&key).copied()
    }

    /// The first LBA from `from` on, and before `end`, that has a new link.
    pub fn next_link(&self, from: u32, end: u32) -> Option<u32> {
        self.links.range(from..end).next().map(|(key, _)| *key)
    }

    pub fn links(&self) -> impl Iterator<Item = (u32, Link)> {
        self.links.iter().map(|(key, link)| (*key, *link))
    }

    pub fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// True if it changes so many links.
    #[inline]
    pub fn is_full(&self, links: usize) -> bool {
        self.links.len() >= links
    }

    /// Gives an LBA a new link, and returns the one that the group had for it.
    #[inline]
    pub fn set_link(&mut self, key: u32, link: Link, now: Nanos) -> Option<Link> {
        if self.links.is_empty() {
            self.began = now;
        }
        self.links.insert(key, link)
    }

    // What must be on the medium before them.

    /// Has a table block written before the links.
    #[inline]
    pub fn add_ground(&mut self, kind: Kind, block: u32) {
        self.ground.insert((kind, block));
    }

    /// Takes the table blocks that are written before the links.
    pub fn take_ground(&mut self) -> BTreeSet<(Kind, u32)> {
        core::mem::take(&mut self.ground)
    }

    // Fingerprints.

    /// The checksum of a block that the group has stored, if it gets a fingerprint.
    pub fn print(&self, index: u32) -> Option<u32> {
        self.prints.get(&index).copied()
    }

    /// Has a block get a fingerprint.
    #[inline]
    pub fn add_print(&mut self, index: u32, sum: u32) {
        self.prints.insert(index, sum);
    }

    /// Notes that a block has another content now.
    #[inline]
    pub fn change_print(&mut self, index: u32, sum: u32) {
        if let Some(print) = self.prints.get_mut(&index) {
            *print = sum;
        }
    }

    /// Has a block get no fingerprint. Returns true if it was to get one.
    #[inline]
    pub fn drop_print(&mut self, index: u32) -> bool {
        self.prints.remove(&index).is_some()
    }

    /// Takes the fingerprints that are to be set.
    pub fn take_prints(&mut self) -> BTreeMap<u32, u32> {
        core::mem::take(&mut self.prints)
    }

    /// How many fingerprints may be given up now; none if they have been looked for already.
    pub fn begin_to_give_up(&mut self) -> usize {
        match core::mem::replace(&mut self.gave_up, true) {
            true => 0,
            false => limits::PRINTS_GIVEN_UP.saturating_sub(self.unprinted.len()),
        }
    }

    /// Allows another search for contents that no LBA has.
    pub fn give_up_again(&mut self) {
        self.gave_up = false;
    }

    /// Notes that a block's fingerprint was given up.
    pub fn give_up(&mut self, index: u32, now: Nanos) {
        if self.is_empty() {
            self.began = now;
        }
        self.unprinted.push(index);
    }

    /// Takes the blocks whose fingerprints were given up.
    pub fn take_unprinted(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.unprinted)
    }

    // When it is due.

    /// Notes that nothing can go on without it.
    #[inline]
    pub fn hurry(&mut self) {
        self.urgent = true;
    }

    /// Notes that a request waits for the group. The first such request holds the group back for a short time, because more writes are
    /// likely. A FLUSH ends the hold, because its client writes nothing more until it is answered. Returns true if the group is held
    /// back.
    pub fn want(&mut self, flush: bool, now: Nanos, hold: u64) -> bool {
        if flush {
            self.held_until = now;
        }
        if self.wanted {
            return false;
        }
        self.wanted = true;
        self.held_until = now;
        let is_held = !flush && hold > 0;
        if is_held {
            self.held_until.0 += hold;
        }
        is_held
    }

    /// When it is due by itself; at once after this many requests, if that is not 0.
    pub fn due(&self, now: Nanos, requests: u32) -> Nanos {
        if self.urgent || requests > 0 && self.requests >= requests {
            now
        } else if self.wanted {
            self.held_until.max(now)
        } else {
            Nanos(self.began.0 + limits::COMMIT_AFTER_NANOS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_the_newest_link_of_each_lba() {
        let mut group = Group::new(1);
        assert!(group.is_empty() && !group.has_links());
        assert_eq!(group.set_link(5, Link::to(1, 0), Nanos(3)), None);
        let before = group.set_link(5, Link::NONE, Nanos(4));
        assert_eq!(before, Some(Link::to(1, 0)));
        assert_eq!(group.link(5), Some(Link::NONE));
        assert_eq!(
            (group.next_link(0, 6), group.next_link(0, 5)),
            (Some(5), None)
        );
        assert!(group.is_full(1) && !group.is_full(2));
        assert_eq!(
            group.due(Nanos(9), 0),
            Nanos(3 + limits::COMMIT_AFTER_NANOS)
        );
    }

    #[test]
    fn a_flush_ends_the_wait_for_more_writes() {
        let mut group = Group::new(1);
        assert!(group.want(false, Nanos(10), 100));
        assert_eq!(group.due(Nanos(20), 0), Nanos(110));
        assert!(
            !group.want(false, Nanos(30), 100),
            "a group is held back only once"
        );
        assert_eq!(group.due(Nanos(30), 0), Nanos(110));
        assert!(!group.want(true, Nanos(40), 0));
        assert_eq!(group.due(Nanos(40), 0), Nanos(40));
    }

    #[test]
    fn many_requests_or_an_urgent_one_make_it_due() {
        let mut group = Group::new(1);
        group.count_request();
        assert!(group.due(Nanos(1), 2) > Nanos(1));
        group.count_request();
        assert_eq!(group.due(Nanos(1), 2), Nanos(1));
        assert!(group.due(Nanos(1), 0) > Nanos(1), "any number may pass");
        group.hurry();
        assert_eq!(group.due(Nanos(1), 0), Nanos(1));
    }

    #[test]
    fn fingerprints_are_given_up_once_and_not_too_many() {
        let mut group = Group::first([1, 2].to_vec());
        assert_eq!(group.begin_to_give_up(), limits::PRINTS_GIVEN_UP - 2);
        assert_eq!(group.begin_to_give_up(), 0);
        group.give_up_again();
        group.give_up(3, Nanos(5));
        assert_eq!(group.begin_to_give_up(), limits::PRINTS_GIVEN_UP - 3);
        assert_eq!(group.take_unprinted(), [1, 2, 3]);
        group.add_print(8, 70);
        group.change_print(8, 71);
        group.change_print(9, 71);
        assert_eq!((group.print(8), group.print(9)), (Some(71), None));
        assert!(group.drop_print(8) && !group.drop_print(8));
    }
}
