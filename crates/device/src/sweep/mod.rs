//! Deduplication out of line: looks for blocks that are stored twice, when nobody else needs the medium
//! (CAFTL §3.5).
//!
//! What it goes by are the segments' summaries: owner and CRC32C of each block, 12 bytes in place of 4096 (`stored`). The core
//! says which of them are alive. A page of parts is read for its directory, which has the same of each part. Blocks of one
//! checksum are told to it in pairs, which it reads, compares and shares, or finds that they have changed (`pairs`); where both
//! have several owners, the map is searched for those of the one. Memory is bounded: a volume with more blocks than fit is gone
//! through several times, each time for a part of the checksums (`pass`). How far it is the core keeps with its map checkpoints,
//! so that it goes on there after a restart: whatever that says, at worst a duplicate is found by the next sweep, or a pair is
//! compared again. The same summaries fill the index of contents after a restart.

mod pairs;
mod pass;
mod stored;
mod turn;

use crate::limits::{SWEEP_CHECK, SWEEP_KEEP, SWEEP_QUIET, SWEEP_WRITES};
use crate::shared::Shared;
use parking_lot::{Condvar, Mutex};
use pass::{CHECKSUMS, Pass};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stored::Found;
pub use turn::Haste;
use turn::Turn;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::Input;

/// What the thread is told, and tells.
#[derive(Default)]
pub(crate) struct Sweeper {
    orders: Mutex<Orders>,
    given: Condvar,
    /// Of a sweep under way, in thousandths and one more; 0 when there is none.
    progress: AtomicU64,
    /// Blocks a second that it may read; 0: as many as it can.
    rate: AtomicU32,
    ended: AtomicU64,
    halted: AtomicU64,
}

#[derive(Default)]
struct Orders {
    stopping: bool,
    /// Sweep, whoever else is there.
    asked: Option<Haste>,
    /// Whether there is a sweep, and whether it is to end where it is.
    sweeping: bool,
    halt: bool,
    /// Fill the index.
    learn: bool,
    /// Sweep when it is quiet.
    idle: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Stop,
    Learn,
    Sweep(Haste),
}

/// How far deduplication out of line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepProgress {
    /// Sweeps that have come to their end since the volume was opened.
    pub ended: u64,
    /// Sweeps that were halted before.
    pub halted: u64,
    /// How much of the present one is done, in thousandths; none is under way without.
    pub permille: Option<u64>,
    /// Where the next one goes on: so much of a sweep that was halted, or ended with the volume, is done. None if it was none.
    pub left_at: Option<u64>,
}

/// Why a volume is never looked through for duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// It is not written to.
    #[error("the volume is served read-only: nothing is moved on it")]
    ReadOnly,
    /// There are no summaries to go by.
    #[error(
        "the layout {0} has no sweep for duplicates: what is written with dedup=on is compared as it comes, and nothing tells \
         what was stored before; `vellum migrate --policy dedup=on` copies all, compared"
    )]
    Layout(&'static str),
}

impl SweepError {
    pub(crate) fn check(read_only: bool, layout: Layout) -> Result<(), Self> {
        match layout {
            _ if read_only => Err(Self::ReadOnly),
            Layout::Log => Ok(()),
            layout => Err(Self::Layout(layout.name())),
        }
    }
}

impl Sweeper {
    /// How far it is; `swept`: what the core keeps of that.
    pub fn progress(&self, swept: u32) -> SweepProgress {
        let permille = self.progress.load(Ordering::Relaxed).checked_sub(1);
        let is_left = permille.is_none() && swept > 0;
        SweepProgress {
            ended: self.ended.load(Ordering::Relaxed),
            halted: self.halted.load(Ordering::Relaxed),
            permille,
            left_at: is_left.then(|| u64::from(swept) * 1000 / CHECKSUMS),
        }
    }

    /// Sweeps.
    pub fn ask(&self, haste: Haste) {
        let mut orders = self.orders.lock();
        orders.asked = orders.asked.max(Some(haste));
        self.given.notify_one();
    }

    /// Ends the sweep under way where it is, and the one that was asked for to follow it.
    pub fn halt(&self) {
        let mut orders = self.orders.lock();
        let was_asked = orders.asked.take().is_some();
        orders.halt = orders.sweeping;
        if was_asked && !orders.sweeping {
            // Whoever asked for it waits.
            self.halted.fetch_add(1, Ordering::Relaxed);
        }
        self.given.notify_one();
    }

    /// The index is on or off, and may be a new one.
    pub fn index(&self, on: bool, anew: bool) {
        let mut orders = self.orders.lock();
        orders.idle = on;
        orders.learn = on && (anew || orders.learn);
        self.given.notify_one();
    }

    /// Blocks a second that it may read, from now on; 0: as many as it can.
    pub fn set_rate(&self, blocks: u32) {
        self.rate.store(blocks, Ordering::Relaxed);
    }

