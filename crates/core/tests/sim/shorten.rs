//! The medium of a volume becomes shorter between two of its lives, and the power may fail at any moment of it.

use super::driver::{Driver, Failure, ensure};
use super::grow::{SYNCS, Writer};
use super::medium::{BLOCK, Broken, Medium};
use super::model::Model;
use super::open;
use super::rng::Rng;
use super::world::{COLLECTOR_BUFS, World};
use vellum_core::addr::{Leaf, Pba};
use vellum_core::format::areas::Layout;
use vellum_core::format::geometry::GeometryError;
use vellum_core::format::shortened::shortened;
use vellum_core::format::superblock::Superblock;
use vellum_core::layout::Recovered;
use vellum_core::recovery;
use vellum_core::shorten::{ShortenError, Shortening, fitting};
use vellum_core::vacate::Leaving;

/// The last segments are emptied in so many lives at most: first the collector may need them itself.
const TRIES: u64 = 6;

/// How a step has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    PowerFailed,
    /// Something cannot be moved.
    Stuck,
}

impl World {
    /// Shortens the medium of a log that was stopped cleanly, now and then. Uses a separate generator, so that seeds mean the same
    /// until then.
    pub(super) fn shorten(&mut self) -> Result<(), Failure> {
        let mut rng = Rng::new(self.medium.writes ^ 0x5408);
        if self.volume.layout != Layout::Log || !self.stopped || rng.percent(30) {
            return Ok(());
        }
        let found = self.found()?;
        let volume = found.superblock.clone();
        let Some(blocks) = self.choose_medium(&found, &mut rng)? else {
            self.summary.shortenings_refused += 1;
            return Ok(());
        };
        drop(found);
        let end = match self.medium.broken {
            Broken::ShortensBlindly => {
                self.shorten_blindly(&volume, blocks, &mut rng)?;
                Step::Done
            }
            _ => self.empty_and_shorten(blocks, &mut rng)?,
        };
        let found = self.found()?;
        let now = found.superblock.medium_blocks();
        ensure!(
            now == volume.medium_blocks() || (now == blocks && end != Step::Stuck),
            "its medium has {now} blocks, not {blocks}"
        );
        ensure!(
            end != Step::Done || now == blocks && self.medium.blocks() == blocks,
            "it was shortened, and has {now} blocks"
        );
        ensure!(
            end != Step::Stuck || self.worn,
            "something stays behind block {blocks}: {:?}",
            found.superblock
        );
        match end {
            Step::Done => self.summary.shortened += 1,
            Step::PowerFailed => self.summary.shortenings_cut += 1,
            Step::Stuck => {}
        }
        // What was begun may have left something to mend.
        self.stopped &= end != Step::PowerFailed;
        let superblock = &found.superblock;
        let first = superblock.leaf_slot(Leaf(superblock.first_parity()), 0);
        let area = match first > superblock.segments().first() {
            true => superblock.mirrors()[1],
            false => superblock.segments().first(),
        };
        self.medium.copies = first.0..area.0;
        open::check(&self.medium)?;
        self.audit()
    }

    fn found(&self) -> Result<recovery::Recovered, Failure> {
        match open::recover(&self.medium, None).map_err(|e| format!("recovery: {e}"))? {
            Recovered::Log(found) => Ok(*found),
            Recovered::Tables(_) => Err("a log is recovered as tables".to_owned()),
        }
    }

    /// The blocks of the next medium: mostly as few as possible, or some more. `None` if none are possible.
    fn choose_medium(
        &self,
        found: &recovery::Recovered,
        rng: &mut Rng,
    ) -> Result<Option<u64>, Failure> {
        let volume = &found.superblock;
        let live = found.state.live().total();
        let least = match fitting(volume, 1, live) {
            Err(ShortenError::TooLittle { least, .. }) => least,
            Err(ShortenError::Geometry(
                GeometryError::WithoutCopies | GeometryError::TooThin { .. },
            )) => return Ok(None),
            other => return Err(format!("a medium of one block: {other:?}")),
        };
        let all = volume.medium_blocks();
        if least + 1 < all {
            let less = fitting(volume, least - 1, live);
            ensure!(
                less.is_err(),
                "{least} blocks are called the least, and fewer are enough"
            );
        }
        let blocks = match rng.below(4) {
            0 => rng.range(1, all),
            1 => least,
            _ => least + rng.below(all.saturating_sub(least).max(1)),
        };
        Ok(fitting(volume, blocks, live).is_ok().then_some(blocks))
    }

