//! The scout: finds the journals on a volume, at opening and whenever a write changes where they are. `orders.rs` reports them to
//! the core.
//!
//! It is a thread that reads the volume as a client does, so it also sees what is only in the write buffer. No request waits for
//! it. It sleeps until something that the last scan depended on has been written, lets the writer finish ([`SCAN_QUIET`]), and
//! scans again.
//!
//! No change may be missed, although writes go on while it reads: see [`Scans`], whose lock is here. Most findings need not be
//! right: they propose, and bytes are compared. A pledge compares no bytes, so for pledges a finding counts only while its scan has
//! seen every change that was admitted.

pub(crate) mod source;
pub(crate) mod thread;

use crate::freed::Reclaim;
use crate::requests::Pending;
use crate::watched::Watched;
use crate::watching::{Watching, change_of};
use parking_lot::{Condvar, Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use vellum_core::addr::Nanos;
use vellum_watch::{Change, Checked, Scans};

/// See the module.
#[derive(Default)]
pub(crate) struct Scout {
    scans: Mutex<Scans>,
    /// A copy of the scans' number. Each write notes it when it is checked against the findings, and each answer checks that it is
    /// still the same. Nearly all have nothing to report, and then take no lock. It changes under the lock.
    number: AtomicU64,
    watching: RwLock<Arc<Watching>>,
    roused: Condvar,
    commits: AtomicU64,
    /// The thread is to end. Set under the lock of the scans; otherwise the thread might miss it and sleep.
    stopping: AtomicBool,
    /// What follows the file systems' free space.
    pub freed: Reclaim,
}

impl Scout {
    /// What is known, to check writes against, and its number.
    pub fn watching(&self) -> (u64, Arc<Watching>) {
        // In this order: a number that is too old costs a check, one that is too new could miss a change.
        let number = self.number.load(Ordering::Acquire);
        (number, self.now_in_force())
    }

    /// What is known now.
    pub fn now_in_force(&self) -> Arc<Watching> {
        Arc::clone(&self.watching.read())
    }

    pub fn hold(&self, (number, watching): &(u64, Arc<Watching>), change: &Change<'_>) -> Watched {
        Watched {
            held: Checked {
                number: *number,
                touched: watching.is_touched(change),
            },
            expected: watching.expects(change),
            ..Watched::default()
        }
    }

    /// True if there is a change that it has not looked at, or has not reported to the core.
    pub fn is_behind(&self) -> bool {
        self.scans.lock().is_behind()
    }

    /// Notes that a write that changes what was found is about to be admitted or refused. Called under the core's lock.
    pub fn admit(&self) {
        self.scans.lock().admit();
    }

    /// True if that scan has seen all changes.
    pub fn is_current(&self, scan: u64) -> bool {
        self.scans.lock().is_current(scan)
    }

    /// How many scans have ended.
    pub fn scans_ended(&self) -> u64 {
        self.scans.lock().ended()
    }

    /// How many commit blocks have been written into journals.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub fn add_commits(&self, commits: u64) {
        if commits > 0 {
            self.commits.fetch_add(commits, Ordering::Relaxed);
        }
    }

    /// Notes that a request is about to be answered: what it wrote can be read.
    pub fn answered(&self, pending: &Pending, is_done: bool, now: impl FnOnce() -> Nanos) {
        self.freed.answered(pending, is_done);
        let held = pending.watched.held;
        let Some(change) = change_of(&pending.request) else {
            return;
        };
        if held.is_passed(self.number.load(Ordering::Acquire)) {
            return;
        }
        let overlaps = |span| self.watching.read().overlaps(span);
        self.rouse(&mut self.scans.lock(), |scans| {
            scans.answer(now(), held, change.span(), overlaps)
        });
    }

    /// Applies `change`. If it returns true, what was found is not to be trusted any more, and the next scan is due.
    fn rouse(&self, scans: &mut Scans, change: impl FnOnce(&mut Scans) -> bool) {
        let is_awake = scans.due().is_some();
        if change(scans) {
            self.freed.give_up();
            if !is_awake {
                self.roused.notify_one();
            }
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        let _scans = self.scans.lock();
        self.stopping.store(true, Ordering::Relaxed);
        self.roused.notify_one();
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Waits until a scan is due, and begins it; returns false when there will be no more.
    fn wait(&self, now: impl Fn() -> Nanos) -> bool {
        let mut scans = self.scans.lock();
        while !self.is_stopping() {
            match scans.due().map(|due| due.0.saturating_sub(now().0)) {
                None => self.roused.wait(&mut scans),
                Some(0) => {
                    self.begin(&mut scans);
                    return true;
                }
                Some(nanos) => {
                    let time = Duration::from_nanos(nanos);
                    self.roused.wait_for(&mut scans, time);
                }
            }
        }
        false
    }

    /// Begins the first scan: before the first request, so that it misses no write.
    pub fn begin_first(&self) {
        self.begin(&mut self.scans.lock());
    }

    fn begin(&self, scans: &mut Scans) {
        scans.begin();
        self.number.store(scans.number(), Ordering::Release);
    }

    /// Notes that the core is told of the latest scan.
    pub fn reported(&self) {
        self.scans.lock().tell();
    }

    /// Makes a scan due, although no write calls for it.
    pub fn scan_again(&self, now: Nanos) {
        self.rouse(&mut self.scans.lock(), |scans| {
            scans.change(now);
            true
        });
    }

    /// Replaces what is known by something else from the same scan.
    pub fn replace(&self, watching: &Arc<Watching>) {
        *self.watching.write() = Arc::clone(watching);
    }

    /// Ends a scan: from now on writes are checked against it.
    pub fn end(&self, watching: &Arc<Watching>, now: Nanos) {
        let mut scans = self.scans.lock();
        *self.watching.write() = Arc::clone(watching);
        self.rouse(&mut scans, |scans| {
            scans.end(now, |span| watching.overlaps(span))
        });
        self.number.store(scans.number(), Ordering::Release);
    }
}
