//! Numbers that no page has, in the order in which they were freed.

use alloc::collections::VecDeque;

/// First come those that can be given out, then those that a map checkpoint on its way sets free, then
/// those that the next one will.
#[derive(Default)]
pub(super) struct Free {
    queue: VecDeque<u32>,
    ready: usize,
    ending: usize,
}

impl Free {
    /// The one that is given out next.
    pub fn next(&self) -> Option<u32> {
        let next = self.queue.front().copied();
        next.filter(|_| self.ready > 0)
    }

    /// Gives it out.
    pub fn take(&mut self) -> Option<u32> {
        let next = self.next()?;
        self.queue.pop_front();
        self.ready -= 1;
        Some(next)
    }

    /// A number is freed: it rests until a map checkpoint is durable that began afterwards.
    pub fn put(&mut self, number: u32) {
        self.queue.push_back(number);
    }

    /// A map checkpoint begins.
    pub fn checkpoint_begins(&mut self) {
        self.ending = self.queue.len() - self.ready;
    }

    /// That one is durable: the next number that can be given out from now on.
    pub fn rested(&mut self) -> Option<u32> {
        self.ending = self.ending.checked_sub(1)?;
        self.ready += 1;
        self.queue.get(self.ready - 1).copied()
    }
}
