//! What a host still sends, and when.

use super::pace::Pace;
use crate::workload::Request;
use std::collections::VecDeque;

/// Requests are taken from the host this many ahead, so that the cache misses on their map entries overlap.
const AHEAD: usize = 16;

/// The host's side of a run.
pub(super) struct Sender<'a> {
    requests: &'a mut dyn Iterator<Item = Request>,
    /// Taken from `requests`, and not sent yet.
    ahead: VecDeque<Request>,
    pace: Pace,
    /// When the run began.
    start: u64,
    /// It sends nothing before the request that it sent last is answered.
    waits: bool,
    /// When it sent that request, or had its answer.
    last: u64,
    /// That request's own time.
    last_own: u64,
}

impl<'a> Sender<'a> {
    /// `requests` gives none after its end.
    pub fn new(requests: &'a mut dyn Iterator<Item = Request>, pace: Pace, start: u64) -> Self {
        Self {
            requests,
            ahead: VecDeque::with_capacity(AHEAD),
            pace,
            start,
            waits: false,
            last: start,
            last_own: 0,
        }
    }

    /// Takes requests from the host if there is none to send. These are new.
    pub fn look_ahead(&mut self) -> Option<&VecDeque<Request>> {
        if !self.ahead.is_empty() {
            return None;
        }
        self.ahead.extend(self.requests.take(AHEAD));
        Some(&self.ahead)
    }

    /// Sends nothing more.
    pub fn end(&mut self) {
        self.ahead.clear();
    }

    pub fn has_sent_all(&self) -> bool {
        self.ahead.is_empty()
    }

    /// True if it may send the next request while `open` are open. A host that flushes waits for its earlier writes, and for the
    /// flush.
    pub fn may_send(&self, open: usize) -> bool {
        let waits = |next: &Request| self.waits || self.pace.waits_for(next);
        open == 0 || !self.ahead.front().is_some_and(waits)
    }

    /// Sends the next request.
    pub fn send(&mut self, now: u64) -> Option<Request> {
        let request = self.ahead.pop_front()?;
        self.waits = self.pace.waits_for(&request);
        (self.last, self.last_own) = (now, request.at);
        Some(request)
    }

    /// When it sends the next request, while `open` are open; none: an answer comes first, or there is no request.
    pub fn due(&mut self, open: usize, now: u64) -> Option<u64> {
        let (depth, think) = match self.pace {
            Pace::Open | Pace::Closed { .. } => {
                return Some(self.start.saturating_add(self.ahead.front()?.at));
            }
            Pace::Elastic { depth, think } => (depth, think),
            Pace::Working { depth } => {
                if self.waits && open == 0 {
                    // It works after the answer.
                    (self.waits, self.last) = (false, now);
                }
                (depth, None)
            }
        };
        let next = self.ahead.front()?;
        let think = think.unwrap_or(next.at.saturating_sub(self.last_own));
        let due = self.last.saturating_add(think).max(now);
        (self.may_send(open) && open < depth as usize).then_some(due)
    }
}
