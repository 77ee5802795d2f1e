//! Requests that wait for their turn, and refused requests whose buffers are still being compared.
//!
//! What must hold:
//! 1. Changes of the volume take effect in the order in which they arrived: nothing overtakes the first waiting request. A read waits for
//!    earlier requests that will change one of its blocks, and for nothing else.
//! 2. A write whose blocks are being compared keeps its buffers until each comparison has been answered. If it is refused before that, it
//!    is *doomed*: it leaves the queue, but keeps its buffers.

use super::fetches::Fetches;
use super::parked::Parked;
use super::verdict::Twin;
use super::waiting::Waiting;
use crate::addr::{Lba, RequestId};
use crate::entry::PartId;
use crate::policy::{Answer, Proposer};
use crate::seam::{Payload, Refusal};
use alloc::{collections::VecDeque, vec::Vec};

/// The queue of waiting requests.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Refused requests, and their refusals.
    doomed: Vec<(Waiting, Refusal)>,
    /// Reads whose turn has come, but that wait for leaves.
    pub fetches: Fetches,
    /// Requests that wait for checksums that are being read.
    pub parked: Parked,
}

/// The effect of a comparison's result.
pub(super) enum Noted {
    /// The block's proposer, if one still waits for the result.
    Waits(Option<Proposer>),
    /// The write was refused before; all its comparisons are now answered.
    Refused(Waiting, Refusal),
    /// The write was refused before; other comparisons are still open.
    Doomed,
}

impl Queue {
    /// True if nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if no refused request still holds its buffers.
    pub fn is_none_doomed(&self) -> bool {
        self.doomed.is_empty()
    }

    /// The number of requests whose clients wait.
    pub fn requests(&self) -> usize {
        self.waiting.iter().filter(|one| one.is_request()).count()
    }

    /// True if a request waits whose client already has the answer.
    pub fn has_answered(&self) -> bool {
        self.waiting.iter().any(Waiting::is_answered)
    }

    /// True if a waiting request will change one of these blocks.
    pub fn will_change(&self, lba: Lba, blocks: u64) -> bool {
        self.waiting.iter().any(|one| one.changes(lba, blocks))
    }

    /// True if a write of one of these blocks was acknowledged, and is refused all the same.
    pub fn is_lost(&self, lba: Lba, blocks: u64) -> bool {
        let mut doomed = self.doomed.iter();
        doomed.any(|(one, _)| one.is_answered() && one.changes(lba, blocks))
    }

    /// Adds a request after all others.
    pub fn push(&mut self, one: Waiting) {
        self.waiting.push_back(one);
    }

    /// Takes the first request, if it can make progress now.
    pub fn pop_ready(&mut self) -> Option<Waiting> {
        self.waiting.pop_front_if(|one| !one.is_held_up())
    }

    /// Puts a request that has to wait on back at the front.
    pub fn put_back(&mut self, one: Waiting) {
        self.waiting.push_front(one);
    }

