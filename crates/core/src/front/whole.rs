//! The front as a whole.

use super::course::Course;
use super::outbox::Outbox;
use super::queue::Queue;
use super::waiting::Waiting;
use crate::addr::{EffectId, RequestId};
use crate::seam::{Effect, Refusal};

/// The front of a layout whose effects have purposes of type `P`. `T` is what blocks of writes are compared with.
pub(crate) struct Front<P, T> {
    pub course: Course,
    pub outbox: Outbox<P>,
    pub queue: Queue<T>,
}

impl<P, T: Copy> Front<P, T> {
    /// The front of a volume, or of the rest of a damaged one.
    pub fn of(is_rest: bool) -> Self {
        Self {
            course: Course::begin(is_rest),
            outbox: Outbox::default(),
            queue: Queue::default(),
        }
    }

    /// The refusal that every write gets now, if writes are refused: until the medium's state changes, or an effect in flight ends.
    #[inline]
    pub fn refuses_writes(&self) -> Option<Refusal> {
        match self.course.is_poisoned() {
            true => Some(Refusal::Poisoned),
            false => self.outbox.holds_writes().then_some(Refusal::NoRoom),
        }
    }

    /// The same, for a request that changes something; `fits`: it is within the volume.
    #[inline]
    pub fn refuses_change(&self, fits: bool) -> Option<Refusal> {
        match fits {
            true => self.refuses_writes(),
            false => Some(Refusal::OutOfRange),
        }
    }

    /// Refuses a request that does not wait any more, as [`Queue::refuse`].
    pub fn refuse(&mut self, one: Waiting<T>, refusal: Refusal) -> Option<Waiting<T>> {
        self.queue.refuse(one, refusal, &mut self.outbox)
    }

    /// As [`Outbox::ask`].
    #[inline]
    pub fn ask(&mut self, pending: P, make: impl FnOnce(EffectId) -> Effect) {
        self.outbox.ask(pending, make);
    }

    /// As [`Outbox::begin`].
    #[inline]
    pub fn begin(&mut self, pending: P) -> EffectId {
        self.outbox.begin(pending)
    }

    /// As [`Outbox::tell`].
    #[inline]
    pub fn tell(&mut self, effect: Effect) {
        self.outbox.tell(effect);
    }

    /// As [`Outbox::reply`].
    #[inline]
    pub fn reply(&mut self, id: RequestId, result: Result<(), Refusal>) {
        self.outbox.reply(id, result);
    }

    /// Keeps a write that found no room on the medium, to retry it later (promise 7).
    pub fn hold(&mut self, id: EffectId) {
        self.outbox.hold(id, self.course.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_a_write_finds_no_room_all_are_refused_and_a_poisoned_volume_refuses_them_for_good() {
        let mut front = Front::<char, u32>::of(false);
        assert_eq!(front.refuses_change(true), None);
        assert_eq!(front.refuses_change(false), Some(Refusal::OutOfRange));
        let id = front.begin('a');
        front.hold(id);
        assert_eq!(front.refuses_change(true), Some(Refusal::NoRoom));
        let due = front.outbox.held_due().expect("it is retried");
        assert_eq!(front.outbox.held_by(due), [id]);
        front.outbox.answered(id);
        assert_eq!(front.refuses_change(true), None);
        front.course.poison();
        assert_eq!(front.refuses_writes(), Some(Refusal::Poisoned));
    }
}
