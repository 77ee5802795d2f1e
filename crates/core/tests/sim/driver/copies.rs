//! Copies without data, of blocks whose contents the model knows.

use super::{Driver, Failure, Request};
use crate::sim::open::Volume;
use crate::sim::rng::Rng;
use vellum_core::addr::{Lba, RequestId};
use vellum_core::format::areas::Layout;
use vellum_core::seam::{CopyBlocks, Input};

/// A life's copies. They use a separate generator, so that seeds mean what they did before.
pub struct Copies {
    rng: Rng,
    /// One step in so many makes a copy; 0: none does.
    one_in: u64,
    /// The blocks that may be copied.
    all: u64,
}

impl Copies {
    pub fn new(seed: u64, volume: &Volume, all: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xc0b1);
        let one_in = match volume.layout {
            Layout::Log => rng.pick(&[0, 0, 5, 40]),
            _ => 0,
        };
        Self { rng, one_in, all }
    }

    /// Requests a copy now and then.
    pub fn ask(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        if self.one_in == 0 || self.rng.below(self.one_in) > 0 || driver.open_requests() > 60 {
            return Ok(());
        }
        let all = self.all;
        let longest = self.rng.pick(&[1, 1, 4, 30]);
        let blocks = self.rng.range(1, longest).min(all);
        let mut place = || self.rng.below(all - blocks + 1);
        let (from, to) = (place(), place());
        driver.copy(from, to, blocks)
    }
}

impl Driver {
    /// Copies those blocks that are known and do not overlap their destination.
    pub fn copy(&mut self, from: u64, to: u64, blocks: u64) -> Result<(), Failure> {
        let apart = if from < to {
            blocks.min(to - from)
        } else {
            blocks
        };
        let known = (from..from + apart).map_while(|lba| self.model.content(lba));
        let tokens: Vec<u32> = known.collect();
        if tokens.is_empty() {
            return Ok(());
        }
        let (id, was_poisoned) = (self.number(), self.poisoned);
        let blocks = tokens.len() as u64;
        self.freed.see(&self.medium, to, blocks);
        self.critical.copied(to, blocks);
        let op = self.model.begin(to, tokens, false);
        self.requests.insert(id, Request::Change { op });
        self.asking = Some(id);
        self.last_result = None;
        self.feed(Input::Copy {
            id: RequestId(id),
            copy: CopyBlocks {
                from: Lba(from),
                to: Lba(to),
                blocks,
            },
        })?;
        self.asking = None;
        if was_poisoned && self.last_result.is_none_or(|result| result.is_ok()) {
            return Err("poisoned, and a copy was taken".to_owned());
        }
        Ok(())
    }
}
