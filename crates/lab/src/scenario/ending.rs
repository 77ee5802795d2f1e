//! What ends a run: the drive writes what it still holds in RAM, or it is worn out.

use crate::sim::{Pace, RunError, Sim};
use crate::workload::Request;

/// Writes what is in RAM to the medium.
pub(super) fn flush(sim: &mut Sim) -> Result<(), RunError> {
    let mut flush = std::iter::once(Request::flush(0));
    sim.run(&mut flush, Pace::Open)
}

/// A run that wears its drive out has ended well.
pub(super) fn until_worn_out(ran: Result<(), RunError>) -> Result<(), RunError> {
    match ran {
        Err(RunError::WornOut) => Ok(()),
        other => other,
    }
}
