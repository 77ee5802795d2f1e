//! How much of an evaluation is run.

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The size of a test.
    Tiny,
    /// Enough for the counts to match those of the full size: a minute or two.
    Short,
    /// The paper's size: many minutes.
    Full,
}
