//! A flush that must not overtake a commit block.
//!
//! A commit block that was answered, and waits here, takes effect when all that it commits has. What it commits may have been answered too, and
//! wait in the core, where blocks are compared. Then jbd2 has all answers, and flushes. The core lets a flush go on directly behind
//! the writes that were answered before it; so the commit block would come behind the flush that is for it.
//!
//! So such a flush waits here, until all has taken effect that was answered and handed to the core before it came; and, if a commit block
//! has gone on by then, until that has. It waits for what the core has, and for nothing else: a commit block whose blocks have not come
//! holds up no flush.

use std::collections::VecDeque;

/// See the module.
pub(super) struct Flushes<F> {
    /// Writes that were answered and handed to the core, and those of them that have ended. They end in their order.
    given: u64,
    ended: u64,
    /// Commit blocks among those that have not.
    commits: usize,
    held: VecDeque<Held<F>>,
}

struct Held<F> {
    flush: F,
    /// When so many have ended it may go on.
    after: u64,
    /// It waits for commit blocks that have gone on since.
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
    /// The core is handed a write that was answered, or is not yet.
    pub fn handed_over(&mut self, is_answered: bool, is_commit: bool) {
        self.given += u64::from(is_answered);
        self.commits += usize::from(is_commit);
    }

    /// The core has answered it.
    pub fn ended(&mut self, is_answered: bool, is_commit: bool) {
        self.ended += u64::from(is_answered);
        self.commits -= usize::from(is_commit);
    }

    /// Whether a commit block that was answered is in the core, and has not taken effect.
    pub fn awaits_commit(&self) -> bool {
        self.commits > 0
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether one that comes now has to wait; `waits`: whether a commit block that was answered waits here.
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

    /// All of them, for whoever answers them otherwise.
    pub fn drain(&mut self) -> impl Iterator<Item = F> + use<F> {
        let held = std::mem::take(&mut self.held);
        held.into_iter().map(|held| held.flush)
    }

    /// The first that may go on.
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
    fn one_waits_for_what_was_answered_before_it_and_for_the_commit_block_behind_that() {
        let mut flushes = Flushes::default();
        assert!(!flushes.must_wait(true), "nothing is in the core");
        flushes.handed_over(true, false);
        assert!(!flushes.must_wait(false), "no commit block waits");
        assert!(flushes.must_wait(true));
        flushes.hold('a');
        flushes.handed_over(true, false);
        assert_eq!(flushes.pop(), None);
        // With the first the commit block goes on, behind the second.
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
    fn one_does_not_wait_for_a_commit_block_that_does_not_go_on() {
        let mut flushes = Flushes::default();
        flushes.handed_over(true, false);
        flushes.hold('a');
        flushes.ended(true, false);
        assert_eq!(flushes.pop(), Some('a'));
    }
}