    /// Waits, but not for whoever ends it.
    fn pause(&self, time: Duration) {
        let mut orders = self.orders.lock();
        if !orders.stopping && !orders.halt {
            self.given.wait_for(&mut orders, time);
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.orders.lock().stopping = true;
        self.given.notify_one();
    }

    fn is_to_end(&self) -> bool {
        let orders = self.orders.lock();
        orders.stopping || orders.halt
    }

    /// How somebody waits for a sweep that begins when this one has ended.
    fn wanted(&self) -> Option<Haste> {
        self.orders.lock().asked
    }

    /// Waits for something to do. `written`: blocks that clients have written so far; a sweep of its own
    /// accord needs news since it began last, or one that is to be gone on with, and then quiet.
    fn next(&self, swept: Option<u64>, written: &dyn Fn() -> u64) -> Order {
        let mut orders = self.orders.lock();
        loop {
            if orders.stopping {
                return Order::Stop;
            }
            if std::mem::take(&mut orders.learn) {
                return Order::Learn;
            }
            if let Some(haste) = orders.asked.take() {
                orders.sweeping = true;
                return Order::Sweep(haste);
            }
            if !orders.idle {
                self.given.wait(&mut orders);
                continue;
            }
            let before = written();
            let news = swept.is_none_or(|swept| before - swept >= SWEEP_WRITES);
            let wait = if news { SWEEP_QUIET } else { SWEEP_CHECK };
            let told = !self.given.wait_for(&mut orders, wait).timed_out();
            if news && !told && written() == before {
                orders.sweeping = true;
                return Order::Sweep(Haste::Idle);
            }
        }
    }

    /// A sweep has ended, or was ended.
    fn over(&self, ended: bool) {
        let mut orders = self.orders.lock();
        (orders.sweeping, orders.halt) = (false, false);
        let counter = if ended { &self.ended } else { &self.halted };
        self.progress.store(0, Ordering::Relaxed);
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The thread's whole life.
pub(crate) fn run(shared: &Arc<Shared>, superblock: &Superblock) {
    let sweeper = &shared.sweeper;
    let written = || shared.inner.lock().engine.stats().host_blocks_written;
    let is_left = shared.inner.lock().engine.swept() > 0;
    let mut swept = (!is_left).then_some(0);
    loop {
        match sweeper.next(swept, &written) {
            Order::Stop => return,
            Order::Learn => stored::learn(shared, superblock),
            Order::Sweep(haste) => {
                swept = Some(written());
                crate::scout::guard(shared);
                let ended = sweep(shared, superblock, haste);
                sweeper.over(ended);
            }
        }
    }
}

/// One look at all that is stored, or at what the last one has left; whether it came to its end.
fn sweep(shared: &Shared, superblock: &Superblock, haste: Haste) -> bool {
    let mut turn = Turn::new(shared, haste);
    let mut place = Place {
        shared,
        kept: Instant::now(),
    };
    let mut from = u64::from(shared.inner.lock().engine.swept());
    while from < CHECKSUMS {
        let stored = {
            let stats = shared.inner.lock().engine.stats();
            stats.live_blocks - stats.packed_pages + stats.packed_owners
        };
        let mut pass = Pass::new(from, stored);
        let done = |pass: &Pass, inside: u64| {
            let permille = pass.permille(inside);
            let progress = &shared.sweeper.progress;
            progress.store(1 + permille, Ordering::Relaxed);
        };
        done(&pass, 0);
        if !fill(shared, superblock, &mut turn, &mut pass, done) {
            return false;
        }
        pass.sort();
        if !pairs::merge_all(shared, &pass, &mut turn, &mut place, |i| {
            done(&pass, 500 + i / 2);
        }) {
            return false;
        }
        from = pass.to();
        place.is(from % CHECKSUMS);
    }
    true
}

/// Looks for what a pass is about; `false` when it is to end.
fn fill(
    shared: &Shared,
    superblock: &Superblock,
    turn: &mut Turn,
    pass: &mut Pass,
    done: impl Fn(&Pass, u64),
) -> bool {
    let blocks = u64::from(superblock.segment_count()) * u64::from(superblock.usable_blocks());
    let mut seen = 0;
    let mut live = Vec::new();
    stored::stored(shared, superblock, turn, |at, found| {
        live.clear();
        // Only what is alive: a dead block that came first would speak for all of its content.
        let asked = shared.with_core(|_, inner, _| match found {
            Found::Blocks(tags) => inner.engine.contents(at, tags, &mut live),
            Found::Parts(parts) => inner.engine.parts(at, parts, &mut live),
        });
        for &(holder, sum) in &live {
            pass.add(holder, sum);
        }
        if let Found::Blocks(tags) = found {
            seen += tags.len() as u64;
        }
        done(pass, seen * 500 / blocks);
        asked.is_some()
    })
}

/// How far a sweep is, as the core keeps it.
struct Place<'a> {
    shared: &'a Shared,
    kept: Instant,
}

impl Place<'_> {
    /// All checksums that are less have been seen to; 0: the sweep has ended.
    fn is(&mut self, at: u64) {
        let keep = self.kept.elapsed() >= SWEEP_KEEP;
        if keep {
            self.kept = Instant::now();
        }
        if let Ok(to) = u32::try_from(at) {
            self.shared.with_core(|now, inner, batch| {
                inner.feed(now, Input::Swept { to, keep }, batch);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever asked for a sweep that had not begun is told that none comes; nobody else is told anything.
    #[test]
    fn a_sweep_that_has_not_begun_is_halted_too() {
        let sweeper = Sweeper::default();
        sweeper.halt();
        assert_eq!(sweeper.progress(0).halted, 0);
        sweeper.ask(Haste::Beside);
        sweeper.halt();
        assert_eq!(sweeper.progress(0).halted, 1);
        assert_eq!(sweeper.wanted(), None);
    }
}
