//! What can be wrong with a trace.

use super::limits::{DISK_BYTES_MAX, LINE_BYTES_MAX, REQUEST_BYTES_MAX};

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The line has fewer or more columns than the format.
    #[error("{found} columns where {format} has {need}")]
    Columns {
        /// The format.
        format: &'static str,
        /// Columns found.
        found: usize,
        /// Columns needed.
        need: &'static str,
    },
    /// A column is not valid.
    #[error("{field} is {text:?}: {need}")]
    Field {
        /// The column.
        field: &'static str,
        /// Its text, cut short.
        text: String,
        /// What it should be.
        need: &'static str,
    },
    /// A request is too long.
    #[error("a request of {bytes} bytes: at most {REQUEST_BYTES_MAX} are taken for one")]
    TooLong {
        /// Its bytes.
        bytes: u64,
    },
    /// A request has no bytes.
    #[error("a request of 0 bytes")]
    Nothing,
    /// A request goes past the end of any disk.
    #[error("a request at byte {offset}: no disk has so many ({DISK_BYTES_MAX})")]
    TooFar {
        /// Its offset.
        offset: u64,
    },
    /// A line is not text.
    #[error("not text: is this a binary trace, or a packed one?")]
    NotText,
    /// A binary event is not valid.
    #[error(
        "no event of blktrace's begins here: the file is damaged. Cut here (truncate -s) it can be read so \
         far"
    )]
    NoEvent,
    /// A binary event has another version.
    #[error(
        "an event of blktrace's version {version}: version 7 is read; `blkparse` turns others into text"
    )]
    EventVersion {
        /// The version.
        version: u8,
    },
    /// A binary event is incomplete.
    #[error("the file ends within an event: cut here (truncate -s) it can be read")]
    EventCut,
    /// A line has no end.
    #[error("a line of more than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// The hashes do not fit the request.
    #[error(
        "a request of {bytes} bytes with {digits} digits of MD5: one of 32 digits for each 512 or 4096 bytes \
         is needed"
    )]
    Hashes {
        /// Bytes of the request.
        bytes: u64,
        /// Digits found.
        digits: usize,
    },
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line is not valid.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        problem: Problem,
    },
    /// No format has lines like these.
    #[error(
        "no format that is known has lines like the first of this file ({first:?}): known are blkparse, fiu, \
         msr, cloudphysics, alibaba, tencent, disksim, mqsim, fio, blktrace and vellum; name one with \
         --format to see what it says, or say with --columns what the columns of a CSV are"
    )]
    Unknown {
        /// The first line, cut short.
        first: String,
    },
    /// The file is packed in a way that is not supported.
    #[error("packed with {by}: gzip and zstd are read as they are; unpack it first")]
    Packed {
        /// The packer.
        by: &'static str,
    },
    /// An event is not valid.
    #[error("byte {offset}: {problem}")]
    Event {
        /// Where it begins.
        offset: u64,
        /// What is wrong.
        problem: Problem,
    },
    /// Events cannot be read.
    #[error("byte {offset}: the file cannot be read")]
    EventIo {
        /// The offset reached.
        offset: u64,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A trace in Vellum's format is not valid.
    #[error(transparent)]
    Own(#[from] vellum_trace::TraceError),
    /// There is no request in it.
    #[error("no request in {lines} lines: the trace is empty, or of another format")]
    Empty {
        /// How many lines there were.
        lines: u64,
    },
    /// The file cannot be read.
    #[error("line {line}: the file cannot be read")]
    Io {
        /// The line reached.
        line: u64,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}
