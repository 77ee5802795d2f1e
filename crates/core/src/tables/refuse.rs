//! Refuses what waits, when a volume is poisoned or full.

use super::Tables;
use super::verdict::Waiting;
use crate::seam::Refusal;

impl Tables {
    pub(super) fn fail_all(&mut self) {
        self.front
            .outbox
            .refuse(self.superblock.refuse(), Refusal::Poisoned);
        self.refuse_all(Refusal::Poisoned);
    }

    /// Refuses what waits for durability or for its turn.
    pub(super) fn refuse_all(&mut self, refusal: Refusal) {
        let waiters = core::iter::from_fn(|| self.groups.waiters_mut().pop());
        self.front
            .outbox
            .refuse(waiters.map(|waiter| waiter.request), refusal);
        while let Some(waiting) = self.front.queue.pop() {
            self.refuse(waiting, refusal);
        }
    }

    pub(super) fn refuse(&mut self, waiting: Waiting, refusal: Refusal) {
        match self.front.refuse(waiting, refusal) {
            Some(Waiting::Read { id, lba, blocks }) => self.start_read(id, lba, blocks),
            Some(Waiting::Write(write)) => {
                for verdict in write.verdicts.iter().skip(write.placed) {
                    self.let_go(*verdict);
                }
            }
            _ => {}
        }
    }
}
