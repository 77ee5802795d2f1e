//! The policies for clients' writes, the same for every layout, without the state machines that use them.

pub mod dedup;
pub mod once;

/// Who proposes that a block is stored already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proposer {
    /// The pool, by this block of the journals.
    Journal(u32),
    /// The index, by this hash.
    Index(u64),
    /// A pair given from outside.
    Pair,
}
