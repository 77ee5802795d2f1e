//! A flush that must not overtake a commit block.
//!
//! A commit block that was answered, and waits here, takes effect after all that it commits. Those blocks may have been answered too, and
//! wait in the core, where blocks are compared. Then jbd2 has all answers, and flushes. The core lets a flush go on as soon as the answered
//! writes that it has have taken effect; the commit block is not among them yet. So the very flush that is meant for the commit block would
//! come before it.
//!
//! So such a flush waits here until all writes that were answered and handed to the core before it have taken effect. If a commit
//! block has gone on by then, the flush waits for that one too. It waits only for what the core has: a commit block whose blocks
//! have not arrived holds up no flush.

use std::collections::VecDeque;

/// See the module.
pub(crate) struct Flushes<F> {
    /// Answered writes that were handed to the core; with the next field, how many of them have ended. They end in order.
    given: u64,
    ended: u64,
    /// Commit blocks among those that have not ended.
    commits: usize,
    held: VecDeque<Held<F>>,
}

struct Held<F> {
    flush: F,
    /// It may go on when this many writes have ended.
    after: u64,
    /// It now waits for commit blocks that have gone on since it arrived.
    is_second: bool,
}

impl<F> Default for Flushes<F> {
    fn default() -> Self {
        Self {
            given: 0,
            ended: 0,
            commits: 0,
            held: VecDeque::new(),
        }
    }
}

impl<F> Flushes<F> {
    /// Notes that the core is handed a write, answered or not.
    pub fn handed_over(&mut self, is_answered: bool, is_commit: bool) {
        self.given += u64::from(is_answered);
        self.commits += usize::from(is_commit);
    }

    /// Notes that the core has answered it.
    pub fn ended(&mut self, is_answered: bool, is_commit: bool) {
        self.ended += u64::from(is_answered);
        self.commits -= usize::from(is_commit);
    }

    /// True if a commit block that was answered is in the core, and has not taken effect.
    pub fn awaits_commit(&self) -> bool {
        self.commits > 0
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// True if a flush that arrives now has to wait. `waits`: a commit block that was answered waits here.
    pub fn must_wait(&self, waits: bool) -> bool {
        self.awaits_commit() || waits && self.given > self.ended
    }

    pub fn hold(&mut self, flush: F) {
        self.held.push_back(Held {
            flush,
            after: self.given,
            is_second: false,
        });
    }

    /// Removes all flushes, for a caller that answers them otherwise.
    pub fn drain(&mut self) -> impl Iterator<Item = F> + use<F> {
        let held = std::mem::take(&mut self.held);
        held.into_iter().map(|held| held.flush)
    }

    /// Removes and returns the first flush, if it may go on.
    pub fn pop(&mut self) -> Option<F> {
        let (ended, given, awaits) = (self.ended, self.given, self.awaits_commit());
        let first = self.held.front_mut()?;
        if first.after <= ended && !first.is_second && awaits {
            (first.after, first.is_second) = (given, true);
        }
        let held = self.held.pop_front_if(|first| first.after <= ended)?;
        Some(held.flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_waits_for_answered_writes_and_the_commit_block_behind_them() {
        let mut flushes = Flushes::default();
        assert!(!flushes.must_wait(true), "nothing is in the core");
        flushes.handed_over(true, false);
        assert!(!flushes.must_wait(false), "no commit block waits");
        assert!(flushes.must_wait(true));
        flushes.hold('a');
        flushes.handed_over(true, false);
        assert_eq!(flushes.pop(), None);
        // When the first write ends, the commit block goes on, after the second write.
        flushes.ended(true, false);
        flushes.handed_over(true, true);
        assert_eq!(flushes.pop(), None);
        assert!(flushes.must_wait(false), "it is in the core");
        flushes.ended(true, false);
        assert_eq!(flushes.pop(), None);
        flushes.ended(true, true);
        assert_eq!((flushes.pop(), flushes.pop()), (Some('a'), None));
        assert!(flushes.is_empty() && !flushes.must_wait(true));
    }

    #[test]
    fn a_flush_does_not_wait_for_a_commit_block_that_does_not_go_on() {
        let mut flushes = Flushes::default();
        flushes.handed_over(true, false);
        flushes.hold('a');
        flushes.ended(true, false);
        assert_eq!(flushes.pop(), Some('a'));
    }
}
