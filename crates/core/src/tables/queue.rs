//! The requests that wait for their turn, or for the end of a comparison.
//!
//! Requests that wait for their turn are placed in order. A request that is refused waits while comparisons still read its buffers.

use super::verdict::Twin;
use super::waiting::Waiting;
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

    /// True if no request waits.
    pub fn is_served(&self) -> bool {
        self.waiting.is_empty() && self.doomed.is_empty()
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
}
