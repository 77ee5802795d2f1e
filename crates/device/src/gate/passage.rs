//! The way through the gate: what passes, what waits, and what goes on.

use super::{Waiting, Write, answered, messages};
use crate::block::{BlockError, Op, Request};
use crate::drive::{Batch, Inner, Life};
use crate::frames::Quota;
use crate::requests::Pending;
use crate::scout::Scout;
use crate::snapshots::keeper::Keeper;
use crate::watching::change_of;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Nanos};
use vellum_core::seam::{Hint, Input};
use vellum_watch::{Reason, Stop, Wait};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What the gate needs of the volume besides its core.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub scout: &'a Scout,
    /// The keeper of snapshots, if there is one.
    pub keeper: Option<&'a Keeper>,
}

/// Passes a request on to the core. A write goes as far as it may; the rest waits, or is refused.
pub(crate) fn pass(
    around: Around<'_>,
    inner: &mut Inner,
    now: Nanos,
    write: Write<'_>,
    batch: &mut Batch,
) {
    let request = &write.pending.request;
    hand_on(around, inner, now, Some(request), batch);
    if inner.gate.holds(&write.pending) {
        return inner.gate.flushes.hold(write.pending);
    }
    pass_on(around, inner, now, None, write, batch);
}

fn pass_on(
    around: Around<'_>,
    inner: &mut Inner,
    now: Nanos,
    waited: Option<Wait>,
    write: Write<'_>,
    batch: &mut Batch,
) {
    let stop = match write.pending.watched.marks {
        true => {
            let room = inner.frames.capacity(Quota::Write) / 4;
            let request = &write.pending.request;
            let is_behind = || around.scout.is_behind();
            inner.gate.stop(request, write.blocks, is_behind, room)
        }
        false => None,
    };
    let Some((at, stop)) = stop else {
        return place(around, inner, now, write, batch);
    };
    let Write {
        mut pending,
        blocks,
        found,
        entries,
        watching,
    } = write;
    let (before, blocks) = blocks.split_at_mut(at);
    let (found_before, found) = found.split_at(at.min(found.len()));
    let behind = entries.iter().position(|entry| entry.index >= at);
    let mut later = entries.split_off(behind.unwrap_or(entries.len()));
    if at > 0 {
        let write = Write {
            pending: pending.split(at),
            blocks: before,
            found: found_before,
            entries,
            watching,
        };
        place(around, inner, now, write, batch);
    }
    let Stop::Wait(reason) = stop else {
        let why = "a block that this one commits could not be written, or a commit block before it";
        let error = BlockError::Io(why.to_owned());
        return refuse(around, inner, pending, error, batch);
    };
    let since = waited.filter(|_| at == 0).map(|waited| waited.since);
    inner.gate.counts.waited += u64::from(since.is_none());
    inner.gate.blocks += blocks.len();
    later.iter_mut().for_each(|entry| entry.index -= at);
    let is_plain = pending.request.op == (Op::Write { fua: false });
    inner.gate.waiting.push(Waiting {
        pending,
        blocks: blocks.to_vec(),
        found: found.to_vec(),
        entries: later,
        watching: Arc::clone(watching),
        wait: Wait {
            since: since.unwrap_or(now),
            reason,
            is_answered: waited.is_some_and(|waited| waited.is_answered),
            // A flush waits for blocks behind a commit block, so they may not be answered and wait.
            is_withheld: !is_plain
                || blocks.len() > 1
                || waited.is_some_and(|waited| waited.is_withheld),
        },
    });
}

/// Hands a write to the core, with what it says about journals.
fn place(around: Around<'_>, inner: &mut Inner, now: Nanos, write: Write<'_>, batch: &mut Batch) {
    let touched = write.pending.watched.held.touched;
    if touched {
        around.scout.admit();
    }
    let request = &write.pending.request;
    if let Some(change) = change_of(request)
        && (touched && write.watching.is_moved(&change) || write.watching.empties_journal(&change))
    {
        write.watching.forget_logs();
    }
    inner.settle_bases(write.blocks, write.found);
    inner.admit(now, write.pending, write.blocks, batch);
    let mut committed = Vec::new();
    let mut is_in_order = true;
    let is_current = |scan| around.scout.is_current(scan);
    for entry in write.entries.drain(..) {
        is_in_order &= write.watching.entry(entry, is_current, &mut committed);
    }
    if !is_in_order {
        // What was reported about that journal may be wrong, too.
        committed.clear();
        inner.feed(now, Input::Hint(write.watching.hint()), batch);
        batch
            .warnings
            .push(("journal", messages::OUT_OF_ORDER.to_owned()));
    }
    if let Some(keeper) = around.keeper {
        // A crash would change pledged blocks, so what a snapshot reads there must be kept first.
        committed.retain(|(home, _)| keeper.may_change(*home));
    }
    if !committed.is_empty() {
        let pairs = &committed;
        inner.feed(now, Input::Hint(Hint::Committed { pairs }), batch);
    }
}

