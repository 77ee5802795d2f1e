//! When a host sends its requests.

use crate::trace::Op;
use crate::workload::Request;

/// When the host sends requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At the requests' own times.
    Open,
    /// A fixed number at a time; each answer triggers the next.
    Closed {
        /// How many.
        depth: u32,
    },
    /// Some time after the previous request, but with a limited number open: an application that thinks, and waits for
    /// a slow drive. Nothing is sent before a flush is answered.
    Elastic {
        /// How many.
        depth: u32,
        /// How long after the previous request, in nanoseconds; none: by the requests' own times.
        think: Option<u64>,
    },
    /// As `Closed`, by a host that works between its requests. The trace has a time for each request. Between two requests the host works
    /// as long as these times differ, counted from when it sent the first, or, if it waited for the answer, from the answer.
    Working {
        /// How many.
        depth: u32,
    },
}

impl Pace {
    /// True if nothing is sent before this request is answered.
    pub(super) fn waits_for(self, request: &Request) -> bool {
        match self {
            Self::Elastic { .. } => request.op == Op::Flush,
            _ => matches!(request.op, Op::Flush | Op::Write { fua: true }),
        }
    }
}
