//! What a name that nothing has is answered with.

/// The name is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such name")]
pub struct UnknownName;
