//! Critical blocks: they must not be shared by their content, and the set changes at any moment. A block written while it is
//! critical has a page of its own: no two of them share one, whatever a sweep, an index or a journal says.

use super::{Driver, Failure};
use crate::sim::medium::Broken;
use crate::sim::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use vellum_core::addr::Lba;
use vellum_core::seam::{Hint, Input, Region};

/// The critical ranges, and what was written since.
#[derive(Default)]
pub struct Critical {
    ranges: Vec<(u64, u64)>,
    /// Blocks written since they became critical.
    alone: BTreeSet<u64>,
    /// Every region that was ever announced as a journal. Blocks written home are mapped there on purpose.
    journals: Vec<Region>,
    /// True if this life has no journals: then everything shared is shared by its content.
    without_journals: bool,
}

impl Critical {
    fn has(&self, lba: u64) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(start, blocks)| lba.wrapping_sub(*start) < *blocks)
    }

    /// The journals to announce.
    pub fn journals<'a>(&mut self, regions: &'a [Region]) -> &'a [Region] {
        let told = if self.without_journals { &[] } else { regions };
        self.journals.extend(told);
        told
    }

    fn is_alone(&self, lba: u64) -> bool {
        let mut journals = self.journals.iter();
        self.alone.contains(&lba)
            && !journals.any(|region| lba.wrapping_sub(region.start.0) < region.blocks)
    }

    pub fn written(&mut self, lba: u64, blocks: u64) {
        let written = (lba..lba + blocks).filter(|lba| self.has(*lba));
        let written: Vec<u64> = written.collect();
        self.alone.extend(written);
    }

    /// A copy is meant to be shared.
    pub fn copied(&mut self, lba: u64, blocks: u64) {
        self.alone.retain(|at| at.wrapping_sub(lba) >= blocks);
    }

    /// A refused write leaves the old contents.
    pub fn answered(&mut self, well: bool) {
        if !well {
            self.alone.clear();
        }
    }
}

/// How often the ranges change. Uses a separate generator.
pub struct Protects {
    rng: Rng,
    one_in: u64,
}

impl Protects {
    pub fn new(seed: u64, does: bool) -> Self {
        let mut rng = Rng::new(seed ^ 0xc417);
        let one_in = rng.pick(&[0, 0, 30, 200]);
        Self {
            rng,
            one_in: if does { one_in } else { 0 },
        }
    }

    /// Disables journals in some lives.
    pub fn begin(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        driver.critical.without_journals = self.one_in > 0 && self.rng.percent(50);
        match driver.critical.without_journals {
            true => driver.watch(&[]),
            false => Ok(()),
        }
    }

    pub fn serve(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        if self.one_in == 0 || self.rng.below(self.one_in) > 0 {
            return Ok(());
        }
        let (mut ranges, mut at) = (Vec::new(), 0);
        let (gap, longest) = (self.rng.pick(&[10, 100]), self.rng.pick(&[1, 8, 100]));
        for _ in 0..self.rng.below(20) {
            at += self.rng.range(1, gap);
            let blocks = self.rng.range(1, longest);
            ranges.push((Lba(at), blocks));
            at += blocks;
        }
        driver.protect(&ranges)
    }
}

impl Driver {
    /// Sets the ranges that are critical from now on.
    pub fn protect(&mut self, ranges: &[(Lba, u64)]) -> Result<(), Failure> {
        let ours = ranges.iter().map(|(lba, blocks)| (lba.0, *blocks));
        self.critical.ranges = ours.collect();
        let mut alone = std::mem::take(&mut self.critical.alone);
        alone.retain(|lba| self.critical.has(*lba));
        self.critical.alone = alone;
        match self.medium.broken == Broken::CriticalIsForgotten {
            true => Ok(()),
            false => self.feed(Input::Hint(Hint::Critical { ranges })),
        }
    }

    /// Checks at rest that each critical block written since has a page of its own.
    pub fn check_critical(&self) -> Result<(), Failure> {
        let Some(engine) = self.core.as_log() else {
            return Ok(());
        };
        let blocks = self.model.blocks();
        let (mut shared, mut parts) = (Vec::new(), Vec::new());
        engine.owners_in(0..blocks, |_| true, &mut shared);
        engine.foldable_in(0..blocks, |_| true, &mut parts);
        let shared = shared.into_iter().map(|(lba, page)| ((page, None), lba));
        let parts = parts.into_iter();
        let parts = parts.map(|(part, lba)| ((part.page, Some(part.slot)), lba));
        let mut pages = BTreeMap::new();
        for (place, lba) in shared.chain(parts) {
            if self.critical.is_alone(lba.0)
                && let Some(other) = pages.insert(place, lba)
            {
                return Err(format!(
                    "LBA {lba} and LBA {other} are critical, and one page"
                ));
            }
        }
        Ok(())
    }
}
