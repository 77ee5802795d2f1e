//! The gate before the core: a commit block waits here for what it commits.
//!
//! Requests in flight come in any order, and that they take effect in is ours to choose. With `journal_async_commit` a commit
//! block is in flight together with what it commits. So it is handed to the core behind all of that, and not before:
//! which journal wants what, `vellum_ext4::journal::Commits` says. What must hold:
//!
//! 1. Only writes wait here, and of a write what is before the commit block goes on at once. No thread waits, no read, and
//!    no flush but one (6): who has no answer to his write has no claim on it.
//! 2. A block counts as there when it has taken effect in the core. What is handed to the core later takes effect later.
//! 3. Only the commit blocks of a journal wait whose superblock says that it is asynchronous. In any other, jbd2 sends a commit
//!    block behind the answers to all it commits: if something is missing then, something above us (a cache in
//!    writeback) reorders, and knows what it does. There a commit block goes on at once, unjudged.
//! 4. A client is not kept waiting for what it cannot send: some send nothing more before they have an answer (nbdfuse). So with
//!    [`COMMIT_SILENCE`] after the last block of its journal that was news, the commit block is answered, and waits on
//!    (`gate/answered.rs`). One that must be durable when it is answered cannot be: with [`COMMIT_PATIENCE`] it is an error, and
//!    jbd2 gives its journal up: what was lost on the way to us must not be committed.
//! 5. A journal that is not known yet cannot be followed later on. So a superblock that begins a log waits, while the scout has
//!    something to look at, until it has looked ([`SCOUT_PATIENCE`] at most). jbd2 sends nothing of the log before that is answered.
//! 6. A flush does not overtake the commit block that it is for: see `gate/flushes.rs`. No other flush waits.
//! 7. A commit block does not overtake the one before it, be that answered or not.
//! 8. What waits is bounded, a quarter of the frames for writes: beyond that nothing waits, and is not followed.

mod answered;
mod early;
mod flushes;
mod messages;
mod waiting;

use crate::bases::Found;
use crate::block::{BlockError, Op, Request};
use crate::classes::JBD2_MAGIC;
use crate::drive::{Batch, Inner, Life};
use crate::frames::Share;
use crate::limits::{COMMIT_PATIENCE, COMMIT_SILENCE, SCOUT_PATIENCE};
use crate::requests::Pending;
use crate::scout::Scout;
use crate::shared::Shared;
use crate::sight::{Sight, Step, span_of};
use crate::stats::CommitStats;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Nanos};
use vellum_core::seam::{Ack, Hint, Input, Payload};
use vellum_ext4::Span;
use vellum_ext4::journal::{Commits, Mark, Verdict, begins_a_log};

use early::Early;
pub(crate) use early::{Turn, has_marks};
use flushes::Flushes;
use waiting::{Reason, Waited};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// See the module.
#[derive(Default)]
pub(crate) struct Gate {
    /// Writes that are answered before they come here.
    pub early: Early,
    flushes: Flushes<Pending>,
    logs: Vec<Log>,
    /// Where all of these are: first block and the one after the last, by place.
    places: Vec<(u64, u64)>,
    waiting: Vec<Waiting>,
    /// Blocks in that.
    blocks: usize,
    /// Whether something may go on that could not before.
    is_due: bool,
    counts: CommitStats,
}

/// A journal.
struct Log {
    commits: Commits,
    /// When the last block came that was news.
    news: Nanos,
}

/// A write on its way to the core.
pub(crate) struct Write<'a> {
    pub pending: Pending,
    pub blocks: &'a mut [Payload],
    pub found: &'a [Found],
    /// What it says of a journal, by that sight.
    pub steps: &'a mut Vec<Step>,
    pub sight: &'a Arc<Sight>,
}

/// What waits, from the block on that must.
struct Waiting {
    pending: Pending,
    blocks: Vec<Payload>,
    found: Vec<Found>,
    steps: Vec<Step>,
    sight: Arc<Sight>,
    since: Nanos,
    reason: Reason,
    /// Its client has its answer: see `answered.rs`.
    is_answered: bool,
    /// It has none before it has taken effect: there may be no room for it.
    is_withheld: bool,
}

