//! What can be wrong with a trace.

use super::{DISK_BYTES_MAX, LINE_BYTES_MAX, REQUEST_BYTES_MAX};

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Fewer columns than the format has, or more.
    #[error("{found} columns where {format} has {need}")]
    Columns {
        /// The format.
        format: &'static str,
        /// Found.
        found: usize,
        /// Needed.
        need: &'static str,
    },
    /// A column that is not what it should be.
    #[error("{field} is {text:?}: {need}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is there, cut short.
        text: String,
        /// What should be.
        need: &'static str,
    },
    /// A request too long to be one.
    #[error("a request of {bytes} bytes: at most {REQUEST_BYTES_MAX} are taken for one")]
    TooLong {
        /// Its bytes.
        bytes: u64,
    },
    /// A request of nothing.
    #[error("a request of 0 bytes")]
    Nothing,
    /// Past the end of any disk.
    #[error("a request at byte {offset}: no disk has so many ({DISK_BYTES_MAX})")]
    TooFar {
        /// Where.
        offset: u64,
    },
    /// A line that is not text.
    #[error("not text: is this a binary trace, or a packed one?")]
    NotText,
    /// A binary event that is none.
    #[error(
        "no event of blktrace's begins here: the file is damaged. Cut here (truncate -s) it can be read so far"
    )]
    NoEvent,
    /// A binary event of another version.
    #[error(
        "an event of blktrace's version {version}: version 7 is read; `blkparse` turns others into text"
    )]
    EventVersion {
        /// Which.
        version: u8,
    },
    /// A binary event that is not all there.
    #[error("the file ends within an event: cut here (truncate -s) it can be read")]
    EventCut,
    /// A line without an end.
    #[error("a line of more than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// Hashes that do not fit the request.
    #[error(
        "a request of {bytes} bytes with {digits} digits of MD5: one of 32 digits for each 512 or 4096 bytes is needed"
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
    /// A line that cannot be right.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        problem: Problem,
    },
    /// No format has lines like these.
    #[error(
        "no format that is known has lines like the first of this file ({first:?}): known are blkparse, fiu, msr, \
         cloudphysics, alibaba, tencent, disksim, mqsim, fio, blktrace and vellum; name one with --format to see what it says, \
         or say with --columns what the columns of a CSV are"
    )]
    Unknown {
        /// The first line, cut short.
        first: String,
    },
    /// Packed by something else.
    #[error("packed with {by}: gzip and zstd are read as they are; unpack it first")]
    Packed {
        /// What.
        by: &'static str,
    },
    /// An event that cannot be right.
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
        /// How far it went.
        offset: u64,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// One of vellum's that does not hold.
    #[error(transparent)]
    Own(#[from] vellum_trace::TraceError),
    /// Nothing in it.
    #[error("no request in {lines} lines: the trace is empty, or of another format")]
    Empty {
        /// How many lines there were.
        lines: u64,
    },
    /// It cannot be read.
    #[error("line {line}: the file cannot be read")]
    Io {
        /// How far it went.
        line: u64,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
