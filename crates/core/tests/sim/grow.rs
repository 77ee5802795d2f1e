//! A volume grows between two of its lives, and the power may fail at any moment of it.

use super::driver::{Failure, ensure};
use super::medium::{BLOCK, Broken, Cell, Medium};
use super::open;
use super::rng::Rng;
use super::shrink::client_blocks;
use super::world::World;
use vellum_core::addr::Leaf;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::grow::{GrowError, Growth};
use vellum_core::layout::Recovered;

/// One sync in so many, and one write of a superblock in so many, is the last.
pub(super) const SYNCS: u64 = 16;

/// Writes into the cache, and syncs; returns `false` if the power has failed.
pub(super) struct Writer<'a> {
    pub medium: &'a mut Medium,
    pub rng: &'a mut Rng,
    /// One write in so many is the last.
    pub cut_in: u64,
}

impl Writer<'_> {
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> bool {
        (at..).zip(bytes.chunks_exact(BLOCK)).all(|(at, block)| {
            self.medium.writes += 1;
            let effect = self.medium.writes;
            self.medium.write(at, Cell::Meta(block.into()), effect);
            let goes_on = self.goes_on(self.cut_in);
            if goes_on {
                self.medium.complete(at, 1, effect, false);
            }
            goes_on
        })
    }

    pub fn sync(&mut self) -> bool {
        let goes_on = self.goes_on(SYNCS);
        if goes_on {
            self.medium.sync(self.medium.stamp(), self.rng);
        }
        goes_on && self.goes_on(SYNCS)
    }

    fn goes_on(&mut self, one_in: u64) -> bool {
        let fails = self.rng.below(one_in) == 0;
        if fails {
            self.medium.power_fails(self.rng);
        }
        !fails
    }
}

impl World {
    /// Grows a log that was stopped cleanly, now and then. Uses a separate generator, so that seeds mean the same until then.
    pub(super) fn grow(&mut self) -> Result<(), Failure> {
        let mut rng = Rng::new(self.medium.writes);
        if self.volume.layout != Layout::Log || !self.stopped || rng.percent(20) {
            return Ok(());
        }
        let more = rng.pick(&[100, 300, 1000, 3000]) + rng.below(64);
        let before = self.medium.blocks();
        self.medium.set_length(before + more);
        let found = open::recover(&self.medium, None).map_err(|e| format!("recovery: {e}"))?;
        let Recovered::Log(found) = found else {
            return Err("a log is recovered as tables".to_owned());
        };
        let volume = found.superblock.clone();
        // More room for what it has promised, or more of both.
        let logical = rng.percent(30).then_some(volume.logical_blocks());
        let growth = match Growth::new(*found, self.medium.blocks(), logical) {
            Ok(growth) => growth,
            Err(GrowError::NotStopped) => return Err("it was stopped, and is not".to_owned()),
            Err(GrowError::Geometry(_) | GrowError::SnapshotsKeepMore(_)) => {
                self.medium.set_length(before);
                return Ok(());
            }
        };
        if self.write_grown(&volume, growth, &mut rng)? {
            self.summary.grown += 1;
        }
        let found = open::recover(&self.medium, None).map_err(|e| format!("grown: {e}"))?;
        let superblock = found.superblock();
        let leaves = superblock.leaf_slot(Leaf(0), 0);
        if superblock.parity_leaves() > 0 && leaves > superblock.segments().first() {
            let first = superblock.leaf_slot(Leaf(superblock.first_parity()), 0);
            self.medium.copies = first.0..superblock.mirrors()[1].0;
        }
        let blocks = superblock.mapped_blocks();
        ensure!(blocks >= self.logical_blocks, "it has shrunk to {blocks}");
        let (history, before) = (superblock.history(), volume.history());
        if history != before {
            // The blocks of snapshots have moved with it.
            let has_any =
                (before.first().0..before.end().0).any(|lba| self.model.base()[lba as usize] != 0);
            self.summary.resettled += u64::from(has_any);
        }
        let parts = before.parts().into_iter().zip(history.parts());
        let moved: Vec<_> = parts
            .map(|(from, to)| (from.start.0..from.end.0, to.start.0))
            .collect();
        self.logical_blocks = blocks;
        self.client_blocks = client_blocks(superblock);
        self.model.grow(blocks, &moved);
        self.audit()
    }

    fn write_grown(
        &mut self,
        volume: &Superblock,
        growth: Growth,
        rng: &mut Rng,
    ) -> Result<bool, Failure> {
        let mut writes = Vec::new();
        open::read(&mut self.medium.clone(), |source| {
            growth.write(source, crc32c::crc32c, &mut |at, bytes| {
                writes.push((at.0, bytes.to_vec()));
            })
        })
        .map_err(|e| format!("growth: {e}"))?;
        let superblock = growth.finish();
        let [mut sign, mut block] = [[0; BLOCK]; 2];
        volume.encode(crc32c::crc32c, &mut sign);
        superblock.encode(crc32c::crc32c, &mut block);
        let [first, last] = superblock.mirrors();
        let mut writer = Writer {
            cut_in: 3 * writes.len() as u64,
            medium: &mut self.medium,
            rng,
        };
        if writer.medium.broken == Broken::GrowsTooSoon {
            writer.write(first.0, &block);
            writer.medium.sync(writer.medium.stamp(), writer.rng);
        }
        let is_signed = writer.write(last.0, &sign) && writer.sync();
        let is_written = is_signed && writes.iter().all(|(at, bytes)| writer.write(*at, bytes));
        writer.cut_in = SYNCS;
        Ok(is_written
            && writer.sync()
            && writer.write(last.0, &block)
            && writer.sync()
            && writer.write(first.0, &block)
            && writer.sync())
    }
}
