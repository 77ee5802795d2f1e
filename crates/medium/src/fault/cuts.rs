//! Plays a tape forward, and builds what a power cut at any instant leaves.
//!
//! Whatever the seed, two kinds of writes are kept: those that had ended before a sync was requested, if that sync has succeeded; and
//! durable writes that have succeeded. Of all other writes any subset stays, in any order, torn at sectors, as by
//! [`FaultMedium`](super::FaultMedium). A discard that nothing has covered may have happened or not, and its blocks read as zeros or as
//! their old contents.

use super::cache::{Cache, CutReport, SECTOR_BYTES};
use super::rng::Rng;
use super::tape::{Asked, Event, Tape};
use crate::medium::Medium;
use crate::memory::MemoryMedium;
use vellum_core::addr::{BLOCK_BYTES, Pba};

/// A tape that is being played.
#[derive(Debug)]
pub struct Cuts<'a> {
    tape: &'a Tape,
    now: usize,
    /// The contents that no cut can lose any more.
    kept: MemoryMedium,
    /// Operations that a cut may lose, in the order of issue. A durable operation stays in the list while an earlier one can still be
    /// lost.
    open: Vec<Open>,
    rng: Rng,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    issued: usize,
    ended: Option<usize>,
    /// True if no cut can lose it any more, because it was durable itself or a sync covered it.
    is_durable: bool,
}

impl<'a> Cuts<'a> {
    /// Starts from the contents of the medium when the tape began. The seed decides the fate of discards that a sync covers.
    #[must_use]
    pub fn new(start: &MemoryMedium, tape: &'a Tape, seed: u64) -> Self {
        Self {
            tape,
            now: 0,
            kept: start.fork(),
            open: Vec::new(),
            rng: Rng::new(seed),
        }
    }

    /// Plays the tape on to this instant.
    pub fn advance_to(&mut self, instant: usize) {
        while self.now < instant {
            let Some(event) = self.tape.event(self.now) else {
                return;
            };
            match event {
                Event::Issued(Asked::Sync) => {}
                Event::Issued(_) => self.open.push(Open {
                    issued: self.now,
                    ended: None,
                    is_durable: false,
                }),
                Event::Ended { issued, is_ok } => self.end(*issued, *is_ok),
            }
            self.now += 1;
        }
    }

    /// The number of writes and discards that a cut could lose now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open.iter().filter(|open| !open.is_durable).count()
    }

    fn end(&mut self, issued: usize, is_ok: bool) {
        if self
            .tape
            .asked(issued)
            .is_some_and(|asked| matches!(asked, Asked::Sync))
        {
            if is_ok {
                self.cover(issued);
            }
            return;
        }
        let Some(place) = self.open.iter().position(|open| open.issued == issued) else {
            return;
        };
        // If it failed, any part of it may be on the medium, and no sync covers it.
        self.open[place].ended = is_ok.then_some(self.now);
        if let (
            true,
            Some(Asked::Write {
                at,
                bytes,
                durable: true,
            }),
        ) = (is_ok, self.tape.asked(issued))
        {
            self.open[place].is_durable = true;
            write(&self.kept, *at, bytes);
        }
        self.forget_durable();
    }

    /// Handles the success of a sync that was requested at that instant.
    fn cover(&mut self, asked: usize) {
        let is_covered = |open: &Open| open.ended.is_some_and(|ended| ended < asked);
        let (tape, rng) = (self.tape, &mut self.rng);
        self.open.retain_mut(|open| {
            let is_discard = matches!(tape.asked(open.issued), Some(Asked::Discard { .. }));
            // A covered discard has happened or not, and that is decided here.
            let never_was = is_covered(open) && !open.is_durable && is_discard && !rng.chance(3, 4);
            open.is_durable |= is_covered(open);
            !never_was
        });
        // In the order of issue, so that a newer write is not overwritten by an older one.
        for open in self.open.iter().filter(|open| open.is_durable) {
            match self.tape.asked(open.issued) {
                Some(Asked::Write { at, bytes, .. }) => write(&self.kept, *at, bytes),
                Some(Asked::Discard { at, blocks }) => self.kept.zero(*at, *blocks),
                _ => {}
            }
        }
        self.forget_durable();
    }

    /// Drops durable operations that have no undecided one before them: they no longer matter.
    fn forget_durable(&mut self) {
        let first = self.open.iter().position(|open| !open.is_durable);
        self.open.drain(..first.unwrap_or(self.open.len()));
    }

    /// Builds what is on the medium if the power goes off now.
    #[must_use]
    pub fn cut(&self, seed: u64) -> (MemoryMedium, CutReport) {
        let (medium, mut cache, mut rng) = (self.kept.fork(), Cache::default(), Rng::new(seed));
        for open in &self.open {
            match self.tape.asked(open.issued) {
                Some(asked @ Asked::Write { at, bytes, .. }) if open.is_durable => {
                    cache.forget(asked.blocks());
                    write(&medium, *at, bytes);
                }
                Some(asked @ Asked::Discard { at, blocks }) if open.is_durable => {
                    cache.forget(asked.blocks());
                    medium.zero(*at, *blocks);
                }
                Some(Asked::Write { at, bytes, .. }) => cache.insert(at.0, bytes),
                Some(asked @ Asked::Discard { at, blocks }) if rng.chance(1, 2) => {
                    cache.forget(asked.blocks());
                    if rng.chance(3, 4) {
                        medium.zero(*at, *blocks);
                    }
                }
                _ => {}
            }
        }
        let report = cache.cut(&mut rng, |at, sectors| {
            let mut block = [0; BLOCK_BYTES];
            if medium.read(Pba(at), &mut block).is_err() {
                return;
            }
            for (old, new) in block.chunks_exact_mut(SECTOR_BYTES).zip(sectors) {
                if let Some(new) = new {
                    old.copy_from_slice(new);
                }
            }
            write(&medium, Pba(at), &block);
        });
        (medium, report)
    }
}

/// An operation past the end was refused by the recorded medium, and is not written here either.
fn write(medium: &MemoryMedium, at: Pba, bytes: &[u8]) {
    let _ = medium.write(at, bytes);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn asked(at: u64, fill: u8, durable: bool) -> Asked {
        Asked::Write {
            at: Pba(at),
            bytes: Box::new([fill; BLOCK_BYTES]),
            durable,
        }
    }

    fn carry_out(tape: &mut Tape, asked: Asked) {
        let issued = tape.issue(asked);
        tape.end(issued, true);
    }

    /// A write in flight keeps later operations in the list of what a cut may affect. Those that a sync has covered since
    /// must stay durable all the same.
    #[test]
    fn a_write_covered_by_a_sync_is_newer_than_a_durable_write_before_it() {
        let mut tape = Tape::default();
        tape.issue(asked(0, 1, false));
        carry_out(&mut tape, asked(1, 2, true));
        carry_out(&mut tape, asked(2, 2, true));
        carry_out(&mut tape, asked(1, 3, false));
        carry_out(&mut tape, Asked::Sync);
        carry_out(&mut tape, asked(2, 4, true));
        carry_out(&mut tape, Asked::Sync);
        let start = MemoryMedium::new(4);
        let mut cuts = Cuts::new(&start, &tape, 0);
        cuts.advance_to(tape.len());
        for seed in 0..20 {
            let (medium, _) = cuts.cut(seed);
            let mut block = [0; BLOCK_BYTES];
            for (at, fill) in [(1, 3), (2, 4)] {
                medium.read(Pba(at), &mut block).unwrap();
                assert_eq!(block[0], fill, "block {at}, seed {seed}");
            }
        }
    }
}
