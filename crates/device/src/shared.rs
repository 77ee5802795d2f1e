//! What all threads of a volume share, and the only way to its core.

use crate::block::{BlockError, Op, Replies, Request, answer_to};
use crate::choices::Choices;
use crate::compare::nanos_since;
use crate::digest::Digester;
use crate::drive::entered::Entered;
use crate::drive::{Batch, Inner, Phase};
use crate::events::Events;
use crate::frames::FramePool;
use crate::gate::Turn;
use crate::gate::passage::Passage;
use crate::limits::HELD_UP_WAITS;
use crate::recall;
use crate::requests::{Pending, given_back};
use crate::scout::Scout;
use crate::scratch::Scratch;
use crate::scrub::scrubber::Scrubber;
use crate::snapshots::keeper::Keeper;
use crate::sweep::sweeper::Sweeper;
use crate::turns::Turns;
use crate::waits::Waits;
use crate::watched::{Answered, Watched};
use parking_lot::{Condvar, Mutex, MutexGuard};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vellum_core::addr::{BLOCK_BYTES, Nanos};
use vellum_core::room::Room;
use vellum_core::seam::{Input, Outcome};
use vellum_core::size::Size;
use vellum_medium::Medium;

/// What the front ends' threads and the reaper share.
pub(crate) struct SharedVolume {
    pub medium: Arc<dyn Medium>,
    pub inner: Mutex<Inner>,
    /// Signalled when the core has been handed a batch with answered writes.
    pub handed_over: Condvar,
    pub events: Events,
    pub frames: Arc<FramePool>,
    /// Takes the answers of requests that are answered already.
    pub unheard: Arc<dyn Replies>,
    pub turns: Turns,
    pub digester: Digester,
    /// What the user has chosen.
    pub choices: Choices,
    pub scout: Scout,
    pub sweeper: Sweeper,
    pub scrubber: Scrubber,
    pub waits: Waits,
    /// The keeper of snapshots, if there is room for any.
    pub keeper: Option<Keeper>,
    /// The volume's size.
    pub blocks: u64,
    pub origin: Instant,
    /// Whether the reaper has ended; `on_end` is signalled then.
    pub ended: Mutex<bool>,
    pub on_end: Condvar,
}