impl Waiting {
    /// Whether an answer to it would promise no more than it keeps.
    fn may_be_answered(&self) -> bool {
        let is_plain = self.pending.request.op == (Op::Write { fua: false });
        !(self.is_answered || self.is_withheld) && is_plain
    }
}

/// What is to be done with a write, from some block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Wait(Reason),
    Refuse,
}

impl Gate {
    /// These are the journals, from now on. One that was known goes on as it was.
    pub fn follow(&mut self, found: &[Commits]) {
        let before = std::mem::take(&mut self.logs);
        let place = |log: &Log| found.iter().position(|new| log.commits.is_of_the_same(new));
        let places: Vec<Option<usize>> = before.iter().map(place).collect();
        let new = |commits: &Commits| Log {
            commits: commits.clone(),
            news: Nanos(0),
        };
        self.logs = found.iter().map(new).collect();
        for (log, at) in before.into_iter().zip(&places) {
            if let Some(at) = *at {
                self.logs[at] = log;
            }
        }
        // What waits for a journal waits for that one, whatever its number is now.
        for waiting in &mut self.waiting {
            if let Reason::Blocks { log, .. } = &mut waiting.reason {
                *log = log.and_then(|at| places[at]);
            }
        }
        let spans = found.iter().flat_map(|commits| commits.layout().extents());
        let places = spans.map(|span| (span.start / BLOCK, span.end() / BLOCK));
        self.places = places.collect();
        self.places.sort_unstable();
        self.is_due = true;
    }

    /// The core has answered a request: what its client is told.
    pub fn ended(
        &mut self,
        now: Nanos,
        pending: &Pending,
        result: Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let Pending {
            request, watched, ..
        } = pending;
        self.flushes.ended(pending.is_answered(), watched.is_behind);
        self.is_due |= !self.flushes.is_empty();
        self.answered(now, request, result.is_ok());
        if watched.is_behind && result.is_err() {
            self.lose(request);
            return result;
        }
        self.early.ended(request, watched.is_answered, result)
    }

    /// A commit block that was answered is refused. No flush succeeds from then on; but jbd2 does not look at its flush's answer, so
    /// no commit block of that log does either.
    fn lose(&mut self, request: &Request) {
        self.early.lose(request);
        for log in &mut self.logs {
            log.commits.lost(span_of(request));
        }
    }

    /// The core is handed a request: when it is to answer it, if it writes.
    pub fn handed_over(&mut self, pending: &Pending, fua: bool) -> Ack {
        self.flushes
            .handed_over(pending.is_answered(), pending.watched.is_behind);
        pending.ack(fua)
    }

    /// Whether it is a flush that has to wait.
    fn holds(&self, pending: &Pending) -> bool {
        let is_flush = pending.request.op == Op::Flush;
        let mut waiting = self.waiting.iter();
        is_flush
            && self
                .flushes
                .must_wait(waiting.any(|waiting| waiting.is_answered))
    }

    /// A request is answered: what it wrote has taken effect, or never will.
    pub fn answered(&mut self, now: Nanos, request: &Request, is_done: bool) {
        let writes = !matches!(request.op, Op::Read | Op::Flush);
        if !writes || !self.is_in_log(request.lba.0, request.blocks) {
            return;
        }
        let span = span_of(request);
        for log in &mut self.logs {
            let is_news = match is_done {
                true => log.commits.took_effect(span),
                false => log.commits.refused(span),
            };
            if is_news {
                log.news = now;
                self.is_due = true;
            }
        }
    }

    /// When the clock is to be looked at, if at all.
    pub fn deadline(&self) -> Option<Nanos> {
        let waiting = self.waiting.iter();
        waiting
            .filter_map(|waiting| self.deadline_of(waiting))
            .min()
    }

    /// When a wait is to end, or to be answered.
    fn deadline_of(&self, waiting: &Waiting) -> Option<Nanos> {
        let (from, patience) = match waiting.reason {
            _ if waiting.is_answered => return None,
            Reason::Scout => (waiting.since, SCOUT_PATIENCE),
            Reason::Blocks { log, .. } => {
                let news = log.map_or(Nanos(0), |log| self.logs[log].news);
                let patience = match waiting.may_be_answered() {
                    true => COMMIT_SILENCE,
                    false => COMMIT_PATIENCE,
                };
                (waiting.since.max(news), patience)
            }
        };
        Some(Nanos(from.0.saturating_add(patience.as_nanos() as u64)))
    }