    /// Takes the first request, whatever it waits for.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.waiting.pop_front()
    }

    /// Takes all waiting requests, in order.
    pub fn take_all(&mut self) -> VecDeque<Waiting> {
        core::mem::take(&mut self.waiting)
    }

    /// Refuses a request that keeps its buffers until they have been compared.
    pub fn doom(&mut self, one: Waiting, refusal: Refusal) {
        debug_assert!(one.is_asking());
        self.doomed.push((one, refusal));
    }

    /// Returns a block of a waiting write and what it is compared with.
    pub fn asked(&self, request: RequestId, index: u32) -> Option<(Twin, Payload)> {
        let write = self.waiting.iter().find(|one| one.is_write(request))?;
        write.asked(index)
    }

    /// Records that a block of a write has been compared.
    pub fn on_answer(&mut self, request: RequestId, index: u32, answer: Answer) -> Noted {
        let mut waiting = self.waiting.iter_mut();
        if let Some(write) = waiting.find(|one| one.is_write(request)) {
            return Noted::Waits(write.on_answer(index, answer));
        }
        let mut doomed = self.doomed.iter();
        let Some(at) = doomed.position(|(one, _)| one.is_write(request)) else {
            unreachable!("request {request} keeps its buffers while they are compared")
        };
        self.doomed[at].0.on_answer(index, Answer::Other);
        if self.doomed[at].0.is_asking() {
            return Noted::Doomed;
        }
        let (one, refusal) = self.doomed.swap_remove(at);
        Noted::Refused(one, refusal)
    }

    /// Drops deltas whose base is gone: their blocks are stored whole.
    pub fn drop_deltas(&mut self, is_gone: impl Fn(PartId) -> bool) {
        for one in &mut self.waiting {
            one.drop_deltas(&is_gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::Verdict;
    use super::*;
    use crate::addr::{Buf, Pba};
    use crate::index::Holder;
    use crate::seam::{Ack, Payload};
    use crate::state::Place;

    fn twin() -> Verdict {
        Verdict::Asked(Twin {
            by: Proposer::Journal(3),
            of: Holder::Lba(Lba(90)),
            place: Place {
                pba: Pba(500),
                slot: None,
            },
            uses: 0,
            absorptions: None,
            print: None,
        })
    }

    /// A write of two blocks, `asked` of which are being compared.
    fn write(id: u32, lba: u64, asked: usize, ack: Ack) -> Waiting {
        let payload = |index| Payload {
            buf: Buf(10 * id + index),
            digest: Default::default(),
        };
        let mut verdicts = alloc::vec![Verdict::Write; 2];
        verdicts[..asked].fill(twin());
        Waiting::Write {
            id: RequestId(id),
            lba: Lba(lba),
            blocks: alloc::vec![payload(0), payload(1)],
            placed: 0,
            verdicts,
            ack,
        }
    }

    fn id(one: Option<Waiting>) -> Option<u32> {
        match one {
            Some(Waiting::Write { id, .. } | Waiting::Flush { id }) => Some(id.0),
            _ => None,
        }
    }

    #[test]
    fn nothing_overtakes_a_write_that_is_being_compared() {
        let mut queue = Queue::default();
        queue.push(write(1, 0, 1, Ack::Placed));
        queue.push(write(2, 8, 0, Ack::Placed));
        assert_eq!(id(queue.pop_ready()), None);
        let (_, payload) = queue
            .asked(RequestId(1), 0)
            .expect("the block is being compared");
        assert_eq!(
            (payload.buf, queue.asked(RequestId(1), 1).is_some()),
            (Buf(10), false)
        );
        let noted = queue.on_answer(RequestId(1), 0, Answer::Same(None));
        assert!(matches!(noted, Noted::Waits(Some(Proposer::Journal(3)))));
        let first = queue.pop_ready().expect("the first request may go on");
        queue.put_back(first);
        assert_eq!(
            (id(queue.pop_ready()), id(queue.pop_ready())),
            (Some(1), Some(2))
        );
        assert!(queue.is_empty());
    }

    #[test]
    fn a_refused_write_keeps_its_buffers_until_all_have_been_compared() {
        let mut queue = Queue::default();
        queue.doom(write(1, 4, 2, Ack::Given), Refusal::Poisoned);
        assert!(queue.is_empty() && !queue.is_none_doomed());
        assert!(queue.is_lost(Lba(5), 1) && !queue.is_lost(Lba(6), 9));
        queue.doom(write(2, 40, 1, Ack::Placed), Refusal::Poisoned);
        assert!(!queue.is_lost(Lba(40), 1), "its client has no answer yet");
        let noted = queue.on_answer(RequestId(1), 1, Answer::Same(None));
        assert!(matches!(noted, Noted::Doomed));
        let noted = queue.on_answer(RequestId(1), 0, Answer::Other);
        assert!(matches!(noted, Noted::Refused(_, Refusal::Poisoned)));
        assert!(!queue.is_none_doomed());
        queue.on_answer(RequestId(2), 0, Answer::Other);
        assert!(queue.is_none_doomed());
    }

    #[test]
    fn a_read_waits_only_for_requests_that_will_change_its_blocks() {
        let mut queue = Queue::default();
        queue.push(write(1, 4, 0, Ack::Placed));
        assert!(!queue.has_answered());
        queue.push(write(2, 20, 0, Ack::Given));
        queue.push(Waiting::Committed { pairs: Vec::new() });
        assert!(queue.has_answered());
        assert_eq!(queue.requests(), 2);
        for (lba, blocks, waits) in [(0, 4, false), (0, 5, true), (5, 1, true), (6, 14, false)] {
            assert_eq!(queue.will_change(Lba(lba), blocks), waits, "{lba}+{blocks}");
        }
        assert!(!queue.is_lost(Lba(4), 1), "nothing was refused");
        assert_eq!(queue.take_all().len(), 3);
        assert!(!queue.will_change(Lba(5), 1) && id(queue.pop()).is_none());
    }
}
