//! Drops blocks that mounted file systems have freed without a discard. The watch decides which blocks those are, and in which
//! order things must happen ([`FreeSpace`]). A run is handed to the core as a discard of the volume's own, under the volume's
//! lock.
//!
//! Locks: the volume's before this module's. Looking at a request takes this module's lock alone.

pub(crate) mod thread;

use crate::block::{Op, Request};
use crate::requests::Pending;
use crate::stats::{FreedFileSystem, FreedStats};
use crate::watching::change_of;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_ext4::Scan;
use vellum_ext4::Source;
use vellum_watch::{Followed, FreeSpace, Known, RequestSeen};

/// See the module.
#[derive(Default)]
pub(crate) struct Reclaim {
    /// Whether any file system is followed. If none is, no request takes the lock. Changes only under the lock.
    sees: AtomicBool,
    state: Mutex<State>,
    roused: Condvar,
}

#[derive(Default)]
struct State {
    space: FreeSpace,
    stopping: bool,
    dropped_blocks: u64,
    discards: u64,
}

impl Reclaim {
    /// Looks at a request that is about to be handed to the core.
    pub fn see(&self, request: &Request) -> RequestSeen {
        if !self.sees.load(Ordering::Acquire) {
            return RequestSeen::default();
        }
        match (change_of(request), request.op) {
            (Some(change), _) => self.state.lock().space.see(&change),
            (None, Op::Flush) => self.state.lock().space.flush(),
            (None, _) => RequestSeen::default(),
        }
    }

    /// Notes that a request is about to be answered.
    pub fn answered(&self, pending: &Pending, is_done: bool) {
        let seen = pending.watched.seen;
        if !seen.is_anything() {
            return;
        }
        let (first, blocks) = (pending.request.lba.0, pending.request.blocks);
        let space = &mut self.state.lock().space;
        space.answer(seen, (first, first + blocks), is_done);
        if space.is_due() {
            self.roused.notify_one();
        }
    }

    /// Changes what is followed.
    fn change<T>(&self, change: impl FnOnce(&mut FreeSpace) -> T) -> T {
        let space = &mut self.state.lock().space;
        let value = change(space);
        self.sees.store(space.is_followed(), Ordering::Release);
        value
    }

    /// Gives up what is followed: it is not to be trusted any more.
    pub fn give_up(&self) {
        self.change(FreeSpace::give_up);
    }

    /// A number that changes whenever something is given up.
    pub fn number(&self) -> u64 {
        self.state.lock().space.given_up()
    }

    /// Sets whether freed blocks are dropped from now on. Returns true if that is new, and calls for a scan.
    pub fn want(&self, wanted: bool) -> bool {
        self.change(|space| space.want(wanted))
    }

    /// Follows what a scan has found, if nothing has changed since its `number`.
    pub fn follow(&self, scan: &Scan, source: &mut dyn Source, blocks: u64, number: u64) {
        if self.state.lock().space.is_wanted() {
            let known = Known::read(scan, source, blocks);
            self.change(|space| space.follow(known, number));
        }
    }

    pub fn stats(&self) -> FreedStats {
        let state = self.state.lock();
        let counts = state.space.counts();
        let told = |found: &Followed| FreedFileSystem {
            start: found.start,
            not_followed: found.not_followed.map(|why| why.to_string()),
        };
        FreedStats {
            on: state.space.is_wanted(),
            file_systems: state.space.file_systems().iter().map(told).collect(),
            commits: counts.commits,
            bitmap_copies: counts.copies,
            bitmaps_home: counts.homes,
            bitmaps_foreign: counts.foreign,
            bitmaps_refused: counts.refused,
            groups_left_out: counts.left_out,
            cancelled_blocks: counts.cancelled,
            waiting_blocks: state.space.waiting(),
            discards: state.discards,
            dropped_blocks: state.dropped_blocks,
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.roused.notify_one();
    }

    /// Waits until there is something to drop; returns false when there never will be again.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.space.is_due() && !state.stopping {
            self.roused.wait(&mut state);
        }
        !state.stopping
    }
}
