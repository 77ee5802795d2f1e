//! Requests that were placed, and are answered when that is durable.

use crate::addr::RequestId;
use alloc::collections::VecDeque;

/// A request that is answered when it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub request: RequestId,
    pub flush: bool,
}

/// The waiters of a volume, each with the mark up to which all must be durable. None is answered before those that came before it.
#[derive(Debug)]
pub(crate) struct Waiters<M>(VecDeque<(M, Waiter)>);

impl<M> Default for Waiters<M> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<M: Copy + PartialOrd> Waiters<M> {
    /// Adds a request after all others.
    pub fn push(&mut self, mark: M, request: RequestId, flush: bool) {
        self.0.push_back((mark, Waiter { request, flush }));
    }

    /// True if no request waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What they wait for, in order.
    pub fn marks(&self) -> impl Iterator<Item = M> + '_ {
        self.0.iter().map(|(mark, _)| *mark)
    }

    /// The same, to be changed.
    pub fn marks_mut(&mut self) -> impl Iterator<Item = &mut M> + '_ {
        self.0.iter_mut().map(|(mark, _)| mark)
    }

    /// Takes the first, if all up to its mark is durable.
    pub fn pop_by(&mut self, durable: M) -> Option<Waiter> {
        let first = self.0.pop_front_if(|(mark, _)| *mark <= durable);
        first.map(|(_, waiter)| waiter)
    }

    /// Takes the first, to refuse it: nothing will become durable any more, or not soon.
    pub fn pop(&mut self) -> Option<Waiter> {
        self.0.pop_front().map(|(_, waiter)| waiter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn nobody_is_answered_before_those_that_came_before() {
        let mut waiters = Waiters::default();
        for (mark, request) in [(1, 10), (3, 11), (1, 12), (3, 13)] {
            waiters.push(mark, RequestId(request), true);
        }
        let mut answered = |durable: u64| {
            let durable = core::iter::from_fn(|| waiters.pop_by(durable));
            durable.map(|one| one.request.0).collect::<Vec<_>>()
        };
        assert_eq!((answered(0).len(), answered(2)), (0, [10].to_vec()));
        assert_eq!(waiters.marks().collect::<Vec<_>>(), [3, 1, 3]);
        waiters.marks_mut().for_each(|mark| *mark = 2);
        assert_eq!(waiters.pop_by(2).map(|one| one.request.0), Some(11));
        assert_eq!(waiters.pop().map(|one| one.request.0), Some(12));
        assert!(waiters.pop().is_some() && waiters.is_empty());
    }
}
