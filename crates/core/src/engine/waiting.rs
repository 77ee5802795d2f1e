//! A request that waits its turn.

use super::verdict::{Answer, Proposer, Twin, Verdict};
use crate::addr::{Lba, RequestId};
use crate::entry::PartId;
use crate::seam::{Ack, Copy, Payload};
use alloc::vec::Vec;

/// What waits for room, or for a comparison.
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

    /// Whether it will change one of these blocks.
    pub fn changes(&self, lba: Lba, blocks: u64) -> bool {
        let (first, length) = match self {
            Self::Write { lba, blocks, .. } => (*lba, blocks.len() as u64),
            Self::Flush { .. } | Self::Read { .. } | Self::Committed { .. } => return false,
            Self::Unmap { lba, blocks, .. } => (*lba, *blocks),
            Self::Copy { copy, .. } => (copy.to, copy.blocks),
        };
        first < lba.plus(blocks) && lba < first.plus(length)
    }

    /// Whether it is this write.
    pub fn is_write(&self, request: RequestId) -> bool {
        matches!(self, Self::Write { id, .. } if *id == request)
    }

    /// What a block of it is compared with, and the block.
    pub fn asked(&self, index: u32) -> Option<(Twin, Payload)> {
        match self {
            Self::Write {
                blocks, verdicts, ..
            } => match verdicts[index as usize] {
                Verdict::Asked(twin) => Some((twin, blocks[index as usize])),
                _ => None,
            },
            _ => None,
        }
    }

    /// A block of it has been compared; who had proposed that.
    pub fn on_answer(&mut self, index: u32, answer: Answer) -> Option<Proposer> {
        match self {
            Self::Write { verdicts, .. } => verdicts[index as usize].on_answer(answer),
            _ => None,
        }
    }

    /// Its deltas against what is gone are dropped: those blocks are stored whole.
    pub fn drop_deltas(&mut self, is_gone: impl Fn(PartId) -> bool) {
        if let Self::Write { blocks, .. } = self {
            for payload in blocks {
                let base = payload.digest.packed.and_then(|packed| packed.base);
                if base.is_some_and(&is_gone) {
                    payload.digest.packed = None;
                }
            }
        }
    }
}
