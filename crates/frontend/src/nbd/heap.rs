//! Memory for reads longer than one connection may have in flight.
//!
//! Such a read is served when its connection has nothing else in flight, and is assembled in memory of its own, 32 MiB at most.
//! There can be many connections, so all connections of a server share a limited amount. A read that finds none left waits, with
//! a limit, for other clients to take their replies. A client that never does keeps its share.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a waiter checks whether its read is still wanted.
const LOOKS: Duration = Duration::from_millis(100);

/// The shared memory.
#[derive(Debug)]
pub struct Heap {
    patience: Duration,
    left: Mutex<u64>,
    given_back: Condvar,
}

/// A share of it, given back when dropped.
#[derive(Debug)]
pub struct Loan {
    heap: Arc<Heap>,
    bytes: u64,
}

/// Reply data in memory of its own.
#[derive(Debug)]
pub struct Own {
    pub bytes: Box<[u8]>,
    /// The loan it counts against, if any; given back with it.
    loan: Option<Loan>,
}

impl Own {
    pub fn new(bytes: Vec<u8>, loan: Option<Loan>) -> Self {
        Self {
            bytes: bytes.into_boxed_slice(),
            loan,
        }
    }

    /// True if its memory is borrowed from the heap.
    pub fn is_lent(&self) -> bool {
        self.loan.is_some()
    }
}

impl Heap {
    /// A heap of this many bytes; requests for it wait this long.
    pub fn new(bytes: u64, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            patience,
            left: Mutex::new(bytes),
            given_back: Condvar::new(),
        })
    }

    /// Borrows memory, waiting until there is enough. `None` if there is not in time, or if it is no longer wanted.
    pub fn borrow(self: &Arc<Self>, bytes: u64, is_wanted: impl Fn() -> bool) -> Option<Loan> {
        let deadline = Instant::now() + self.patience;
        let mut left = self.left.lock();
        while *left < bytes {
            // Without the lock: loans are given back under the session's lock, which `is_wanted` takes.
            let goes_on = Instant::now() < deadline && MutexGuard::unlocked(&mut left, &is_wanted);
            if !goes_on {
                return None;
            }
            // Memory given back meanwhile is noticed at the next check.
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
    /// The bytes that are not lent.
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