impl SharedVolume {
    pub fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The way through the gate, for whoever holds the volume's lock.
    pub fn passage<'a>(
        &'a self,
        now: Nanos,
        inner: &'a mut Inner,
        batch: &'a mut Batch,
    ) -> Passage<'a> {
        Passage {
            scout: &self.scout,
            keeper: self.keeper.as_ref(),
            inner,
            now,
            batch,
        }
    }

    /// Does what is left of a batch; not under the lock.
    pub fn finish(&self, batch: &mut Batch) {
        self.submit(batch);
        while !batch.prints.is_empty() {
            self.fingerprint(batch);
            self.submit(batch);
        }
    }

    /// Computes the fingerprints that the core waits for, and reports them.
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
        let Some(mut inner) = self.enter() else {
            return;
        };
        inner.counters.fingerprint_nanos += nanos;
        for (id, print) in prints {
            let outcome = Outcome::Fingerprint(print);
            inner.feed(self.now(), Input::Done { id, outcome }, batch);
        }
        self.leave(inner, batch);
    }

    fn submit(&self, batch: &mut Batch) {
        if !batch.ios.is_empty() {
            self.medium.submit(&mut batch.ios);
        }
        if !batch.released.is_empty() {
            self.frames.give_back(batch.released.drain(..));
        }
        // Before the refusals that it warns of.
        if let Some((level, room, grows)) = batch.filled.take() {
            self.events.tell(level.name(), filled(room, grows));
            if let Some(keeper) = &self.keeper {
                keeper.schedule.rouse();
            }
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
                recall::answered(pending, &self.scout, &self.digester, &self.inner);
            }
            self.scout.answered(pending, is_done, || self.now());
            if let Some(since) = pending.since {
                self.waits.note(since.elapsed());
            }
        });
    }

    /// Answers those writes of a batch that may be answered before the core has them (`gate/early.rs`). Returns when the batch may
    /// be handed over.
    pub fn answer_first(
        &self,
        requests: &[Request],
        replies: &Arc<dyn Replies>,
        scratch: &mut Scratch,
    ) -> Turn {
        let is_plain =
            |request: &Request| request.op == (Op::Write { fua: false }) && request.blocks > 0;
        // Only plain writes are answered first, and to know whether there is room takes two locks.
        let has_plain = requests.iter().any(is_plain);
        let mut runs = SmallVec::new();
        let mut inner = self.inner.lock();
        let mut turn = inner.gate.early.turn(requests);
        let is_running =
            !inner.has_broken_down() && inner.phase == Phase::Running && inner.gate.early.is_open();
        if is_running && has_plain && inner.core.may_answer(self.frames.being_written()) {
            for (request, (refusal, watched)) in requests.iter().zip(&mut scratch.verdicts) {
                let is_followed = watched.marks || watched.held.touched || watched.seen.is_bitmap();
                if refusal.is_none() && is_plain(request) && !is_followed {
                    watched.answered = Answered::First;
                    runs.push((request.lba.0, request.blocks));
                }
            }
        }
        inner.gate.early.begin(&mut turn, runs);
        drop(inner);
        let answers = &mut scratch.batch.answers;
        for (request, (_, watched)) in requests.iter().zip(&scratch.verdicts) {
            if watched.answered == Answered::First {
                let pending = Pending::new(given_back(request), replies, Watched::default());
                answers.push(pending, Ok(()));
            }
        }
        answers.give(|_, _| {});
        turn
    }

    /// Takes the lock when it is that batch's turn, or when the volume has broken down and no turn comes any more.
    pub fn in_turn(&self, turn: &Turn) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        while !inner.has_broken_down() && !inner.gate.early.is_due(turn) {
            self.handed_over.wait(&mut inner);
        }
        inner
    }

    /// Takes the lock once the core has been handed everything that is answered by now.
    pub fn knowing_all(&self) -> MutexGuard<'_, Inner> {
        let turn = self.inner.lock().gate.early.turn_of_all();
        self.in_turn(&turn)
    }

    /// Waits until `condition` holds while the core has every write that has been answered. Returns false after [`HELD_UP_WAITS`] looks, a
    /// millisecond apart. The caller keeps new requests out meanwhile.
    pub fn wait_until(&self, condition: impl Fn(&Inner) -> bool) -> bool {
        for _ in 0..HELD_UP_WAITS {
            if condition(&self.knowing_all()) {
                return true;
            }
            // The lock is released by now.
            std::thread::sleep(Duration::from_millis(1));
        }
        false
    }

    /// Takes the lock to let the core work; `None` when the volume has broken down.
    pub fn enter(&self) -> Option<Entered<'_>> {
        Entered::new(self.inner.lock()).ok()
    }

    /// Lets everything go on that may, and releases the lock. Wakes the reaper if the core wants the clock before the reaper would
    /// look at it.
    pub fn leave(&self, mut inner: Entered<'_>, batch: &mut Batch) {
        self.passage(self.now(), &mut inner, batch).let_go();
        let wake = ask_for_the_clock(&mut inner);
        inner.exit();
        if wake {
            self.medium.wake();
        }
    }

    /// Runs `f` under the lock, then does the work that it left in the batch; `None` when the volume has broken down.
    pub fn with_core<T>(&self, f: impl FnOnce(Nanos, &mut Inner, &mut Batch) -> T) -> Option<T> {
        let _guard = BreaksOnPanic::new(self);
        let mut batch = Batch::default();
        let mut inner = self.enter()?;
        let value = f(self.now(), &mut inner, &mut batch);
        self.leave(inner, &mut batch);
        self.finish(&mut batch);
        Some(value)
    }

    /// Starts a request of the volume's own, through `admit`. It is answered in any case.
    fn ask(
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
            if inner.phase == Phase::Running
                && let Some(pending) = pending.take()
            {
                admit(now, inner, pending, batch);
            }
        });
        if let Some(Pending { request, sink, .. }) = pending {
            sink.complete(request, Err(BlockError::Stopping));
        }
    }

    /// Carries out a request of the volume's own, through `admit`, and waits for it.
    ///
    /// # Errors
    /// The error that it is answered with.
    pub fn call(
        &self,
        request: Request,
        admit: impl FnOnce(Nanos, &mut Inner, Pending, &mut Batch),
    ) -> Result<Request, BlockError> {
        answer_to(|replies| self.ask(request, replies, admit))
    }

    /// The same, for one that takes no frames with it.
    pub fn call_plain(&self, request: Request) -> Result<Request, BlockError> {
        self.call(request, |now, inner, pending, batch| {
            inner.admit(now, pending, &[], batch);
        })
    }

    /// Answers all outstanding requests, because nothing will come back any more.
    pub fn reaper_ended(&self) {
        let mut answers = crate::requests::Answers::default();
        {
            let mut inner = self.inner.lock();
            // The reaper ends by itself only after the volume has: this was a panic, perhaps outside the lock.
            if matches!(inner.phase, Phase::Running | Phase::Stopping) {
                inner.break_down();
            }
            let error = match inner.has_broken_down() {
                true => internal_error(),
                false => BlockError::Stopping,
            };
            // The frames that the core holds do not come back.
            inner.frames.refuse_writes(Some(error.clone()));
            let waiting = inner.gate.drain();
            for pending in inner.requests.drain().chain(waiting) {
                answers.push(pending, Err(error.clone()));
            }
        }
        self.handed_over.notify_all();
        answers.give(|_, _| {});
        *self.ended.lock() = true;
        self.on_end.notify_all();
    }
}

