//! What front ends tell of how an export differs from what it was: for backups that copy what has changed.

use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_device::block::Extent;

/// What has changed since a point, from a block on, for so many blocks and extents at most (`mapped`: it has); nothing, when it is not
/// known any more.
pub type Since = Arc<dyn Fn(Lba, u64, usize) -> Option<Vec<Extent>> + Send + Sync>;

/// What exports can be compared with.
pub trait Changes: Send + Sync {
    /// The names of the points that an export can be compared with.
    fn points(&self, export: &str) -> Vec<String>;
    /// How an export differs from what it was at one of them.
    fn since(&self, export: &str, point: &str) -> Option<Since>;
}
