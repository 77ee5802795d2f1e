//! Refusals of requests that were taken: the medium has no room, or the volume is poisoned.

use super::back::Back;
use super::waiting::Waiting;
use crate::addr::EffectId;
use crate::seam::Refusal;

/// Refuses a request that does not wait any more. A read begins: what it reads is there.
pub(crate) fn one<B: Back>(back: &mut B, waiting: Waiting<B::Twin>, refusal: Refusal) {
    let is_write = matches!(waiting, Waiting::Write(_));
    match back.front().refuse(waiting, refusal) {
        Some(Waiting::Read { id, lba, blocks }) => back.read_now(id, lba, blocks),
        Some(Waiting::Write(write)) => {
            let verdicts = write.verdicts.get(write.placed..);
            back.on_refused(verdicts.unwrap_or_default());
        }
        // Its buffers are still being compared.
        None if is_write => back.on_refused(&[]),
        _ => {}
    }
}

/// Refuses all who wait: the volume is poisoned.
pub(crate) fn all<B: Back>(back: &mut B) {
    back.refuse_waiters(Refusal::Poisoned);
    while let Some(waiting) = back.front().queue.pop() {
        one(back, waiting, Refusal::Poisoned);
    }
}

/// Keeps a write that found no room on the medium, to retry it later (promise 7). Nothing is lost, but nothing new can be promised: all
/// who wait are refused, except for those whose clients have the answer already.
pub(crate) fn until_room<B: Back>(back: &mut B, id: EffectId) {
    back.front().hold(id);
    back.refuse_waiters(Refusal::NoRoom);
    for waiting in back.front().queue.take_all() {
        match waiting.outlasts_no_room() {
            true => back.front().queue.push(waiting),
            false => one(back, waiting, Refusal::NoRoom),
        }
    }
}