/// A panic under the lock interrupts the core; a panic after it leaves something undone that the core has requested. Either way the
/// volume has broken down, and the reaper must see that to answer the waiting requests.
pub(crate) struct BreaksOnPanic<'a> {
    shared: &'a SharedVolume,
    unwound: bool,
}

impl<'a> BreaksOnPanic<'a> {
    pub fn new(shared: &'a SharedVolume) -> Self {
        Self {
            shared,
            unwound: std::thread::panicking(),
        }
    }
}

impl Drop for BreaksOnPanic<'_> {
    fn drop(&mut self) {
        // A caller that is unwinding already, and stops the volume on its way, has not been interrupted here.
        if std::thread::panicking() && !self.unwound {
            self.shared.inner.lock().break_down();
            self.shared.handed_over.notify_all();
            self.shared.medium.wake();
        }
    }
}

/// Advice about a volume that fills up.
fn filled(room: Room, grows: bool) -> String {
    let size = |blocks: u64| Size::of_blocks(blocks);
    let help = match (room.is_thin(), grows) {
        (true, true) => {
            "Delete files and run fstrim, or mount with discard (or `vellum set VOLUME freed=on`); or \
             give it more room: `vellum grow VOLUME --medium-size SIZE`"
        }
        (true, false) => {
            "Delete files and run fstrim, or mount with discard (or `vellum set VOLUME freed=on`); or \
             copy it into a volume with more room: `vellum migrate`"
        }
        (false, _) => {
            "Snapshots use this space: delete some with `vellum delete`. Scheduled snapshots are \
             deleted automatically"
        }
    };
    format!(
        "warning: {} % of the space for data is in use, {} of {} (clients see {}): when it is full, \
         new blocks get ENOSPC. {help}",
        room.percent(),
        size(room.live),
        size(room.capacity),
        size(room.promised),
    )
}

pub(crate) fn internal_error() -> BlockError {
    BlockError::Io("the volume stopped on an internal error: restart it to recover".to_owned())
}

/// Notes when the core wants the clock. Returns `true` if the reaper has to be woken: it would sleep past that time, or the volume
/// ends, which the reaper must notice even if no operation on the medium is left to wake it.
fn ask_for_the_clock(inner: &mut Inner) -> bool {
    let ends = inner.phase != Phase::Running;
    let sleeps_past = match (inner.poll_timeout(), inner.deadline) {
        (Some(wanted), Some(known)) if wanted >= known => false,
        (None, _) => false,
        (wanted, _) => {
            inner.deadline = wanted;
            true
        }
    };
    ends || sleeps_past
}
