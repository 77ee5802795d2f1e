//! Sweeps: looks through all that is stored, when nobody else needs the medium. For blocks that are stored twice, which is
//! deduplication out of line (CAFTL §3.5); and for pages of parts of which little is left (`fold`).
//!
//! When one begins is said here. What it does then is said by the core's machines ([`Sweep`], `Fold`), which a thread of its own carries
//! out (`stored`). The summaries that they go by fill the index of contents after a restart.

mod fold;
mod stored;

use crate::block::{Op, Replies, Request};
use crate::digest::crc32c;
use crate::frames::Frames;
use crate::limits::{SWEEP_CHECK, SWEEP_QUIET, SWEEP_WRITES};
use crate::memory;
use crate::requests::OneAnswer;
use crate::shared::Shared;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use vellum_core::addr::Lba;
use vellum_core::format::areas::Layout;
use vellum_core::format::superblock::Superblock;
use vellum_core::index::Holder;
use vellum_core::seam::{Input, Service};
pub use vellum_core::service::pace::Haste;
use vellum_core::service::sweep::{Sweep, permille_of};
use vellum_core::service::{self, Step};

/// What the thread is told, and tells.
#[derive(Default)]
pub(crate) struct Sweeper {
    orders: Mutex<Orders>,
    given: Condvar,
    /// Blocks a second that it may read; 0: as many as it can.
    rate: AtomicU32,
    counts: [Counts; 2],
}

/// Of the sweeps for one thing.
#[derive(Default)]
struct Counts {
    /// Of one under way, in thousandths and one more; 0 when there is none.
    progress: AtomicU64,
    ended: AtomicU64,
    halted: AtomicU64,
}

/// What a sweep looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// Blocks that are stored twice, to store them once.
    Duplicates,
    /// Pages of parts of which little is left, to store that anew and give them up.
    SparsePages,
}

impl Sought {
    const ALL: [Self; 2] = [Self::Duplicates, Self::SparsePages];
}

#[derive(Default)]
struct Orders {
    stopping: bool,
    /// Sweep for this, whoever else is there.
    asked: [Option<Haste>; 2],
    /// What a sweep is under way for, and whether it is to end where it is.
    sweeping: Option<Sought>,
    halt: bool,
    /// Fill the index.
    learn: bool,
    /// Sweep for this when it is quiet.
    idle: [bool; 2],
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Stop,
    Learn,
    Sweep(Sought, Haste),
}

/// How far sweeps for one thing are.
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

/// Why a volume is not swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// It is not written to.
    #[error("the volume is served read-only: nothing is moved on it")]
    ReadOnly,
    /// There are no summaries to go by.
    #[error(
        "the layout {0} has no sweep for duplicates: what is written with dedup=on is compared as it comes, and nothing tells \
         what was stored before; `vellum migrate --with dedup=on` copies all, compared"
    )]
    Layout(&'static str),
    /// There are no parts of pages.
    #[error("the layout {0} stores each block in a page of its own: there is nothing to fold")]
    NoParts(&'static str),
    /// Nothing would be stored in fewer bytes.
    #[error(
        "with compress=off what is left in sparse pages would be stored in whole ones: `vellum set VOLUME compress=zstd` \
         makes all that is written from then on smaller"
    )]
    NotPacking,
}

impl SweepError {
    pub(crate) fn check(
        sought: Sought,
        read_only: bool,
        layout: Layout,
        packs: bool,
    ) -> Result<(), Self> {
        match (layout, sought) {
            _ if read_only => Err(Self::ReadOnly),
            (Layout::Log, Sought::SparsePages) if !packs => Err(Self::NotPacking),
            (Layout::Log, _) => Ok(()),
            (layout, Sought::Duplicates) => Err(Self::Layout(layout.name())),
            (layout, Sought::SparsePages) => Err(Self::NoParts(layout.name())),
        }
    }
}

