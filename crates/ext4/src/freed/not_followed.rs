//! Why a file system's free space is not followed.

/// Why a file system's free space is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFollowed {
    /// Its superblock is not trusted.
    #[error("its superblock is not to be trusted")]
    NoSuperblock,
    /// There is no readable journal.
    #[error("it has no journal that can be read")]
    NoJournal,
    /// Its journal is on another device, whose order relative to this one is not known.
    #[error("its journal is a device of its own")]
    ExternalJournal,
    /// Its blocks do not match the volume's blocks.
    #[error("its blocks are not of 4096 bytes at multiples of that")]
    Unaligned,
    /// A bit in a bitmap stands for a cluster of blocks.
    #[error("it gives out clusters of blocks (bigalloc)")]
    Bigalloc,
    /// Fast commits change bitmaps without a copy in the journal.
    #[error("it may have fast commits")]
    FastCommit,
    /// It is not mounted with a journal now.
    #[error("it is not mounted")]
    NotMounted,
    /// The places of its bitmaps are in doubt.
    #[error("a group descriptor is damaged, or leads where another does")]
    Descriptors,
    /// It has more groups than the budget allows.
    #[error("there are more block groups on the volume than are followed")]
    TooLarge,
}
