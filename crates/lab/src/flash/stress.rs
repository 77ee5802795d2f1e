//! What wears a block's data besides erasures: reads of its pages, each of which disturbs the other pages, and time, in which
//! cells lose their charge. A drive's file gives the limit for each. At the limit a block is due for a refresh.
//!
//! This module tracks which blocks are due. The translation layer on the flash refreshes them, or does not.

use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};

/// When a block is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refresh {
    /// After this many reads since its erasure; `None`: reads do no harm.
    pub reads: Option<u32>,
    /// When its oldest data reach this age; `None`: data keep for ever.
    pub age_ns: Option<u64>,
}

impl Refresh {
    /// True if blocks are ever due.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.reads.is_some() || self.age_ns.is_some()
    }
}

/// Why a block is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It was read too often.
    Reads,
    /// Its data are too old.
    Age,
}

/// Blocks that were due, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PastDue {
    /// They were read too often.
    pub reads: u64,
    /// Their data were too old.
    pub age: u64,
}

/// The time stored for a block without data, which has no age.
const EMPTY: u64 = u64::MAX;

/// The reads and ages of all blocks; see the module. Blocks are numbered over all dies.
pub(super) struct Stress {
    how: Refresh,
    /// Reads of each block since its erasure.
    reads: Vec<u32>,
    /// When each block received its first data.
    since: Vec<u64>,
    /// The same times and their blocks in order. An entry is stale if its block was erased since.
    by_age: VecDeque<(u64, u32)>,
    /// Blocks that reached the limit of reads.
    read: VecDeque<u32>,
    passed: PastDue,
}

impl Stress {
    pub fn new(how: Refresh, blocks: u32) -> Self {
        Self {
            how,
            reads: vec![0; blocks as usize],
            since: vec![EMPTY; blocks as usize],
            by_age: VecDeque::new(),
            read: VecDeque::new(),
            passed: PastDue::default(),
        }
    }

    pub fn how(&self) -> Refresh {
        self.how
    }

    /// Counts `times` reads of a block's pages.
    pub fn read(&mut self, block: u32, times: u32) {
        let Some(most) = self.how.reads else { return };
        let reads = &mut self.reads[block as usize];
        let before = *reads;
        *reads = before.saturating_add(times);
        if before < most && *reads >= most {
            self.read.push_back(block);
            self.passed.reads += 1;
        }
    }

    /// Records that a block holds data.
    pub fn filled(&mut self, block: u32, now: u64) {
        let since = &mut self.since[block as usize];
        if self.how.age_ns.is_some() && *since == EMPTY {
            *since = now;
            self.by_age.push_back((now, block));
        }
    }

    pub fn erased(&mut self, block: u32, now: u64) {
        self.reads[block as usize] = 0;
        self.passed.age += u64::from(self.is_old(block, now));
        self.since[block as usize] = EMPTY;
    }

    fn is_old(&self, block: u32, now: u64) -> bool {
        let since = self.since[block as usize];
        let ends = |age: u64| since.saturating_add(age);
        since != EMPTY && self.how.age_ns.is_some_and(|age| ends(age) <= now)
    }

    /// Returns why a block is due, if it is.
    pub fn why(&self, block: u32, now: u64) -> Option<Due> {
        let reads = self.reads[block as usize];
        match self.how.reads.is_some_and(|most| reads >= most) {
            true => Some(Due::Reads),
            false => self.is_old(block, now).then_some(Due::Age),
        }
    }

    /// Takes a block that became due. It may have been erased since.
    pub fn take(&mut self, now: u64) -> Option<u32> {
        if let Some(block) = self.read.pop_front() {
            return Some(block);
        }
        let age = self.how.age_ns?;
        let old = |first: &mut (u64, u32)| first.0.saturating_add(age) <= now;
        Some(self.by_age.pop_front_if(old)?.1)
    }

