//! How an export differs from an earlier point, for backups that copy only what has changed.

use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_device::block::Extent;

/// Returns what has changed since a point: extents from a block on, for at most this many blocks and extents (`mapped`: changed).
/// `None` if the point is no longer known.
pub type Since = Arc<dyn Fn(Lba, u64, usize) -> Option<Vec<Extent>> + Send + Sync>;

/// The points that exports can be compared with.
pub trait Changes: Send + Sync {
    /// The names of the points that an export can be compared with.
    fn points(&self, export: &str) -> Vec<String>;
    /// How an export differs from one of these points. `number`: the identity of an export that was [found](crate::finder::Found);
    /// `None` if the name refers to another one by now.
    fn since(&self, export: &str, number: Option<u64>, point: &str) -> Option<Since>;
}
