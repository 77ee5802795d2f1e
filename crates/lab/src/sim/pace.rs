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
    /// As `Closed`, by a host that works between its requests: one is sent no sooner after the one before, or after
    /// its answer if the host waited for it, than their own times lie apart.
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
