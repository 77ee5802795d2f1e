//! Requests that wait their turn, and those that have been refused while their buffers are still compared.
//!
//! What must hold:
//! 1. What changes the volume takes effect in the order in which it came: nothing overtakes the first that waits. A read waits
//!    behind what will change one of its blocks, and behind nothing else.
//! 2. A write whose blocks are being compared keeps its buffers until each comparison has been answered: here, or *doomed*.

use super::fetches::Fetches;
use super::verdict::{Answer, Proposer, Twin};
use super::waiting::Waiting;
use crate::addr::{Lba, RequestId};
use crate::entry::PartId;
use crate::seam::{Payload, Refusal};
use alloc::{collections::VecDeque, vec::Vec};

/// See the module.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Refused, and their refusals.
    doomed: Vec<(Waiting, Refusal)>,
    /// Reads whose turn it is, and that wait for leaves.
    pub fetches: Fetches,
}

/// What an answer to a comparison has brought about.
pub(super) enum Noted {
    /// The block's proposer, if one still waits to hear.
    Waits(Option<Proposer>),
    /// It was refused before; all its comparisons have been answered now.
    Refused(Waiting, Refusal),
    /// Others of it have not.
    Doomed,
}

impl Queue {
    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether nothing has been refused that still has its buffers.
    pub fn is_none_doomed(&self) -> bool {
        self.doomed.is_empty()
    }

    /// Requests whose clients wait.
    pub fn requests(&self) -> usize {
        self.waiting.iter().filter(|one| one.is_request()).count()
    }

    /// Whether something waits that its client takes for done.
    pub fn has_answered(&self) -> bool {
        self.waiting.iter().any(Waiting::is_answered)
    }

    /// Whether something waits that will change one of these blocks.
    pub fn will_change(&self, lba: Lba, blocks: u64) -> bool {
        self.waiting.iter().any(|one| one.changes(lba, blocks))
    }

    /// Whether one of these blocks was written, and that answered, and is about to be refused all the same.
    pub fn is_lost(&self, lba: Lba, blocks: u64) -> bool {
        let mut doomed = self.doomed.iter();
        doomed.any(|(one, _)| one.is_answered() && one.changes(lba, blocks))
    }

    /// Comes behind all others.
    pub fn push(&mut self, one: Waiting) {
        self.waiting.push_back(one);
    }

    /// The first, if something can be done for it now.
    pub fn pop_ready(&mut self) -> Option<Waiting> {
        self.waiting.pop_front_if(|one| !one.is_held_up())
    }

    /// It has to wait on.
    pub fn put_back(&mut self, one: Waiting) {
        self.waiting.push_front(one);
    }

    /// The first, whatever it waits for.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.waiting.pop_front()
    }

    /// All that wait, in order.
    pub fn take_all(&mut self) -> VecDeque<Waiting> {
        core::mem::take(&mut self.waiting)
    }

    /// Is refused, and keeps its buffers until they have been compared.
    pub fn doom(&mut self, one: Waiting, refusal: Refusal) {
        debug_assert!(one.is_asking());
        self.doomed.push((one, refusal));
    }

    /// What a block of a write that waits is compared with, and the block.
    pub fn asked(&self, request: RequestId, index: u32) -> Option<(Twin, Payload)> {
        let write = self.waiting.iter().find(|one| one.is_write(request))?;
        write.asked(index)
    }

    /// A block of a write has been compared.
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

    /// Deltas against what is not there any more are nothing: their blocks are stored whole.
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

    /// A write of two blocks, of which so many are being compared.
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
        let (_, payload) = queue.asked(RequestId(1), 0).expect("it is compared");
        assert_eq!(
            (payload.buf, queue.asked(RequestId(1), 1).is_some()),
            (Buf(10), false)
        );
        let noted = queue.on_answer(RequestId(1), 0, Answer::Same(None));
        assert!(matches!(noted, Noted::Waits(Some(Proposer::Journal(3)))));
        let first = queue.pop_ready().expect("it goes on");
        queue.put_back(first);
        assert_eq!(
            (id(queue.pop_ready()), id(queue.pop_ready())),
            (Some(1), Some(2))
        );
        assert!(queue.is_empty());
    }

    #[test]
    fn what_was_refused_keeps_its_buffers_until_all_have_been_compared() {
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
    fn a_read_waits_for_what_will_change_its_blocks_alone() {
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
