//! Orders for the thread of a volume's own history, and its counters.

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
    /// The user has just changed what is to stay.
    thins_all: bool,
    counts: Counts,
}

/// What the thread has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub taken: u64,
    pub deleted: u64,
    pub deleted_for_room: u64,
    pub failed: u64,
}

impl Scheduler {
    /// Begins with the schedule of a volume that is opened.
    pub fn begin(&self, schedule: Schedule) {
        self.orders.lock().schedule = schedule;
    }

    /// Sets the schedule that the user wants from now on.
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

    /// The interval of the schedule, if there is one, and the counters.
    pub fn counts(&self) -> (Option<Span>, Counts) {
        let orders = self.orders.lock();
        (orders.schedule.every, orders.counts)
    }

    /// True if the volume takes snapshots by itself.
    pub fn is_on(&self) -> bool {
        self.orders.lock().schedule.every.is_some()
    }

    /// Counts.
    pub fn count(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.orders.lock().counts);
    }

    /// True if the thread is to end.
    pub fn is_stopping(&self) -> bool {
        self.orders.lock().stopping
    }

    /// Waits for `time`, or until it is roused; returns `None` when the thread is to end.
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
