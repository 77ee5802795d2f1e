//! What the sweeps' thread is to do, and how far it is.

use crate::limits::{SWEEP_CHECK, SWEEP_QUIET, SWEEP_WRITES};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use vellum_core::format::areas::Layout;
use vellum_core::service::pace::Haste;
use vellum_core::service::sweep::permille_of;

/// Orders for the thread, and its progress.
#[derive(Default)]
pub(crate) struct Sweeper {
    orders: Mutex<Orders>,
    given: Condvar,
    /// Blocks a second that it may read; 0: as many as it can.
    rate: AtomicU32,
    counts: [Counts; 2],
}

/// The counters of the sweeps for one thing.
#[derive(Default)]
struct Counts {
    /// Progress of the current sweep in thousandths, plus one; 0 if there is none.
    progress: AtomicU64,
    ended: AtomicU64,
    halted: AtomicU64,
}

/// What a sweep looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// Blocks that are stored twice, to store them once.
    Duplicates,
    /// Pages of parts of which little is left: the rest is stored anew, and the pages are given up.
    SparsePages,
}

impl Sought {
    const ALL: [Self; 2] = [Self::Duplicates, Self::SparsePages];
}

#[derive(Default)]
struct Orders {
    stopping: bool,
    /// Sweep for this, no matter what else goes on.
    asked: [Option<Haste>; 2],
    /// What the current sweep looks for, and whether it is to end where it is.
    sweeping: Option<Sought>,
    halt: bool,
    /// Fill the index.
    learn: bool,
    /// Sweep for this when it is quiet.
    idle: [bool; 2],
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Stop,
    Learn,
    Sweep(Sought, Haste),
}

/// The progress of sweeps for one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepProgress {
    /// Sweeps that were completed since the volume was opened.
    pub ended: u64,
    /// Sweeps that were halted before their end.
    pub halted: u64,
    /// How much of the current one is done, in thousandths; `None` if there is none.
    pub permille: Option<u64>,
    /// Where the next one goes on: how much was done of a sweep that was halted, or ended with the volume. `None` if there was
    /// none.
    pub left_at: Option<u64>,
}

/// Why a volume is not swept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// The volume is not written to.
    #[error("the volume is served read-only: nothing is moved on it")]
    ReadOnly,
    /// There are no summaries to go by.
    #[error(
        "the layout {0} has no sweep for duplicates. With dedup=on, blocks are compared when they are \
         written; those stored before are not found. `vellum migrate --with dedup=on` copies the volume, and \
         compares every block"
    )]
    Layout(&'static str),
    /// There are no parts of pages.
    #[error("the layout {0} stores each block in a page of its own: there is nothing to fold")]
    NoParts(&'static str),
    /// Nothing would be stored in fewer bytes.
    #[error(
        "with compress=off what is left in sparse pages would be stored in whole ones: \
         `vellum set VOLUME compress=zstd` makes all that is written from then on smaller"
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
    /// The progress of sweeps; `swept`: what the core keeps of it.
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

    pub fn is_at(&self, sought: Sought, permille: u64) {
        let progress = &self.counts[sought as usize].progress;
        progress.store(1 + permille, Ordering::Relaxed);
    }

    /// Requests a sweep.
    pub fn ask(&self, sought: Sought, haste: Haste) {
        let asked = &mut self.orders.lock().asked[sought as usize];
        *asked = (*asked).max(Some(haste));
        self.given.notify_one();
    }

    /// Ends the current sweep where it is, and withdraws the one requested after it.
    pub fn halt(&self, sought: Sought) {
        let mut orders = self.orders.lock();
        let was_asked = orders.asked[sought as usize].take().is_some();
        let is_sweeping = orders.sweeping == Some(sought);
        orders.halt |= is_sweeping;
        if was_asked && !is_sweeping {
            // Its requester waits for it.
            let halted = &self.counts[sought as usize].halted;
            halted.fetch_add(1, Ordering::Relaxed);
        }
        self.given.notify_one();
    }

    /// Notes that the index is on or off, and may be a new one.
    pub fn index(&self, on: bool, anew: bool) {
        let mut orders = self.orders.lock();
        orders.idle[Sought::Duplicates as usize] = on;
        orders.learn = on && (anew || orders.learn);
        self.given.notify_one();
    }

    /// Sets whether the volume gives up sparse pages by itself. When this is switched off, a fold under way ends.
    pub fn folds(&self, on: bool) {
        let mut orders = self.orders.lock();
        let was_on = std::mem::replace(&mut orders.idle[Sought::SparsePages as usize], on);
        orders.halt |= was_on && !on && orders.sweeping == Some(Sought::SparsePages);
        self.given.notify_one();
    }

    /// Sets how many blocks a second it may read; 0: as many as it can.
    pub fn set_rate(&self, blocks: u32) {
        self.rate.store(blocks, Ordering::Relaxed);
        self.given.notify_one();
    }

    pub fn rate(&self) -> u32 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Waits, unless it is to end.
    pub fn pause(&self, time: Duration) {
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

    pub fn is_to_end(&self) -> bool {
        let orders = self.orders.lock();
        orders.stopping || orders.halt
    }

    /// The haste of requests for a sweep after this one.
    pub fn wanted(&self) -> Option<Haste> {
        self.orders.lock().asked.iter().flatten().max().copied()
    }

    /// Waits for something to do. The volume starts a sweep by itself if clients have written since the last one began (`written`,
    /// `swept`), or if that one is unfinished. It waits until the volume is quiet, and until the sweep `is_wanted`.
    pub fn next(
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

    /// Notes that a sweep has ended, or was ended early.
    pub fn over(&self, sought: Sought, ended: bool) {
        let mut orders = self.orders.lock();
        (orders.sweeping, orders.halt) = (None, false);
        let counts = &self.counts[sought as usize];
        let counter = if ended { &counts.ended } else { &counts.halted };
        counts.progress.store(0, Ordering::Relaxed);
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sweep that was requested and had not begun counts as halted; others do not.
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