impl Sweeper {
    /// How far it is; `swept`: what the core keeps of that.
    pub fn progress(&self, sought: Sought, swept: u32) -> SweepProgress {
        let counts = &self.counts[sought as usize];
        let permille = counts.progress.load(Ordering::Relaxed).checked_sub(1);
        let is_left = sought == Sought::Duplicates && permille.is_none() && swept > 0;
        SweepProgress {
            ended: counts.ended.load(Ordering::Relaxed),
            halted: counts.halted.load(Ordering::Relaxed),
            permille,
            left_at: is_left.then(|| permille_of(swept)),
        }
    }

    fn is_at(&self, sought: Sought, permille: u64) {
        let progress = &self.counts[sought as usize].progress;
        progress.store(1 + permille, Ordering::Relaxed);
    }

    /// Sweeps.
    pub fn ask(&self, sought: Sought, haste: Haste) {
        let asked = &mut self.orders.lock().asked[sought as usize];
        *asked = (*asked).max(Some(haste));
        self.given.notify_one();
    }

    /// Ends the sweep under way where it is, and the one that was asked for to follow it.
    pub fn halt(&self, sought: Sought) {
        let mut orders = self.orders.lock();
        let was_asked = orders.asked[sought as usize].take().is_some();
        let is_sweeping = orders.sweeping == Some(sought);
        orders.halt |= is_sweeping;
        if was_asked && !is_sweeping {
            // Whoever asked for it waits.
            let halted = &self.counts[sought as usize].halted;
            halted.fetch_add(1, Ordering::Relaxed);
        }
        self.given.notify_one();
    }

    /// The index is on or off, and may be a new one.
    pub fn index(&self, on: bool, anew: bool) {
        let mut orders = self.orders.lock();
        orders.idle[Sought::Duplicates as usize] = on;
        orders.learn = on && (anew || orders.learn);
        self.given.notify_one();
    }

    /// Whether sparse pages are given up of the volume's own accord. When it is switched off, a fold under way ends.
    pub fn folds(&self, on: bool) {
        let mut orders = self.orders.lock();
        let was_on = std::mem::replace(&mut orders.idle[Sought::SparsePages as usize], on);
        orders.halt |= was_on && !on && orders.sweeping == Some(Sought::SparsePages);
        self.given.notify_one();
    }

    /// Blocks a second that it may read, from now on; 0: as many as it can.
    pub fn set_rate(&self, blocks: u32) {
        self.rate.store(blocks, Ordering::Relaxed);
        self.given.notify_one();
    }

    fn rate(&self) -> u32 {
        self.rate.load(Ordering::Relaxed)
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
        self.orders.lock().asked.iter().flatten().max().copied()
    }

    /// Waits for something to do. `written`: blocks that clients have written so far. A sweep of its own accord needs news since
    /// it began last (`swept`), or one that is to be gone on with, and then quiet; and `is_wanted`.
    fn next(
        &self,
        swept: [Option<u64>; 2],
        written: &dyn Fn() -> u64,
        is_wanted: &dyn Fn(Sought) -> bool,
    ) -> Order {
        let mut orders = self.orders.lock();
        loop {
            if orders.stopping {
                return Order::Stop;
            }
            if std::mem::take(&mut orders.learn) {
                return Order::Learn;
            }
            for sought in Sought::ALL {
                if let Some(haste) = orders.asked[sought as usize].take() {
                    orders.sweeping = Some(sought);
                    return Order::Sweep(sought, haste);
                }
            }
            if orders.idle == [false; 2] {
                self.given.wait(&mut orders);
                continue;
            }
            let before = written();
            let is_due = |sought: &Sought| {
                let index = *sought as usize;
                let news = swept[index].is_none_or(|swept| before - swept >= SWEEP_WRITES);
                orders.idle[index] && news && is_wanted(*sought)
            };
            let due = Sought::ALL.into_iter().find(is_due);
            let wait = due.map_or(SWEEP_CHECK, |_| SWEEP_QUIET);
            let told = !self.given.wait_for(&mut orders, wait).timed_out();
            if let Some(sought) = due
                && !told
                && written() == before
            {
                orders.sweeping = Some(sought);
                return Order::Sweep(sought, Haste::Idle);
            }
        }
    }

