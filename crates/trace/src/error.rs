//! What can be wrong with a trace.

use crate::limits::{
    COMMITTED_MAX, DISK_BLOCKS_MAX, JOURNALS_MAX, PAYLOAD_BYTES_MAX, REQUEST_BLOCKS_MAX,
};

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Another file.
    #[error("not a trace of vellum's: it does not begin with \"VELTRACE\"")]
    Magic,
    /// A version that is not known.
    #[error(
        "a trace of version {version}: this program reads version 1; use the one that recorded it"
    )]
    Version {
        /// Which.
        version: u16,
    },
    /// A header that does not hold.
    #[error("the header's checksum does not match: the file is damaged")]
    HeaderChecksum,
    /// A header whose fields cannot be.
    #[error("the header's {field} is {value}: {need}")]
    Header {
        /// Which.
        field: &'static str,
        /// What is there.
        value: u64,
        /// What should be.
        need: &'static str,
    },
    /// Too short to be one.
    #[error("the file ends within its header")]
    HeaderCut,
    /// No frame where one should be.
    #[error(
        "no frame begins here: the file is damaged. What is before can be read when the file is cut here (truncate -s)"
    )]
    NoFrame,
    /// A frame's header that does not hold.
    #[error(
        "the checksum of a frame's header does not match: the file is damaged. What is before can be read when the file \
         is cut here (truncate -s)"
    )]
    FrameChecksum,
    /// A frame's payload that does not hold.
    #[error(
        "the checksum of a frame does not match: the file is damaged. What is before can be read when the file is cut \
         here (truncate -s)"
    )]
    PayloadChecksum,
    /// A frame that is too long.
    #[error("a frame of {bytes} bytes: at most {PAYLOAD_BYTES_MAX} are allowed")]
    PayloadLong {
        /// Its bytes.
        bytes: u64,
    },
    /// A frame of a kind that is not known.
    #[error("a frame of kind {kind}: 1 (entries) and 2 (the end) are known")]
    FrameKind {
        /// Which.
        kind: u8,
    },
    /// A frame that does not follow the one before it.
    #[error(
        "a frame that begins with entry {found} where {need} is next: a part of the trace is missing"
    )]
    FrameOrder {
        /// Found.
        found: u64,
        /// Needed.
        need: u64,
    },
    /// Entries that are not as many as the frame says.
    #[error("a frame that says it has {said} entries and has another number")]
    FrameCount {
        /// Said.
        said: u32,
    },
    /// An entry that ends too early.
    #[error("an entry is cut short")]
    EntryCut,
    /// A number that is too long.
    #[error("a number of more than 64 bits")]
    Number,
    /// A tag that is not known.
    #[error("an entry with tag {tag:#04x}, which version 1 does not have")]
    Tag {
        /// Which.
        tag: u8,
    },
    /// Flags of a block that are not known.
    #[error("a block with flags {flags:#04x}, which version 1 does not have")]
    Block {
        /// Which.
        flags: u8,
    },
    /// A size that cannot be.
    #[error("a block stored in {size} bytes: it has 4096")]
    Size {
        /// Which.
        size: u16,
    },
    /// A time that cannot be.
    #[error("a time that cannot be counted in nanoseconds")]
    Time,
    /// Past the disk's end.
    #[error("blocks {lba}+{blocks} on a disk of {disk}")]
    Range {
        /// The first.
        lba: u64,
        /// How many.
        blocks: u64,
        /// The disk's.
        disk: u64,
    },
    /// A request of nothing, or of too much.
    #[error("a request of {blocks} blocks: from 1 to {REQUEST_BLOCKS_MAX} are allowed")]
    Blocks {
        /// How many.
        blocks: u64,
    },
    /// Too many journals.
    #[error("{count} journals: at most {JOURNALS_MAX} are allowed")]
    Journals {
        /// How many.
        count: u64,
    },
    /// A transaction of nothing, or of too much.
    #[error("a write that commits {count} blocks: from 1 to {COMMITTED_MAX} are told")]
    Committed {
        /// How many.
        count: u64,
    },
    /// An end that does not fit what came before.
    #[error("the end says {said} entries, and {found} came")]
    End {
        /// Said.
        said: u64,
        /// Found.
        found: u64,
    },
    /// Something behind the end.
    #[error("there is more behind the end: are these two traces in one file?")]
    Behind,
    /// A disk that is too large.
    #[error("a disk of {blocks} blocks: at most {DISK_BLOCKS_MAX} are allowed")]
    Disk {
        /// Its blocks.
        blocks: u64,
    },
    /// No index.
    #[error("no index at the end: the recording did not end in order. Read it from the beginning")]
    NoIndex,
}

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Something is wrong in it.
    #[error("byte {offset}: {problem}")]
    At {
        /// Where: the beginning of the header or the frame.
        offset: u64,
        /// What.
        problem: Problem,
    },
    /// It cannot be read or written.
    #[error("byte {offset}: {source}")]
    Io {
        /// How far it went.
        offset: u64,
        /// Why.
        source: std::io::Error,
    },
}
