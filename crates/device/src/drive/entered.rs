//! The one way to feed the core: whoever lets it work enters, and leaves in order. (Who only asks it something, or has it note a digest
//! as `recall.rs` does, takes the lock alone.)
//!
//! A panic under the lock leaves the core in the middle of its work. The lock itself does not tell the next holder; `busy` does.

use super::Inner;
use parking_lot::MutexGuard;
use std::ops::{Deref, DerefMut};

/// The volume's lock, held to let the core work. Dropped without [`exit`](Self::exit), the volume has broken down.
pub(crate) struct Entered<'a>(MutexGuard<'a, Inner>);

impl<'a> Entered<'a> {
    /// Enters, or gives the lock back if the volume has broken down.
    pub fn new(mut inner: MutexGuard<'a, Inner>) -> Result<Self, MutexGuard<'a, Inner>> {
        if inner.busy {
            return Err(inner);
        }
        inner.busy = true;
        Ok(Self(inner))
    }

    /// Releases the lock.
    pub fn exit(mut self) {
        self.0.busy = false;
    }
}

impl Deref for Entered<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.0
    }
}

impl Inner {
    /// True if a thread has panicked while the core worked, or before it had done what the core requested.
    pub fn has_broken_down(&self) -> bool {
        self.busy
    }

    /// Notes such a panic.
    pub fn break_down(&mut self) {
        self.busy = true;
    }
}