/// Answers a request that does not reach the core.
pub(crate) fn refuse(
    around: Around<'_>,
    inner: &mut Inner,
    pending: Pending,
    error: BlockError,
    batch: &mut Batch,
) {
    if pending.watched.held.touched {
        // Its answer will be counted.
        around.scout.admit();
    }
    inner.counters.refused += 1;
    let (request, is_answered) = (&pending.request, pending.watched.is_answered);
    let result = inner.gate.early.ended(request, is_answered, Err(error));
    batch.answers.push(pending, result);
}

/// Lets everything go on that may. To be called before the volume's lock is released, whatever was done under it.
pub(crate) fn let_go(around: Around<'_>, inner: &mut Inner, now: Nanos, batch: &mut Batch) {
    loop {
        let is_over = inner.gate.deadline().is_some_and(|at| at <= now);
        let is_due = inner.gate.order.take_due();
        if !inner.gate.holds_any() || !(is_due || is_over || inner.life != Life::Running) {
            return;
        }
        for waiting in std::mem::take(&mut inner.gate.waiting) {
            inner.gate.blocks -= waiting.blocks.len();
            if inner.life == Life::Running {
                try_again(around, inner, now, waiting, batch);
            } else {
                refuse(around, inner, waiting.pending, BlockError::Stopping, batch);
            }
        }
        let_flushes_go(inner, now, batch);
    }
}

/// Lets flushes go on that have waited long enough. When the volume stops, refuses all of them.
fn let_flushes_go(inner: &mut Inner, now: Nanos, batch: &mut Batch) {
    if inner.life != Life::Running {
        for flush in inner.gate.flushes.drain() {
            inner.counters.refused += 1;
            batch.answers.push(flush, Err(BlockError::Stopping));
        }
    }
    while let Some(flush) = inner.gate.flushes.pop() {
        inner.admit(now, flush, &[], batch);
    }
}

/// True if everything that waits here or is on its way will surely be accepted. Room never runs short on a volume that is not thin,
/// and that snapshots cannot fill.
fn has_room(inner: &Inner) -> bool {
    let room = inner.engine.fullest_room();
    inner.engine.refuses_writes().is_none()
        && (room.reserve() == 0 || !room.ends_within(inner.frames.being_written()))
}

fn try_again(
    around: Around<'_>,
    inner: &mut Inner,
    now: Nanos,
    mut waiting: Waiting,
    batch: &mut Batch,
) {
    let wait = &mut waiting.wait;
    let deadline = inner.gate.order.deadline(wait);
    let is_over = deadline.is_some_and(|deadline| deadline <= now);
    match wait.reason {
        Reason::Blocks {
            journal,
            is_guess: true,
            ..
        } if is_over => inner.gate.order.give_up(journal),
        Reason::Blocks { .. } if is_over && wait.may_be_answered() && !has_room(inner) => {
            wait.is_withheld = true;
        }
        Reason::Blocks { .. } if is_over && wait.may_be_answered() => {
            wait.is_answered = true;
            batch.answers.push(waiting.pending.take_answer(), Ok(()));
            waiting.pending.watched.is_behind = true;
        }
        Reason::Scan if is_over => waiting.pending.watched.marks = false,
        Reason::Blocks { missing, .. } if is_over => {
            inner.gate.counts.refused += 1;
            let told = messages::too_late(waiting.pending.request.lba.0 * BLOCK, missing);
            batch.warnings.push(("commit", told.clone()));
            return refuse(around, inner, waiting.pending, BlockError::Io(told), batch);
        }
        _ => {}
    }
    go_on(around, inner, now, waiting, batch);
}

/// Lets answered writes go on, whatever they wait for: those that `request` could observe, or all of them when the volume's life
/// ends.
pub(crate) fn hand_on(
    around: Around<'_>,
    inner: &mut Inner,
    now: Nanos,
    request: Option<&Request>,
    batch: &mut Batch,
) {
    let is_told = |waiting: &mut Waiting| {
        let own = &waiting.pending.request;
        waiting.wait.is_answered && request.is_none_or(|request| answered::is_told_by(own, request))
    };
    let told: Vec<_> = inner.gate.waiting.extract_if(.., is_told).collect();
    for mut waiting in told {
        inner.gate.blocks -= waiting.blocks.len();
        inner.gate.let_through(&waiting);
        waiting.pending.watched.marks = false;
        go_on(around, inner, now, waiting, batch);
    }
}

/// Lets a write that has waited go on, as far as it may now.
fn go_on(
    around: Around<'_>,
    inner: &mut Inner,
    now: Nanos,
    mut waiting: Waiting,
    batch: &mut Batch,
) {
    let write = Write {
        pending: waiting.pending,
        blocks: &mut waiting.blocks,
        found: &waiting.found,
        entries: &mut waiting.entries,
        watching: &waiting.watching,
    };
    pass_on(around, inner, now, Some(waiting.wait), write, batch);
}
