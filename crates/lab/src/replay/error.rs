//! Why a trace cannot be replayed.

use crate::trace::TraceError;

/// The most extents a trace may touch: 1 TiB.
pub const EXTENTS_MAX: usize = 1 << 20;

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be opened.
    #[error("{path}")]
    Open {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// It cannot be read as a trace.
    #[error("{path}")]
    Trace {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: TraceError,
    },
    /// It touches too many extents.
    #[error(
        "{path}: line {line}: the trace touches more than {} GiB: too much to simulate",
        EXTENTS_MAX >> 10
    )]
    Wide {
        /// The file.
        path: String,
        /// The line where it did.
        line: u64,
    },
    /// Its journal is too large.
    #[error(
        "{path}: a journal of {} GiB, where all that a trace touches may be {} GiB",
        extents >> 10,
        EXTENTS_MAX >> 10
    )]
    Journal {
        /// The file.
        path: String,
        /// Extents that the journal lies in.
        extents: u64,
    },
    /// Addresses cannot stay the same: the trace has several disks.
    #[error("{path}: the trace is of several disks: their addresses cannot all stay as they are")]
    Disks {
        /// The file.
        path: String,
    },
    /// The disk is too large for its addresses to stay the same.
    #[error(
        "{path}: a disk of {} GiB: addresses can stay what they are up to {} GiB",
        extents >> 10,
        EXTENTS_MAX >> 10
    )]
    Large {
        /// The file.
        path: String,
        /// Extents up to the last known one.
        extents: u64,
    },
    /// Its file was written since.
    #[error(
        "{path}: the trace has changed since it was read: it is still being recorded, or another is in its \
         place"
    )]
    Changed {
        /// The file.
        path: String,
    },
    /// Reading was stopped.
    #[error("{path}: interrupted while it was read")]
    Interrupted {
        /// The file.
        path: String,
    },
}
