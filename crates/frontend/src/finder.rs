//! What front ends show by names that are asked for, and not listed: snapshots.

use crate::unaligned::ByteDevice;
use std::sync::Arc;

/// What is found by a name.
#[derive(Clone)]
pub struct Found {
    /// The name of the volume whose clients may have it.
    pub of: String,
    /// Which one it is: another one of the same name has another number.
    pub number: u64,
    /// What it holds.
    pub device: ByteDevice,
}

/// Finds it.
pub type Finder = Arc<dyn Fn(&str) -> Option<Found> + Send + Sync>;
