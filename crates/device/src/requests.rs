//! The requests in flight, by the core's numbers for them.

use crate::block::{BlockError, Op, Replies, Request};
use crate::frames::Frames;
use crate::watched::{Answered, Watched};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use vellum_core::addr::RequestId;
use vellum_core::seam::Ack;

/// A request, and where its answer goes.
pub(crate) struct Pending {
    pub request: Request,
    pub sink: Arc<dyn Replies>,
    /// What was noticed about it, if it writes.
    pub watched: Watched,
    /// Whether it is the volume's own, and not counted as a client's.
    pub own: bool,
    /// Whether it is the rest of a request that has been counted already.
    pub is_rest: bool,
    /// Since when its client waits, if it is a flush.
    pub since: Option<Instant>,
}

impl Pending {
    /// A client's request, as it arrives.
    pub fn new(request: Request, sink: &Arc<dyn Replies>, watched: Watched) -> Self {
        Self {
            since: (request.op == Op::Flush).then(Instant::now),
            request,
            sink: Arc::clone(sink),
            watched,
            own: false,
            is_rest: false,
        }
    }

    /// Splits off a request that can be answered now. This one goes on without an answer.
    pub fn take_answer(&mut self) -> Self {
        let sink = std::mem::replace(&mut self.sink, Arc::new(Unheard));
        let given = given_back(&self.request);
        Self {
            own: self.own,
            is_rest: true,
            ..Self::new(given, &sink, self.watched.answer_alone())
        }
    }

    /// True if its client has its answer.
    pub fn is_answered(&self) -> bool {
        self.watched.answered != Answered::ByCore
    }

    /// When the core is to answer it, if it writes.
    pub fn ack(&self, fua: bool) -> Ack {
        match self.is_answered() {
            true => Ack::Given,
            false => Ack::of(fua),
        }
    }
}

/// The request as its client gets it back: without frames, because the write goes on with them.
pub(crate) fn given_back(write: &Request) -> Request {
    Request {
        tag: write.tag,
        op: write.op,
        lba: write.lba,
        blocks: write.blocks,
        frames: Frames::default(),
    }
}

/// Takes answers that no client waits for: the client has one already, or the request is the volume's own.
pub(crate) struct Unheard;

impl Replies for Unheard {
    fn complete(&self, _: Request, _: Result<(), BlockError>) {}

    fn flush(&self) {}
}

/// A slab: numbers are small and reused, as the core wants them.
#[derive(Default)]
pub(crate) struct Requests {
    slab: Vec<Option<Pending>>,
    free: Vec<u32>,
}

impl Requests {
    pub fn insert(&mut self, pending: Pending) -> RequestId {
        if let Some(index) = self.free.pop() {
            self.slab[index as usize] = Some(pending);
            return RequestId(index);
        }
        self.slab.push(Some(pending));
        RequestId(self.slab.len() as u32 - 1)
    }

    pub fn get(&self, id: RequestId) -> &Pending {
        match self.slab.get(id.0 as usize) {
            Some(Some(pending)) => pending,
            _ => unreachable!("request {id} is not in flight"),
        }
    }

    /// Returns `None` once it has been answered.
    pub fn find(&mut self, id: RequestId) -> Option<&mut Pending> {
        self.slab.get_mut(id.0 as usize)?.as_mut()
    }

    pub fn remove(&mut self, id: RequestId) -> Pending {
        match self.slab.get_mut(id.0 as usize).and_then(Option::take) {
            Some(pending) => {
                self.free.push(id.0);
                pending
            }
            None => unreachable!("request {id} is answered twice"),
        }
    }

    pub fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Removes all of them, in no order.
    pub fn drain(&mut self) -> impl Iterator<Item = Pending> + '_ {
        self.free.clear();
        self.slab.drain(..).flatten()
    }
}

/// Answers to be given outside the lock, and the sinks to flush after all of them.
#[derive(Default)]
pub(crate) struct Answers {
    list: VecDeque<(Pending, Result<(), BlockError>)>,
    sinks: Vec<Arc<dyn Replies>>,
}

impl Answers {
    pub fn push(&mut self, pending: Pending, result: Result<(), BlockError>) {
        self.list.push_back((pending, result));
    }

    /// Gives every answer, after calling `before` with it and with whether it succeeded; then flushes each sink once.
    pub fn give(&mut self, before: impl Fn(&Pending, bool)) {
        while let Some((pending, result)) = self.list.pop_front() {
            before(&pending, result.is_ok());
            let Pending { request, sink, .. } = pending;
            sink.complete(request, result);
            if !self.sinks.iter().any(|known| Arc::ptr_eq(known, &sink)) {
                self.sinks.push(sink);
            }
        }
        for sink in self.sinks.drain(..) {
            sink.flush();
        }
    }
}

impl Drop for Answers {
    /// After a panic before the answers, or in one of their receivers, the remaining answers are still given.
    fn drop(&mut self) {
        while !self.list.is_empty() {
            let _ = catch_unwind(AssertUnwindSafe(|| self.give(|_, _| {})));
        }
    }
}
