//! How far a run is, and whether anybody still wants it: seen from another thread.

use crate::trace::{self, Bytes};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a run tells while it runs. It changes nothing in the results of one that is let to its end.
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

    /// Ends the run with what has been asked so far.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it was ended.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Opens a trace; how much of the file is read is what is done.
    pub(crate) fn open(&self, path: &Path) -> std::io::Result<Bytes> {
        trace::open(path, &self.done)
    }

    /// The load begins.
    pub(crate) fn begin(&self, all: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }
}

/// Requests that are counted as they are taken, and that end when the watch says so.
pub(crate) struct Watched<'a, I> {
    /// The requests.
    pub from: I,
    /// Who watches, if anybody does.
    pub watch: Option<&'a Watch>,
    /// Whether they are counted: preparation is not.
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
