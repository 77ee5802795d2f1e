//! What can be wrong with a trace.

use crate::limits::{
    COMMITTED_MAX, DISK_BLOCKS_MAX, JOURNALS_MAX, PAYLOAD_BYTES_MAX, REQUEST_BLOCKS_MAX,
};

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file is not a trace.
    #[error("not a trace of vellum's: it does not begin with \"VELTRACE\"")]
    Magic,
    /// The version is not known.
    #[error(
        "a trace of version {version}: this program reads version 1; use the one that recorded it"
    )]
    Version {
        /// The version found.
        version: u16,
    },
    /// The header is damaged.
    #[error("the header's checksum does not match: the file is damaged")]
    HeaderChecksum,
    /// A header field has an impossible value.
    #[error("the header's {field} is {value}: {need}")]
    Header {
        /// The field.
        field: &'static str,
        /// The value found.
        value: u64,
        /// What it should be.
        need: &'static str,
    },
    /// The file is too short to be a trace.
    #[error("the file ends within its header")]
    HeaderCut,
    /// There is no frame where one should be.
    #[error(
        "no frame begins here: the file is damaged. What is before can be read when the file is cut here \
         (truncate -s)"
    )]
    NoFrame,
    /// A frame's header is damaged.
    #[error(
        "the checksum of a frame's header does not match: the file is damaged. What is before can be read \
         when the file is cut here (truncate -s)"
    )]
    FrameChecksum,
    /// A frame's payload is damaged.
    #[error(
        "the checksum of a frame does not match: the file is damaged. What is before can be read when the \
         file is cut here (truncate -s)"
    )]
    PayloadChecksum,
    /// A frame is too long.
    #[error("a frame of {bytes} bytes: at most {PAYLOAD_BYTES_MAX} are allowed")]
    PayloadLong {
        /// Its bytes.
        bytes: u64,
    },
    /// A frame's kind is not known.
    #[error("a frame of kind {kind}: 1 (entries) and 2 (the end) are known")]
    FrameKind {
        /// The kind found.
        kind: u8,
    },
    /// A frame does not follow the one before it.
    #[error(
        "a frame that begins with entry {found} where {need} is next: a part of the trace is missing"
    )]
    FrameOrder {
        /// The number found.
        found: u64,
        /// The number needed.
        need: u64,
    },
    /// A frame does not have as many entries as it says.
    #[error("a frame that says it has {said} entries and has another number")]
    FrameCount {
        /// The count it says.
        said: u32,
    },
    /// An entry ends too early.
    #[error("an entry is cut short")]
    EntryCut,
    /// A number is too long.
    #[error("a number of more than 64 bits")]
    Number,
    /// A tag is not known.
    #[error("an entry with tag {tag:#04x}, which version 1 does not have")]
    Tag {
        /// The tag found.
        tag: u8,
    },
    /// The flags of a block are not known.
    #[error("a block with flags {flags:#04x}, which version 1 does not have")]
    Block {
        /// The flags found.
        flags: u8,
    },
    /// A size is impossible.
    #[error("a block stored in {size} bytes: it has 4096")]
    Size {
        /// The size found.
        size: u16,
    },
    /// A time is too large.
    #[error("a time that cannot be counted in nanoseconds")]
    Time,
    /// A request goes past the end of the disk.
    #[error("blocks {lba}+{blocks} on a disk of {disk}")]
    Range {
        /// Its first block.
        lba: u64,
        /// How many blocks.
        blocks: u64,
        /// Blocks of the disk.
        disk: u64,
    },
    /// A request has no blocks, or too many.
    #[error("a request of {blocks} blocks: from 1 to {REQUEST_BLOCKS_MAX} are allowed")]
    Blocks {
        /// How many.
        blocks: u64,
    },
    /// An entry names too many journals.
    #[error("{count} journals: at most {JOURNALS_MAX} are allowed")]
    Journals {
        /// How many.
        count: u64,
    },
    /// A transaction has no blocks, or too many.
    #[error("a write that commits {count} blocks: from 1 to {COMMITTED_MAX} are told")]
    Committed {
        /// How many.
        count: u64,
    },
    /// The end does not match the entries before it.
    #[error("the end says {said} entries, and {found} came")]
    End {
        /// The count it says.
        said: u64,
        /// The count found.
        found: u64,
    },
    /// There are bytes after the end.
    #[error("there is more behind the end: are these two traces in one file?")]
    Behind,
    /// The disk is too large.
    #[error("a disk of {blocks} blocks: at most {DISK_BLOCKS_MAX} are allowed")]
    Disk {
        /// Its blocks.
        blocks: u64,
    },
    /// There is no index.
    #[error("no index at the end: the recording did not end in order. Read it from the beginning")]
    NoIndex,
}

/// Why a trace cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The trace is not valid.
    #[error("byte {offset}: {problem}")]
    At {
        /// The beginning of the header or the frame.
        offset: u64,
        /// What is wrong.
        problem: Problem,
    },
    /// The file cannot be read or written.
    #[error("byte {offset}: {source}")]
    Io {
        /// The offset reached.
        offset: u64,
        /// The cause.
        source: std::io::Error,
    },
}
