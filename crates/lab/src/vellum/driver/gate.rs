//! The gate before the core: a commit block waits here for the blocks it commits, as in the device (decision 0017).
//!
//! A simulated file system writes each commit block by itself, so a write waits as a whole. Buffers for it are kept
//! free meanwhile, so that it can continue at any moment.

use super::hashing::{ANSWERED, is_answered};
use super::held::{Gate, Held, Why};
use super::{Submitted, Vellum};
use crate::base::Io;
use crate::trace::Op;
use vellum_core::addr::Nanos;
use vellum_core::seam::Refusal;
use vellum_watch::{Stop, Wait};

/// First number of the commit blocks that are answered here; those of the hash unit are below.
const ANSWERED_HERE: u32 = ANSWERED | 1 << 30;
/// The most requests that wait. Beyond that none waits, and commits are not judged.
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
        let Some(watching) = self.watching.as_ref().filter(|_| self.has_gate()) else {
            return Vec::new();
        };
        let (complete, unjudged) = watching.judged();
        let counts = self.gate.counts;
        vec![
            ("commits_complete", complete),
            ("commits_unjudged", unjudged),
            ("commits_waited", counts.waited),
            ("commits_wait_ns", counts.wait_ns),
            ("commits_answered_early", u64::from(self.gate.answered)),
        ]
    }

    /// When something here is due.
    pub(super) fn gate_due(&self) -> Option<u64> {
        let watching = self.watching.as_ref()?;
        let waits = self.gate.held.iter().filter_map(Held::wait);
        waits.filter_map(|wait| watching.deadline(wait)).min()
    }

    /// Takes a request at the gate. True if it may pass.
    pub(super) fn may_pass(&mut self, io: &mut Io<'_>, submitted: &Submitted) -> bool {
        if !self.has_gate() {
            return true;
        }
        self.hand_on(io, submitted);
        match submitted.op {
            Op::Write { .. } => self.pass(io, submitted, None),
            Op::Flush if self.must_wait(self.gate.given) => {
                let (submitted, why) = (submitted.clone(), Why::Flush(self.gate.given));
                self.gate.held.push(Held { submitted, why });
                false
            }
            _ => true,
        }
    }

    fn must_wait(&self, after: u64) -> bool {
        let Gate { behind, ended, .. } = self.gate;
        behind > 0 || (self.gate.holds_answered() && ended < after)
    }

    /// Passes waiting writes on that are already answered, if this request could show that they have not taken effect.
    fn hand_on(&mut self, io: &mut Io<'_>, submitted: &Submitted) {
        let end = |submitted: &Submitted| submitted.lba + u64::from(submitted.blocks);
        let is_told = |held: &mut Held<Submitted>| {
            let own = &held.submitted;
            held.is_answered() && own.lba < end(submitted) && submitted.lba < end(own)
        };
        let told: Vec<Held<Submitted>> = self.gate.held.extract_if(.., is_told).collect();
        for held in told {
            if let Some(watching) = &mut self.watching {
                watching.let_through(&held.submitted.written());
            }
            self.go_on(io, &held.submitted, held.wait().map(|wait| wait.since));
        }
    }

    /// True if a write may pass; else it is kept or refused. `waited`: its wait so far.
    fn pass(&mut self, io: &Io<'_>, submitted: &Submitted, waited: Option<Wait>) -> bool {
        let Some(watching) = &mut self.watching else {
            return true;
        };
        let has_room = self.gate.held.len() < HELD;
        let waits = self.gate.held.iter().filter_map(Held::wait);
        let now = Nanos(io.time.now());
        match watching.stop(&submitted.written(), has_room, waits) {
            None => return true,
            Some(Stop::Refuse) => self.refuse(submitted, waited.is_some()),
            Some(Stop::Wait(reason)) => {
                if waited.is_none() {
                    self.gate.counts.waited += 1;
                    self.gate.reserved += submitted.contents.len();
                }
                let is_plain = submitted.op == (Op::Write { fua: false });
                let new = Wait {
                    since: now,
                    reason,
                    is_answered: is_answered(submitted.id),
                    is_withheld: !is_plain || self.strong,
                };
                let wait = waited.map_or(new, |wait| Wait { reason, ..wait });
                let (submitted, why) = (submitted.clone(), Why::Commit(wait));
                self.gate.held.push(Held { submitted, why });
            }
        }
        false
    }

    /// Refuses a write: the blocks it commits will never arrive.
    fn refuse(&mut self, submitted: &Submitted, has_waited: bool) {
        if has_waited {
            self.gate.reserved -= submitted.contents.len();
        }
        self.answers
            .push_back((submitted.id, Err(Refusal::Poisoned)));
    }

    /// Notes that a write is handed to the core, if it goes into a journal or was answered already.
    pub(super) fn passed(&mut self, submitted: &Submitted) {
        let Some(watching) = self.watching.as_ref().filter(|_| self.has_gate()) else {
            return;
        };
        let blocks = u64::from(submitted.blocks);
        if watching.findings().touches_journal(submitted.lba, blocks) {
            self.gate.open.insert(submitted.id, (submitted.lba, blocks));
        }
        self.gate.given += u64::from(is_answered(submitted.id));
        self.gate.behind += u64::from(submitted.id >= ANSWERED_HERE);
    }

    /// Notes that the core has answered a request.
    pub(super) fn has_ended(&mut self, now: u64, request: u32, is_done: bool) {
        if is_answered(request) {
            self.gate.ended += 1;
            self.gate.behind -= u64::from(request >= ANSWERED_HERE);
        }
        // Mostly empty, and a hash costs more than all else here.
        if !self.gate.open.is_empty()
            && let Some(change) = self.gate.open.remove(&request)
            && let Some(watching) = &mut self.watching
        {
            watching.ended(now, change, is_done);
        }
    }

    /// Passes on whatever may pass.
    pub(super) fn let_go(&mut self, io: &mut Io<'_>) {
        while !self.gate.lets_go && !self.gate.held.is_empty() {
            let Some(watching) = &mut self.watching else {
                return;
            };
            let is_due = watching.take_due();
            let is_over = self.gate_due().is_some_and(|at| at <= io.time.now());
            let has_flush = self.gate.held.iter().any(|held| held.wait().is_none());
            let before = self.gate.held.len();
            if !(is_due || is_over || has_flush) {
                return;
            }
            self.gate.lets_go = true;
            for held in std::mem::take(&mut self.gate.held) {
                self.try_again(io, held);
            }
            self.gate.lets_go = false;
            if self.gate.held.len() == before && !is_due {
                return;
            }
        }
    }

    fn try_again(&mut self, io: &mut Io<'_>, mut held: Held<Submitted>) {
        let mut wait = match held.why {
            Why::Flush(after) if self.must_wait(after) => return self.gate.held.push(held),
            Why::Flush(_) => return self.go_on(io, &held.submitted, None),
            Why::Commit(wait) => wait,
        };
        let deadline = self.watching.as_ref().and_then(|own| own.deadline(&wait));
        let is_over = deadline.is_some_and(|at| at <= io.time.now());
        if let Some(journal) = wait.guess().filter(|_| is_over) {
            if let Some(watching) = &mut self.watching {
                watching.give_up(journal);
            }
        } else if is_over {
            if !wait.may_be_answered() {
                return self.refuse(&held.submitted, true);
            }
            self.answers.push_back((held.submitted.id, Ok(())));
            held.submitted.id = ANSWERED_HERE + self.gate.answered;
            self.gate.answered += 1;
            wait.is_answered = true;
        }
        if self.pass(io, &held.submitted, Some(wait)) {
            self.go_on(io, &held.submitted, Some(wait.since));
        }
    }

    /// Passes on a request that waited.
    fn go_on(&mut self, io: &mut Io<'_>, submitted: &Submitted, since: Option<Nanos>) {
        if let Some(Nanos(since)) = since {
            self.gate.counts.wait_ns += io.time.now() - since;
            self.gate.reserved -= submitted.contents.len();
        }
        self.place(io, submitted);
    }
}
