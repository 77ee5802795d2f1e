//! What could not be read.

/// A range of the volume that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {bytes} bytes at byte {offset}")]
pub struct Unreadable {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}
