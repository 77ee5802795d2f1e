//! What leaves the core: effects, with what each is for until it is answered, and answers to requests.

use super::held::HeldWrites;
use super::in_flight::InFlight;
use super::in_parts::InParts;
use crate::addr::{Buf, EffectId, Nanos, RequestId};
use crate::seam::{Effect, Refusal, Reply};
use alloc::{collections::VecDeque, vec::Vec};

/// That of a layout whose effects are for a `P`.
pub(crate) struct Outbox<P> {
    pending: InFlight<P>,
    /// Buffers of clients' writes that have not been given back.
    buffers: u32,
    held: HeldWrites,
    in_parts: InParts,
    effects: VecDeque<Effect>,
    replies: VecDeque<Reply>,
}

impl<P> Default for Outbox<P> {
    fn default() -> Self {
        Self {
            pending: InFlight::new(),
            buffers: 0,
            held: HeldWrites::default(),
            in_parts: InParts::default(),
            effects: VecDeque::new(),
            replies: VecDeque::new(),
        }
    }
}

impl<P> Outbox<P> {
    /// Asks for an effect that will be answered.
    pub fn ask(&mut self, pending: P, make: impl FnOnce(EffectId) -> Effect) {
        let id = self.pending.add(pending);
        self.effects.push_back(make(id));
    }

    /// As [`Outbox::ask`], of an effect that is told next.
    pub fn begin(&mut self, pending: P) -> EffectId {
        self.pending.add(pending)
    }

    /// Asks for one that nobody answers, or that has begun.
    pub fn tell(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// A client's write has come, in so many buffers: the core has them until it releases them.
    pub fn took(&mut self, buffers: usize) {
        self.buffers += buffers as u32;
    }

    /// Gives one of them back.
    pub fn release(&mut self, buf: Buf) {
        self.buffers -= 1;
        self.tell(Effect::Release { buf });
    }

    /// How many it has.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Answers a request.
    pub fn reply(&mut self, id: RequestId, result: Result<(), Refusal>) {
        self.replies.push_back(Reply { id, result });
    }

    /// Answers a request when so many parts of it have come; at once if there are none.
    pub fn reply_in_parts(&mut self, id: RequestId, parts: u32) {
        match parts {
            0 => self.reply(id, Ok(())),
            _ => self.in_parts.begin(id, parts),
        }
    }

    /// One of them has come, or cannot be had.
    pub fn end_part(&mut self, id: RequestId, refusal: Option<Refusal>) {
        if let Some(result) = self.in_parts.end_part(id, refusal) {
            self.reply(id, result);
        }
    }

    /// Takes back what was told since the last answer and would write to the medium: nobody has heard of it yet.
    pub fn withdraw_writes(&mut self) {
        let pending = &mut self.pending;
        self.effects.retain(|effect| {
            let id = match *effect {
                Effect::WriteChunk { id, .. }
                | Effect::WriteData { id, .. }
                | Effect::WriteMeta { id, .. }
                | Effect::Erase { id, .. } => id,
                _ => return true,
            };
            pending.take(id);
            false
        });
    }

    /// The next effect to carry out.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The next answer to give.
    pub fn next_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// What an effect is for that is not answered yet.
    pub fn get(&self, id: EffectId) -> Option<&P> {
        self.pending.get(id)
    }

    /// It has been answered; `None`: it had been before, or was never asked for.
    pub fn answered(&mut self, id: EffectId) -> Option<P> {
        self.held.written(id);
        self.pending.take(id)
    }

    /// A write has found no room on the medium: it is kept, and tried again later (promise 7).
    pub fn hold(&mut self, id: EffectId, now: Nanos) {
        self.held.hold(id, now);
    }

    /// Whether any write has found no room yet. As long as that is so nothing new is accepted.
    pub fn holds_writes(&self) -> bool {
        self.held.are_there()
    }

    /// When to try them again.
    pub fn held_due(&self) -> Option<Nanos> {
        self.held.due()
    }

    /// Those that are to be tried again by now.
    pub fn held_by(&mut self, now: Nanos) -> Vec<EffectId> {
        self.held.try_again(now)
    }

    /// Whether no effect is in flight.
    pub fn is_quiet(&self) -> bool {
        self.pending.len() == 0
    }

    /// Whether all that are wait for room.
    pub fn is_quiet_but_for_held(&self) -> bool {
        self.pending.len() == self.held.kept()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_is_for_something_until_it_is_answered() {
        let mut outbox = Outbox::default();
        outbox.ask('a', |id| Effect::Sync { id });
        outbox.took(2);
        outbox.release(Buf(3));
        assert_eq!(outbox.buffers(), 1);
        let Some(Effect::Sync { id }) = outbox.next_effect() else {
            panic!("effects leave in the order in which they were asked for");
        };
        assert!(matches!(outbox.next_effect(), Some(Effect::Release { .. })));
        assert!(outbox.next_effect().is_none() && !outbox.is_quiet());
        outbox.hold(id, Nanos(1));
        assert!(outbox.holds_writes() && outbox.is_quiet_but_for_held());
        let due = outbox.held_due().expect("it is tried again");
        assert_eq!(outbox.held_by(due), [id]);
        assert!(outbox.holds_writes() && !outbox.is_quiet_but_for_held());
        assert_eq!(outbox.get(id), Some(&'a'));
        assert_eq!(outbox.answered(id), Some('a'));
        assert!(outbox.is_quiet() && !outbox.holds_writes());
        assert_eq!(outbox.answered(id), None);
    }
}
