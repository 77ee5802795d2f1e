//! A commit block that is answered before all that it commits has come.
//!
//! There are clients that send nothing more before they have an answer: nbdfuse holds its connection while it waits for one. They would
//! wait for us, and we for them. An answer to a write says nothing of when it takes effect, as long as nobody can tell: so
//! it is given, and the block waits on. jbd2 does not flush before all of a transaction is answered, so it loses nothing.
//! Who could tell makes the block go on, judged or not:
//!
//! 1. a flush, which is of all that was answered;
//! 2. a read, a write or a discard of its blocks;
//! 3. the end of the volume's life.
//!
//! If a block that it commits is refused, it has no effect: the client was told of that one.

use super::{Inner, Pending, Shared, Waiting, go_on};
use crate::block::{BlockError, Op, Replies, Request};
use crate::drive::Batch;
use crate::frames::Frames;
use std::sync::Arc;
use vellum_core::addr::Nanos;

/// Who has an answer wants no other.
struct HasOne;

impl Replies for HasOne {
    fn complete(&self, _: Request, _: Result<(), BlockError>) {}

    fn flush(&self) {}
}

impl Waiting {
    /// Whether an answer would promise no more than it keeps.
    pub(super) fn may_be_answered(&self) -> bool {
        !self.is_answered && self.pending.request.op == (Op::Write { fua: false })
    }

    /// Answers it. It waits on.
    pub(super) fn answer(&mut self, batch: &mut Batch) {
        let pending = &mut self.pending;
        let sink = std::mem::replace(&mut pending.sink, Arc::new(HasOne));
        let Request {
            tag,
            op,
            lba,
            blocks,
            ..
        } = pending.request;
        let request = Request {
            tag,
            op,
            lba,
            blocks,
            frames: Frames::default(),
        };
        let told = Pending {
            own: pending.own,
            is_rest: true,
            ..Pending::new(request, &sink, pending.watched.answer_alone())
        };
        self.is_answered = true;
        batch.answers.push(told, Ok(()));
    }

    /// Whether a request could tell that it has not taken effect.
    fn is_told_by(&self, request: &Request) -> bool {
        let own = &self.pending.request;
        let is_near = own.lba.0 < request.lba.0.saturating_add(request.blocks)
            && request.lba.0 < own.lba.0 + own.blocks;
        self.is_answered && (request.op == Op::Flush || is_near)
    }
}

/// What was answered goes on before a request that could tell that it has not.
pub(super) fn make_way(
    shared: &Shared,
    inner: &mut Inner,
    now: Nanos,
    request: &Request,
    batch: &mut Batch,
) {
    let tells = |waiting: &mut Waiting| waiting.is_told_by(request);
    let told: Vec<_> = inner.gate.waiting.extract_if(.., tells).collect();
    hand_on(shared, inner, now, told, batch);
}

/// All that was answered goes on: the volume's life ends.
pub(crate) fn make_way_for_all(shared: &Shared, inner: &mut Inner, now: Nanos, batch: &mut Batch) {
    let is_answered = |waiting: &mut Waiting| waiting.is_answered;
    let answered = inner.gate.waiting.extract_if(.., is_answered).collect();
    hand_on(shared, inner, now, answered, batch);
}

fn hand_on(
    shared: &Shared,
    inner: &mut Inner,
    now: Nanos,
    answered: Vec<Waiting>,
    batch: &mut Batch,
) {
    for mut waiting in answered {
        inner.gate.blocks -= waiting.blocks.len();
        inner.gate.counts.unjudged += 1;
        waiting.pending.watched.marks = false;
        go_on(shared, inner, now, waiting, batch);
    }
}
