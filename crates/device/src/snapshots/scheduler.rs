//! What the thread of a volume's own history is told, and what it tells.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;
use vellum_core::snapshots::{Schedule, Span};

/// See the module.
#[derive(Default)]
pub(crate) struct Scheduler {
    orders: Mutex<Orders>,
    roused: Condvar,
}

#[derive(Default)]
struct Orders {
    stopping: bool,
    is_roused: bool,
    schedule: Schedule,
    /// Its user has just said what is to stay.
    thins_all: bool,
    counts: Counts,
}

/// What there was to do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub taken: u64,
    pub deleted: u64,
    pub deleted_for_room: u64,
    pub failed: u64,
}

impl Scheduler {
    /// That of a volume that is opened.
    pub fn begin(&self, schedule: Schedule) {
        self.orders.lock().schedule = schedule;
    }

    /// As its user wants it from now on.
    pub fn set(&self, schedule: Schedule) {
        let mut orders = self.orders.lock();
        orders.thins_all |= orders.schedule.keep != schedule.keep;
        orders.schedule = schedule;
        drop(orders);
        self.rouse();
    }

    /// Has the thread look again.
    pub fn rouse(&self) {
        self.orders.lock().is_roused = true;
        self.roused.notify_one();
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.orders.lock().stopping = true;
        self.roused.notify_one();
    }

    /// How often there is one, if there is, and what there was to do so far.
    pub fn counts(&self) -> (Option<Span>, Counts) {
        let orders = self.orders.lock();
        (orders.schedule.every, orders.counts)
    }

    /// Counts.
    pub fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.orders.lock().counts);
    }

    /// Whether it is to end.
    pub fn is_stopping(&self) -> bool {
        self.orders.lock().stopping
    }

    /// Waits so long, or until it is roused; `None` when it is to end.
    pub fn wait(&self, time: Option<Duration>) -> Option<(Schedule, bool)> {
        let mut orders = self.orders.lock();
        if !orders.stopping && !orders.is_roused {
            match time {
                Some(time) => drop(self.roused.wait_for(&mut orders, time)),
                None => self.roused.wait(&mut orders),
            }
        }
        orders.is_roused = false;
        let thins_all = std::mem::take(&mut orders.thins_all);
        (!orders.stopping).then(|| (orders.schedule.clone(), thins_all))
    }
}
