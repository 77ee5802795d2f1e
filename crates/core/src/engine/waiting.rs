//! A request that waits for its turn.

use super::verdict::{Twin, Verdict};
use crate::addr::{Lba, RequestId};
use crate::entry::PartId;
use crate::policy::{Answer, Proposer};
use crate::seam::{Ack, Copy, Payload};
use alloc::vec::Vec;

/// A request that waits for room or for a comparison.
pub(super) enum Waiting {
    Write {
        id: RequestId,
        lba: Lba,
        blocks: Vec<Payload>,
        placed: usize,
        /// The verdict on each block's twin; empty if no block was compared.
        verdicts: Vec<Verdict>,
        ack: Ack,
    },
    /// A FLUSH behind a write that is already acknowledged to its client.
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
    /// A complete transaction, queued after those of its blocks that wait.
    Committed { pairs: Vec<(Lba, Lba)> },
}

impl Waiting {
    /// True if its buffers are being compared, so they cannot be given back yet.
    pub fn is_asking(&self) -> bool {
        match self {
            Self::Write { verdicts, .. } => verdicts.iter().any(|v| matches!(v, Verdict::Asked(_))),
            _ => false,
        }
    }

    /// True if its client already has the answer.
    pub fn is_answered(&self) -> bool {
        matches!(self, Self::Write { ack, .. } if *ack == Ack::Given)
    }

    /// True if it keeps waiting when the medium has no room: an acknowledged write, or a read, because the read must see such writes.
    pub fn outlasts_no_room(&self) -> bool {
        self.is_answered() || matches!(self, Self::Read { .. })
    }

    /// True if a client waits for its answer.
    pub fn is_request(&self) -> bool {
        !matches!(self, Self::Committed { .. })
    }

    /// True if it cannot make progress now, because its next block is being compared.
    pub fn is_held_up(&self) -> bool {
        match self {
            Self::Write {
                verdicts, placed, ..
            } => matches!(verdicts.get(*placed), Some(Verdict::Asked(_))),
            _ => false,
        }
    }

    /// True if it will change one of these blocks.
    pub fn changes(&self, lba: Lba, blocks: u64) -> bool {
        let (first, length) = match self {
            Self::Write { lba, blocks, .. } => (*lba, blocks.len() as u64),
            Self::Flush { .. } | Self::Read { .. } | Self::Committed { .. } => return false,
            Self::Unmap { lba, blocks, .. } => (*lba, *blocks),
            Self::Copy { copy, .. } => (copy.to, copy.blocks),
        };
        first < lba.plus(blocks) && lba < first.plus(length)
    }

    /// True if it is this write.
    pub fn is_write(&self, request: RequestId) -> bool {
        matches!(self, Self::Write { id, .. } if *id == request)
    }

    /// Returns a block of it and what the block is being compared with.
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

    /// Records the result of a block's comparison, and returns the proposer.
    pub fn on_answer(&mut self, index: u32, answer: Answer) -> Option<Proposer> {
        match self {
            Self::Write { verdicts, .. } => verdicts[index as usize].on_answer(answer),
            _ => None,
        }
    }

    /// Drops deltas whose base is gone; those blocks are stored whole.
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
