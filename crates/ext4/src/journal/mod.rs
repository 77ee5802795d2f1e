//! The journal (jbd2): where it is, how its blocks are laid out, and which home blocks they are copies of.

mod block;
mod commits;
mod follow;
mod format;
mod layout;
mod runs;
mod sums;
mod superblock;
mod transactions;
mod turn;

pub use block::{Block, Descriptor, OWN, Revoke, Tag, is_commit};
pub use commits::{Commits, Mark, Refusal, Verdict, begins_a_log};
pub use follow::{Followed, Follower};
pub use format::{
    Alignment, Journal, JournalBlock, JournalFeatures, JournalFormat, Sequence, Unaligned,
};
pub use layout::Layout;
pub use sums::CopySum;
pub use superblock::Log;
pub(crate) use superblock::{BYTES as SUPERBLOCK_BYTES, Checked, STEADY, check, log};
pub use transactions::{Content, Copy, Head, Reader, Told, Transactions};
pub(crate) use turn::Turn;