    /// Whether a write waits here.
    pub fn is_waited_at(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether anything waits here at all.
    fn holds_any(&self) -> bool {
        !(self.waiting.is_empty() && self.flushes.is_empty())
    }

    /// What there is to tell.
    pub fn stats(&self) -> CommitStats {
        CommitStats {
            waiting: self.waiting.len() as u64,
            ..self.counts
        }
    }

    /// Whether a write has its answer, and waits, here or in the core.
    pub fn holds_answered(&self) -> bool {
        let mut waiting = self.waiting.iter();
        self.early.holds_answered()
            || self.flushes.awaits_commit()
            || waiting.any(|waiting| waiting.is_answered)
    }

    /// All that waits, for whoever answers it otherwise.
    pub fn drain(&mut self) -> impl Iterator<Item = Pending> + use<> {
        self.blocks = 0;
        let waiting = std::mem::take(&mut self.waiting);
        let waiting = waiting.into_iter().map(|waiting| waiting.pending);
        waiting.chain(self.flushes.drain())
    }

    fn is_in_log(&self, first: u64, blocks: u64) -> bool {
        let near = self.places.partition_point(|(_, after)| *after <= first);
        let near = self.places.get(near);
        near.is_some_and(|(start, _)| *start < first + blocks)
    }

    /// The first block of a write that must not go on. The journals are told of all before it.
    fn stop(
        &mut self,
        request: &Request,
        blocks: &[Payload],
        scout: &Scout,
        room: usize,
    ) -> Option<(usize, Stop)> {
        let is_mark = |(_, payload): &(usize, &Payload)| payload.digest.first == JBD2_MAGIC;
        for (index, _) in blocks.iter().enumerate().filter(is_mark) {
            let has_room = self.blocks + blocks.len() - index <= room;
            let stop = match self.is_in_log(request.lba.0 + index as u64, 1) {
                true => self.mark(request, index, has_room),
                false => {
                    let begins = begins_a_log(request.frames.block(index));
                    let waits = begins && has_room && scout.is_behind();
                    waits.then_some(Stop::Wait(Reason::Scout))
                }
            };
            if let Some(stop) = stop {
                return Some((index, stop));
            }
        }
        None
    }

    /// Whether a commit block of this journal was answered, and waits. The next one is behind it: whether that is complete is not
    /// known before. When what waits is tried again, in its order, only what is before a block is still waiting.
    fn has_answered(&self, log: usize) -> bool {
        let is_of = |reason| matches!(reason, Reason::Blocks { log: of, .. } if of == Some(log));
        let mut waiting = self.waiting.iter();
        waiting.any(|waiting| waiting.is_answered && is_of(waiting.reason))
    }

    /// A block that may be one of a journal's own; whether it must not go on.
    fn mark(&mut self, request: &Request, index: usize, has_room: bool) -> Option<Stop> {
        let offset = (request.lba.0 + index as u64) * BLOCK;
        let bytes = request.frames.block(index);
        let read = |(log, this): (usize, &Log)| Some((log, this.commits.read(offset, bytes)?));
        let (log, (at, mark)) = self.logs.iter().enumerate().find_map(read)?;
        let is_behind = self.has_answered(log);
        let commits = &mut self.logs[log].commits;
        let is_judged = commits.is_asynchronous();
        match mark {
            Mark::Superblock(begins) => commits.superblock(begins),
            Mark::Commit(sequence) => {
                let before = Span::new(request.lba.0 * BLOCK, index as u64 * BLOCK);
                let verdict = match is_behind {
                    true => Verdict::Waits(1),
                    false => commits.commit(at, sequence, before),
                };
                match verdict {
                    Verdict::Complete => self.counts.complete += 1,
                    Verdict::Unjudged => self.counts.unjudged += 1,
                    Verdict::Never if is_judged => return Some(Stop::Refuse),
                    Verdict::Waits(missing) if is_judged && has_room => {
                        return Some(Stop::Wait(Reason::Blocks {
                            log: Some(log),
                            missing,
                        }));
                    }
                    Verdict::Never | Verdict::Waits(_) => {
                        commits.give_up();
                        commits.commit(at, sequence, before);
                        self.counts.unjudged += 1;
                    }
                }
            }
        }
        self.is_due = true;
        None
    }
}

/// A request goes on to the core. A write does as far as it may; the rest waits, or is refused.
pub(crate) fn pass(
    shared: &Shared,
    inner: &mut Inner,
    now: Nanos,
    write: Write<'_>,
    batch: &mut Batch,
) {
    let request = &write.pending.request;
    hand_on(shared, inner, now, Some(request), batch);
    if inner.gate.holds(&write.pending) {
        return inner.gate.flushes.hold(write.pending);
    }
    pass_on(shared, inner, now, None, write, batch);
}

fn pass_on(
    shared: &Shared,
    inner: &mut Inner,
    now: Nanos,
    waited: Option<Waited>,
    write: Write<'_>,
    batch: &mut Batch,
) {
    let stop = match write.pending.watched.marks {
        true => {
            let room = inner.frames.capacity(Share::Write) / 4;
            let request = &write.pending.request;
            inner.gate.stop(request, write.blocks, &shared.scout, room)
        }
        false => None,
    };
    let Some((at, stop)) = stop else {
        return place(shared, inner, now, write, batch);
    };
    let Write {
        mut pending,
        blocks,
        found,
        steps,
        sight,
    } = write;
    let (before, blocks) = blocks.split_at_mut(at);
    let (found_before, found) = found.split_at(at.min(found.len()));
    let behind = steps.iter().position(|step| step.index >= at);
    let mut later = steps.split_off(behind.unwrap_or(steps.len()));
    if at > 0 {
        let write = Write {
            pending: pending.split(at),
            blocks: before,
            found: found_before,
            steps,
            sight,
        };
        place(shared, inner, now, write, batch);
    }
    let Stop::Wait(reason) = stop else {
        let why = "a block that this one commits could not be written, or a commit block before it";
        return refuse(
            shared,
            inner,
            pending,
            BlockError::Io(why.to_owned()),
            batch,
        );
    };
    let since = waited.filter(|_| at == 0).map(|waited| waited.since);
    inner.gate.counts.waited += u64::from(since.is_none());
    inner.gate.blocks += blocks.len();
    later.iter_mut().for_each(|step| step.index -= at);
    inner.gate.waiting.push(Waiting {
        pending,
        blocks: blocks.to_vec(),
        found: found.to_vec(),
        steps: later,
        sight: Arc::clone(sight),
        since: since.unwrap_or(now),
        reason,
        is_answered: waited.is_some_and(|waited| waited.is_answered),
        is_withheld: waited.is_some_and(|waited| waited.is_withheld),
    });
}

/// Hands a write to the core, and what it says of journals.
fn place(shared: &Shared, inner: &mut Inner, now: Nanos, write: Write<'_>, batch: &mut Batch) {
    let changes = &shared.scout.changes;
    let touched = write.pending.watched.touched;
    if touched {
        changes.admit();
    }
    let request = &write.pending.request;
    let is_moved = touched && write.sight.is_moved(request);
    if is_moved || write.sight.empties_journal(request) {
        write.sight.forget_logs();
    }
    inner.settle_bases(write.blocks, write.found);
    inner.admit(now, write.pending, write.blocks, batch);
    let mut committed = Vec::new();
    let mut is_in_order = true;
    for step in write.steps.drain(..) {
        is_in_order &= write.sight.step(step, changes, &mut committed);
    }
    if !is_in_order {
        // What was told of that journal may not be true either.
        committed.clear();
        let regions = &write.sight.plan.regions;
        inner.feed(now, Input::Hint(Hint::Journals { regions }), batch);
        batch
            .warnings
            .push(("journal", messages::OUT_OF_ORDER.to_owned()));
    }
    if let Some(keeper) = &shared.keeper {
        // A crash changes what is pledged, and what a snapshot reads there has to be kept before.
        committed.retain(|(home, _)| keeper.may_change(*home));
    }
    if !committed.is_empty() {
        let pairs = &committed;
        inner.feed(now, Input::Hint(Hint::Committed { pairs }), batch);
    }
}

/// Answers a request that does not reach the core.
pub(crate) fn refuse(
    shared: &Shared,
    inner: &mut Inner,
    pending: Pending,
    error: BlockError,
    batch: &mut Batch,
) {
    if pending.watched.touched {
        // Its answer will be counted.
        shared.scout.changes.admit();
    }
    inner.counters.refused += 1;
    let (request, is_answered) = (&pending.request, pending.watched.is_answered);
    let result = inner.gate.early.ended(request, is_answered, Err(error));
    batch.answers.push(pending, result);
}

/// Lets go on what may. To be called before the volume's lock is released, whatever was done under it.
pub(crate) fn let_go(shared: &Shared, inner: &mut Inner, now: Nanos, batch: &mut Batch) {
    loop {
        let is_over = inner.gate.deadline().is_some_and(|at| at <= now);
        let is_due = std::mem::take(&mut inner.gate.is_due);
        if !inner.gate.holds_any() || !(is_due || is_over || inner.life != Life::Running) {
            return;
        }
        for waiting in std::mem::take(&mut inner.gate.waiting) {
            inner.gate.blocks -= waiting.blocks.len();
            if inner.life == Life::Running {
                try_again(shared, inner, now, waiting, batch);
            } else {
                refuse(shared, inner, waiting.pending, BlockError::Stopping, batch);
            }
        }
        let_flushes_go(inner, now, batch);
    }
}

/// Those that have waited long enough; all of them when the volume stops.
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

/// Whether what waits here will surely be taken, and all that is on its way. Where the room is promised to clients in full it is.
fn has_room(inner: &Inner) -> bool {
    let taken = inner.frames.capacity(Share::Write) - inner.frames.available(Share::Write);
    let room = inner.engine.room();
    inner.engine.refuses_writes().is_none()
        && (room.reserve() == 0 || !room.ends_within(taken as u64))
}

fn try_again(
    shared: &Shared,
    inner: &mut Inner,
    now: Nanos,
    mut waiting: Waiting,
    batch: &mut Batch,
) {
    let deadline = inner.gate.deadline_of(&waiting);
    let is_over = deadline.is_some_and(|deadline| deadline <= now);
    match waiting.reason {
        Reason::Blocks { .. } if is_over && waiting.may_be_answered() && !has_room(inner) => {
            waiting.is_withheld = true;
        }
        Reason::Blocks { .. } if is_over && waiting.may_be_answered() => {
            waiting.is_answered = true;
            batch.answers.push(waiting.pending.take_answer(), Ok(()));
            waiting.pending.watched.is_behind = true;
        }
        Reason::Scout if is_over => waiting.pending.watched.marks = false,
        Reason::Blocks { missing, .. } if is_over => {
            inner.gate.counts.refused += 1;
            let told = messages::too_late(waiting.pending.request.lba.0 * BLOCK, missing);
            batch.warnings.push(("commit", told.clone()));
            return refuse(shared, inner, waiting.pending, BlockError::Io(told), batch);
        }
        _ => {}
    }
    go_on(shared, inner, now, waiting, batch);
}

/// What was answered goes on, whatever it waits for: what `request` could tell of, or all when the volume's life ends.
pub(crate) fn hand_on(
    shared: &Shared,
    inner: &mut Inner,
    now: Nanos,
    request: Option<&Request>,
    batch: &mut Batch,
) {
    let is_told = |waiting: &mut Waiting| {
        let own = &waiting.pending.request;
        waiting.is_answered && request.is_none_or(|request| answered::is_told_by(own, request))
    };
    let told: Vec<_> = inner.gate.waiting.extract_if(.., is_told).collect();
    for mut waiting in told {
        inner.gate.blocks -= waiting.blocks.len();
        inner.gate.counts.unjudged += 1;
        waiting.pending.watched.marks = false;
        go_on(shared, inner, now, waiting, batch);
    }
}

/// It has waited, and goes on as far as it may now.
fn go_on(shared: &Shared, inner: &mut Inner, now: Nanos, mut waiting: Waiting, batch: &mut Batch) {
    let waited = Waited {
        since: waiting.since,
        is_answered: waiting.is_answered,
        is_withheld: waiting.is_withheld,
    };
    let write = Write {
        pending: waiting.pending,
        blocks: &mut waiting.blocks,
        found: &waiting.found,
        steps: &mut waiting.steps,
        sight: &waiting.sight,
    };
    pass_on(shared, inner, now, Some(waited), write, batch);
}

#[cfg(test)]
mod tests;
