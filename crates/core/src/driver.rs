//! Carries out the core's effects over a [`Host`]. Only this module distinguishes the kinds of effects.
//!
//! The core does no I/O; it requests it ([`Effect`]), but for leaves that it needs at once: [`Nodes`](crate::state::Nodes) reads these. A
//! host has a medium, memory and a clock, real or simulated: it does what is requested, and reports how that ended with
//! [`Input::Done`], at once or later. There are three: the device, the lab, and the simulation of crashes. None of them can forget a kind
//! of effect, because each is a method. The device and the lab also [serve](Serves): they give the core an input and take all that
//! follows from it in one step, [`feed`].

use crate::addr::{Buf, EffectId, Nanos, Pba, RequestId, Vba};
use crate::entry::PartId;
use crate::layout::Core;
use crate::seam::{Against, BasePlace, Effect, Input, Outcome, PagePlace, Reply};

/// Blocks of the medium, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block.
    pub at: Pba,
    /// How many there are.
    pub blocks: u32,
}

/// Where blocks that are read go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The buffers of a read request, from this index on.
    Request(RequestId, u32),
    /// The collector's buffers, from this one on.
    Collector(Buf),
}

/// Parts of one page that are to be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The page. One in a buffer is read when the effect is taken.
    pub page: PagePlace,
    /// The slot of the first part.
    pub slot: u8,
    /// How many there are, in consecutive slots.
    pub count: u8,
    /// The base, if the part is a delta; then it is a single part.
    pub base: Option<BasePlace>,
}

impl Parts {
    /// One part of a page on the medium, which is not a delta.
    fn one(at: Pba, slot: u8) -> Self {
        Self {
            page: PagePlace::Medium(at),
            slot,
            count: 1,
            base: None,
        }
    }
}

/// A host carries out effects. Each method is one kind of [`Effect`], whose documentation says what must happen and how it is answered. A
/// method with an `id` is answered; the others are immediate.
///
/// `C` is what the host needs besides itself while it carries out one effect.
pub trait Host<C: ?Sized> {
    /// What a method returns: nothing, or how it failed where a host checks the core.
    type Done;

    /// [`Effect::WriteChunk`]
    fn write_chunk(&mut self, cx: &mut C, id: EffectId, to: Extent, durable: bool) -> Self::Done;
    /// [`Effect::WriteData`]
    fn write_data(&mut self, cx: &mut C, id: EffectId, to: Extent) -> Self::Done;
    /// [`Effect::WriteMeta`]
    fn write_meta(&mut self, cx: &mut C, id: EffectId, to: Extent, durable: bool) -> Self::Done;
    /// [`Effect::Sync`]
    fn sync(&mut self, cx: &mut C, id: EffectId) -> Self::Done;
    /// [`Effect::Erase`]
    fn erase(&mut self, cx: &mut C, id: EffectId, what: Extent) -> Self::Done;
    /// [`Effect::Read`] and [`Effect::Gather`]
    fn read(&mut self, cx: &mut C, id: EffectId, from: Extent, to: To) -> Self::Done;
    /// [`Effect::ReadParts`] and [`Effect::GatherPart`]
    fn read_parts(&mut self, cx: &mut C, id: EffectId, parts: Parts, to: To) -> Self::Done;
    /// [`Effect::ReadMeta`]
    fn read_meta(&mut self, cx: &mut C, id: EffectId, from: Extent) -> Self::Done;
    /// [`Effect::Compare`]
    fn compare(&mut self, cx: &mut C, id: EffectId, buf: Buf, with: Against) -> Self::Done;
    /// [`Effect::Fingerprint`]
    fn fingerprint(&mut self, cx: &mut C, id: EffectId, buf: Buf) -> Self::Done;
    /// [`Effect::CopyOut`]
    fn copy_out(&mut self, cx: &mut C, from: Buf, request: RequestId, index: u32) -> Self::Done;
    /// [`Effect::ZeroOut`]
    fn zero_out(&mut self, cx: &mut C, request: RequestId, first: u32, blocks: u32) -> Self::Done;
    /// [`Effect::Stored`]
    fn stored(&mut self, cx: &mut C, buf: Buf, part: PartId) -> Self::Done;
    /// [`Effect::GivenUp`]
    fn given_up(&mut self, cx: &mut C, page: Vba) -> Self::Done;
    /// [`Effect::Release`]
    fn release(&mut self, cx: &mut C, buf: Buf) -> Self::Done;
    /// [`Effect::Stopped`]
    fn stopped(&mut self, cx: &mut C) -> Self::Done;
}

/// A host that starts each effect as soon as the core requests it, and passes the core's replies on to clients.
pub trait Serves<C: ?Sized>: Host<C, Done = ()> {
    /// The volume that is served.
    fn core(&mut self) -> &mut Core;

