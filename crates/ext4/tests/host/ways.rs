//! The host's journal modes, and deviations in what the follower sees.

/// The journal mode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Ordered,
    Writeback,
    Journal,
}

/// A deviation of what the follower sees from what happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Twist {
    None,
    /// A bitmap is home and durable as soon as its transaction is complete: the rule about writes since the previous
    /// commit must be enough.
    Early,
    /// Writes before a transaction's first journal block are forgotten: the rule that a bitmap is written home only
    /// when no transaction holds it must be enough.
    Forgetful,
    /// Both: must fail.
    EarlyAndForgetful,
    /// Data writes are not seen: must fail.
    Blind,
    /// A bitmap is home and durable when it is in the journal and its transaction is complete: must fail.
    Hasty,
    /// A stale lap behind a restored log's head is taken for a log: must fail.
    Credulous,
    /// Blocks taken as freed are dropped some steps later: must fail.
    Late,
}
