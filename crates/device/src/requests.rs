//! The requests in flight: where the core's numbers lead back to clients.

use crate::block::{BlockError, Op, Replies, Request};
use crate::frames::Frames;
use crate::scout::Watched;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use vellum_core::addr::RequestId;
use vellum_core::seam::Ack;

/// A request with the sink of its answer.
pub(crate) struct Pending {
    pub request: Request,
    pub sink: Arc<dyn Replies>,
    /// What it was held against, if it writes.
    pub watched: Watched,
    /// Whether it is the volume's own, and not to be counted as a client's.
    pub own: bool,
    /// Whether it is what was left of a request that has been counted.
    pub is_rest: bool,
    /// Since when its client waits, if it is a flush.
    pub since: Option<Instant>,
}

impl Pending {
    /// A client's, as it came.
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

    /// The answer to it, which goes on without one.
    pub fn take_answer(&mut self) -> Self {
        let sink = std::mem::replace(&mut self.sink, Arc::new(Unheard));
        let given = given_back(&self.request);
        Self {
            own: self.own,
            is_rest: true,
            ..Self::new(given, &sink, self.watched.answer_alone())
        }
    }

    /// Whether its client has its answer.
    pub fn is_answered(&self) -> bool {
        self.watched.is_answered || self.watched.is_behind
    }

    /// When the core is to answer it, if it writes.
    pub fn ack(&self, fua: bool) -> Ack {
        match self.is_answered() {
            true => Ack::Given,
            false => Ack::of(fua),
        }
    }
}

/// The request as its client gets it back, without the frames that a write goes on with.
pub(crate) fn given_back(write: &Request) -> Request {
    Request {
        tag: write.tag,
        op: write.op,
        lba: write.lba,
        blocks: write.blocks,
        frames: Frames::default(),
    }
}

/// Where an answer goes that nobody waits for: he has one, or it is the volume's own request.
pub(crate) struct Unheard;

impl Replies for Unheard {
    fn complete(&self, _: Request, _: Result<(), BlockError>) {}

    fn flush(&self) {}
}

/// A slab: numbers are small and serve again, as the core wants them.
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

    /// None when it has been answered.
    pub fn find(&self, id: RequestId) -> Option<&Pending> {
        self.slab.get(id.0 as usize)?.as_ref()
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

    /// All of them, in no order.
    pub fn drain(&mut self) -> impl Iterator<Item = Pending> + '_ {
        self.free.clear();
        self.slab.drain(..).flatten()
    }
}

/// Answers that wait to be given outside the lock, and whom to tell that they were all.
#[derive(Default)]
pub(crate) struct Answers {
    list: VecDeque<(Pending, Result<(), BlockError>)>,
    sinks: Vec<Arc<dyn Replies>>,
}

impl Answers {
    pub fn push(&mut self, pending: Pending, result: Result<(), BlockError>) {
        self.list.push_back((pending, result));
    }

    /// Gives every answer, each told to `before` first, and whether it went well; then flushes each sink once.
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
    /// After a panic in what comes before them, or in one of those that are told: the others are told all the same.
    fn drop(&mut self) {
        while !self.list.is_empty() {
            let _ = catch_unwind(AssertUnwindSafe(|| self.give(|_, _| {})));
        }
    }
}

/// Where the answer to a request of the volume's own comes, for the thread that waits for it.
#[derive(Default)]
pub(crate) struct OneAnswer {
    answer: Mutex<Option<(Request, Result<(), BlockError>)>>,
    came: Condvar,
}

impl OneAnswer {
    /// Waits for it. It comes even when the volume breaks down: whoever has no answer then is given one.
    pub fn wait(&self) -> (Request, Result<(), BlockError>) {
        let mut answer = self.answer.lock();
        loop {
            match answer.take() {
                Some(answer) => return answer,
                None => self.came.wait(&mut answer),
            }
        }
    }
}

impl Replies for OneAnswer {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        *self.answer.lock() = Some((request, result));
        self.came.notify_one();
    }

    fn flush(&self) {}
}
