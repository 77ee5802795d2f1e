//! The verdict on a queued block that may be stored already.

/// Whether the block equals its twin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Verdict<Twin> {
    /// No twin was proposed, or it is not equal: the block is written.
    #[default]
    Write,
    /// Unknown yet: the comparison, or a fingerprint, is in flight.
    Asked(Twin),
    /// They are equal.
    Same(Twin),
}
