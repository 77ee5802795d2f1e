//! Who waits: for a turn, or for a commit.

use super::twin::Verdict;
use crate::addr::{Lba, RequestId};
use crate::seam::{Payload, Refusal};
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

    pub fn is_asking(&self) -> bool {
        matches!(self, Self::Write { verdicts, .. }
            if verdicts.iter().any(|verdict| matches!(verdict, Verdict::Asked(_))))
    }
}

/// Who waits for the commit of a group.
pub(super) struct Waiter {
    pub group: u64,
    pub request: RequestId,
    pub flush: bool,
}

impl super::Tables {
    pub(super) fn fail_all(&mut self) {
        for id in self.superblock.refuse() {
            self.outbox.reply(id, Err(Refusal::Poisoned));
        }
        while let Some(waiter) = self.waiters.pop_front() {
            self.outbox.reply(waiter.request, Err(Refusal::Poisoned));
        }
        while let Some(waiting) = self.waiting.pop_front() {
            self.refuse(waiting, Refusal::Poisoned);
        }
    }

    pub(super) fn refuse(&mut self, waiting: Waiting, refusal: Refusal) {
        if waiting.is_asking() {
            return self.doomed.push((waiting, refusal));
        }
        match waiting {
            Waiting::Write {
                id,
                blocks,
                placed,
                verdicts,
                ..
            } => {
                for payload in &blocks[placed..] {
                    self.release(payload.buf);
                }
                for verdict in verdicts.iter().skip(placed) {
                    self.let_go(*verdict);
                }
                self.outbox.reply(id, Err(refusal));
            }
            Waiting::Read { id, lba, blocks } => self.start_read(id, lba, blocks),
            Waiting::Unmap { id, .. } => self.outbox.reply(id, Err(refusal)),
        }
    }
}