    /// Returns when age makes a block due next, unless it is erased first.
    pub fn next(&self) -> Option<u64> {
        let (since, _) = self.by_age.front()?;
        Some(since.saturating_add(self.how.age_ns?))
    }

    /// Returns how many blocks were due so far, on flash that refreshes none.
    pub fn passed(&self, now: u64) -> PastDue {
        let old = self.by_age.iter().take_while(|(since, _)| {
            let age = self.how.age_ns.unwrap_or(EMPTY);
            since.saturating_add(age) <= now
        });
        // A block that is erased and filled again at the same moment, as while a drive is prepared, has several entries.
        let still = old.filter(|&&(since, block)| self.since[block as usize] == since);
        let still: BTreeSet<u32> = still.map(|&(_, block)| block).collect();
        PastDue {
            reads: self.passed.reads,
            age: self.passed.age + still.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_due_at_its_last_read_and_not_before() {
        let how = Refresh {
            reads: Some(5),
            age_ns: None,
        };
        let mut stress = Stress::new(how, 3);
        stress.filled(1, 0);
        stress.read(1, 3);
        stress.read(2, 4);
        stress.read(1, 1);
        assert_eq!((stress.take(u64::MAX - 1), stress.why(1, 0)), (None, None));
        stress.read(1, 1);
        assert_eq!(stress.why(1, 0), Some(Due::Reads));
        assert_eq!((stress.take(0), stress.take(0)), (Some(1), None));
        // A block is reported once, however often it is read.
        stress.read(1, 7);
        assert_eq!(stress.take(0), None);
        stress.erased(1, 0);
        assert_eq!(stress.why(1, 0), None);
        stress.read(1, 4);
        assert_eq!(stress.take(0), None);
        // A read with retries counts several times at once.
        stress.read(1, 3);
        assert_eq!(stress.take(0), Some(1));
        assert_eq!(stress.passed(0), PastDue { reads: 2, age: 0 });
        assert_eq!(stress.next(), None);
    }

    #[test]
    fn age_counts_from_the_first_data_since_the_last_erasure() {
        let how = Refresh {
            reads: None,
            age_ns: Some(100),
        };
        let mut stress = Stress::new(how, 3);
        stress.filled(0, 10);
        stress.filled(0, 50);
        stress.filled(2, 60);
        stress.read(0, u32::MAX);
        assert_eq!((stress.next(), stress.take(109)), (Some(110), None));
        assert_eq!(stress.why(0, 110), Some(Due::Age));
        assert_eq!((stress.why(2, 110), stress.why(1, 110)), (None, None));
        // A block erased and refilled in time is not due before its new data are.
        stress.erased(0, 109);
        stress.filled(0, 120);
        assert_eq!((stress.take(110), stress.why(0, 110)), (Some(0), None));
        assert_eq!(stress.take(219), Some(2));
        assert_eq!(stress.take(219), None);
        assert_eq!((stress.next(), stress.take(220)), (Some(220), Some(0)));
    }

    #[test]
    fn blocks_that_are_not_refreshed_are_counted_once_each() {
        let how = Refresh {
            reads: None,
            age_ns: Some(100),
        };
        let mut stress = Stress::new(how, 3);
        (0..3).for_each(|block| stress.filled(block, 10 * u64::from(block)));
        assert_eq!(stress.passed(99).age, 0);
        assert_eq!(stress.passed(110).age, 2);
        stress.erased(1, 115);
        stress.erased(2, 119);
        assert_eq!(stress.passed(119).age, 2);
        assert_eq!(stress.passed(1000).age, 2);
    }

    #[test]
    fn a_block_filled_several_times_at_one_moment_is_due_once() {
        let how = Refresh {
            reads: None,
            age_ns: Some(100),
        };
        let mut stress = Stress::new(how, 1);
        for _ in 0..3 {
            stress.filled(0, 0);
            stress.erased(0, 0);
        }
        stress.filled(0, 0);
        assert_eq!(stress.passed(99).age, 0);
        assert_eq!(stress.passed(100).age, 1);
    }
}
