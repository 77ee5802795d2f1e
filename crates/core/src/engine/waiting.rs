//! What waits in the queue, behind what came before it.

use super::verdict::Verdict;
use crate::addr::{Lba, RequestId};
use crate::seam::{Ack, Copy, Payload};
use alloc::vec::Vec;

/// What waits for room, or for a comparison, in the order in which it came.
pub(super) enum Waiting {
    Write {
        id: RequestId,
        lba: Lba,
        blocks: Vec<Payload>,
        placed: usize,
        /// Of each block, what is known of its journal copy; empty when none has been asked about.
        verdicts: Vec<Verdict>,
        ack: Ack,
    },
    /// Behind a write whose client has its answer.
    Flush { id: RequestId },
    Read {
        id: RequestId,
        lba: Lba,
        blocks: u32,
    },
    Unmap {
        id: RequestId,
        lba: Lba,
        blocks: u64,
        zero: bool,
        fua: bool,
    },
    /// A copy, from block `placed` on.
    Copy {
        id: RequestId,
        copy: Copy,
        placed: u64,
    },
    /// A transaction that is complete, behind those of its blocks that wait.
    Committed { pairs: Vec<(Lba, Lba)> },
}

impl Waiting {
    /// Whether its buffers are being compared: they cannot be given back yet.
    pub fn is_asking(&self) -> bool {
        match self {
            Self::Write { verdicts, .. } => verdicts.iter().any(|v| matches!(v, Verdict::Asked(_))),
            _ => false,
        }
    }

    /// Whether its client has its answer.
    pub fn is_answered(&self) -> bool {
        matches!(self, Self::Write { ack, .. } if *ack == Ack::Given)
    }

    /// Whether it waits on when the medium has no room: a write whose client has its answer, and reads, which see that.
    pub fn outlasts_no_room(&self) -> bool {
        self.is_answered() || matches!(self, Self::Read { .. })
    }

    /// Whether somebody waits for its answer.
    pub fn is_request(&self) -> bool {
        !matches!(self, Self::Committed { .. })
    }

    /// Whether its next block is: nothing can be done for it now.
    pub fn is_held_up(&self) -> bool {
        match self {
            Self::Write {
                verdicts, placed, ..
            } => matches!(verdicts.get(*placed), Some(Verdict::Asked(_))),
            _ => false,
        }
    }

    pub fn range(&self) -> (Lba, u64) {
        match self {
            Self::Write { lba, blocks, .. } => (*lba, blocks.len() as u64),
            Self::Flush { .. } | Self::Read { .. } | Self::Committed { .. } => (Lba(0), 0),
            Self::Unmap { lba, blocks, .. } => (*lba, *blocks),
            Self::Copy { copy, .. } => (copy.to, copy.blocks),
        }
    }
}
