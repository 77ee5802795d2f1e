//! Why a request to a volume fails.

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
