//! How the host goes about it, and what the follower is shown of that.

/// How data goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Ordered,
    Writeback,
    Journal,
}

/// What the follower is shown otherwise than it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Twist {
    None,
    /// A bitmap is home and durable as soon as its transaction is complete: what was written since the commit before must
    /// be enough.
    Early,
    /// What was written before a transaction's first block in the journal is forgotten: that a bitmap comes home only
    /// when no transaction has it must be enough.
    Forgetful,
    /// Both: too much.
    EarlyAndForgetful,
    /// Writes of data are not seen: too much.
    Blind,
    /// A bitmap is home and durable when it is in the journal, and its transaction is complete: too much.
    Hasty,
    /// What was taken is dropped some steps later: too much.
    Late,
}
