//! Decides when a write's map update is released, after writes went to the medium in parallel (OFTL §3).
//!
//! One stage with three rules. The log layout has the strictest rule by construction (a chunk is visible to recovery only when all chunks
//! before it are), so it does not use this stage. The page-mapped FTL that the lab simulates does, and the lab compares the cost of each
//! rule.
//!
//! OFTL keeps an unwritten list of normal writes, and passes it to the next journal write as its dependency. It also keeps a dependency
//! list of the journal writes in their order. Here both lists are one queue: a journal write waits for every earlier normal write that is
//! not programmed, and for every earlier journal write. The result is the same, because a journal write also waits for the dependencies
//! of the journal writes before it. A write in the queue takes one byte, where the paper states 10.

use alloc::collections::VecDeque;

/// Which writes wait for which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Every write waits for all writes before it: a crash leaves a prefix.
    #[default]
    Prefix,
    /// Journal writes wait for all writes before them, normal writes wait for none: a commit block is never visible before the blocks
    /// that it commits (OFTL).
    Journal,
    /// No write waits.
    None,
}

/// The class of a write, as the request classifier decides it (OFTL §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Outside of every journal.
    Normal,
    /// In the order-critical range.
    Journal,
}

/// A write in the queue, in the order of their arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not on the medium.
    Unwritten(Class),
    /// On the medium; its map update waits.
    Held(Class),
    Through,
}

/// The stage.
#[derive(Clone, Debug, Default)]
pub struct Ordering {
    rule: Rule,
    /// The writes that are not released, and all writes between them.
    queue: VecDeque<State>,
    first: u64,
    /// Before this write, every journal write is released, and every normal write that is on the medium.
    settled: u64,
}

impl Ordering {
    /// An empty stage.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            ..Self::default()
        }
    }

    /// Starts a write.
    pub fn begin(&mut self, class: Class) -> Ticket {
        self.queue.push_back(State::Unwritten(class));
        Ticket(self.first + self.queue.len() as u64 - 1)
    }

    /// The number of writes whose map updates wait, or that are not on the medium.
    #[must_use]
    pub fn pending(&self) -> usize {
        let through = |state: &&State| **state != State::Through;
        self.queue.iter().filter(through).count()
    }

    /// Notes that a write is on the medium: calls `release` for each write whose map update may be made now, in the order in
    /// which the updates must be made.
    ///
    /// # Panics
    /// When it was not begun, or is on the medium already.
    pub fn written(&mut self, ticket: Ticket, mut release: impl FnMut(Ticket)) {
        let at = (ticket.0 - self.first) as usize;
        let State::Unwritten(class) = self.queue[at] else {
            panic!("write {} was written twice", ticket.0)
        };
        self.queue[at] = State::Held(class);
        match (self.rule, class) {
            (Rule::None, _) | (Rule::Journal, Class::Normal) => {
                self.queue[at] = State::Through;
                release(ticket);
            }
            (Rule::Journal, Class::Journal) | (Rule::Prefix, _) => {}
        }
        match self.rule {
            Rule::None => {}
            Rule::Prefix => self.settle(|state| matches!(state, State::Held(_)), &mut release),
            Rule::Journal => {
                self.settle(
                    |state| matches!(state, State::Held(Class::Journal) | State::Through),
                    &mut release,
                );
            }
        }
        while self.queue.front() == Some(&State::Through) {
            self.queue.pop_front();
            self.first += 1;
        }
    }

    /// Returns how far, from `from` on, all states are as `wanted`.
    fn run(&self, from: u64, wanted: impl Fn(State) -> bool) -> u64 {
        let from = from.max(self.first);
        let states = self.queue.iter().skip((from - self.first) as usize);
        from + states.take_while(|state| wanted(**state)).count() as u64
    }

    /// Releases writes in order, as far as all are as `wanted`.
    fn settle(&mut self, wanted: impl Fn(State) -> bool, release: &mut impl FnMut(Ticket)) {
        let to = self.run(self.settled, wanted);
        for ticket in self.settled.max(self.first)..to {
            let state = &mut self.queue[(ticket - self.first) as usize];
            if *state != State::Through {
                *state = State::Through;
                release(Ticket(ticket));
            }
        }
        self.settled = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Begins all writes, then finishes them in the order given; returns what is released after each.
    fn run(rule: Rule, classes: &[Class], order: &[usize]) -> Vec<Vec<usize>> {
        let mut stage = Ordering::new(rule);
        let tickets: Vec<Ticket> = classes.iter().map(|&class| stage.begin(class)).collect();
        let mut through = Vec::new();
        let mut history = Vec::new();
        for &at in order {
            stage.written(tickets[at], |ticket| through.push(ticket.0 as usize));
            history.push(through.clone());
        }
        assert_eq!(stage.pending(), 0);
        assert!(stage.queue.is_empty());
        history
    }

    const N: Class = Class::Normal;
    const J: Class = Class::Journal;

    #[test]
    fn the_papers_example_holds_a_commit_until_what_it_commits_is_there() {
        // Two normal writes, a commit, a normal write, a commit.
        let classes = [N, N, J, N, J];
        let history = run(Rule::Journal, &classes, &[4, 2, 3, 1, 0]);
        assert_eq!(history[0], []);
        assert_eq!(history[1], []);
        assert_eq!(history[2], [3]);
        assert_eq!(history[3], [3, 1]);
        assert_eq!(history[4], [3, 1, 0, 2, 4]);
        assert_eq!(run(Rule::None, &classes, &[4, 2, 3, 1, 0])[1], [4, 2]);
        assert_eq!(run(Rule::Prefix, &classes, &[0, 2, 1, 4, 3])[2], [0, 1, 2]);
    }

    fn cases() -> impl Strategy<Value = (Vec<Class>, Vec<usize>)> {
        prop::collection::vec(prop::bool::ANY, 1..40).prop_flat_map(|journal| {
            let classes: Vec<Class> = journal.iter().map(|&j| if j { J } else { N }).collect();
            let order: Vec<usize> = (0..classes.len()).collect();
            (Just(classes), Just(order).prop_shuffle())
        })
    }

    proptest! {
        #[test]
        fn a_crash_at_any_moment_finds_what_the_rule_promises((classes, order) in cases()) {
            for rule in [Rule::Prefix, Rule::Journal, Rule::None] {
                for (done, through) in run(rule, &classes, &order).iter().enumerate() {
                    let written = &order[..=done];
                    for &at in through {
                        prop_assert!(written.contains(&at));
                        for before in 0..at {
                            let waits = match rule {
                                Rule::Prefix => true,
                                Rule::Journal => classes[at] == J,
                                Rule::None => false,
                            };
                            prop_assert!(!waits || through.contains(&before));
                        }
                    }
                    // And no write waits without need.
                    for &at in written {
                        let free = match rule {
                            Rule::None => true,
                            Rule::Journal if classes[at] == N => true,
                            _ => (0..at).all(|before| written.contains(&before)),
                        };
                        prop_assert!(!free || through.contains(&at));
                    }
                }
            }
        }
    }
}
