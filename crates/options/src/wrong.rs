//! Options that contradict each other.

/// What is wrong, and what the user can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(String);

impl OptionError {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}
