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
use vellum_watch::{self as watch, Due, Reason, Refusal, Stop, Wait};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The way from a client to the core, for as long as the volume's lock is held.
pub(crate) struct Passage<'a> {
    pub scout: &'a Scout,
    /// The keeper of snapshots, if there is one.
    pub keeper: Option<&'a Keeper>,
    pub inner: &'a mut Inner,
    pub now: Nanos,
    pub batch: &'a mut Batch,
}

impl Passage<'_> {
    /// Passes a request on to the core. A write goes as far as it may; the rest waits, or is refused.
    pub fn pass(&mut self, write: Write<'_>) {
        let request = &write.pending.request;
        if request.op != Op::Flush {
            let run = Some((request.lba.0, request.blocks));
            self.hand_on(run);
        } else if self.inner.gate.commits.holds_flush() {
            return self.inner.gate.commits.keep_flush(write.pending);
        }
        self.pass_on(None, write);
    }

    fn pass_on(&mut self, waited: Option<Wait>, write: Write<'_>) {
        let room = self.inner.frames.capacity(Quota::Write) / 4;
        let change = change_of(&write.pending.request).filter(|_| write.pending.watched.marks);
        let stop = change.and_then(|change| {
            let has_room = self.has_room();
            let may_come = |reason: &Reason| match reason {
                Reason::Scan => self.scout.is_behind(),
                Reason::Blocks { was_refused, .. } => {
                    !was_refused || has_room && self.keeper.is_none_or(Keeper::has_room)
                }
            };
            let commits = &mut self.inner.gate.commits;
            commits.stop(&change, write.blocks, room, waited.as_ref(), may_come)
        });
        let Some((at, stop)) = stop else {
            return self.place(write);
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
            self.place(write);
        }
        let reason = match stop {
            Stop::Wait(reason) => reason,
            Stop::Refuse(why) => return self.refuse(pending, incomplete(why)),
        };
        let is_new = waited.is_none() || at > 0;
        later.iter_mut().for_each(|entry| entry.index -= at);
        let is_plain = pending.request.op == (Op::Write { fua: false });
        // A flush waits for blocks behind a commit block, so they may not be answered and wait.
        let mut wait = wait_of(self.now, reason, waited, is_new);
        wait.is_withheld |= !is_plain || blocks.len() > 1;
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
        self.inner.gate.commits.keep(waiting, is_new);
    }

    /// Hands a write to the core, with what it says about journals.
    fn place(&mut self, write: Write<'_>) {
        let touched = write.pending.watched.held.touched;
        if touched {
            self.scout.admit();
        }
        let request = &write.pending.request;
        if let Some(change) = change_of(request)
            && (touched && write.watching.is_moved(&change)
                || write.watching.empties_journal(&change))
        {
            write.watching.forget_logs();
        }
        self.inner.settle_bases(write.blocks, write.found);
        self.inner
            .admit(self.now, write.pending, write.blocks, self.batch);
        let mut committed = Vec::new();
        let mut is_in_order = true;
        let is_current = |scan| self.scout.is_current(scan);
        for entry in write.entries.drain(..) {
            is_in_order &= write.watching.entry(entry, is_current, &mut committed);
        }
        if !is_in_order {
            // What was reported about that journal may be wrong, too.
            committed.clear();
            self.inner
                .feed(self.now, Input::Hint(write.watching.hint()), self.batch);
            self.batch
                .warnings
                .push(("journal", messages::OUT_OF_ORDER.to_owned()));
        }
        if let Some(keeper) = self.keeper {
            // A crash would change pledged blocks, so what a snapshot reads there must be kept first.
            committed.retain(|(home, _)| keeper.may_change(*home));
        }
        if !committed.is_empty() {
            let pairs = &committed;
            self.inner
                .feed(self.now, Input::Hint(Hint::Committed { pairs }), self.batch);
        }
    }

    /// Answers a request that does not reach the core.
    pub fn refuse(&mut self, pending: Pending, error: BlockError) {
        if pending.watched.held.touched {
            // Its answer will be counted.
            self.scout.admit();
        }
        self.inner.counters.refused += 1;
        self.inner.gate.refused(self.now, &pending.request, &error);
        let (request, answered) = (&pending.request, pending.watched.answered);
        let result = self.inner.gate.early.ended(request, answered, Err(error));
        self.batch.answers.push(pending, result);
    }

    /// Lets everything go on that may. To be called before the volume's lock is released, whatever was done under it.
    pub fn let_go(&mut self) {
        while self.inner.phase == Phase::Running && self.inner.gate.commits.begins(self.now) {
            while self.inner.phase == Phase::Running
                && let Some(waiting) = self.inner.gate.commits.take_next()
            {
                self.try_again(waiting);
            }
            while self.inner.phase == Phase::Running
                && let Some(flush) = self.inner.gate.commits.take_flush()
            {
                self.inner.admit(self.now, flush, &[], self.batch);
            }
        }
        if self.inner.phase != Phase::Running {
            for pending in self.inner.gate.drain() {
                self.refuse(pending, BlockError::Stopping);
            }
        }
    }

    /// True if everything that waits here or is on its way will surely be accepted. Room never runs short on a volume that is not thin,
    /// and that snapshots cannot fill.
    fn has_room(&self) -> bool {
        let room = self.inner.core.fullest_room();
        self.inner.core.refuses_writes().is_none()
            && (room.reserve() == 0 || !room.ends_within(self.inner.frames.being_written()))
    }

    fn try_again(&mut self, mut waiting: watch::Waiting<Waiting>) {
        let (has_room, pending) = (self.has_room(), &mut waiting.write.pending);
        let commits = &mut self.inner.gate.commits;
        match commits.due(self.now, &mut waiting.wait, has_room) {
            Due::Nothing => {}
            Due::Unscanned => pending.watched.marks = false,
            Due::Answer => {
                self.batch.answers.push(pending.take_answer(), Ok(()));
                pending.watched.answered = Answered::AtGate;
            }
            Due::Refusal(missing) if !has_room || waiting.wait.reason.was_refused() => {
                // The client may have stopped until there is room.
                self.inner.gate.refused += 1;
                let told = messages::without_room(pending.request.lba.0 * BLOCK, missing);
                self.batch.warnings.push(("commit", told));
                return self.refuse(waiting.write.pending, incomplete(Refusal::NoRoom));
            }
            Due::Refusal(missing) => {
                self.inner.gate.refused += 1;
                let told = messages::too_late(pending.request.lba.0 * BLOCK, missing);
                self.batch.warnings.push(("commit", told.clone()));
                let error = BlockError::Io(told);
                return self.refuse(waiting.write.pending, error);
            }
        }
        self.go_on(waiting);
    }

    /// Ends the wait of answered writes: of those that a request for the blocks of `run` could observe, or of all of them when the volume
    /// stops. They go on, whatever they wait for, or are given up, if that was refused.
    pub fn hand_on(&mut self, run: Option<(u64, u64)>) {
        for mut waiting in self.inner.gate.commits.take_observed(run) {
            if self.inner.gate.commits.refusal(&waiting).is_some() {
                self.give_up(waiting.write.pending);
                continue;
            }
            let Waiting {
                pending, blocks, ..
            } = &mut waiting.write;
            if let Some(change) = change_of(&pending.request) {
                let commits = &mut self.inner.gate.commits;
                commits.let_through(&change, blocks, &waiting.wait);
            }
            pending.watched.marks = false;
            self.go_on(waiting);
        }
    }

    /// Gives up an answered commit block: a block that it commits was refused, and did not come again. No later one of its log may
    /// succeed.
    fn give_up(&mut self, pending: Pending) {
        if let Some(change) = change_of(&pending.request) {
            self.inner.gate.commits.order.lose(&change);
        }
        self.inner.gate.refused += 1;
        let told = messages::given_up(pending.request.lba.0 * BLOCK);
        self.batch.warnings.push(("commit", told.clone()));
        self.refuse(pending, BlockError::Io(told));
    }

    /// Lets a write that has waited go on, as far as it may now.
    fn go_on(&mut self, waiting: watch::Waiting<Waiting>) {
        let mut held = waiting.write;
        let write = Write {
            pending: held.pending,
            blocks: &mut held.blocks,
            found: &held.found,
            entries: &mut held.entries,
            watching: &held.watching,
        };
        self.pass_on(Some(waiting.wait), write);
    }
}

/// The error for a commit block one of whose blocks was refused. For want of room it is the same error: who writes one of the two again
/// when there is room has to write the other again, too.
fn incomplete(why: Refusal) -> BlockError {
    match why {
        Refusal::NoRoom => BlockError::Full,
        Refusal::Failed => BlockError::Io(messages::INCOMPLETE.to_owned()),
    }
}

/// The wait of a write that stops for this reason. `waited`: its wait so far, if it has waited. `is_new`: it stops at another block now.
fn wait_of(now: Nanos, reason: Reason, waited: Option<Wait>, is_new: bool) -> Wait {
    // What was refused meanwhile gets its own time to come again.
    let is_as_before = |before: &Wait| before.reason.was_refused() || !reason.was_refused();
    let since = waited.filter(|before| !is_new && is_as_before(before));
    Wait {
        since: since.map_or(now, |before| before.since),
        reason,
        is_answered: waited.is_some_and(|before| before.is_answered),
        // Whether a client writes again what was refused is not known.
        is_withheld: reason.was_refused() || waited.is_some_and(|before| before.is_withheld),
    }
}