    fn empty_and_shorten(&mut self, blocks: u64, rng: &mut Rng) -> Result<Step, Failure> {
        let mut before = u64::MAX;
        for run in 0..TRIES {
            let found = self.found()?;
            let live = found.state.live().total();
            let next = fitting(&found.superblock, blocks, live)
                .map_err(|e| format!("shortening to {blocks}: {e}"))?;
            let end = next.segment_count();
            let is_moved = match Shortening::new(found, blocks) {
                Ok(ready) => return self.write_shortened(ready, rng),
                Err(ShortenError::Holds(_) | ShortenError::HeadIn(_) | ShortenError::Named) => {
                    self.move_heads(end, rng)?
                }
                // The power failed while it shrank: it is opened and stopped first.
                Err(ShortenError::NotStopped) if run == 0 => true,
                Err(error) => return Err(format!("shortening to {blocks}: {error}")),
            };
            if !is_moved {
                return Ok(Step::PowerFailed);
            }
            let Some(left) = self.vacate(end, rng)? else {
                return Ok(Step::PowerFailed);
            };
            if left > 0 && left == before {
                return Ok(Step::Stuck);
            }
            before = left;
        }
        Ok(Step::Stuck)
    }

    /// Moves the heads; `false` if the power has failed.
    fn move_heads(&mut self, end: u32, rng: &mut Rng) -> Result<bool, Failure> {
        let found = self.found()?;
        let leaving = Leaving::new(&found, end).map_err(|e| format!("heads: {e}"))?;
        let Some(leaving) = leaving else {
            return Ok(true);
        };
        let stages = open::read(&mut self.medium.clone(), |source| {
            leaving.writes(source, crc32c::crc32c)
        });
        let stages = stages.map_err(|e| format!("heads: {e}"))?;
        let mut writer = self.writer(rng, 30);
        let is_whole = stages.iter().all(|writes| {
            writes.iter().all(|(at, bytes)| writer.write(at.0, bytes)) && writer.sync()
        });
        self.summary.heads_moved += u64::from(is_whole);
        open::check(&self.medium)?;
        Ok(is_whole)
    }

    fn writer<'a>(&'a mut self, rng: &'a mut Rng, cut_in: u64) -> Writer<'a> {
        Writer {
            cut_in,
            medium: &mut self.medium,
            rng,
        }
    }

    /// A life that empties the segments from `end` on. Returns how many blocks are still there; `None` if the power has failed.
    fn vacate(&mut self, end: u32, rng: &mut Rng) -> Result<Option<u64>, Failure> {
        let recovered = open::open_whole(&mut self.medium, rng, true)?;
        let none = Medium::new(0, self.medium.tokens, Broken::No);
        self.options.segments_end = Some(end);
        let core = self.core(recovered);
        self.options.segments_end = None;
        let mut driver = Driver::new(
            core,
            std::mem::replace(&mut self.medium, none),
            std::mem::replace(&mut self.model, Model::new(0)),
            Rng::new(rng.next()),
            COLLECTOR_BUFS,
        );
        driver.now = self.now;
        let mut cut = rng.percent(30).then(|| rng.below(400));
        driver.start()?;
        while driver.advance()? {
            if let Some(left) = &mut cut {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    break;
                }
            }
        }
        let is_cut = cut == Some(0);
        if !is_cut {
            driver.settle()?;
            driver.settle_shutdown()?;
        }
        let (left, _) = driver.core.left_behind();
        self.summary.add_stats(&driver.core.stats());
        let (medium, model, counts, now) = driver.crash(true)?;
        (self.medium, self.model, self.now) = (medium, model, now);
        self.summary.count(&counts);
        self.summary.see(&self.medium);
        self.audit()?;
        Ok((!is_cut).then_some(left))
    }

    fn write_shortened(&mut self, ready: Shortening, rng: &mut Rng) -> Result<Step, Failure> {
        let mut writes: Vec<(Pba, Vec<u8>)> = Vec::new();
        open::read(&mut self.medium.clone(), |source| {
            ready.write(source, crc32c::crc32c, &mut |at, bytes| {
                writes.push((at, bytes.to_vec()));
            })
        })
        .map_err(|e| format!("shortening: {e}"))?;
        let superblock = ready.finish();
        let mut writer = self.writer(rng, 8 * writes.len() as u64);
        let is_written =
            writes.iter().all(|(at, bytes)| writer.write(at.0, bytes)) && writer.sync();
        match is_written && self.end_medium(&superblock, rng) {
            true => Ok(Step::Done),
            false => Ok(Step::PowerFailed),
        }
    }

    /// Writes the superblock, and cuts the medium off; `false` if the power has failed.
    fn end_medium(&mut self, superblock: &Superblock, rng: &mut Rng) -> bool {
        let mut block = [0; BLOCK];
        superblock.encode(crc32c::crc32c, &mut block);
        let [first, last] = superblock.mirrors();
        let end = self.medium.blocks() - 1;
        let mut writer = self.writer(rng, SYNCS);
        for at in [last.0, first.0, end] {
            if !writer.write(at, &block) || !writer.sync() {
                return false;
            }
        }
        self.medium.set_length(superblock.medium_blocks());
        true
    }

    /// Cuts off whatever is there.
    fn shorten_blindly(
        &mut self,
        volume: &Superblock,
        blocks: u64,
        rng: &mut Rng,
    ) -> Result<(), Failure> {
        let found = self.found()?;
        let mut next = shortened(volume, blocks).map_err(|e| format!("shortening: {e}"))?;
        next.begin_life(found.log_end());
        next.mark_root(found.root.generation);
        while !self.end_medium(&next, rng) {}
        Ok(())
    }
}
