//! A running job: what it sends, and when.

use crate::jobs::When;
use crate::trace::Op;
use crate::workload::Request;

/// A running job.
pub struct Running<'a, I> {
    from: I,
    when: &'a When,
    next: Option<Request>,
    /// True once it has begun. `ends` is when it ends, whatever is left.
    pub(super) began: bool,
    ends: u64,
    /// It has nothing left to send, and everything is answered.
    pub(super) over: bool,
    /// It has sent a flush or a FUA write, and sends nothing else before that is answered.
    waits: bool,
    /// It sends nothing before it has all its answers, and then thinks.
    thinks: bool,
    not_before: u64,
    /// When its rate lets it send again. A flush does not wait for that.
    paced_at: u64,
    /// Requests sent, without flushes: fio counts none.
    submitted: u64,
}

/// How jobs are run.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// True if rates and think times count.
    pub paced: bool,
    /// Nothing is sent from then on; the jobs go on later.
    pub stops: u64,
}

impl<'a, I: Iterator<Item = Request>> Running<'a, I> {
    /// A job that has not begun.
    pub fn new(from: I, when: &'a When) -> Self {
        Self {
            from,
            when,
            next: None,
            began: false,
            ends: u64::MAX,
            over: false,
            waits: false,
            thinks: false,
            not_before: 0,
            paced_at: 0,
            submitted: 0,
        }
    }

    /// Lets it send as much again as a new job. `renewed` gets the iterator it draws from, and the blocks of the
    /// request that it has drawn already.
    pub fn renew(&mut self, renewed: impl FnOnce(&mut I, u32)) {
        let drawn = self.next.as_ref().map_or(0, |next| next.blocks);
        renewed(&mut self.from, drawn);
        if self.began && self.next.is_none() {
            self.next = self.from.next();
            self.over = self.next.is_none();
        }
    }

    /// Begins the job, or continues it.
    pub(super) fn begin(&mut self, now: u64, timed: bool) {
        if !self.began {
            self.began = true;
            self.next = self.from.next();
        }
        self.ends = match self.when.runtime_ns {
            Some(nanos) if timed => now.saturating_add(nanos),
            _ => u64::MAX,
        };
    }

    /// The jobs that it begins after.
    pub(super) fn after(&self) -> &'a [usize] {
        &self.when.after
    }

    /// True if it has a rate.
    pub(super) fn has_pace(&self) -> bool {
        self.when.gap_ns.is_some()
    }

    /// True if it has nothing left to send and everything is answered.
    pub(super) fn has_ended(&self, open: u32) -> bool {
        self.began && self.next.is_none() && open == 0
    }

    /// True if only time can keep it from sending.
    fn is_free(&self, open: u32) -> bool {
        let is_barrier = |op| matches!(op, Op::Flush | Op::Write { fua: true });
        let all = self.waits || self.thinks || self.next.as_ref().is_some_and(|r| is_barrier(r.op));
        self.began && self.next.is_some() && open < self.when.depth && (open == 0 || !all)
    }

    /// When it may send the next request, if times count.
    fn at(&self) -> u64 {
        match self.next.as_ref().is_some_and(|r| r.op == Op::Flush) {
            true => self.not_before,
            false => self.not_before.max(self.paced_at),
        }
    }

    /// Takes its next request, if it may send one now with `open` requests open.
    pub(super) fn take(&mut self, open: u32, now: u64, how: How) -> Option<Request> {
        if self.began && now >= self.ends {
            self.next = None;
        }
        if !self.is_free(open) || now >= how.stops {
            return None;
        }
        if self.thinks {
            self.thinks = false;
            let (_, nanos) = self.when.think.unwrap_or_default();
            self.not_before = self.not_before.max(now.saturating_add(nanos));
        }
        if how.paced && now < self.at() {
            return None;
        }
        let taken = self.next.take()?;
        self.waits = matches!(taken.op, Op::Flush | Op::Write { fua: true });
        self.next = self.from.next();
        let counts = taken.op != Op::Flush;
        self.submitted += u64::from(counts);
        if let Some(gap) = self.when.gap_ns.filter(|_| counts) {
            self.paced_at = now.saturating_add(gap);
        }
        self.thinks = how.paced
            && counts
            && self
                .when
                .think
                .is_some_and(|(every, _)| self.submitted.is_multiple_of(every));
        Some(taken)
    }

    /// When it sends the next request, if only time keeps it from that.
    pub(super) fn due(&self, open: u32, how: How) -> Option<u64> {
        let at = self.at().min(self.ends);
        (how.paced && self.is_free(open) && at < how.stops).then_some(at)
    }
}
