//! Why a volume cannot be opened.

use super::source::Unreadable;
use crate::addr::{Generation, Leaf, Pba, Seq};
use crate::format::FormatError;

/// Why a volume cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// Neither mirror is a superblock.
    #[error(
        "not a vellum volume, or both superblocks are lost: {first} (block 0); {last} (last block)"
    )]
    NoSuperblock {
        /// What is wrong with the first.
        first: FormatError,
        /// What is wrong with the other.
        last: FormatError,
    },
    /// A superblock that is whole, but that this program cannot use.
    #[error("{error} (physical block {at})")]
    Superblock {
        /// Where.
        at: Pba,
        /// Why not.
        error: FormatError,
    },
    /// Neither root is whole.
    #[error("both map checkpoints are damaged: {first}; {second}")]
    NoRoot {
        /// What is wrong with the first place.
        first: FormatError,
        /// What is wrong with the second.
        second: FormatError,
    },
    /// The newest root is damaged, and something written after it proves that it was complete once.
    #[error("map checkpoint {lost} is damaged: it was durable once, and what came after needs it")]
    RootLost {
        /// Its number.
        lost: Generation,
    },
    /// A leaf is damaged.
    #[error("leaf {leaf} of the map, at physical block {at}, fails its checksum")]
    Leaf {
        /// Which.
        leaf: Leaf,
        /// Where.
        at: Pba,
    },
    /// The log has a hole before chunks that were durable.
    #[error(
        "chunk {seq} of the log is damaged or missing, but chunk {later} at physical block {at} proves that \
         it was durable"
    )]
    Hole {
        /// The missing chunk.
        seq: Seq,
        /// A later one.
        later: Seq,
        /// Where that is.
        at: Pba,
    },
    /// A chunk that was durable is missing.
    #[error(
        "chunk {seq} of the log is damaged or missing, but all through chunk {durable} was durable"
    )]
    Missing {
        /// The missing chunk.
        seq: Seq,
        /// The newest chunk known to have been durable.
        durable: Seq,
    },
    /// A record or an entry names something outside the volume, or a place that holds nothing.
    #[error("{what} at physical block {at} names what the volume does not hold")]
    Outside {
        /// The structure.
        what: &'static str,
        /// Where it is.
        at: Pba,
    },
    /// A block of a table in place, or what names it, is damaged.
    #[error("{error}, at physical block {at}")]
    Table {
        /// Where.
        at: Pba,
        /// What is wrong.
        error: FormatError,
    },
    /// The caller needs a log, and the volume has another layout.
    #[error("the volume's layout is {0}, not a log's: what was asked for is of logs alone")]
    NotALog(&'static str),
    /// A count is lower than the number of links to its block.
    #[error(
        "data block {at} has {links} owners, but its count is {count}: a write to the tables was lost, and \
         nothing tells which part of them is old. `vellum check` names all such blocks"
    )]
    CountTooLow {
        /// The block.
        at: Pba,
        /// Its count.
        count: u16,
        /// The links to it.
        links: u16,
    },
    /// A block has more links than its count has room for. So some links were never counted.
    #[error(
        "more leads to data block {at} than a count has room for: no volume links a block so often"
    )]
    TooManyOwners {
        /// The block.
        at: Pba,
    },
    /// The volume is damaged, so it can only be read.
    #[error("the volume is damaged: what is left of it can be read, and not be written to")]
    Damaged,
    /// The medium cannot read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}
