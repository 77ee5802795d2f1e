//! The gate before the core: a commit block waits here for the blocks it commits, as in the device (decision 0017).
//!
//! A simulated file system writes each commit block by itself, so a write waits as a whole. Buffers for it are kept
//! free meanwhile, so that it can continue at any moment.

use super::hashing::{ANSWERED, is_answered};
use super::{Submitted, Vellum};
use crate::base::Io;
use crate::trace::Op;
use vellum_core::addr::Nanos;
use vellum_core::seam::Refusal;
use vellum_watch::{Change, Due, Stop, Wait, Waiting};

/// First number of the commit blocks that are answered here; those of the hash unit are below.
const ANSWERED_HERE: u32 = ANSWERED | 1 << 30;
/// The most blocks that wait. Beyond that none waits, and commits are not judged.
const HELD: usize = 128;

impl Vellum {
    /// True if commit blocks wait.
    fn has_gate(&self) -> bool {
        let watching = self.watching.as_ref();
        watching.is_some_and(|watching| watching.orders_commits())
    }

    /// The results of ordering commits, as counters; none if nothing is ordered.
    #[must_use]
    pub fn commit_order(&self) -> Vec<(&'static str, u64)> {
        if !self.has_gate() {
            return Vec::new();
        }
        let gate = &self.gate;
        let (complete, unjudged) = gate.commits.order.counts();
        vec![
            ("commits_complete", complete),
            ("commits_unjudged", unjudged),
            ("commits_waited", gate.commits.counts().1),
            ("commits_wait_ns", gate.wait_ns),
            ("commits_answered_early", u64::from(gate.answered)),
        ]
    }

    /// Takes a request at the gate. True if it may pass.
    pub(super) fn may_pass(&mut self, io: &mut Io<'_>, submitted: &Submitted) -> bool {
        if !self.has_gate() {
            return true;
        }
        for waiting in self.gate.commits.take_observed(Some(submitted.run())) {
            let written = waiting.write.written();
            let commits = &mut self.gate.commits;
            let wait = &waiting.wait;
            if commits.refusal(&waiting).is_some() {
                written.read(|_, change| commits.order.lose(change));
                continue;
            }
            written.read(|_, change| commits.let_through(change, &written.payloads(), wait));
            self.go_on(io, &waiting.write, waiting.wait.since);
        }
        match submitted.op {
            Op::Write { .. } => self.pass(io, submitted, None),
            Op::Flush if self.gate.commits.holds_flush() => {
                self.gate.commits.keep_flush(submitted.clone());
                false
            }
            _ => true,
        }
    }

    /// True if a write may pass; else it is kept or refused. `waited`: its wait so far.
    fn pass(&mut self, io: &Io<'_>, submitted: &Submitted, waited: Option<Wait>) -> bool {
        let commits = &mut self.gate.commits;
        match submitted.written().stop(commits, HELD, waited.as_ref()) {
            None => return true,
            Some(Stop::Refuse(_)) => self.refuse(submitted),
            Some(Stop::Wait(reason)) => {
                let is_plain = submitted.op == (Op::Write { fua: false });
                let new = Wait {
                    since: Nanos(io.time.now()),
                    reason,
                    is_answered: is_answered(submitted.id),
                    is_withheld: !is_plain || self.strong,
                };
                let waiting = Waiting {
                    run: (submitted.lba, submitted.contents.len()),
                    write: submitted.clone(),
                    wait: waited.map_or(new, |wait| Wait { reason, ..wait }),
                };
                commits.keep(waiting, waited.is_none());
            }
        }
        false
    }

    /// Refuses a write: the blocks it commits will never arrive.
    fn refuse(&mut self, submitted: &Submitted) {
        self.answers
            .push_back((submitted.id, Err(Refusal::Poisoned)));
    }

    /// Notes that a request is handed to the core.
    pub(super) fn passed(&mut self, submitted: &Submitted) {
        let (id, (lba, blocks)) = (submitted.id, submitted.run());
        let commits = &mut self.gate.commits;
        commits.handed_over(is_answered(id), id >= ANSWERED_HERE);
        if let Some(watching) = self.watching.as_ref().filter(|_| self.has_gate())
            && watching.findings().touches_journal(lba, blocks)
        {
            self.gate.open.insert(id, (lba, blocks));
        }
    }

    /// Notes that the core has answered a request.
    pub(super) fn has_ended(&mut self, now: u64, id: u32, is_done: bool) {
        let commits = &mut self.gate.commits;
        commits.ended(is_answered(id), id >= ANSWERED_HERE);
        // Mostly empty, and a hash costs more than all else here.
        if !self.gate.open.is_empty()
            && let Some((first, blocks)) = self.gate.open.remove(&id)
        {
            let change = Change {
                first,
                blocks,
                written: None,
            };
            let result = match is_done {
                true => Ok(()),
                false => Err(vellum_watch::Refusal::Failed),
            };
            commits.order.ended(Nanos(now), &change, result);
        }
    }

    /// Passes on whatever may pass.
    pub(super) fn let_go(&mut self, io: &mut Io<'_>) {
        while !self.gate.lets_go && self.gate.commits.begins(Nanos(io.time.now())) {
            self.gate.lets_go = true;
            while let Some(waiting) = self.gate.commits.take_next() {
                self.try_again(io, waiting);
            }
            while let Some(flush) = self.gate.commits.take_flush() {
                self.place(io, &flush);
            }
            self.gate.lets_go = false;
        }
    }

    fn try_again(&mut self, io: &mut Io<'_>, waiting: Waiting<Submitted>) {
        let Waiting {
            mut write,
            mut wait,
            ..
        } = waiting;
        let now = Nanos(io.time.now());
        match self.gate.commits.due(now, &mut wait, true) {
            Due::Refusal(_) => return self.refuse(&write),
            Due::Answer => {
                self.answers.push_back((write.id, Ok(())));
                write.id = ANSWERED_HERE + self.gate.answered;
                self.gate.answered += 1;
            }
            Due::Unscanned | Due::Nothing => {}
        }
        if self.pass(io, &write, Some(wait)) {
            self.go_on(io, &write, wait.since);
        }
    }

    /// Passes on a write that waited.
    fn go_on(&mut self, io: &mut Io<'_>, submitted: &Submitted, Nanos(since): Nanos) {
        self.gate.wait_ns += io.time.now() - since;
        self.place(io, submitted);
    }
}
