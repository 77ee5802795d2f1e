//! Requests that wait for their turn, and refused requests whose buffers are still being compared.
//!
//! What must hold:
//! 1. Changes of the volume take effect in the order in which they arrived: nothing overtakes the first waiting request. A read waits for
//!    earlier requests that will change one of its blocks, and for nothing else.
//! 2. A write whose blocks are being compared keeps its buffers until each comparison has been answered. If it is refused before that, it
//!    is *doomed*: it leaves the queue, but keeps its buffers.

use super::outbox::Outbox;
use super::verdict::Verdict;
use super::waiting::Waiting;
use super::write::Write;
use crate::addr::{Lba, RequestId};
use crate::seam::{Payload, Refusal};
use alloc::{collections::VecDeque, vec::Vec};

/// The queue of waiting requests. `T` is what their blocks are compared with.
pub(crate) struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    /// Refused requests, and their refusals.
    doomed: Vec<(Waiting<T>, Refusal)>,
}

/// The effect of a comparison's result.
pub(crate) enum Noted<T> {
    /// The write waits on. The block's twin, if the comparison was still awaited.
    Waits(Option<T>),
    /// The write was refused before. The block's twin; and the write, if all its comparisons are now answered.
    Refused(Option<T>, Option<(Waiting<T>, Refusal)>),
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            doomed: Vec::new(),
        }
    }
}

