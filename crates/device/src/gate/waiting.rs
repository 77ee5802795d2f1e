//! Why a write waits at the gate, and since when.

use vellum_core::addr::Nanos;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// That the scout looks.
    Scout,
    /// What a commit block commits: of this journal, if it is still known, so many blocks.
    Blocks { log: Option<usize>, missing: u32 },
}

/// A write that has waited.
#[derive(Clone, Copy)]
pub(super) struct Waited {
    pub since: Nanos,
    pub is_answered: bool,
    pub is_withheld: bool,
}
