//! What is known of a block in the queue that may be stored already.

/// Of its twin, the block that may be equal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Verdict<Twin> {
    /// None was proposed, or it is not equal: the block is written.
    #[default]
    Write,
    /// It is being found out: the comparison, or a fingerprint, is under way.
    Asked(Twin),
    /// They are equal.
    Same(Twin),
}
