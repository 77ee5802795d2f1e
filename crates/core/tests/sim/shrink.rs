//! A volume shrinks between two of its lives, or gets its old end back, and the power may fail at any moment of it.

use super::driver::{Ask, Driver, Failure, ensure};
use super::grow::{SYNCS, Writer};
use super::medium::{BLOCK, Broken};
use super::open;
use super::rng::Rng;
use super::world::World;
use vellum_core::addr::Lba;
use vellum_core::format::areas::Layout;
use vellum_core::format::shrunk::ended_at;
use vellum_core::format::superblock::Superblock;
use vellum_core::layout::Recovered;
use vellum_core::shrink::{ShrinkError, end_at};

/// Clients need so many blocks at least.
const LEAST: u64 = 16;

/// The blocks that clients use. In these tests they also use those that belong to snapshots, as long as nothing lies between.
pub(super) fn client_blocks(volume: &Superblock) -> u64 {
    match volume.logical_blocks() == volume.addressed_blocks() {
        true => volume.mapped_blocks(),
        false => volume.logical_blocks(),
    }
}

impl World {
    /// Gives a log that was stopped cleanly another end, now and then. Uses a separate generator, so that seeds mean the same until
    /// then.
    pub(super) fn shrink(&mut self) -> Result<(), Failure> {
        let mut rng = Rng::new(self.medium.writes ^ 0x5123);
        if self.volume.layout != Layout::Log || !self.stopped || rng.percent(30) {
            return Ok(());
        }
        let found = open::recover(&self.medium, None).map_err(|e| format!("recovery: {e}"))?;
        let Recovered::Log(found) = found else {
            return Err("a log is recovered as tables".to_owned());
        };
        let volume = &found.superblock;
        let all = volume.addressed_blocks();
        let base = self.model.base();
        let least = (0..all).rev().find(|&lba| base[lba as usize] != 0);
        let least = least.map_or(0, |lba| lba + 1);
        // Mostly as small as it can become, or a little larger; or as large as it was; or whatever is refused.
        let blocks = match rng.below(8) {
            0 => rng.range(LEAST, all.max(LEAST)),
            1 => all,
            2 => least.saturating_sub(rng.below(3)),
            _ => least + rng.below(20),
        };
        let blocks = blocks.max(LEAST).min(all);
        let next = match end_at(&found, blocks) {
            Ok(next) => next,
            Err(ShrinkError::Holds(behind)) if self.medium.broken != Broken::ShrinksBlindly => {
                // Zeros may be stored as data.
                let first = behind.first.0;
                ensure!(
                    first >= blocks && first < all && behind.end == Lba(blocks),
                    "refused for {behind:?}, with an end at {blocks}"
                );
                self.summary.shrinks_refused += 1;
                return Ok(());
            }
            Err(ShrinkError::Holds(_)) => {
                let next = ended_at(volume, blocks).map_err(|e| format!("shrinking: {e}"));
                let mut next = next?;
                next.begin_life(found.log_end());
                next.mark_root(found.root.generation);
                next
            }
            Err(error) => return Err(format!("shrinking to {blocks} of {all}: {error}")),
        };
        ensure!(
            blocks >= least || self.medium.broken == Broken::ShrinksBlindly,
            "shrunk to {blocks}, with data up to {least}"
        );
        let before = client_blocks(volume);
        self.write_end(&next, &mut rng);
        let found = open::recover(&self.medium, None).map_err(|e| format!("shrunk: {e}"))?;
        self.client_blocks = client_blocks(found.superblock());
        let ends = [before, client_blocks(&next)];
        ensure!(
            ends.contains(&self.client_blocks),
            "{} blocks are seen, not one of {ends:?}",
            self.client_blocks
        );
        self.summary.shrunk += u64::from(self.client_blocks < before);
        open::check(&self.medium)?;
        self.audit()
    }

    /// Gives up the last of the clients' blocks, now and then, as after a file system has shrunk.
    pub(super) fn give_up_tail(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        let mut rng = Rng::new(self.medium.writes ^ self.now ^ 0x7a11);
        let end = self
            .client_blocks
            .min(driver.core.superblock().addressed_blocks());
        if self.volume.layout != Layout::Log || end < 2 * LEAST || rng.percent(70) {
            return Ok(());
        }
        let lba = rng.range(LEAST, end - 1);
        let blocks = end - lba;
        let discard = Ask::Discard {
            lba,
            blocks,
            fua: false,
        };
        driver.ask(&discard).map(drop)
    }

    /// Writes the superblock to both mirrors, one after the other.
    fn write_end(&mut self, next: &Superblock, rng: &mut Rng) {
        let mut block = [0; BLOCK];
        next.encode(crc32c::crc32c, &mut block);
        let mut writer = Writer {
            cut_in: SYNCS,
            medium: &mut self.medium,
            rng,
        };
        for mirror in next.mirrors() {
            if !writer.write(mirror.0, &block) || !writer.sync() {
                break;
            }
        }
    }
}
