//! Free data blocks that the medium takes for used.
//!
//! They are looked for in rounds from the first block to the last, so that blocks freed one by one are discarded in runs, and
//! blocks that are reused meanwhile are not discarded at all.

use crate::addr::Nanos;
use crate::limits;
use alloc::{vec, vec::Vec};

/// How many blocks share a counter.
const REGION: u32 = 4096;

/// See the module.
pub struct Stale {
    /// Bit set: free, and written since it was last discarded.
    words: Vec<u64>,
    /// How many of them each region has.
    regions: Vec<u16>,
    blocks: u32,
    /// How many were freed since the last round began, and when the first of them was.
    since: u32,
    since_when: Option<Nanos>,
    /// Where the current round is.
    at: Option<u32>,
    /// Shorter runs are left until their neighbours are free.
    least: u32,
}

impl Stale {
    /// None of so many blocks is stale.
    pub fn new(blocks: u32, least: u32) -> Self {
        Self {
            words: vec![0; blocks.div_ceil(64) as usize],
            regions: vec![0; blocks.div_ceil(REGION) as usize],
            blocks,
            since: 0,
            since_when: None,
            at: None,
            least,
        }
    }

    fn is(&self, index: u32) -> bool {
        self.words[index as usize / 64] >> (index % 64) & 1 == 1
    }

    /// Notes that a block is free.
    pub fn add(&mut self, index: u32) {
        debug_assert!(!self.is(index), "data block {index} is stale twice");
        self.words[index as usize / 64] |= 1 << (index % 64);
        self.regions[(index / REGION) as usize] += 1;
        self.since += 1;
    }

    /// Notes that a block is not free any more, or is discarded.
    pub fn remove(&mut self, index: u32) {
        if self.is(index) {
            self.words[index as usize / 64] &= !(1 << (index % 64));
            self.regions[(index / REGION) as usize] -= 1;
        }
    }

    /// True if a round is under way, or begins now: when a certain share of the blocks has been freed since the last one began,
    /// or any block and some time has passed.
    pub fn is_due(&mut self, now: Nanos) -> bool {
        if self.at.is_none() && self.due().is_some_and(|due| due <= now) {
            self.since = 0;
            self.since_when = None;
            self.at = Some(0);
        }
        if self.since > 0 && self.since_when.is_none() {
            self.since_when = Some(now);
        }
        self.at.is_some()
    }

    pub fn is_under_way(&self) -> bool {
        self.at.is_some()
    }

    /// When the next round is due, if that is known.
    pub fn due(&self) -> Option<Nanos> {
        if self.since > self.blocks / limits::STALE_SHARE {
            return Some(Nanos(0));
        }
        let since = self.since_when?;
        Some(Nanos(since.0 + limits::DISCARD_AFTER_NANOS))
    }

    /// The next run of the round, of at most `most` blocks: its first block, and its length. `None` while the round is still
    /// under way means that there is none nearby; the search goes on with the next call.
    pub fn next_run(&mut self, most: u32) -> Option<(u32, u32)> {
        let mut at = self.at?;
        for _ in 0..limits::STALE_RUNS_LOOKED_AT {
            let Some(first) = self.first_from(at) else {
                self.at = None;
                return None;
            };
            let end = self.blocks.min(first.saturating_add(most));
            let mut next = first;
            while next < end && self.is(next) {
                next += 1;
            }
            at = next;
            if next - first >= self.least {
                self.at = Some(at);
                return Some((first, next - first));
            }
        }
        self.at = Some(at);
        None
    }

    fn first_from(&self, mut at: u32) -> Option<u32> {
        while at < self.blocks {
            let region = at / REGION;
            if self.regions[region as usize] > 0 {
                let end = self.blocks.min((region + 1) * REGION);
                let words = at as usize / 64..end.div_ceil(64) as usize;
                for (word, bits) in words.clone().zip(&self.words[words]) {
                    let from = (at as usize).saturating_sub(word * 64);
                    let bits = bits & (u64::MAX << from);
                    if bits != 0 {
                        return Some(word as u32 * 64 + bits.trailing_zeros());
                    }
                }
            }
            at = (region + 1) * REGION;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(stale: &mut Stale, most: u32) -> Vec<(u32, u32)> {
        assert!(stale.is_due(Nanos(1)));
        let mut runs = Vec::new();
        while stale.is_due(Nanos(1)) {
            runs.extend(stale.next_run(most));
        }
        runs
    }

    #[test]
    fn runs_are_as_long_as_they_can_be() {
        let mut stale = Stale::new(10_000, 1);
        for index in [3, 4, 5, 63, 64, 4095, 4096, 9999] {
            stale.add(index);
        }
        (100..300).for_each(|index| stale.add(index));
        stale.remove(4);
        stale.remove(7);
        let runs = round(&mut stale, 150);
        let expected = [
            (3, 1),
            (5, 1),
            (63, 2),
            (100, 150),
            (250, 50),
            (4095, 2),
            (9999, 1),
        ];
        assert_eq!(runs, expected);
    }

    #[test]
    fn short_runs_wait_for_their_neighbours() {
        let mut stale = Stale::new(1000, 4);
        (0..1000)
            .filter(|index| index % 5 > 1)
            .for_each(|index| stale.add(index));
        assert_eq!(round(&mut stale, 100), []);
        assert!(!stale.is_due(Nanos(2)), "nothing was freed since");
        (0..40).for_each(|index| {
            if index % 5 <= 1 {
                stale.add(index);
            }
        });
        assert_eq!(
            round(&mut stale, 100),
            [(0, 40), (42, 3)].map(|run| run)[..1]
        );
    }

    #[test]
    fn a_round_begins_when_enough_is_freed_or_after_a_while() {
        let mut stale = Stale::new(1 << 20, 1);
        stale.add(7);
        assert!(!stale.is_due(Nanos(5)));
        assert_eq!(stale.due(), Some(Nanos(5 + limits::DISCARD_AFTER_NANOS)));
        assert!(stale.is_due(Nanos(5 + limits::DISCARD_AFTER_NANOS)));
        assert_eq!(stale.next_run(100), Some((7, 1)));
        stale.remove(7);
        assert_eq!(stale.next_run(100), None);
        assert_eq!(stale.due(), None);
    }
}
