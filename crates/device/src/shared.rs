//! What all threads of a volume share, and the one way to its core.

use crate::block::{BlockError, Replies, Request};
use crate::compare::nanos_since;
use crate::digest::Digester;
use crate::drive::{Batch, Inner, Life};
use crate::events::Events;
use crate::frames::FramePool;
use crate::gate;
use crate::recall;
use crate::requests::Pending;
use crate::scout::{Scout, Watched};
use crate::scrub::Scrubber;
use crate::sweep::Sweeper;
use crate::turns::Turns;
use crate::waits::Waits;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;
use vellum_core::addr::{BLOCK_BYTES, Nanos};
use vellum_core::room::Room;
use vellum_core::seam::{Input, Outcome};
use vellum_medium::Medium;

/// What the front ends' threads and the reaper share.
pub(crate) struct Shared {
    pub medium: Arc<dyn Medium>,
    pub inner: Mutex<Inner>,
    pub events: Events,
    pub frames: Arc<FramePool>,
    pub turns: Turns,
    pub digester: Digester,
    pub scout: Scout,
    pub sweeper: Sweeper,
    pub scrubber: Scrubber,
    pub waits: Waits,
    /// The volume's size.
    pub blocks: u64,
    pub origin: Instant,
    /// Whether the reaper has ended, and who waits for that.
    pub ended: Mutex<bool>,
    pub on_end: Condvar,
}

impl Shared {
    pub fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Does what a batch has left to do; not under the lock.
    pub fn finish(&self, batch: &mut Batch) {
        self.submit(batch);
        while !batch.prints.is_empty() {
            self.fingerprint(batch);
            self.submit(batch);
        }
    }

    /// Computes what the core waits for, and tells it.
    fn fingerprint(&self, batch: &mut Batch) {
        let began = Instant::now();
        let prints: Vec<_> = batch
            .prints
            .drain(..)
            .map(|(id, buf)| {
                // SAFETY: a frame that the core holds, unchanged, until it is told the fingerprint.
                let block =
                    unsafe { std::slice::from_raw_parts(self.frames.ptr(buf), BLOCK_BYTES) };
                (id, self.digester.fingerprint(block))
            })
            .collect();
        let nanos = nanos_since(began);
        let mut inner = self.inner.lock();
        inner.counters.fingerprint_nanos += nanos;
        if inner.busy || inner.life == Life::Abandoned {
            return;
        }
        inner.busy = true;
        for (id, print) in prints {
            let outcome = Outcome::Fingerprint(print);
            inner.feed(self.now(), Input::Done { id, outcome }, batch);
        }
        gate::let_go(self, &mut inner, self.now(), batch);
        let wake = ask_for_the_clock(&mut inner);
        inner.busy = false;
        drop(inner);
        if wake {
            self.medium.wake();
        }
    }

    fn submit(&self, batch: &mut Batch) {
        if !batch.ios.is_empty() {
            self.medium.submit(&mut batch.ios);
        }
        if !batch.released.is_empty() {
            self.frames.give_back(batch.released.drain(..));
        }
        // Before the refusals that it warns of.
        if let Some((level, room)) = batch.filled.take() {
            self.events.tell(level.name(), filled(room));
        }
        for trouble in batch.troubles.drain(..) {
            self.events
                .add(crate::refusals::kind(trouble), trouble.to_string());
        }
        for (kind, warning) in batch.warnings.drain(..) {
            self.events.add(kind, warning);
        }
        batch.answers.give(|pending, is_done| {
            if is_done {
                recall::answered(self, pending);
            }
            self.scout.answered(pending, is_done);
            if let Some(since) = pending.since {
                self.waits.note(since.elapsed());
            }
        });
    }

