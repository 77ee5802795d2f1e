//! Memory for reads that are longer than what one connection may have in flight.
//!
//! Such a read is served when nothing else of its connection is, and put together in memory of its own: 32 MiB at most. Connections
//! are many, so all of a server have so much together. Who finds none left waits for others to take their replies, and not
//! for ever: one that never does keeps its share.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often one who waits looks whether it is still wanted.
const LOOKS: Duration = Duration::from_millis(100);

/// What there is of it.
#[derive(Debug)]
pub struct Heap {
    patience: Duration,
    left: Mutex<u64>,
    given_back: Condvar,
}

/// A part of it; given back when dropped.
#[derive(Debug)]
pub struct Loan {
    heap: Arc<Heap>,
    bytes: u64,
}

/// Data of a reply in memory of its own.
#[derive(Debug)]
pub struct Own {
    pub bytes: Box<[u8]>,
    /// What it is lent from, if it is; given back with it.
    loan: Option<Loan>,
}

impl Own {
    pub fn new(bytes: Vec<u8>, loan: Option<Loan>) -> Self {
        Self {
            bytes: bytes.into_boxed_slice(),
            loan,
        }
    }

    /// Whether it is of the heap.
    pub fn is_lent(&self) -> bool {
        self.loan.is_some()
    }
}

impl Heap {
    /// So many bytes, waited for so long.
    pub fn new(bytes: u64, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            patience,
            left: Mutex::new(bytes),
            given_back: Condvar::new(),
        })
    }

    /// Takes so much of it, waiting until there is as much; `None` when there is not in time, or it is not wanted any more.
    pub fn borrow(self: &Arc<Self>, bytes: u64, is_wanted: impl Fn() -> bool) -> Option<Loan> {
        let deadline = Instant::now() + self.patience;
        let mut left = self.left.lock();
        while *left < bytes {
            // Not under the lock: loans are given back under that of a session, where it is known.
            let goes_on = Instant::now() < deadline && MutexGuard::unlocked(&mut left, &is_wanted);
            if !goes_on {
                return None;
            }
            // What was given back meanwhile is seen at the next look.
            self.given_back.wait_for(&mut left, LOOKS);
        }
        *left -= bytes;
        Some(Loan {
            heap: Arc::clone(self),
            bytes,
        })
    }
}

#[cfg(test)]
impl Heap {
    /// How much of it is not lent.
    pub fn left(&self) -> u64 {
        *self.left.lock()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        *self.heap.left.lock() += self.bytes;
        self.heap.given_back.notify_all();
    }
}
