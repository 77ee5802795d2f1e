//! The bounded queue of requests to record. Adding to it never waits.

use crate::limits::{QUEUE_BYTES, QUEUE_REQUESTS};
use crate::state::{Counts, count};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;
use vellum_core::addr::BLOCK_BYTES;
use vellum_device::block::{Op, Request};

/// A request, and a copy of what it writes.
pub(crate) struct Job {
    /// Nanoseconds since the recording began.
    pub at: u64,
    pub op: Op,
    pub lba: u64,
    pub blocks: u64,
    /// The blocks written; empty when there was no room for them.
    pub bytes: Vec<u8>,
    /// Requests before this one that had no room.
    pub lost: u64,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    bytes: usize,
    lost: u64,
    ended: bool,
}

#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

/// What the thread receives.
pub(crate) enum Next {
    /// A request to record, and how many bytes wait after it.
    Job(Job, usize),
    /// No request arrived.
    Nothing,
    /// No more requests will arrive; this many were lost at the end.
    End(u64),
}

impl Queue {
    /// Adds a request. It never waits for the thread.
    pub fn add(&self, at: u64, request: &Request, counts: &Counts) {
        let size = match request.op {
            Op::Write { .. } => request.frames.len() * BLOCK_BYTES,
            _ => 0,
        };
        // Reserves the room first, so that the copy is made without the lock.
        let fits = {
            let mut waiting = self.waiting.lock();
            if waiting.ended {
                return;
            }
            if waiting.jobs.len() >= QUEUE_REQUESTS {
                waiting.lost += 1;
                return count(&counts.lost);
            }
            let fits = waiting.bytes + size <= QUEUE_BYTES;
            if fits {
                waiting.bytes += size;
            }
            fits
        };
        let mut bytes = Vec::new();
        if fits && size > 0 {
            bytes.reserve_exact(size);
            for index in 0..request.frames.len() {
                bytes.extend_from_slice(request.frames.block(index));
            }
        } else if size > 0 {
            count(&counts.without_contents);
        }
        let mut waiting = self.waiting.lock();
        if waiting.ended {
            return;
        }
        let lost = std::mem::take(&mut waiting.lost);
        waiting.jobs.push_back(Job {
            at,
            op: request.op,
            lba: request.lba.0,
            blocks: request.blocks,
            bytes,
            lost,
        });
        self.came.notify_one();
    }

    /// Takes the next request; waits at most this long for it.
    pub fn next(&self, most: Duration) -> Next {
        let mut waiting = self.waiting.lock();
        if waiting.jobs.is_empty() && !waiting.ended {
            self.came.wait_for(&mut waiting, most);
        }
        match waiting.jobs.pop_front() {
            Some(job) => {
                waiting.bytes = waiting.bytes.saturating_sub(job.bytes.len());
                let behind = waiting.bytes;
                Next::Job(job, behind)
            }
            None if waiting.ended => Next::End(std::mem::take(&mut waiting.lost)),
            None => Next::Nothing,
        }
    }

    /// Accepts no more requests.
    pub fn end(&self) {
        self.waiting.lock().ended = true;
        self.came.notify_one();
    }

    /// Accepts no more requests, and drops those that wait.
    pub fn abandon(&self) {
        let mut waiting = self.waiting.lock();
        waiting.ended = true;
        waiting.jobs = VecDeque::new();
        waiting.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use vellum_core::addr::Lba;
    use vellum_device::frames::{FramePool, Quota};

    #[test]
    fn a_full_queue_drops_contents_and_then_requests_without_waiting() {
        let pool = FramePool::new(256, 1, 0).unwrap();
        let (queue, counts) = (Queue::default(), Counts::default());
        let frames = pool.take(Quota::Write, 256).unwrap();
        let request = Request::new(Op::Write { fua: false }, Lba(0), 256, frames);
        let many = QUEUE_REQUESTS as u64 + 10;
        (0..many).for_each(|at| queue.add(at, &request, &counts));
        let told = (QUEUE_BYTES / (256 * BLOCK_BYTES)) as u64;
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(get(&counts.lost), 10);
        assert_eq!(get(&counts.without_contents), QUEUE_REQUESTS as u64 - told);
        // Room again: the loss is recorded before the next request.
        let now = Duration::ZERO;
        let Next::Job(first, behind) = queue.next(now) else {
            panic!("nothing");
        };
        assert_eq!((first.lost, first.bytes.len()), (0, 256 * BLOCK_BYTES));
        assert_eq!(behind, QUEUE_BYTES - first.bytes.len());
        queue.add(many, &request, &counts);
        queue.add(many, &request, &counts);
        queue.end();
        let mut last = first;
        let lost = loop {
            match queue.next(now) {
                Next::Job(job, _) => last = job,
                Next::Nothing => panic!("nothing"),
                Next::End(lost) => break lost,
            }
        };
        assert_eq!(
            (last.at, last.lost, last.bytes.len()),
            (many, 10, 256 * BLOCK_BYTES)
        );
        assert_eq!(lost, 1);
    }
}
