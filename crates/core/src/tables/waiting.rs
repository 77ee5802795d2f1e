//! Requests that wait for their turn.

use super::verdict::{Twin, Verdict};
use crate::addr::{Lba, RequestId};
use crate::seam::Payload;
use alloc::vec::Vec;

/// A request that waits for its turn.
pub(super) enum Waiting {
    Write {
        id: RequestId,
        lba: Lba,
        blocks: Vec<Payload>,
        placed: usize,
        verdicts: Vec<Verdict>,
        fua: bool,
    },
    Unmap {
        id: RequestId,
        lba: Lba,
        blocks: u64,
        fua: bool,
    },
    Read {
        id: RequestId,
        lba: Lba,
        blocks: u32,
    },
}

impl Waiting {
    pub fn range(&self) -> (Lba, u64) {
        match self {
            Self::Write { lba, blocks, .. } => (*lba, blocks.len() as u64),
            Self::Unmap { lba, blocks, .. } => (*lba, *blocks),
            Self::Read { lba, .. } => (*lba, 0),
        }
    }

    /// True if it concerns one of these blocks. A read concerns no block, but a read that begins within them counts: later reads wait for
    /// it.
    pub fn concerns(&self, lba: Lba, blocks: u64) -> bool {
        let (first, length) = self.range();
        first.0 < lba.0.saturating_add(blocks) && lba.0 < first.0.saturating_add(length)
    }

    /// True if it is this write.
    pub fn is_write(&self, request: RequestId) -> bool {
        matches!(self, Self::Write { id, .. } if *id == request)
    }

    /// Notes whether a block of it equals its twin, and returns the twin.
    pub fn on_answer(&mut self, index: u32, same: bool) -> Option<Twin> {
        let Self::Write { verdicts, .. } = self else {
            return None;
        };
        let verdict = &mut verdicts[index as usize];
        let Verdict::Asked(twin) = *verdict else {
            return None;
        };
        *verdict = match same {
            true => Verdict::Same(twin),
            false => Verdict::Write,
        };
        Some(twin)
    }

    pub fn is_asking(&self) -> bool {
        matches!(self, Self::Write { verdicts, .. }
            if verdicts.iter().any(|verdict| matches!(verdict, Verdict::Asked(_))))
    }
}
