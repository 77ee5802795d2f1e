//! A request that waits for its turn.

use super::verdict::Verdict;
use super::write::Write;
use crate::addr::{Lba, RequestId};
use crate::seam::{Ack, CopyBlocks, Unmap};
use alloc::vec::Vec;

/// A request that waits for room or for a comparison. `T` is what its blocks are compared with.
pub(crate) enum Waiting<T> {
    Write(Write<'static, T>),
    /// A FLUSH behind a write that is already acknowledged to its client.
    Flush {
        id: RequestId,
    },
    Read {
        id: RequestId,
        lba: Lba,
        blocks: u32,
    },
    Unmap {
        id: RequestId,
        unmap: Unmap,
    },
    /// A copy, from block `placed` on.
    Copy {
        id: RequestId,
        copy: CopyBlocks,
        placed: u64,
    },
    /// A complete transaction, queued after those of its blocks that wait.
    Committed {
        pairs: Vec<(Lba, Lba)>,
    },
}

impl<T: Copy> Waiting<T> {
    /// True if its buffers are being compared, so they cannot be given back yet.
    pub fn is_asking(&self) -> bool {
        matches!(self, Self::Write(write) if write.verdicts.iter().any(Verdict::is_asked))
    }

    /// True if it cannot make progress now, because its next block is being compared.
    pub fn is_held_up(&self) -> bool {
        let Self::Write(write) = self else {
            return false;
        };
        let next = write.verdicts.get(write.placed);
        next.is_some_and(Verdict::is_asked)
    }

    /// True if its client already has the answer.
    pub fn is_answered(&self) -> bool {
        matches!(self, Self::Write(write) if write.ack == Ack::Given)
    }

    /// True if it keeps waiting when the medium has no room: an acknowledged write, or a read, because the read must see such writes.
    pub fn outlasts_no_room(&self) -> bool {
        self.is_answered() || matches!(self, Self::Read { .. })
    }

    /// True if a client waits for its answer.
    pub fn is_request(&self) -> bool {
        !matches!(self, Self::Committed { .. })
    }

    /// True if it will change one of these blocks.
    pub fn changes(&self, lba: Lba, blocks: u64) -> bool {
        let (first, length) = match self {
            Self::Write(write) => (write.lba, write.blocks.len() as u64),
            Self::Flush { .. } | Self::Read { .. } | Self::Committed { .. } => return false,
            Self::Unmap { unmap, .. } => (unmap.lba, unmap.blocks),
            Self::Copy { copy, .. } => (copy.to, copy.blocks),
        };
        first < lba.plus(blocks) && lba < first.plus(length)
    }

    /// Returns the write of this number, if it is that.
    pub fn as_write(&self, request: RequestId) -> Option<&Write<'static, T>> {
        match self {
            Self::Write(write) if write.id == request => Some(write),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn as_write_mut(&mut self, request: RequestId) -> Option<&mut Write<'static, T>> {
        match self {
            Self::Write(write) if write.id == request => Some(write),
            _ => None,
        }
    }
}
