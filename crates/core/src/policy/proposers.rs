//! The two policies that propose that a block is stored already: the journal's pool ([`Once`]) and the index of contents ([`Dedup`]).
//!
//! Neither is trusted. This module asks them, reports the result of each proposal to its proposer, and counts it. A layout finds the
//! holder of a proposed content, and compares and shares it; it does not know how many proposers there are.

use super::dedup::Dedup;
use super::once::Once;
use crate::addr::Lba;
use crate::index::Holder;
use crate::seam::{DedupPolicy, Fingerprint, Payload};
use crate::stats::Stats;

/// Who proposes that a block is stored already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proposer {
    /// The pool, by this block of the journals.
    Journal(u32),
    /// The index, by this hash.
    Index(u64),
    /// A pair given from outside.
    Pair,
}

/// How a block compares with its twin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// They are equal; the fingerprint of both, if it was computed.
    Same(Option<Fingerprint>),
    Other,
    /// The twin cannot be read, or is not what was written.
    Damaged,
}

/// The journal's pool and the index of contents.
#[derive(Default)]
pub(crate) struct Proposers {
    once: Once,
    dedup: Dedup,
}

impl Proposers {
    /// True if either may propose something.
    #[inline]
    pub fn are_on(&self) -> bool {
        self.once.is_on() || self.dedup.is_on()
    }

    #[inline]
    pub fn once(&self) -> &Once {
        &self.once
    }

    #[inline]
    pub fn once_mut(&mut self) -> &mut Once {
        &mut self.once
    }

    #[inline]
    pub fn dedup(&self) -> &Dedup {
        &self.dedup
    }

    #[inline]
    pub fn dedup_mut(&mut self) -> &mut Dedup {
        &mut self.dedup
    }

    /// Sets the policy; true if the index is another one now, and empty.
    pub fn set(&mut self, policy: DedupPolicy) -> bool {
        self.dedup.set(policy)
    }

    /// Handles a write that arrives. `held` of the `full` buffers that clients share are in use.
    pub fn begin(&mut self, blocks: &[Payload], held: u64, full: u32, stats: &mut Stats) {
        self.dedup.begin(blocks, held, full.into(), stats);
    }

    /// Returns a proposed holder of the content of the block at `index` of a request, and its proposer.
    pub fn propose(
        &mut self,
        lba: Lba,
        index: usize,
        payload: &Payload,
        stats: &mut Stats,
    ) -> Option<(Proposer, Holder)> {
        if let Some((index, journal)) = self.once.propose(lba, payload, stats) {
            return Some((Proposer::Journal(index), Holder::Lba(journal)));
        }
        let (hash, of) = self.dedup.propose(lba, index, payload, stats)?;
        Some((Proposer::Index(hash), of))
    }

    /// Notes that a block was stored. The index learns from the layout, which knows who holds the content.
    #[inline]
    pub fn note(&mut self, lba: Lba, payload: &Payload, stats: &mut Stats) {
        if self.once.is_on() {
            stats.journal_blocks += u64::from(self.once.note(lba, payload));
        }
    }

    /// Reports that it would be useless to propose this again.
    pub fn forget(&mut self, by: Proposer) {
        match by {
            Proposer::Index(hash) => self.dedup.forget(hash),
            Proposer::Journal(_) | Proposer::Pair => {}
        }
    }

    /// Reports the result of a comparison to its proposer.
    pub fn learn(&mut self, by: Option<Proposer>, answer: Answer, stats: &mut Stats) {
        let same = matches!(answer, Answer::Same(_));
        match (by, answer) {
            (None, _) => {}
            (Some(by), Answer::Damaged) => {
                stats.compared_damaged += 1;
                // The proposal was right, but the twin cannot be read.
                self.forget(by);
            }
            (Some(Proposer::Journal(_)), _) => {
                match same {
                    true => stats.compared_equal += 1,
                    false => stats.compared_unequal += 1,
                }
                stats.write_once_pauses += u64::from(self.once.judge(same));
            }
            (Some(by), Answer::Other) => self.refuted(by, stats),
            (Some(_), Answer::Same(_)) => {}
        }
    }

    /// Reports a wrong proposal.
    pub fn refuted(&mut self, by: Proposer, stats: &mut Stats) {
        match by {
            Proposer::Pair => {}
            Proposer::Journal(_) => stats.missing_blocks += 1,
            Proposer::Index(_) => stats.dedup_false_hints += 1,
        }
        self.forget(by);
    }

    /// Notes that a block now shares what was proposed.
    pub fn shared_by(&mut self, by: Proposer, stats: &mut Stats) {
        match by {
            Proposer::Journal(index) => {
                stats.remapped_blocks += 1;
                self.once.written_home(index);
            }
            Proposer::Index(_) => stats.dedup_blocks += 1,
            Proposer::Pair => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: u64 = 77;

    /// Proposers whose index knows one content.
    fn with_a_content() -> (Proposers, Stats) {
        let mut proposers = Proposers::default();
        assert!(!proposers.are_on());
        proposers.dedup_mut().set(DedupPolicy {
            index_bytes: 4096,
            ..DedupPolicy::default()
        });
        assert!(proposers.are_on());
        proposers.dedup_mut().met(HASH, Holder::Lba(Lba(1)), 1);
        (proposers, Stats::default())
    }

    fn knows_it(proposers: &Proposers) -> bool {
        !proposers.dedup().index().is_empty()
    }

    #[test]
    fn an_unequal_or_unreadable_block_is_not_proposed_again() {
        let index = Some(Proposer::Index(HASH));
        for (answer, false_hints, damaged) in [(Answer::Other, 1, 0), (Answer::Damaged, 0, 1)] {
            let (mut proposers, mut stats) = with_a_content();
            proposers.learn(index, Answer::Same(None), &mut stats);
            proposers.learn(None, answer, &mut stats);
            proposers.learn(Some(Proposer::Pair), Answer::Other, &mut stats);
            assert!(knows_it(&proposers));
            proposers.learn(index, answer, &mut stats);
            assert!(!knows_it(&proposers));
            let counted = (stats.dedup_false_hints, stats.compared_damaged);
            assert_eq!(counted, (false_hints, damaged));
        }
    }

    #[test]
    fn the_result_of_a_proposal_is_counted_by_its_proposer() {
        let (mut proposers, mut stats) = with_a_content();
        let journal = Proposer::Journal(0);
        proposers.learn(Some(journal), Answer::Same(None), &mut stats);
        proposers.learn(Some(journal), Answer::Other, &mut stats);
        assert_eq!((stats.compared_equal, stats.compared_unequal), (1, 1));
        proposers.refuted(journal, &mut stats);
        assert_eq!((stats.missing_blocks, stats.dedup_false_hints), (1, 0));
        for by in [journal, Proposer::Index(HASH), Proposer::Pair] {
            proposers.shared_by(by, &mut stats);
        }
        assert_eq!((stats.remapped_blocks, stats.dedup_blocks), (1, 1));
    }
}
