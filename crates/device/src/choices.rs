//! What the user has chosen for a volume: its policy, and journals set by hand. `orders.rs` puts it in force.

use crate::memory;
use crate::policy::Policy;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_watch::Extent;

/// See the module.
pub(crate) struct Choices {
    /// Held while a choice is put in force, so that the last one wins. Taken before every other lock.
    chosen: Mutex<Chosen>,
    /// Whether metadata is told from data. A copy, so that reading it takes no lock.
    semantics: AtomicBool,
}

/// The choices themselves.
pub(crate) struct Chosen {
    pub policy: Policy,
    /// Journals set by hand.
    pub journals: Vec<Extent>,
}

impl Choices {
    pub fn new(policy: Policy, journals: Vec<Extent>) -> Self {
        // Called now, because the process may have given up its right to open files when it is asked for an index.
        memory::available();
        Self {
            chosen: Mutex::new(Chosen { policy, journals }),
            semantics: AtomicBool::new(false),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Chosen> {
        self.chosen.lock()
    }

    /// The policy in force.
    pub fn policy(&self) -> Policy {
        self.chosen.lock().policy
    }

    /// True if metadata is told from data.
    pub fn has_semantics(&self) -> bool {
        self.semantics.load(Ordering::Acquire)
    }

    /// Notes whether metadata is told from data from now on. Returns the value before. Called with the choices held.
    pub fn set_semantics(&self, on: bool) -> bool {
        self.semantics.swap(on, Ordering::AcqRel)
    }
}
