//! The progress of a run, seen from another thread, which may stop it.

use crate::trace::{self, Bytes};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The progress of a run. It changes nothing in the results of a run that is not stopped.
#[derive(Debug, Default)]
pub struct Watch {
    done: Arc<AtomicU64>,
    all: AtomicU64,
    stop: AtomicBool,
}

impl Watch {
    /// Requests taken of the load, and how many there are; 0 while the drive is being prepared.
    #[must_use]
    pub fn seen(&self) -> (u64, u64) {
        let all = self.all.load(Ordering::Relaxed);
        (self.done.load(Ordering::Relaxed), all)
    }

    /// Stops the run; what was requested so far is completed.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// True if it was stopped.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Opens a trace; the progress is how much of the file has been read.
    pub(crate) fn open(&self, path: &Path) -> std::io::Result<Bytes> {
        trace::open(path, &self.done)
    }

    /// Begins a load of `all` requests.
    pub(crate) fn begin(&self, all: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }
}

/// Counts requests as they are taken, and ends when the watch says so.
pub(crate) struct Watched<'a, I> {
    /// The requests.
    pub from: I,
    /// The watch, if there is one.
    pub watch: Option<&'a Watch>,
    /// True if requests are counted; those of the preparation are not.
    pub count: bool,
}

impl<I: Iterator> Iterator for Watched<'_, I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        if let Some(watch) = self.watch {
            if watch.stopped() {
                return None;
            }
            if self.count {
                watch.done.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.from.next()
    }
}
