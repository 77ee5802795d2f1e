//! Blocks that a file system has freed without a discard, and that are dropped as the device does it (docs/decisions/0013). The
//! device learns late what was freed. It sees each request before the core does, and no longer drops the blocks that the request
//! changes. It takes a run of freed blocks, and at once sends the core a discard for it.

use super::{Ask, Driver, Failure, Request};
use crate::sim::medium::{Broken, Medium};
use crate::sim::rng::Rng;
use std::collections::BTreeMap;
use vellum_core::addr::{Lba, RequestId};
use vellum_core::seam::{Input, Unmap};

/// The free blocks, with the time since when by the model's clock.
#[derive(Default)]
pub struct Freed {
    waiting: BTreeMap<u64, u64>,
    dropped: u64,
}

impl Freed {
    /// Notes that blocks are about to change.
    pub fn see(&mut self, medium: &Medium, lba: u64, blocks: u64) {
        if medium.broken == Broken::FreedIsBlind {
            return;
        }
        let changed: Vec<u64> = self
            .waiting
            .range(lba..lba.saturating_add(blocks))
            .map(|(lba, _)| *lba)
            .collect();
        for lba in changed {
            self.waiting.remove(&lba);
        }
    }

    /// A run of blocks, the first of which is not before `from`.
    fn take(&mut self, from: u64, most: u64) -> Option<(u64, Vec<u64>)> {
        let mut run = self.waiting.range(from..);
        let (&first, &since) = run.next()?;
        let mut all = vec![since];
        let in_a_row = run.zip(first + 1..).take_while(|((lba, _), at)| *lba == at);
        all.extend(in_a_row.map(|((_, since), _)| *since).take(most as usize));
        for lba in first..first + all.len() as u64 {
            self.waiting.remove(&lba);
        }
        Some((first, all))
    }
}

/// What a life's file system frees. Uses a separate generator, so that seeds mean what they did before.
pub struct GivesUp {
    rng: Rng,
    /// One step in so many frees or drops blocks; 0: none does.
    one_in: u64,
    longest: u64,
}

impl GivesUp {
    pub fn new(seed: u64, does: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0xf4ee);
        let one_in = rng.pick(&[0, 0, 0, 20, 100]);
        Self {
            one_in: if does { one_in } else { 0 },
            longest: rng.pick(&[1, 8, 30]),
            rng,
        }
    }

    /// Frees blocks, or drops some that are free, now and then.
    pub fn serve(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        if self.one_in == 0 || self.rng.below(self.one_in) > 0 || driver.open_requests() > 60 {
            return Ok(());
        }
        let all = driver.model.blocks();
        let lba = self.rng.below(all);
        let blocks = self.rng.range(1, self.longest);
        if self.rng.percent(50) {
            let now = driver.model.clock();
            let given_up = lba..(lba + blocks).min(all);
            driver.freed.waiting.extend(given_up.map(|lba| (lba, now)));
            return Ok(());
        }
        match driver.freed.take(lba, blocks) {
            None => Ok(()),
            Some((lba, since)) => driver.drop_freed(lba, &since),
        }
    }
}

impl Driver {
    /// The number of blocks dropped.
    pub fn freed_blocks(&self) -> u64 {
        self.freed.dropped
    }

    /// A request of a client is about to be handed to the core.
    pub(super) fn see(&mut self, id: u32, ask: &Ask) {
        self.asking = Some(id);
        self.last_result = None;
        match ask {
            Ask::Write { lba, tokens, .. } => {
                let blocks = tokens.len() as u64;
                self.freed.see(&self.medium, *lba, blocks);
                self.critical.written(*lba, blocks);
            }
            Ask::Discard { lba, blocks, .. } | Ask::WriteZeroes { lba, blocks, .. } => {
                self.freed.see(&self.medium, *lba, *blocks);
            }
            Ask::Read { .. } | Ask::Flush | Ask::Merge { .. } => {}
        }
    }

    /// Drops freed blocks. The model learns of it only if none of them was written since: blocks written again must stay.
    fn drop_freed(&mut self, lba: u64, since: &[u64]) -> Result<(), Failure> {
        let (id, blocks) = (self.number(), since.len() as u64);
        let mut each = (lba..).zip(since);
        let is_free = each.all(|(lba, since)| !self.model.is_changed_since(lba, *since));
        let request = match is_free {
            true => Request::Change {
                op: self.model.begin_step(lba, blocks, false),
            },
            false => Request::Merge,
        };
        self.freed.dropped += blocks;
        self.requests.insert(id, request);
        self.asking = Some(id);
        self.last_result = None;
        let unmap = Unmap {
            lba: Lba(lba),
            blocks,
            zero: false,
            fua: false,
        };
        let id = RequestId(id);
        self.feed(Input::Unmap { id, unmap })?;
        self.asking = None;
        Ok(())
    }
}
