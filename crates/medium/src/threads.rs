//! I/O by a small pool of threads: used if io_uring is refused, and for operations that io_uring cannot do.

use crate::io::{Done, Io};
use crate::target::Target;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Receives finished operations; called on the pool's threads.
pub(crate) type Sink = dyn Fn(Done) + Send + Sync;

/// A pool of threads, started on demand.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    threads_max: usize,
}

struct Shared {
    target: Arc<Target>,
    jobs: Mutex<Jobs>,
    more: Condvar,
    sink: Box<Sink>,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Box<Io>>,
    idle: usize,
    stop: bool,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("threads_max", &self.threads_max)
            .finish_non_exhaustive()
    }
}

impl Pool {
    pub(crate) fn new(target: Arc<Target>, threads_max: usize, sink: Box<Sink>) -> Self {
        let shared = Arc::new(Shared {
            target,
            jobs: Mutex::default(),
            more: Condvar::new(),
            sink,
        });
        Self {
            shared,
            threads: Mutex::default(),
            threads_max,
        }
    }

    /// Queues operations.
    pub(crate) fn submit(&self, ios: impl Iterator<Item = Box<Io>>) {
        let mut jobs = self.shared.jobs.lock();
        let before = jobs.queue.len();
        jobs.queue.extend(ios);
        let added = jobs.queue.len() - before;
        let missing = jobs.queue.len().saturating_sub(jobs.idle);
        drop(jobs);
        if missing > 0 {
            self.start(missing);
        }
        for _ in 0..added.min(self.threads_max) {
            self.shared.more.notify_one();
        }
    }

    fn start(&self, count: usize) {
        let mut threads = self.threads.lock();
        for _ in 0..count.min(self.threads_max - threads.len()) {
            let shared = Arc::clone(&self.shared);
            let spawned = std::thread::Builder::new()
                .name("vellum-io".to_owned())
                .spawn(move || shared.work());
            match spawned {
                Ok(thread) => threads.push(thread),
                // The running threads will do the work; if there are none, this thread must.
                Err(_) if !threads.is_empty() => return,
                Err(_) => return self.shared.drain(),
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let mut jobs = self.shared.jobs.lock();
            jobs.stop = true;
            jobs.queue.clear();
        }
        self.shared.more.notify_all();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        let mut jobs = self.jobs.lock();
        loop {
            if jobs.stop {
                return;
            }
            let Some(io) = jobs.queue.pop_front() else {
                jobs.idle += 1;
                self.more.wait(&mut jobs);
                jobs.idle -= 1;
                continue;
            };
            drop(jobs);
            self.perform(io);
            jobs = self.jobs.lock();
        }
    }

    fn drain(&self) {
        loop {
            let Some(io) = self.jobs.lock().queue.pop_front() else {
                return;
            };
            self.perform(io);
        }
    }

    fn perform(&self, io: Box<Io>) {
        let result = self.target.perform(&io);
        (self.sink)(self.target.ended(io, result));
    }
}
