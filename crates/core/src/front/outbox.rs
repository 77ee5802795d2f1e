//! The outbox: effects that leave the core, each with its purpose until it is answered, and answers to requests.

use super::held::HeldWrites;
use super::in_flight::InFlight;
use super::in_parts::InParts;
use super::waiters::Waiter;
use crate::addr::{Buf, EffectId, Nanos, RequestId};
use crate::seam::{Effect, Payload, Refusal, Reply};
use alloc::{collections::VecDeque, vec::Vec};

/// The outbox of a layout whose effects have purposes of type `P`.
pub(crate) struct Outbox<P> {
    pending: InFlight<P>,
    /// Buffers of clients' writes that were not released yet.
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
    /// Issues an effect that will be answered.
    pub fn ask(&mut self, pending: P, make: impl FnOnce(EffectId) -> Effect) {
        let id = self.pending.add(pending);
        self.effects.push_back(make(id));
    }

    /// As [`Outbox::ask`], for an effect that the caller issues next.
    pub fn begin(&mut self, pending: P) -> EffectId {
        self.pending.add(pending)
    }

    /// Issues an effect that has no answer, or that has begun.
    pub fn tell(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Notes a client's write in `buffers` buffers: the core holds them until it releases them.
    pub fn took(&mut self, buffers: usize) {
        self.buffers += buffers as u32;
    }

    /// Releases one of these buffers.
    pub fn release(&mut self, buf: Buf) {
        self.buffers -= 1;
        self.tell(Effect::Release { buf });
    }

    /// The number of clients' buffers held.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Answers a request.
    pub fn reply(&mut self, id: RequestId, result: Result<(), Refusal>) {
        self.replies.push_back(Reply { id, result });
    }

    /// Refuses these requests.
    pub fn refuse(&mut self, ids: impl IntoIterator<Item = RequestId>, refusal: Refusal) {
        ids.into_iter().for_each(|id| self.reply(id, Err(refusal)));
    }

    /// Refuses a write, and releases these buffers of it.
    pub fn refuse_write(&mut self, id: RequestId, blocks: &[Payload], refusal: Refusal) {
        blocks.iter().for_each(|payload| self.release(payload.buf));
        self.reply(id, Err(refusal));
    }

    /// Answers requests that are durable by now. Returns how many FLUSHes were answered together with another.
    pub fn reply_durable(&mut self, waiters: impl Iterator<Item = Waiter>) -> u64 {
        let mut flushes = 0;
        for waiter in waiters {
            flushes += u64::from(waiter.flush);
            self.reply(waiter.request, Ok(()));
        }
        flushes.saturating_sub(1)
    }

    /// Answers a request when `parts` of its parts are done; at once if there are none.
    pub fn reply_in_parts(&mut self, id: RequestId, parts: u32) {
        match parts {
            0 => self.reply(id, Ok(())),
            _ => self.in_parts.begin(id, parts),
        }
    }

    /// Ends one part, done or failed.
    pub fn end_part(&mut self, id: RequestId, refusal: Option<Refusal>) {
        if let Some(result) = self.in_parts.end_part(id, refusal) {
            self.reply(id, result);
        }
    }

    /// Withdraws the effects since the last answer that would write to the medium. The host has not taken any of them yet.
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

    /// Takes the next effect to carry out.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Takes the next answer to give.
    pub fn next_reply(&mut self) -> Option<Reply> {
        self.replies.pop_front()
    }

    /// Returns the purpose of an effect that is not answered yet.
    pub fn get(&self, id: EffectId) -> Option<&P> {
        self.pending.get(id)
    }

    /// Ends an effect that was answered; `None`: it was answered before, or never issued.
    pub fn answered(&mut self, id: EffectId) -> Option<P> {
        self.held.written(id);
        self.pending.take(id)
    }

    /// Keeps a write that found no room on the medium, to retry it later (promise 7).
    pub fn hold(&mut self, id: EffectId, now: Nanos) {
        self.held.hold(id, now);
    }

    /// True if any write has not found room yet. While that is so nothing new is accepted.
    pub fn holds_writes(&self) -> bool {
        self.held.are_there()
    }

    /// When to retry them.
    pub fn held_due(&self) -> Option<Nanos> {
        self.held.due()
    }

    /// Takes those due for a retry by now.
    pub fn held_by(&mut self, now: Nanos) -> Vec<EffectId> {
        self.held.try_again(now)
    }

    /// True if no effect is in flight.
    pub fn is_quiet(&self) -> bool {
        self.pending.len() == 0
    }

    /// True if all effects in flight wait for room.
    pub fn is_quiet_but_for_held(&self) -> bool {
        self.pending.len() == self.held.kept()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_keeps_its_purpose_until_it_is_answered() {
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
        let due = outbox.held_due().expect("the held write is retried");
        assert_eq!(outbox.held_by(due), [id]);
        assert!(outbox.holds_writes() && !outbox.is_quiet_but_for_held());
        assert_eq!(outbox.get(id), Some(&'a'));
        assert_eq!(outbox.answered(id), Some('a'));
        assert!(outbox.is_quiet() && !outbox.holds_writes());
        assert_eq!(outbox.answered(id), None);
    }
}