    /// A sweep has ended, or was ended.
    fn over(&self, sought: Sought, ended: bool) {
        let mut orders = self.orders.lock();
        (orders.sweeping, orders.halt) = (None, false);
        let counts = &self.counts[sought as usize];
        let counter = if ended { &counts.ended } else { &counts.halted };
        counts.progress.store(0, Ordering::Relaxed);
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The thread's whole life.
pub(crate) fn run(shared: &Arc<Shared>, superblock: &Superblock) {
    let sweeper = &shared.sweeper;
    let written = || shared.inner.lock().engine.stats().host_blocks_written;
    let is_wanted = |sought| match sought {
        Sought::Duplicates => true,
        Sought::SparsePages => service::fold::is_wanted(shared.inner.lock().engine.room()),
    };
    let is_left = shared.inner.lock().engine.swept() > 0;
    let mut swept = [(!is_left).then_some(0), Some(0)];
    loop {
        match sweeper.next(swept, &written, &is_wanted) {
            Order::Stop => return,
            Order::Learn => stored::learn(shared, superblock),
            Order::Sweep(sought, haste) => {
                swept[sought as usize] = Some(written());
                let ended = match sought {
                    Sought::Duplicates => {
                        crate::scout::guard(shared);
                        sweep(shared, superblock, haste)
                    }
                    Sought::SparsePages => fold::fold(shared, superblock, haste),
                };
                sweeper.over(sought, ended);
            }
        }
    }
}

/// One look at all that is stored, or at what the last one has left; whether it came to its end.
fn sweep(shared: &Shared, superblock: &Superblock, haste: Haste) -> bool {
    let from = (haste, shared.inner.lock().engine.swept());
    let spare = memory::available().map_or(u64::MAX, |available| available / 8);
    let mut sweep = Sweep::new(superblock.clone(), crc32c, from, spare, shared.now());
    let sought = Some(Sought::Duplicates);
    stored::run(shared, sought, &mut sweep, |sweep, step| match step {
        Step::Merge { lba, of } => merge(shared, sweep, lba, of),
        Step::Keep { to, keep } => {
            let swept = Input::Service(Service::Swept { to, keep });
            let told = shared.with_core(|now, inner, batch| inner.feed(now, swept, batch));
            told.is_some()
        }
        _ => false,
    })
}

/// Tells the core of a pair and waits until it has seen to it; `false` when the sweep is to end.
fn merge(shared: &Shared, sweep: &mut Sweep, lba: Lba, of: Holder) -> bool {
    let counted = || shared.inner.lock().engine.stats();
    let before = counted();
    let answer = Arc::new(OneAnswer::default());
    let replies: Arc<dyn Replies> = answer.clone();
    let request = Request {
        tag: 0,
        op: Op::Flush,
        lba,
        blocks: 0,
        frames: Frames::default(),
    };
    shared.ask(request, &replies, |now, inner, pending, batch| {
        let id = inner.requests.insert(pending);
        inner.feed(now, Input::Service(Service::Merge { id, lba, of }), batch);
    });
    let is_answered = answer.wait().1.is_ok();
    sweep.merged(&before, &counted());
    is_answered
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever asked for a sweep that had not begun is told that none comes; nobody else is told anything.
    #[test]
    fn a_sweep_that_has_not_begun_is_halted_too() {
        let sweeper = Sweeper::default();
        let halted = |sought| sweeper.progress(sought, 0).halted;
        sweeper.halt(Sought::Duplicates);
        assert_eq!(halted(Sought::Duplicates), 0);
        sweeper.ask(Sought::Duplicates, Haste::Beside);
        sweeper.halt(Sought::SparsePages);
        assert_eq!(sweeper.wanted(), Some(Haste::Beside));
        sweeper.halt(Sought::Duplicates);
        assert_eq!(
            (halted(Sought::Duplicates), halted(Sought::SparsePages)),
            (1, 0)
        );
        assert_eq!(sweeper.wanted(), None);
    }
}
