//! Whose turn it is in a log: transactions follow one another, number by number and place by place.

use super::format::{JournalBlock, JournalFormat, Sequence};
use core::cmp::Ordering;

/// A transaction, and the place of its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub sequence: Sequence,
    pub begin: JournalBlock,
}

impl Turn {
    /// The turn after a commit block at `at` of transaction `sequence`.
    pub fn after(sequence: Sequence, at: JournalBlock, format: &JournalFormat) -> Self {
        Self {
            sequence: Sequence(sequence.0.wrapping_add(1)),
            begin: format.after(at),
        }
    }

    /// How another transaction's number compares to this one's. Numbers wrap.
    pub fn compare(self, other: Sequence) -> Ordering {
        match other.0.wrapping_sub(self.sequence.0) {
            0 => Ordering::Equal,
            ahead if ahead <= u32::MAX / 2 => Ordering::Greater,
            _ => Ordering::Less,
        }
    }

    /// True if this can be a turn of the log that begins with `first`, according to a superblock. A superblock that names a later
    /// transaction, or this one at another place, is another log's: an image was written over this one.
    pub fn is_of_log(self, first: Self) -> bool {
        match self.compare(first.sequence) {
            Ordering::Less => true,
            Ordering::Equal => self == first,
            Ordering::Greater => false,
        }
    }
}
