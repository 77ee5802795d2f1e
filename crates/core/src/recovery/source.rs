//! What recovery reads from.

use crate::addr::Pba;

/// Where recovery reads from.
pub trait Source {
    /// Fills `bytes` (whole blocks) from `at` on.
    ///
    /// # Errors
    /// When the medium cannot read them.
    fn read(&mut self, at: Pba, bytes: &mut [u8]) -> Result<(), Unreadable>;

    /// Makes every later read return what the medium has, not what a cache above it holds. After a failed sync, a cache may still return
    /// data that is not on the medium, and no later sync writes it. If a volume went on from such data, a power cut would lose even what
    /// was flushed afterwards. Recovery calls this before it reads anything.
    ///
    /// # Errors
    /// When the medium cannot be synced, or the cache cannot be dropped.
    fn drop_cache(&mut self) -> Result<(), Unreadable>;
}

/// Some blocks cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the medium cannot read {blocks} block(s) at physical block {at}")]
pub struct Unreadable {
    /// The first of them.
    pub at: Pba,
    /// How many.
    pub blocks: u64,
}
