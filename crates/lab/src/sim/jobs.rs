//! Jobs on one drive, side by side and in sequence. Each has a depth, a pace and an end.

use super::running::{How, Running};
use super::{RunError, Sim};
use crate::workload::Request;

impl Sim {
    /// Serves the jobs' requests. Each has its own depth and pace, and sends the next request when one of its own is
    /// answered. Jobs that may send at the same moment take turns. A job begins when the jobs it comes after are over.
    /// With `stops` all jobs stop at that time, and can go on later; otherwise each runs to its end. In either case
    /// nothing is open afterwards.
    ///
    /// # Errors
    /// When a request is refused, or not answered.
    pub fn run_jobs<I: Iterator<Item = Request>>(
        &mut self,
        jobs: &mut [Running<'_, I>],
        stops: Option<u64>,
    ) -> Result<(), RunError> {
        // Where nothing takes time, rates count only if all jobs have one: otherwise the jobs without would end first.
        let instant = self.time.is_instant();
        let has_pace = |job: &Running<'_, I>| job.has_pace();
        let how = How {
            paced: !instant || jobs.iter().all(has_pace),
            stops: stops.map_or(u64::MAX, |nanos| self.time.now().saturating_add(nanos)),
        };
        let timed = !instant && stops.is_none();
        for job in jobs.iter_mut().filter(|job| job.began) {
            job.begin(self.time.now(), timed);
        }
        loop {
            let _ = self.begin_jobs(jobs, timed);
            let (mut submitted, mut due) = (false, None);
            for (at, job) in jobs.iter_mut().enumerate() {
                if self.flash.is_worn_out() {
                    break;
                }
                let open = self.tenants.get(at).map_or(0, |host| host.open());
                if let Some(request) = job.take(open, self.time.now(), how) {
                    self.issue(request);
                    submitted = true;
                } else if let Some(at) = job.due(open, how) {
                    due = Some(due.map_or(at, |due: u64| due.min(at)));
                }
            }
            self.refusal()?;
            if submitted {
                continue;
            }
            // A job may have ended just now, and another may wait for that.
            if self.pass_to(due)? || self.begin_jobs(jobs, timed) {
                continue;
            }
            let all = stops.is_some() || jobs.iter().all(|job| job.over);
            return match self.open() == 0 && all {
                true => self.all_right(),
                false => Err(self.stalled()),
            };
        }
    }

    /// Begins the jobs that can begin. True if any began or ended.
    fn begin_jobs<I: Iterator<Item = Request>>(
        &mut self,
        jobs: &mut [Running<'_, I>],
        timed: bool,
    ) -> bool {
        let mut changed = false;
        for at in 0..jobs.len() {
            let open = self.tenants.get(at).map_or(0, |host| host.open());
            // The jobs it waits for come before it.
            if !jobs[at].began && jobs[at].after().iter().all(|&other| jobs[other].over) {
                jobs[at].begin(self.time.now(), timed);
                changed = true;
            }
            let job = &mut jobs[at];
            let over = job.has_ended(open);
            changed |= over != job.over;
            job.over = over;
        }
        changed
    }

    /// Runs until a request is answered or that moment arrives. False if neither can happen.
    fn pass_to(&mut self, due: Option<u64>) -> Result<bool, RunError> {
        let served = self.seen.served;
        while self.seen.served == served {
            let event = match self.time.is_due() {
                true => Some(self.time.now()),
                false => self.time.next(),
            };
            let timer = self.timeout().filter(|_| due.is_some() || self.open() > 0);
            let first = [event, due, timer].into_iter().flatten().min();
            if event.is_some() && event == first {
                if let Some(tag) = self.time.pop() {
                    self.happen(tag);
                }
            } else if let Some(at) = due.filter(|_| due == first) {
                self.time.pass(at);
                return Ok(true);
            } else if let Some(at) = timer {
                self.tick(at);
            } else {
                return Ok(false);
            }
            self.refusal()?;
        }
        Ok(true)
    }
}