    /// Runs `f` under the lock, then does what it left; `None` when the volume has broken down.
    pub fn with_core<T>(&self, f: impl FnOnce(Nanos, &mut Inner, &mut Batch) -> T) -> Option<T> {
        let _guard = BreaksOnPanic::new(self);
        let mut batch = Batch::default();
        let mut inner = self.inner.lock();
        if inner.busy {
            return None;
        }
        inner.busy = true;
        let value = f(self.now(), &mut inner, &mut batch);
        gate::let_go(self, &mut inner, self.now(), &mut batch);
        let wake = ask_for_the_clock(&mut inner);
        inner.busy = false;
        drop(inner);
        self.finish(&mut batch);
        if wake {
            self.medium.wake();
        }
        Some(value)
    }

    /// Starts a request of our own, as `admit` has it. It is answered in any case.
    pub fn ask(
        &self,
        request: Request,
        replies: &Arc<dyn Replies>,
        admit: impl FnOnce(Nanos, &mut Inner, Pending, &mut Batch),
    ) {
        let mut pending = Some(Pending {
            request,
            sink: Arc::clone(replies),
            watched: Watched::default(),
            own: true,
            is_rest: false,
            since: None,
        });
        self.with_core(|now, inner, batch| {
            if inner.life == Life::Running
                && let Some(pending) = pending.take()
            {
                admit(now, inner, pending, batch);
            }
        });
        if let Some(Pending { request, sink, .. }) = pending {
            sink.complete(request, Err(BlockError::Stopping));
        }
    }

    /// Answers whoever has not been: nothing will come back any more.
    pub fn reaper_ended(&self) {
        let mut answers = crate::requests::Answers::default();
        {
            let mut inner = self.inner.lock();
            // It ends by itself only when the volume has: this was a panic, maybe outside the lock.
            inner.busy |= matches!(inner.life, Life::Running | Life::Stopping);
            let error = || {
                if inner.busy {
                    internal_error()
                } else {
                    BlockError::Stopping
                }
            };
            let error = error();
            // What the core holds does not come back.
            inner.frames.refuse_writes(Some(error.clone()));
            let waiting = inner.gate.drain();
            for pending in inner.requests.drain().chain(waiting) {
                answers.push(pending, Err(error.clone()));
            }
        }
        answers.give(|_, _| {});
        *self.ended.lock() = true;
        self.on_end.notify_all();
    }
}

/// Under the lock a panic leaves `busy` set, and after it something is not done that the core has asked for. Either way
/// the volume has broken down, and the reaper must see that to answer whoever waits.
pub(crate) struct BreaksOnPanic<'a> {
    shared: &'a Shared,
    unwound: bool,
}

impl<'a> BreaksOnPanic<'a> {
    pub fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            unwound: std::thread::panicking(),
        }
    }
}

impl Drop for BreaksOnPanic<'_> {
    fn drop(&mut self) {
        // A caller that unwinds already, and stops the volume on its way, has not been interrupted here.
        if std::thread::panicking() && !self.unwound {
            self.shared.inner.lock().busy = true;
            self.shared.medium.wake();
        }
    }
}

/// What to do about a thin volume that fills up.
fn filled(room: Room) -> String {
    let mib = |blocks: u64| (blocks * BLOCK_BYTES as u64) >> 20;
    format!(
        "warning: {} % of the space for data is in use, {} of {} MiB (clients see {} MiB): when it is full, new blocks get \
         ENOSPC. Delete files and run fstrim, or mount with discard (or `vellum set VOLUME freed=on`); or move it to a \
         larger volume with `vellum migrate`",
        room.percent(),
        mib(room.live),
        mib(room.capacity),
        mib(room.promised),
    )
}

pub(crate) fn internal_error() -> BlockError {
    BlockError::Io("the volume stopped on an internal error: restart it to recover".to_owned())
}

/// Notes when the core wants the clock; `true` when the reaper sleeps past that.
pub(crate) fn ask_for_the_clock(inner: &mut Inner) -> bool {
    match (inner.poll_timeout(), inner.deadline) {
        (Some(wanted), Some(known)) if wanted >= known => false,
        (None, _) => false,
        (wanted, _) => {
            inner.deadline = wanted;
            true
        }
    }
}
