//! Requests that wait for leaves, and leaves being read.

use crate::addr::{Generation, Lba, Leaf, Nanos, RequestId};
use crate::state::Unsound;
use alloc::{collections::VecDeque, vec::Vec};

/// The most leaves read at once.
pub(super) const AT_ONCE: usize = 64;

/// The most leaves that a census reads at once while clients ask for something.
const BESIDE: usize = 4;

/// Clients that have asked for nothing for so long leave the medium to a census. A read may wait longer than a second on a slow drive.
const QUIET: Nanos = Nanos(2_000_000_000);

/// The most times a request waits. It may need two places, and three leaves for each (of the map, of the pages, of a delta's base); two
/// tries are spare.
pub(super) const TRIES: u8 = 8;

/// Leaves read ahead for a sequential reader: 16 MiB of blocks.
pub(super) const AHEAD: u32 = 4;

/// The most sequential readers recognised at once.
const READERS: usize = 8;

/// The last leaves that reads requested: a reader that requests the next one is likely to continue.
#[derive(Default)]
pub(super) struct Rows {
    /// The last leaf each reader requested, the newest last.
    ends: VecDeque<Leaf>,
}

impl Rows {
    /// Notes that a leaf is read, and returns how many leaves after it to read as well.
    pub fn ask(&mut self, leaf: Leaf) -> u32 {
        let row = self.ends.iter().position(|end| end.0 + 1 == leaf.0);
        let ahead = match row {
            Some(row) => {
                self.ends.remove(row);
                AHEAD
            }
            None => 0,
        };
        if self.ends.len() == READERS {
            self.ends.pop_front();
        }
        self.ends.push_back(Leaf(leaf.0 + ahead));
        ahead
    }
}

/// What a request needs before it can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// Nothing: all leaves are in memory.
    Nothing,
    /// One of the leaves being read.
    Coming(Leaf),
    /// Leaves that are not in memory and cannot be requested: the core reads them itself, at once.
    Pull,
}

/// A read that waits for a leaf.
pub(super) struct Waits {
    pub leaf: Leaf,
    pub id: RequestId,
    pub lba: Lba,
    pub blocks: u32,
    pub tries: u8,
}

/// How long the first request of the queue, or a victim, has waited for leaves, one after another; it is bounded.
#[derive(Default)]
pub(super) struct Patience {
    leaf: Option<Leaf>,
    tries: u8,
}

/// The leaves that a census reads.
#[derive(Default)]
pub(super) struct CensusReads {
    /// When a client last asked to read or write.
    pub asked: Option<Nanos>,
    /// Leaves being read.
    pub in_flight: usize,
    /// All leaves before this one were read, or are being read.
    pub next: Leaf,
    /// The table in which the census has found what cannot be.
    pub unsound: Option<Unsound>,
}

impl CensusReads {
    /// How many leaves may be read at once. Beside clients few: each of their reads waits for those that are ahead of it.
    pub fn most(&self, now: Nanos) -> usize {
        let is_busy = |asked: Nanos| now.0.saturating_sub(asked.0) < QUIET.0;
        match self.asked.is_some_and(is_busy) {
            true => BESIDE,
            false => AT_ONCE,
        }
    }
}

/// The leaves being read, and the reads that wait for them.
#[derive(Default)]
pub(super) struct Fetches {
    /// Reads.
    pub waiting: Vec<Waits>,
    /// How long the first request of the queue has waited.
    pub of_first: Patience,
    /// How long the collector's victim has waited.
    pub of_victim: Patience,
    /// Leaves being read, each with the generation of the root that leads to it.
    pub under_way: Vec<(Leaf, Generation)>,
    /// Reused memory for the list of missing leaves.
    pub missing: Vec<Leaf>,
    /// Detects reads of one leaf after another.
    pub rows: Rows,
    /// What a census reads.
    pub census: CensusReads,
    /// Damaged leaves that were restored, and of which the host has not been told.
    pub rebuilt: u64,
}

impl Fetches {
    /// True if a leaf is being read.
    pub fn is_under_way(&self, leaf: Leaf) -> bool {
        self.under_way.iter().any(|(of, _)| *of == leaf)
    }

    /// Returns one of the leaves being read if no more may be requested: when it arrives there is room for another.
    pub fn first_of_too_many(&self) -> Option<Leaf> {
        let first = self.under_way.first();
        first
            .filter(|_| self.under_way.len() >= AT_ONCE)
            .map(|(leaf, _)| *leaf)
    }

    /// True if no read waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if a leaf is being read from a place that only an older root leads to. The next map checkpoint may write there.
    pub fn is_behind(&self, newest: Generation) -> bool {
        self.under_way.iter().any(|(_, of)| *of < newest)
    }

    /// Removes the next waiting read, to be refused.
    pub fn give_up(&mut self) -> Option<RequestId> {
        self.waiting.pop().map(|waits| waits.id)
    }
}

impl Patience {
    /// True if the leaf it waits for is still being read.
    pub fn lasts(&self, fetches: &Fetches) -> bool {
        self.leaf.is_some_and(|leaf| fetches.is_under_way(leaf))
    }

    /// True if it has waited as often as allowed.
    pub fn is_over(&self) -> bool {
        self.tries >= TRIES
    }

    /// Starts to wait for one of these, if there is one; true if it waits.
    pub fn begin(&mut self, needs: Needs) -> bool {
        self.leaf = match needs {
            Needs::Coming(leaf) => Some(leaf),
            Needs::Nothing | Needs::Pull => None,
        };
        self.tries += u8::from(self.leaf.is_some());
        self.leaf.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_census_reads_few_leaves_at_once_while_clients_ask() {
        let mut census = CensusReads::default();
        assert_eq!(census.most(Nanos(6)), AT_ONCE);
        census.asked = Some(Nanos(7));
        assert_eq!(census.most(Nanos(7)), BESIDE);
        assert_eq!(census.most(Nanos(6 + QUIET.0)), BESIDE);
        assert_eq!(census.most(Nanos(7 + QUIET.0)), AT_ONCE);
    }

    #[test]
    fn a_sequential_reader_has_its_next_leaves_read_ahead() {
        let mut rows = Rows::default();
        assert_eq!((rows.ask(Leaf(7)), rows.ask(Leaf(90))), (0, 0));
        assert_eq!(rows.ask(Leaf(8)), AHEAD);
        // Leaves that were read ahead are not requested again.
        assert_eq!(rows.ask(Leaf(8 + AHEAD)), 0);
        assert_eq!(rows.ask(Leaf(8 + AHEAD + 1)), AHEAD);
        // Random reads cause no read-ahead, and are forgotten.
        for random in 0..READERS as u32 {
            assert_eq!(rows.ask(Leaf(1000 + 10 * random)), 0);
        }
        assert_eq!(rows.ask(Leaf(91)), 0);
        assert_eq!(rows.ends.len(), READERS);
    }

    #[test]
    fn patience_lasts_while_its_leaf_is_being_read_and_then_ends() {
        let mut fetches = Fetches::default();
        let mut patience = Patience::default();
        assert!(!patience.lasts(&fetches) && !patience.is_over());
        for _ in 0..TRIES {
            assert!(!patience.is_over());
            fetches.under_way.push((Leaf(3), Generation(1)));
            assert!(patience.begin(Needs::Coming(Leaf(3))) && patience.lasts(&fetches));
            fetches.under_way.clear();
            assert!(!patience.lasts(&fetches));
        }
        assert!(patience.is_over());
        assert!(!patience.begin(Needs::Pull) && !patience.lasts(&fetches));
    }
}
