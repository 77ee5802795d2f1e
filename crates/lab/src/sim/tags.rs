//! How a host that is no log chooses the placement handle of each write.

use crate::base::Heat;
use crate::trace::Op;
use crate::workload::{NOBODY, Request};

/// A rule of the host; see the module.
pub enum Tags {
    /// Each tenant has a handle; if there are more tenants than handles, they take turns.
    Tenants {
        /// The drive's handles.
        handles: u32,
    },
    /// What is written more often than the mean has the second handle, and all else the first. The first block of a write decides.
    Heat(Heat),
}

impl Tags {
    /// Returns the handle of a request.
    pub(super) fn handle(&mut self, request: &Request) -> u8 {
        if !matches!(request.op, Op::Write { .. }) {
            return 0;
        }
        match self {
            Self::Tenants { .. } if request.tenant == NOBODY => 0,
            Self::Tenants { handles } => (u32::from(request.tenant) % (*handles).max(1)) as u8,
            Self::Heat(heat) => heat.written(request.lba as u32) as u8,
        }
    }
}
