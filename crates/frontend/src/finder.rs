//! Exports that front ends find by name on request but do not list: snapshots.

use crate::unaligned::ByteDevice;
use std::sync::Arc;

/// An export found by name.
#[derive(Clone)]
pub struct Found {
    /// The name of the volume whose clients may use it.
    pub of: String,
    /// Its own name: an age that was asked for refers to another one later, this does not.
    pub name: String,
    /// Its identity: another one with the same name has another number.
    pub number: u64,
    /// Its contents.
    pub device: ByteDevice,
}

/// Finds an export by its name, which is `VOLUME@` and the name or the age of a snapshot.
pub type Finder = Arc<dyn Fn(&str) -> Option<Found> + Send + Sync>;
