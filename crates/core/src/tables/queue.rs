//! The requests that wait: for their turn, for the end of a comparison, or for a commit.
//!
//! Requests that wait for their turn are placed in order. A request that is refused waits while comparisons still read its buffers. A
//! request that was placed waits for the commit of its group, if its answer promises that it is durable.

use super::verdict::Twin;
use super::waiting::{Waiter, Waiting};
use crate::addr::{Lba, RequestId};
use crate::seam::Refusal;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// See the module.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Requests that have been refused while a comparison still reads their buffers.
    doomed: Vec<(Waiting, Refusal)>,
    /// In order of their groups.
    waiters: VecDeque<Waiter>,
}

impl Queue {
    /// True if no request waits for its turn.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many requests wait for their turn.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// True if no request waits for anything.
    pub fn is_served(&self) -> bool {
        self.waiting.is_empty() && self.doomed.is_empty() && self.waiters.is_empty()
    }

    /// Has a request wait for its turn.
    pub fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// Takes the request whose turn it is.
    #[inline]
    pub fn pop(&mut self) -> Option<Waiting> {
        self.waiting.pop_front()
    }

    /// Has the request that was taken last wait on.
    pub fn put_back(&mut self, waiting: Waiting) {
        self.waiting.push_front(waiting);
    }

    /// True if a request that waits for its turn concerns one of these blocks.
    #[inline]
    pub fn concerns(&self, lba: Lba, blocks: u64) -> bool {
        self.waiting
            .iter()
            .any(|waiting| waiting.concerns(lba, blocks))
    }

    /// Has a request that is refused wait for the end of its comparisons.
    pub fn doom(&mut self, waiting: Waiting, refusal: Refusal) {
        debug_assert!(waiting.is_asking(), "nothing reads its buffers");
        self.doomed.push((waiting, refusal));
    }

    /// The write of this number, if it waits for its turn.
    pub fn write(&mut self, request: RequestId) -> Option<&mut Waiting> {
        self.waiting
            .iter_mut()
            .find(|waiting| waiting.is_write(request))
    }

    /// Notes that a comparison for a refused request has ended. Returns what the block was compared with; and the request, if
    /// nothing reads its buffers any more.
    pub fn on_late_answer(
        &mut self,
        request: RequestId,
        index: u32,
    ) -> (Option<Twin>, Option<(Waiting, Refusal)>) {
        let mut doomed = self.doomed.iter();
        let Some(at) = doomed.position(|(waiting, _)| waiting.is_write(request)) else {
            unreachable!("request {request} keeps its buffers while they are compared")
        };
        let twin = self.doomed[at].0.on_answer(index, false);
        let is_over = !self.doomed[at].0.is_asking();
        (twin, is_over.then(|| self.doomed.swap_remove(at)))
    }

    /// Has a request wait for the commit of a group.
    pub fn wait_for(&mut self, group: u64, request: RequestId, flush: bool) {
        debug_assert!(self.waiters.back().is_none_or(|last| last.group <= group));
        self.waiters.push_back(Waiter {
            group,
            request,
            flush,
        });
    }

    /// True if a request waits for a commit.
    pub fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Takes the next request that waits for any commit.
    pub fn pop_waiter(&mut self) -> Option<Waiter> {
        self.waiters.pop_front()
    }

    /// Takes the next request that waits for this group or an earlier one.
    pub fn pop_durable(&mut self, group: u64) -> Option<Waiter> {
        self.waiters.pop_front_if(|waiter| waiter.group <= group)
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Verdict;
    use super::*;
    use crate::policy::Proposer;

    fn unmap(lba: u64, blocks: u64) -> Waiting {
        Waiting::Unmap {
            id: RequestId(1),
            lba: Lba(lba),
            blocks,
            fua: false,
        }
    }

    #[test]
    fn requests_wait_in_order() {
        let mut queue = Queue::default();
        queue.push(unmap(10, 4));
        queue.push(unmap(20, 2));
        assert!(queue.concerns(Lba(13), 1) && queue.concerns(Lba(0), 11));
        assert!(!queue.concerns(Lba(14), 6) && !queue.concerns(Lba(22), 9));
        let first = queue.pop().expect("two wait");
        assert_eq!(first.range(), (Lba(10), 4));
        queue.put_back(first);
        assert_eq!((queue.len(), queue.is_served()), (2, false));
        assert_eq!(queue.pop().map(|waiting| waiting.range().0), Some(Lba(10)));
    }

    #[test]
    fn a_refused_request_waits_for_its_comparisons() {
        let mut queue = Queue::default();
        let by = Proposer::Index(1);
        let asked = |index| Verdict::Asked(Twin { by, index });
        let refused = Waiting::Write {
            id: RequestId(5),
            lba: Lba(0),
            blocks: Vec::new(),
            placed: 0,
            verdicts: [asked(30), asked(31)].to_vec(),
            fua: false,
        };
        queue.doom(refused, Refusal::Full);
        assert!(queue.write(RequestId(5)).is_none() && queue.is_empty());
        let (twin, over) = queue.on_late_answer(RequestId(5), 1);
        assert!(twin.is_some_and(|twin| twin.index == 31) && over.is_none());
        let (twin, over) = queue.on_late_answer(RequestId(5), 0);
        assert!(twin.is_some_and(|twin| twin.index == 30) && over.is_some());
        assert!(queue.is_served());
    }

    #[test]
    fn a_commit_answers_those_that_wait_for_its_group() {
        let mut queue = Queue::default();
        for (group, request) in [(1, 10), (1, 11), (2, 12)] {
            queue.wait_for(group, RequestId(request), true);
        }
        let mut answered = Vec::new();
        while let Some(waiter) = queue.pop_durable(1) {
            answered.push(waiter.request.0);
        }
        assert_eq!(answered, [10, 11]);
        assert!(queue.has_waiters() && !queue.is_served());
        assert_eq!(queue.pop_waiter().map(|waiter| waiter.group), Some(2));
    }
}
