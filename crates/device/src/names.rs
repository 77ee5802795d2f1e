//! The error for an unknown name.

/// The name is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such name")]
pub struct UnknownName;