impl<T: Copy> Queue<T> {
    /// True if nothing waits for its turn.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if, besides, no refused request still holds its buffers.
    pub fn is_served(&self) -> bool {
        self.waiting.is_empty() && self.doomed.is_empty()
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
    #[inline]
    pub fn will_change(&self, lba: Lba, blocks: u64) -> bool {
        self.waiting.iter().any(|one| one.changes(lba, blocks))
    }

    /// True if a write of one of these blocks was acknowledged, and is refused all the same.
    pub fn is_lost(&self, lba: Lba, blocks: u64) -> bool {
        let mut doomed = self.doomed.iter();
        doomed.any(|(one, _)| one.is_answered() && one.changes(lba, blocks))
    }

    /// The waiting writes, to be changed.
    pub fn writes_mut(&mut self) -> impl Iterator<Item = &mut Write<'static, T>> + '_ {
        self.waiting.iter_mut().filter_map(|one| match one {
            Waiting::Write(write) => Some(write),
            _ => None,
        })
    }

    /// Adds a request after all others.
    pub fn push(&mut self, one: Waiting<T>) {
        self.waiting.push_back(one);
    }

    /// Takes the first request, if it can make progress now.
    pub fn pop_ready(&mut self) -> Option<Waiting<T>> {
        self.waiting.pop_front_if(|one| !one.is_held_up())
    }

    /// Puts a request that has to wait on back at the front.
    pub fn put_back(&mut self, one: Waiting<T>) {
        self.waiting.push_front(one);
    }

    /// Takes the first request, whatever it waits for.
    #[inline]
    pub fn pop(&mut self) -> Option<Waiting<T>> {
        self.waiting.pop_front()
    }

    /// Takes all waiting requests, in order.
    pub fn take_all(&mut self) -> VecDeque<Waiting<T>> {
        core::mem::take(&mut self.waiting)
    }

    /// Refuses a request, or dooms it if its buffers are being compared. Returns it if the layout has to do something more: a read is not
    /// refused, and begins; a write may hold its twins.
    pub fn refuse<P>(
        &mut self,
        one: Waiting<T>,
        refusal: Refusal,
        outbox: &mut Outbox<P>,
    ) -> Option<Waiting<T>> {
        if one.is_asking() {
            self.doomed.push((one, refusal));
            return None;
        }
        match &one {
            Waiting::Write(write) => {
                outbox.refuse_write(write.id, &write.blocks[write.placed..], refusal);
            }
            Waiting::Flush { id } | Waiting::Unmap { id, .. } | Waiting::Copy { id, .. } => {
                outbox.reply(*id, Err(refusal));
            }
            Waiting::Read { .. } | Waiting::Committed { .. } => {}
        }
        Some(one)
    }

    /// Returns a block of a waiting write and what it is compared with.
    pub fn asked(&self, request: RequestId, index: u32) -> Option<(T, Payload)> {
        let write = self.waiting.iter().find_map(|one| one.as_write(request))?;
        match write.verdicts[index as usize] {
            Verdict::Asked(twin) => Some((twin, write.blocks[index as usize])),
            _ => None,
        }
    }

    /// Records that a block of a write has been compared. `judge` returns what is known of its twin now, if the two are equal.
    pub fn on_answer(
        &mut self,
        request: RequestId,
        index: u32,
        judge: impl FnOnce(T) -> Option<T>,
    ) -> Noted<T> {
        let mut waiting = self.waiting.iter_mut();
        if let Some(write) = waiting.find_map(|one| one.as_write_mut(request)) {
            return Noted::Waits(write.verdicts[index as usize].end(judge));
        }
        let mut doomed = self.doomed.iter_mut().enumerate();
        let found = doomed.find_map(|(at, (one, _))| Some((at, one.as_write_mut(request)?)));
        let Some((at, write)) = found else {
            unreachable!("request {request} keeps its buffers while they are compared")
        };
        let twin = write.verdicts[index as usize].end(|_| None);
        let is_over = !self.doomed[at].0.is_asking();
        Noted::Refused(twin, is_over.then(|| self.doomed.swap_remove(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Buf;
    use crate::seam::Ack;

    /// A write of two blocks, `asked` of which are being compared with twins 0 and 1.
    fn write(id: u32, lba: u64, asked: u32, ack: Ack) -> Waiting<u32> {
        let payload = |index| Payload {
            buf: Buf(10 * id + index),
            digest: Default::default(),
        };
        let blocks = [payload(0), payload(1)];
        Waiting::Write(Write {
            id: RequestId(id),
            lba: Lba(lba),
            blocks: blocks.to_vec().into(),
            placed: 0,
            verdicts: Verdict::ask_for(&blocks, |index, _| {
                (index < asked as usize).then_some(index as u32)
            }),
            ack,
        })
    }

    fn id(one: Option<Waiting<u32>>) -> Option<u32> {
        match one {
            Some(Waiting::Write(Write { id, .. }) | Waiting::Flush { id }) => Some(id.0),
            _ => None,
        }
    }

    #[test]
    fn nothing_overtakes_a_write_that_is_being_compared() {
        let mut queue = Queue::default();
        queue.push(write(1, 0, 1, Ack::Placed));
        queue.push(write(2, 8, 0, Ack::Placed));
        assert_eq!(id(queue.pop_ready()), None);
        let (twin, payload) = queue
            .asked(RequestId(1), 0)
            .expect("the block is being compared");
        assert_eq!((twin, payload.buf), (0, Buf(10)));
        assert!(queue.asked(RequestId(1), 1).is_none());
        let noted = queue.on_answer(RequestId(1), 0, Some);
        assert!(matches!(noted, Noted::Waits(Some(0))));
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
        let mut outbox = Outbox::<()>::default();
        outbox.took(4);
        let poisoned = Refusal::Poisoned;
        let doomed = queue.refuse(write(1, 4, 2, Ack::Given), poisoned, &mut outbox);
        assert!(doomed.is_none() && queue.is_empty() && !queue.is_served());
        assert!(queue.is_lost(Lba(5), 1) && !queue.is_lost(Lba(6), 9));
        queue.refuse(write(2, 40, 1, Ack::Placed), poisoned, &mut outbox);
        assert!(!queue.is_lost(Lba(40), 1), "its client has no answer yet");
        let noted = queue.on_answer(RequestId(1), 1, Some);
        assert!(matches!(noted, Noted::Refused(Some(1), None)));
        assert!(outbox.next_effect().is_none() && outbox.next_reply().is_none());
        let Noted::Refused(Some(0), Some((first, refusal))) =
            queue.on_answer(RequestId(1), 0, |_| None)
        else {
            panic!("both blocks have been compared")
        };
        queue.refuse(first, refusal, &mut outbox);
        let released = core::iter::from_fn(|| outbox.next_effect());
        assert_eq!(released.collect::<Vec<_>>().len(), 2);
        assert!(outbox.next_reply().is_some_and(|reply| reply.id.0 == 1));
        assert!(!queue.is_served());
        queue.on_answer(RequestId(2), 0, |_| None);
        assert!(queue.is_served());
    }

    #[test]
    fn a_refused_read_begins_and_a_refused_flush_is_answered() {
        let (mut queue, mut outbox) = (Queue::<u32>::default(), Outbox::<()>::default());
        let (id, full) = (RequestId(3), Refusal::Full);
        let read = Waiting::Read {
            id,
            lba: Lba(2),
            blocks: 1,
        };
        let read = queue.refuse(read, full, &mut outbox);
        assert!(matches!(read, Some(Waiting::Read { .. })) && outbox.next_reply().is_none());
        queue.refuse(Waiting::Flush { id }, full, &mut outbox);
        assert!(
            outbox
                .next_reply()
                .is_some_and(|reply| reply.result == Err(full))
        );
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
