//! Table blocks that are to be written although no group needs them: they are held back, or written anew.
//!
//! A block is held back if no answer waits for it. It waits to be merged with other changes of the same block; a commit that writes the
//! block anyway takes the change along. A block that is written anew is unchanged: one of its copies is damaged or out of date.

use crate::addr::Nanos;
use crate::format::table::Kind;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry};
use alloc::vec::Vec;

/// A table block.
type Key = (Kind, u32);

/// See the module.
#[derive(Default)]
pub(super) struct Backlog {
    /// Blocks that are held back, each with the time since when.
    held_back: BTreeMap<Key, Nanos>,
    /// The same in order of time. It may also have blocks that have been written since.
    order: VecDeque<(Nanos, Key)>,
    /// Blocks that are to be written anew.
    anew: BTreeSet<Key>,
}

impl Backlog {
    /// Only what is to be written anew.
    pub fn new(anew: BTreeSet<Key>) -> Self {
        Self {
            anew,
            ..Self::default()
        }
    }

    /// Holds a block back, if that is not so yet.
    #[inline]
    pub fn hold_back(&mut self, kind: Kind, block: u32, now: Nanos) {
        let key = (kind, block);
        if let Entry::Vacant(entry) = self.held_back.entry(key) {
            debug_assert!(self.order.back().is_none_or(|(since, _)| *since <= now));
            entry.insert(now);
            self.order.push_back((now, key));
        }
    }

    /// Requests that these blocks are written anew.
    pub fn write_anew(&mut self, blocks: impl IntoIterator<Item = Key>) {
        self.anew.extend(blocks);
    }

    pub fn has_anew(&self) -> bool {
        !self.anew.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.held_back.is_empty() && self.anew.is_empty()
    }

    /// When a commit is due for the backlog, if blocks are held back for `hold`; `None`: at once.
    pub fn due(&self, now: Nanos, hold: Option<u64>) -> Option<Nanos> {
        if self.has_anew() {
            return Some(now);
        }
        let (since, _) = self.order.front()?;
        Some(hold.map_or(now, |hold| Nanos(since.0 + hold)))
    }

    /// Adds the blocks that are held back and due to `blocks`. Blocks that are already in `blocks` are no longer held back.
    pub fn take_due(&mut self, blocks: &mut BTreeSet<Key>, is_due: impl Fn(Nanos) -> bool) {
        for block in blocks.iter() {
            self.held_back.remove(block);
        }
        while let Some(&(since, key)) = self.order.front() {
            let is_there = self.held_back.get(&key) == Some(&since);
            if is_there && !is_due(since) {
                break;
            }
            self.order.pop_front();
            if is_there {
                self.held_back.remove(&key);
                blocks.insert(key);
            }
        }
    }

    /// Adds the blocks that are to be written anew, and whose kind is ready, to `blocks`.
    pub fn take_anew(&mut self, blocks: &mut BTreeSet<Key>, is_ready: impl Fn(Kind) -> bool) {
        let ready = self
            .anew
            .iter()
            .copied()
            .filter(|(kind, _)| is_ready(*kind));
        let taken: Vec<_> = ready.collect();
        for block in taken {
            self.anew.remove(&block);
            blocks.insert(block);
        }
    }

    /// Takes all that is to be written anew.
    pub fn take_all_anew(&mut self) -> BTreeSet<Key> {
        core::mem::take(&mut self.anew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_back_block_waits_for_its_time_or_for_a_commit_that_writes_it() {
        let mut backlog = Backlog::default();
        backlog.hold_back(Kind::Counts, 1, Nanos(10));
        backlog.hold_back(Kind::Counts, 1, Nanos(20));
        backlog.hold_back(Kind::Prints, 2, Nanos(20));
        backlog.hold_back(Kind::Counts, 3, Nanos(30));
        assert_eq!(backlog.due(Nanos(31), Some(100)), Some(Nanos(110)));
        assert_eq!(backlog.due(Nanos(31), None), Some(Nanos(31)));
        let mut blocks = BTreeSet::from([(Kind::Counts, 1)]);
        backlog.take_due(&mut blocks, |since| since <= Nanos(20));
        assert_eq!(
            blocks,
            BTreeSet::from([(Kind::Counts, 1), (Kind::Prints, 2)])
        );
        assert!(!backlog.is_empty());
        backlog.take_due(&mut blocks, |_| true);
        assert!(backlog.is_empty() && blocks.contains(&(Kind::Counts, 3)));
        assert_eq!(backlog.due(Nanos(40), None), None);
    }

    #[test]
    fn a_block_to_be_written_anew_is_due_at_once() {
        let mut backlog = Backlog::new(BTreeSet::from([(Kind::Map, 4)]));
        backlog.write_anew([(Kind::Counts, 5)]);
        assert_eq!(backlog.due(Nanos(7), Some(100)), Some(Nanos(7)));
        let mut blocks = BTreeSet::new();
        backlog.take_anew(&mut blocks, |kind| kind == Kind::Counts);
        assert_eq!(blocks, BTreeSet::from([(Kind::Counts, 5)]));
        assert!(backlog.has_anew());
        assert_eq!(backlog.take_all_anew(), BTreeSet::from([(Kind::Map, 4)]));
        assert!(backlog.is_empty());
    }
}
