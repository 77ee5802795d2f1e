//! The way of a request: it arrives, waits for its turn, and takes effect. It is the same for every layout.

use super::back::Back;
use super::refuse;
use super::waiting::Waiting;
use super::write::{Placed, Write};
use crate::addr::{Lba, RequestId};
use crate::seam::{Ack, CopyBlocks, Payload, Refusal, Unmap};

/// True if these blocks are within the volume.
pub(crate) fn fits<B: Back>(back: &B, lba: Lba, blocks: u64) -> bool {
    lba.0
        .checked_add(blocks)
        .is_some_and(|end| end <= back.logical_blocks())
}

pub(crate) fn write<B: Back>(back: &mut B, id: RequestId, lba: Lba, blocks: &[Payload], ack: Ack) {
    let fits = fits(back, lba, blocks.len() as u64);
    let front = back.front();
    front.outbox.took(blocks.len());
    let refusal = match front.refuses_change(fits) {
        // The client has the answer already, so the write waits for room.
        Some(Refusal::NoRoom) if ack == Ack::Given => None,
        refusal => refusal,
    };
    if let Some(refusal) = refusal {
        front.outbox.refuse_write(id, blocks, refusal);
        return back.on_refused(&[]);
    }
    back.on_taken();
    let counters = back.counters();
    counters.host_blocks_written += blocks.len() as u64;
    counters.asked(blocks);
    let mut write = Write {
        id,
        lba,
        blocks: blocks.into(),
        placed: 0,
        verdicts: back.propose(id, lba, blocks),
        ack,
    };
    let misses = back.misses(lba, blocks.len());
    if !misses && may_go(back) && place_all(back, &mut write) {
        return;
    }
    let mut write = write.take();
    back.on_wait(&mut write);
    back.front().queue.push(Waiting::Write(write));
}

pub(crate) fn read<B: Back>(back: &mut B, id: RequestId, lba: Lba, blocks: u32) {
    if !fits(back, lba, blocks.into()) {
        return back.front().reply(id, Err(Refusal::OutOfRange));
    }
    back.counters().host_blocks_read += u64::from(blocks);
    read_in_turn(back, id, lba, blocks);
}

/// Has a read follow waiting writes of its blocks, so that read-modify-write above us is safe.
pub(crate) fn read_in_turn<B: Back>(back: &mut B, id: RequestId, lba: Lba, blocks: u32) {
    let front = back.front();
    match !front.course.is_poisoned() && front.queue.will_change(lba, blocks.into()) {
        true => front.queue.push(Waiting::Read { id, lba, blocks }),
        false => back.read_now(id, lba, blocks),
    }
}

pub(crate) fn flush<B: Back>(back: &mut B, id: RequestId) {
    back.counters().flushes += 1;
    let front = back.front();
    if let Some(refusal) = front.refuses_writes() {
        return front.reply(id, Err(refusal));
    }
    // A write that waits for room is usually not acknowledged, so a flush need not wait for it.
    match front.queue.has_answered() {
        true => front.queue.push(Waiting::Flush { id }),
        false => back.wait_for_durability(id, true),
    }
}

/// Takes a discard, or a request to write zeros.
pub(crate) fn unmap<B: Back>(back: &mut B, id: RequestId, unmap: Unmap) {
    let fits = fits(back, unmap.lba, unmap.blocks);
    let front = back.front();
    if let Some(refusal) = front.refuses_change(fits) {
        return front.reply(id, Err(refusal));
    }
    back.on_taken();
    take_turn(back, Waiting::Unmap { id, unmap });
}

pub(crate) fn copy<B: Back>(back: &mut B, id: RequestId, copy: CopyBlocks) {
    let fits = fits(back, copy.from, copy.blocks) && fits(back, copy.to, copy.blocks);
    let front = back.front();
    if let Some(refusal) = front.refuses_change(fits) {
        return front.reply(id, Err(refusal));
    }
    let placed = 0;
    take_turn(back, Waiting::Copy { id, copy, placed });
}

/// Serves waiting requests, in order, until one must wait on.
pub(crate) fn serve_waiting<B: Back>(back: &mut B) {
    if !back.may_change() {
        return;
    }
    while let Some(mut first) = back.front().queue.pop_ready() {
        if !back.may_begin(&first) {
            return back.front().queue.put_back(first);
        }
        if !begin(back, &mut first) {
            if let Waiting::Write(write) = &mut first {
                back.on_wait(write);
            }
            return back.front().queue.put_back(first);
        }
        back.on_begun();
    }
}

/// True if a request that arrives now need not wait for its turn.
fn may_go<B: Back>(back: &mut B) -> bool {
    back.front().queue.is_empty() && back.may_change()
}

/// Serves a request now, if it is its turn, or has it wait.
fn take_turn<B: Back>(back: &mut B, mut request: Waiting<B::Twin>) {
    if !may_go(back) || !begin(back, &mut request) {
        back.front().queue.push(request);
    }
}

/// Serves a request; false if it has to wait.
fn begin<B: Back>(back: &mut B, request: &mut Waiting<B::Twin>) -> bool {
    match request {
        Waiting::Write(write) => return place_all(back, write),
        Waiting::Flush { id } => back.wait_for_durability(*id, true),
        Waiting::Read { id, lba, blocks } => back.read_now(*id, *lba, *blocks),
        Waiting::Unmap { id, unmap } => match back.unmap(unmap.lba, unmap.blocks) {
            None => return false,
            Some(Err(refusal)) => back.front().reply(*id, Err(refusal)),
            Some(Ok(())) => {
                let counters = back.counters();
                match unmap.zero {
                    true => counters.zero_blocks += unmap.blocks,
                    false => counters.discarded_blocks += unmap.blocks,
                }
                acknowledge(back, *id, unmap.fua);
            }
        },
        Waiting::Copy { id, copy, placed } => {
            let Some(ended) = back.copy(*copy, placed) else {
                return false;
            };
            if ended.is_ok() {
                back.counters().copied_blocks += copy.blocks;
            }
            back.front().reply(*id, ended);
        }
        Waiting::Committed { pairs } => back.pledge(pairs),
    }
    true
}

/// Places a write's blocks; false if one has to wait.
fn place_all<B: Back>(back: &mut B, write: &mut Write<'_, B::Twin>) -> bool {
    match write.each(|lba, payload, verdict| back.place(lba, payload, verdict)) {
        Placed::Done => acknowledge(back, write.id, write.ack == Ack::Durable),
        Placed::Wait => return false,
        Placed::Full => refuse::one(back, Waiting::Write(write.take()), Refusal::Full),
    }
    true
}

/// Answers a request that has taken effect: now, or with `fua` when that is durable.
fn acknowledge<B: Back>(back: &mut B, id: RequestId, fua: bool) {
    match fua || back.answers_when_durable() {
        true => back.wait_for_durability(id, false),
        false => back.front().reply(id, Ok(())),
    }
}

#[cfg(test)]
mod tests;
