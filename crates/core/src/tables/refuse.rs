//! Refuses what waits, when a volume is poisoned or full.

use super::Tables;
use super::waiting::Waiting;
use crate::seam::Refusal;

impl Tables {
    pub(super) fn fail_all(&mut self) {
        for id in self.superblock.refuse() {
            self.outbox.reply(id, Err(Refusal::Poisoned));
        }
        while let Some(waiter) = self.queue.pop_waiter() {
            self.outbox.reply(waiter.request, Err(Refusal::Poisoned));
        }
        while let Some(waiting) = self.queue.pop() {
            self.refuse(waiting, Refusal::Poisoned);
        }
    }

    pub(super) fn refuse(&mut self, waiting: Waiting, refusal: Refusal) {
        if waiting.is_asking() {
            return self.queue.doom(waiting, refusal);
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
