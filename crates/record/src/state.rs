//! The state of a recording.

use parking_lot::Mutex;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Called on the recorder's thread when something goes wrong.
pub type OnEvent = Arc<dyn Fn(&str) + Send + Sync>;

/// The state of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct State {
    /// Path of the trace.
    pub path: PathBuf,
    /// Requests in the trace.
    pub requests: u64,
    /// Requests that are missing because they arrived faster than they could be recorded.
    pub lost: u64,
    /// Writes whose blocks' contents could not be described in time.
    pub without_contents: u64,
    /// Writes whose blocks' sizes could not be found in time.
    pub without_sizes: u64,
    /// Bytes of the trace.
    pub bytes: u64,
    /// Why recording ended early, if it did.
    pub ended: Option<String>,
}

/// The counters behind [`State`].
#[derive(Default)]
pub(crate) struct Counts {
    pub requests: AtomicU64,
    pub lost: AtomicU64,
    pub without_contents: AtomicU64,
    pub without_sizes: AtomicU64,
    pub bytes: AtomicU64,
    pub ended: Mutex<Option<String>>,
}

impl Counts {
    pub fn state(&self, path: PathBuf) -> State {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        State {
            path,
            requests: get(&self.requests),
            lost: get(&self.lost),
            without_contents: get(&self.without_contents),
            without_sizes: get(&self.without_sizes),
            bytes: get(&self.bytes),
            ended: self.ended.lock().clone(),
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
