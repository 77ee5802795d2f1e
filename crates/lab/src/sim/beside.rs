//! Hosts side by side on one drive. Each waits only for its own answers.

use super::{RunError, Sim};
use crate::trace::Op;
use crate::workload::Request;

/// A host that waits.
struct Waiting<'a, I> {
    from: &'a mut I,
    next: Option<Request>,
    /// It has sent a flush or a FUA write, and sends nothing else before that is answered.
    waits: bool,
}

impl<'a, I: Iterator<Item = Request>> Waiting<'a, I> {
    fn new(from: &'a mut I) -> Self {
        Self {
            next: from.next(),
            from,
            waits: false,
        }
    }

    /// Takes its next request, if it may send one with `open` requests open.
    fn take(&mut self, open: u32, depth: u32) -> Option<Request> {
        if open >= depth {
            return None;
        }
        let is_barrier = |op| matches!(op, Op::Flush | Op::Write { fua: true });
        let waits = self.waits;
        let taken = self
            .next
            .take_if(|next| open == 0 || (!waits && !is_barrier(next.op)))?;
        self.waits = is_barrier(taken.op);
        self.next = self.from.next();
        Some(taken)
    }
}

impl Sim {
    /// Serves the tenants' requests. Each tenant has at most `depth` open, and sends the next when one of its own is
    /// answered. A tenant that ends leaves the drive to the others. At the end nothing is open.
    ///
    /// # Errors
    /// When a request is refused, or not answered.
    pub fn run_beside<I: Iterator<Item = Request>>(
        &mut self,
        hosts: &mut [I],
        depth: u32,
    ) -> Result<(), RunError> {
        let mut hosts: Vec<_> = hosts.iter_mut().map(Waiting::new).collect();
        loop {
            let served = self.seen.served;
            // One request of each in turn. So where nothing takes time, none of them ends before the others.
            let mut submitted = true;
            while submitted && !self.flash.is_worn_out() {
                submitted = false;
                for (at, host) in hosts.iter_mut().enumerate() {
                    let open = self.tenants.get(at).map_or(0, |host| host.open());
                    if let Some(request) = host.take(open, depth) {
                        self.issue(request);
                        submitted = true;
                    }
                }
            }
            while self.seen.served == served && self.step() {}
            self.refusal()?;
            if self.seen.served > served {
                continue;
            }
            let open = self.open();
            return match open == 0 && hosts.iter().all(|host| host.next.is_none()) {
                true => self.all_right(),
                false => Err(RunError::Stalled { open }),
            };
        }
    }
}
