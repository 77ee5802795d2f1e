//! Why a paper's run fails.

use crate::policy::PolicyError;
use crate::replay::ReplayError;
use crate::scenario::ScenarioError;

/// Why a paper's run failed.
#[derive(Debug, thiserror::Error)]
pub enum PaperError {
    /// A run failed.
    #[error("{what}")]
    Run {
        /// The run.
        what: String,
        /// The cause.
        #[source]
        source: Box<ScenarioError>,
    },
    /// A trace cannot be replayed.
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// A directory of traces cannot be listed.
    #[error("{path}")]
    Directory {
        /// The directory.
        path: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// There are too few or too many traces.
    #[error(
        "{path}: there are {found} files, and from 1 to 64 traces are wanted (benches/capture.sh makes some)"
    )]
    Traces {
        /// The directory.
        path: String,
        /// How many files; counting stops at one more than the maximum.
        found: usize,
    },
    /// A trace is too long.
    #[error(
        "{path}: the trace writes {blocks} blocks, and this keeps at most 16777216 in memory: \
         `vellum lab compare` streams it"
    )]
    Long {
        /// The trace.
        path: String,
        /// Blocks that it writes.
        blocks: u64,
    },
    /// A policy name in this crate is not valid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}
