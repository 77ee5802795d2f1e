//! The way through the gate: what passes, what waits, and what goes on.

use super::{Waiting, Write, messages};
use crate::block::{BlockError, Op};
use crate::drive::{Batch, Inner, Phase};
use crate::frames::Quota;
use crate::requests::Pending;
use crate::scout::Scout;
use crate::snapshots::keeper::Keeper;
use crate::watched::Answered;
use crate::watching::change_of;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Nanos};
use vellum_core::seam::{Hint, Input};
use vellum_watch::{self as watch, Due, Stop, Wait};

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
    if request.op != Op::Flush {
        let run = Some((request.lba.0, request.blocks));
        hand_on(around, inner, now, run, batch);
    } else if inner.gate.commits.holds_flush() {
        return inner.gate.commits.keep_flush(write.pending);
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
    let room = inner.frames.capacity(Quota::Write) / 4;
    let is_behind = || around.scout.is_behind();
    let change = change_of(&write.pending.request).filter(|_| write.pending.watched.marks);
    let stop = change.and_then(|change| {
        let commits = &mut inner.gate.commits;
        commits.stop(&change, write.blocks, room, waited.as_ref(), is_behind)
    });
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
        return refuse(around, inner, now, pending, error, batch);
    };
    let since = waited.filter(|_| at == 0).map(|waited| waited.since);
    later.iter_mut().for_each(|entry| entry.index -= at);
    let is_plain = pending.request.op == (Op::Write { fua: false });
    let wait = Wait {
        since: since.unwrap_or(now),
        reason,
        is_answered: waited.is_some_and(|waited| waited.is_answered),
        // A flush waits for blocks behind a commit block, so they may not be answered and wait.
        is_withheld: !is_plain
            || blocks.len() > 1
            || waited.is_some_and(|waited| waited.is_withheld),
    };
    let waiting = watch::Waiting {
        run: (pending.request.lba.0, blocks.len()),
        write: Waiting {
            pending,
            blocks: blocks.to_vec(),
            found: found.to_vec(),
            entries: later,
            watching: Arc::clone(watching),
        },
        wait,
    };
    inner.gate.commits.keep(waiting, since.is_none());
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
    now: Nanos,
    pending: Pending,
    error: BlockError,
    batch: &mut Batch,
) {
    if pending.watched.held.touched {
        // Its answer will be counted.
        around.scout.admit();
    }
    inner.counters.refused += 1;
    inner.gate.refused(now, &pending.request, &error);
    let (request, answered) = (&pending.request, pending.watched.answered);
    let result = inner.gate.early.ended(request, answered, Err(error));
    batch.answers.push(pending, result);
}

/// Lets everything go on that may. To be called before the volume's lock is released, whatever was done under it.
pub(crate) fn let_go(around: Around<'_>, inner: &mut Inner, now: Nanos, batch: &mut Batch) {
    while inner.phase == Phase::Running && inner.gate.commits.begins(now) {
        while inner.phase == Phase::Running
            && let Some(waiting) = inner.gate.commits.take_next()
        {
            try_again(around, inner, now, waiting, batch);
        }
        while inner.phase == Phase::Running
            && let Some(flush) = inner.gate.commits.take_flush()
        {
            inner.admit(now, flush, &[], batch);
        }
    }
    if inner.phase != Phase::Running {
        for pending in inner.gate.drain() {
            refuse(around, inner, now, pending, BlockError::Stopping, batch);
        }
    }
}

/// True if everything that waits here or is on its way will surely be accepted. Room never runs short on a volume that is not thin,
/// and that snapshots cannot fill.
fn has_room(inner: &Inner) -> bool {
    let room = inner.core.fullest_room();
    inner.core.refuses_writes().is_none()
        && (room.reserve() == 0 || !room.ends_within(inner.frames.being_written()))
}

fn try_again(
    around: Around<'_>,
    inner: &mut Inner,
    now: Nanos,
    mut waiting: watch::Waiting<Waiting>,
    batch: &mut Batch,
) {
    let (has_room, pending) = (has_room(inner), &mut waiting.write.pending);
    match inner.gate.commits.due(now, &mut waiting.wait, has_room) {
        Due::Nothing => {}
        Due::Unscanned => pending.watched.marks = false,
        Due::Answer => {
            batch.answers.push(pending.take_answer(), Ok(()));
            pending.watched.answered = Answered::AtGate;
        }
        Due::Refusal(missing) => {
            inner.gate.refused += 1;
            let told = messages::too_late(pending.request.lba.0 * BLOCK, missing);
            batch.warnings.push(("commit", told.clone()));
            let error = BlockError::Io(told);
            return refuse(around, inner, now, waiting.write.pending, error, batch);
        }
    }
    go_on(around, inner, now, waiting, batch);
}

/// Lets answered writes go on, whatever they wait for: those that a request for the blocks of `run` could observe, or all of them
/// when the volume stops.
pub(crate) fn hand_on(
    around: Around<'_>,
    inner: &mut Inner,
    now: Nanos,
    run: Option<(u64, u64)>,
    batch: &mut Batch,
) {
    for mut waiting in inner.gate.commits.take_observed(run) {
        let Waiting {
            pending, blocks, ..
        } = &mut waiting.write;
        if let Some(change) = change_of(&pending.request) {
            let commits = &mut inner.gate.commits;
            commits.let_through(&change, blocks, &waiting.wait);
        }
        pending.watched.marks = false;
        go_on(around, inner, now, waiting, batch);
    }
}

/// Lets a write that has waited go on, as far as it may now.
fn go_on(
    around: Around<'_>,
    inner: &mut Inner,
    now: Nanos,
    waiting: watch::Waiting<Waiting>,
    batch: &mut Batch,
) {
    let mut held = waiting.write;
    let write = Write {
        pending: held.pending,
        blocks: &mut held.blocks,
        found: &held.found,
        entries: &mut held.entries,
        watching: &held.watching,
    };
    pass_on(around, inner, now, Some(waiting.wait), write, batch);
}
