//! What the watch should find out.

use vellum_core::seam::WriteOnce;

/// The properties of a volume that decide what to look for in its writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// What to do about blocks that a journal already holds.
    pub write_once: WriteOnce,
    /// True if the volume itself puts home what journals have committed: needs to know which transactions are complete.
    pub replay: bool,
    /// True if deltas are made: needs to know what a journal block is a copy of, and where the previous copy is.
    pub deltas: bool,
    /// True if contents are shared: then any stored block may soon be compared with a written one.
    pub dedup: bool,
}
