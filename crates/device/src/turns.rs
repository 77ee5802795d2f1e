//! Decides which threads may do the medium's work themselves: one at a time for reads, and one for making writes durable.

use parking_lot::{Mutex, MutexGuard};
use vellum_medium::{Io, Kind};

/// Whose turn it is.
#[derive(Default)]
pub(crate) struct Turns {
    reads: Mutex<()>,
    durable: Mutex<()>,
}

impl Turns {
    /// Takes the turn for a batch's work on the medium, if that suits a lent thread and the turn is free.
    pub fn take(&self, ios: &[Box<Io>]) -> Option<MutexGuard<'_, ()>> {
        let [io] = ios else { return None };
        match io.kind {
            Kind::Read => self.reads.try_lock(),
            Kind::Sync | Kind::Write { durable: true } => self.durable.try_lock(),
            Kind::Write { durable: false } | Kind::Discard { .. } => None,
        }
    }
}
