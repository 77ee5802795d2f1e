//! Why a request to a volume fails.

/// A commit block waits. The end of its volume would refuse it, or let it through without the blocks that it commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal commit block at byte {at} waits for blocks that it commits: {}", advice(*is_refused))]
pub struct Uncommitted {
    /// Its first byte.
    pub at: u64,
    /// Whether one of those blocks was refused, and has not come again.
    pub is_refused: bool,
}

fn advice(is_refused: bool) -> &'static str {
    match is_refused {
        false => {
            "its client is in the middle of a commit, is suspended, or has died. Let that client go on, \
             and give the same command again. If it has died, run e2fsck on its file system before, or \
             read that block: then it no longer waits"
        }
        true => {
            "one of them was refused, for want of room or memory. If its client is a virtual machine that \
             has stopped, make room (delete a snapshot) and let it go on. If the file system has given up, \
             unmount it and run e2fsck on it. Then give the same command again"
        }
    }
}

/// Why a request failed; each maps onto an errno.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BlockError {
    /// EINVAL.
    #[error("blocks {lba}+{blocks} end past the volume's {size} blocks")]
    OutOfRange {
        /// First block requested.
        lba: u64,
        /// How many.
        blocks: u64,
        /// The volume's size in blocks.
        size: u64,
    },
    /// EPERM.
    #[error("the volume is attached read-only")]
    ReadOnly,
    /// ENOSPC.
    #[error(
        "no space left in the volume: discard something, or give it more room (`vellum grow`; \
         `vellum migrate` where its layout is not log)"
    )]
    Full,
    /// ENOSPC, too.
    #[error(
        "the storage below the volume is full, most often a file system: free some space there, and the \
         volume goes on by itself"
    )]
    NoRoom,
    /// EIO: checksum, medium, or a poisoned volume; the text says which and where.
    #[error("{0}")]
    Io(String),
    /// EIO. Only the volume's own copies get this error, never a client.
    #[error("a block cannot be copied by a link")]
    Unlinkable,
    /// ESHUTDOWN.
    #[error("the volume is shutting down")]
    Stopping,
}
