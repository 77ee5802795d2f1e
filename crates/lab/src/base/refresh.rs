//! Refreshing: the valid data of a block that was read too often, or is too old, move to the open block of their stream, and the
//! block is erased. Such moves are counted separately from the collector's.
//!
//! An open block that is due is abandoned as it is: its stream continues in another one.

use super::pagemap::PageMap;
use crate::flash::{Die, Due, EraseBlock, PastDue};
use serde::Serialize;
use std::collections::VecDeque;

/// Counts of refreshes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refreshed {
    /// Erase blocks that had been read too often.
    pub for_reads: u64,
    /// Erase blocks whose data were too old.
    pub for_age: u64,
    /// Blocks of 4 KiB moved by refreshes.
    pub moved: u64,
    /// Erase blocks that were due, on a drive that refreshes none.
    pub past_due: PastDue,
}

impl Refreshed {
    /// Returns the counts since `before`.
    pub(crate) fn since(self, before: Option<Self>) -> Self {
        let before = before.unwrap_or_default();
        Self {
            for_reads: self.for_reads - before.for_reads,
            for_age: self.for_age - before.for_age,
            moved: self.moved - before.moved,
            past_due: PastDue {
                reads: self.past_due.reads - before.past_due.reads,
                age: self.past_due.age - before.past_due.age,
            },
        }
    }
}

/// The blocks that wait for a refresh. Each die refreshes one block at a time.
pub(super) struct Refreshing {
    waiting: Vec<VecDeque<EraseBlock>>,
    is_busy: Vec<bool>,
    pub for_reads: u64,
    pub for_age: u64,
}

impl Refreshing {
    pub fn new(dies: usize) -> Self {
        Self {
            waiting: vec![VecDeque::new(); dies],
            is_busy: vec![false; dies],
            for_reads: 0,
            for_age: 0,
        }
    }

    /// Adds a block that became due.
    pub fn put(&mut self, (Die(die), block): (Die, EraseBlock)) {
        self.waiting[die as usize].push_back(block);
    }

    /// Returns the next block that is still due, on a die that is not refreshing.
    pub fn next(
        &mut self,
        why: impl Fn(Die, EraseBlock) -> Option<Due>,
    ) -> Option<(Die, EraseBlock, Due)> {
        let dies = self.waiting.iter_mut().zip(&self.is_busy).enumerate();
        for (die, (waiting, _)) in dies.filter(|(_, (_, is_busy))| !**is_busy) {
            let die = Die(die as u32);
            while let Some(block) = waiting.pop_front() {
                if let Some(due) = why(die, block) {
                    return Some((die, block, due));
                }
            }
        }
        None
    }

    /// Counts a refresh.
    pub fn count(&mut self, due: Due) {
        match due {
            Due::Reads => self.for_reads += 1,
            Due::Age => self.for_age += 1,
        }
    }

    /// Records that a die begins a refresh, or has ended one.
    pub fn set_busy(&mut self, Die(die): Die, is_busy: bool) {
        self.is_busy[die as usize] = is_busy;
    }

    /// True if a block waits on a die that is not busy.
    pub fn may_go_on(&self) -> bool {
        let mut dies = self.waiting.iter().zip(&self.is_busy);
        dies.any(|(waiting, is_busy)| !is_busy && !waiting.is_empty())
    }

    /// Lets every die begin its next refresh at once.
    pub fn hurry(&mut self) {
        self.is_busy.fill(false);
    }
}

impl PageMap {
    /// Makes the map report which blocks received data, before anything is written.
    #[must_use]
    pub fn telling_filled(mut self) -> Self {
        let (streams, per_die) = (self.streams, self.per_die);
        let first = |(at, frontier): (usize, &super::pagemap::Frontier)| {
            (at / streams) as u32 * per_die + frontier.active
        };
        self.opened = Some(self.frontiers.iter().enumerate().map(first).collect());
        self
    }

    /// Reports each block that received data since the last call.
    pub(super) fn tell_filled(&mut self, mut tell: impl FnMut(Die, EraseBlock)) {
        let Some(mut opened) = self.opened.take_if(|opened| !opened.is_empty()) else {
            return;
        };
        opened.retain(|&block| {
            let (die, own) = (block / self.per_die, block % self.per_die);
            let mut frontiers = self.frontiers(die as usize).iter();
            let is_empty = frontiers.any(|of| of.active == own && of.offset == 0);
            if !is_empty {
                tell(Die(die), EraseBlock(self.first + own));
            }
            is_empty
        });
        self.opened = Some(opened);
    }

    /// Moves the valid data of a block, and erases it. Returns whether that was needed. A full block without valid data is left
    /// to the collector.
    pub(super) fn refresh(&mut self, Die(die): Die, block: EraseBlock) -> bool {
        let own = block.0 - self.first;
        let (at, die) = (die * self.per_die + own, die as usize);
        debug_assert!(!self.free[die].contains(&own), "what is free holds nothing");
        let stream = usize::from(self.filled_by[at as usize]);
        let (unit_blocks, valid) = (self.unit_blocks, self.valid[at as usize]);
        let frontier = self.frontier(die, stream);
        if frontier.active == own {
            // The data of the open block fit the next one.
            frontier.left = unit_blocks;
            self.begin_next(die, stream);
        } else if valid == 0 {
            return false;
        } else {
            self.victims(die, stream).remove(own);
            if let Some(leveller) = &mut self.leveller {
                leveller.taken(at);
            }
        }
        let mut moving = Vec::new();
        self.take_alive(at, &mut moving);
        let frontier = self.frontier(die, stream);
        frontier.live -= moving.len() as u64;
        frontier.blocks -= 1;
        self.valid[at as usize] = 0;
        let from = self.units(die, own);
        for unit in from.of(&moving) {
            self.ops.extend(from.read(unit));
            for &(_, lba) in unit {
                // This happens once at most, and the erasure of this block gives back what it takes, so nothing has to be
                // collected.
                if self.frontier(die, stream).offset == self.pages {
                    self.open(die, stream);
                }
                self.append(die, stream, lba, from.fills());
            }
        }
        self.counts.refreshed += moving.len() as u64;
        self.note_moved(&moving);
        self.erased(die, own);
        true
    }
}

#[cfg(test)]
mod tests;
