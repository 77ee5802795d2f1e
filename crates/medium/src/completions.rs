//! A queue of finished operations, for media that complete them on threads of this process.

use crate::io::Done;
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Completed operations that have not been taken yet.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct State {
    done: Vec<Done>,
    woken: bool,
}

impl Completions {
    pub(crate) fn push(&self, done: Done) {
        self.state.lock().done.push(done);
        self.ready.notify_one();
    }

    pub(crate) fn push_all(&self, done: impl Iterator<Item = Done>) {
        // The iterator may do I/O, so it never runs under the lock.
        for one in done {
            self.push(one);
        }
    }

    pub(crate) fn wait(&self, done: &mut Vec<Done>, timeout: Option<Duration>) {
        // A time-out too long to represent means no time-out.
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut state = self.state.lock();
        while state.done.is_empty() && !state.woken {
            match deadline {
                None => self.ready.wait(&mut state),
                Some(deadline) => {
                    if self.ready.wait_until(&mut state, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        state.woken = false;
        done.append(&mut state.done);
    }

    pub(crate) fn wake(&self) {
        self.state.lock().woken = true;
        self.ready.notify_one();
    }

    /// Drops the operations that were never taken.
    pub(crate) fn clear(&self) {
        *self.state.lock() = State::default();
    }
}