    /// False for an effect that is left out. It never ends.
    fn allows(&self, effect: &Effect) -> bool;

    /// An effect that had ended by the time it was started. The core learns of it only when it has no more effects to give out.
    fn next_ended(&mut self) -> Option<(EffectId, Outcome<'static>)>;

    /// The core has given out all its effects for now. Comes before its replies.
    fn started_all(&mut self, cx: &mut C);

    /// Passes a reply on.
    fn reply(&mut self, cx: &mut C, reply: Reply);
}

/// Gives the core one input, and takes all that follows from it.
pub fn feed<C: ?Sized, H: Serves<C>>(host: &mut H, cx: &mut C, now: Nanos, input: Input<'_>) {
    host.core().handle(now, input);
    drain(host, cx, now);
}

/// Takes all effects and replies of the core.
pub fn drain<C: ?Sized, H: Serves<C>>(host: &mut H, cx: &mut C, now: Nanos) {
    loop {
        while let Some(effect) = host.core().poll_effect() {
            if host.allows(&effect) {
                carry_out(host, cx, effect);
            }
        }
        let Some((id, outcome)) = host.next_ended() else {
            break;
        };
        host.core().handle(now, Input::Done { id, outcome });
    }
    host.started_all(cx);
    while let Some(reply) = host.core().poll_reply() {
        host.reply(cx, reply);
    }
}

/// Carries out one effect.
#[inline]
pub fn carry_out<C: ?Sized, H: Host<C>>(host: &mut H, cx: &mut C, effect: Effect) -> H::Done {
    match effect {
        Effect::WriteChunk {
            id,
            at,
            blocks,
            durable,
        } => host.write_chunk(cx, id, Extent { at, blocks }, durable),
        Effect::WriteData { id, at, blocks } => host.write_data(cx, id, Extent { at, blocks }),
        Effect::WriteMeta {
            id,
            at,
            blocks,
            durable,
        } => host.write_meta(cx, id, Extent { at, blocks }, durable),
        Effect::Sync { id } => host.sync(cx, id),
        Effect::Erase { id, at, blocks } => host.erase(cx, id, Extent { at, blocks }),
        Effect::Read {
            id,
            at,
            blocks,
            request,
            first,
        } => host.read(cx, id, Extent { at, blocks }, To::Request(request, first)),
        Effect::Gather { id, at, blocks, to } => {
            host.read(cx, id, Extent { at, blocks }, To::Collector(to))
        }
        Effect::ReadParts {
            id,
            page,
            slot,
            count,
            base,
            request,
            first,
        } => {
            let parts = Parts {
                page,
                slot,
                count,
                base,
            };
            host.read_parts(cx, id, parts, To::Request(request, first))
        }
        Effect::GatherPart { id, at, slot, to } => {
            host.read_parts(cx, id, Parts::one(at, slot), To::Collector(to))
        }
        Effect::ReadMeta { id, at, blocks } => host.read_meta(cx, id, Extent { at, blocks }),
        Effect::Compare { id, buf, with } => host.compare(cx, id, buf, with),
        Effect::Fingerprint { id, buf } => host.fingerprint(cx, id, buf),
        Effect::CopyOut {
            from,
            request,
            index,
        } => host.copy_out(cx, from, request, index),
        Effect::ZeroOut {
            request,
            first,
            blocks,
        } => host.zero_out(cx, request, first, blocks),
        Effect::Stored { buf, part } => host.stored(cx, buf, part),
        Effect::GivenUp { page } => host.given_up(cx, page),
        Effect::Release { buf } => host.release(cx, buf),
        Effect::Stopped => host.stopped(cx),
    }
}

impl Effect {
    /// The effect's number; `None` if it is immediate.
    #[must_use]
    pub fn id(&self) -> Option<EffectId> {
        match *self {
            Self::WriteChunk { id, .. }
            | Self::WriteData { id, .. }
            | Self::WriteMeta { id, .. }
            | Self::Sync { id }
            | Self::Erase { id, .. }
            | Self::Read { id, .. }
            | Self::Gather { id, .. }
            | Self::GatherPart { id, .. }
            | Self::ReadMeta { id, .. }
            | Self::ReadParts { id, .. }
            | Self::Compare { id, .. }
            | Self::Fingerprint { id, .. } => Some(id),
            Self::CopyOut { .. }
            | Self::ZeroOut { .. }
            | Self::Stored { .. }
            | Self::GivenUp { .. }
            | Self::Release { .. }
            | Self::Stopped => None,
        }
    }

    /// True if it writes, discards or syncs.
    #[must_use]
    #[inline]
    pub fn changes_medium(&self) -> bool {
        matches!(
            self,
            Self::WriteChunk { .. }
                | Self::WriteData { .. }
                | Self::WriteMeta { .. }
                | Self::Sync { .. }
                | Self::Erase { .. }
        )
    }
}
