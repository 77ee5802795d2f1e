//! A volume: the core, a medium, and the threads of its callers.
//!
//! There is no event loop in the way of a request. A front end's thread computes the digests of what it brings, takes the lock,
//! lets the core decide, releases the lock, submits what the core requested and gives the answers that are ready. What the medium
//! finishes comes back on the [reaper](crate::reaper).
//!
//! What must hold:
//! 1. The core is reached under one lock, and everything it requests is taken before the lock is released.
//! 2. The lock is never held during an answer, or while a block is digested. It is held during I/O only where the core reads a leaf that
//!    is not in memory, as a discard does (decision 0058).
//! 3. Memory that the medium may touch is neither freed nor reused until the operation is back: frames are the request's or the
//!    core's; metadata is kept under its effect's number; what is read for a comparison is kept by its read.

mod choices;
mod services;
mod snapshots;
mod stats;

use crate::block::{BlockDevice, BlockError, Extent, Op, Replies, Request};
use crate::choices::Choices;
use crate::damage::Damage;
use crate::digest::{Digester, crc32c};
use crate::drive::entered::Entered;
use crate::drive::{Batch, Inner, Phase};
use crate::encoding::digest_all;
use crate::events::{Event, Events};
use crate::frames::{FramePool, Frames};
use crate::freed;
use crate::gate::{self, Turn};
use crate::info::VolumeInfo;
use crate::layouts;
use crate::limits::{STOP_LOOKS, STOP_TELLS};
use crate::options::{CreateError, CreateOptions, OpenError, OpenOptions, StopError};
use crate::orders;
use crate::reaper::{finish_here, reap};
use crate::refusals::restored;
use crate::requests::{Pending, Unheard};
use crate::scout::{self, Scout};
use crate::scratch::{SCRATCH, Scratch, Verdict};
use crate::scrub::{self, scrubber::Scrubber};
use crate::shared::{BreaksOnPanic, SharedVolume, internal_error};
use crate::snapshots::{keep_for, keeper::Keeper};
use crate::source::MediumSource;
use crate::start;
use crate::stats::RecoveryStats;
use crate::sweep::{self, sweeper::Sweeper};
use crate::turns::Turns;
use crate::waits::Waits;
use crate::watched::{Answered, Watched};
use crate::watching::{JournalEntry, Watching, change_of};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::iter;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use vellum_core::addr::Lba;
use vellum_core::engine::Buffers;
use vellum_core::format::superblock::Superblock;
use vellum_core::layout::Core;
use vellum_core::seam::{Hint, Input};
use vellum_medium::Medium;
use vellum_watch::journals;

/// A volume that is being served.
pub struct Volume {
    pub(crate) shared: Arc<SharedVolume>,
    /// All threads of the volume.
    threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) superblock: Superblock,
    recovery: RecoveryStats,
    damage: Option<Damage>,
    pub(crate) read_only: bool,
    /// See [`OpenOptions::copying`].
    copying: bool,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume")
            .field("medium", &self.shared.medium.name())
            .finish_non_exhaustive()
    }
}

fn no_memory(source: std::io::Error) -> OpenError {
    let what = "memory";
    OpenError::System { what, source }
}

impl Volume {
    /// Makes a new volume on a medium. Nothing on the medium shows it before the last write.
    ///
    /// # Errors
    /// When the medium cannot hold it or fails, or when a volume is there and `force` is not set.
    pub fn create(medium: &dyn Medium, options: &CreateOptions) -> Result<VolumeInfo, CreateError> {
        let superblock = start::create(medium, options)?;
        Ok(VolumeInfo::new(medium.name(), &superblock, false))
    }

    /// Opens a volume: recovers it, begins a new life (unless read-only), and serves it until [`Volume::stop`]. Dropped without
    /// that, it leaves the medium as a crash would.
    ///
    /// # Errors
    /// When the medium does not hold a whole volume, or the medium or the system fails.
    pub fn open(medium: Arc<dyn Medium>, options: &OpenOptions) -> Result<Self, OpenError> {
        options.check()?;
        let (write, read) = (options.write_frames, options.read_frames);
        let frames = FramePool::new(write, read, options.collector_frames).map_err(no_memory)?;
        Self::open_with(medium, options, frames)
    }

    /// Opens it with existing memory, which has the size that `options` say.
    pub(crate) fn open_with(
        medium: Arc<dyn Medium>,
        options: &OpenOptions,
        frames: Arc<FramePool>,
    ) -> Result<Self, OpenError> {
        let began = Instant::now();
        let mut source = MediumSource::new(&*medium);
        let (mut recovered, damage) = start::recover(&medium, &mut source, options)?;
        layouts::check_choice(
            recovered.superblock(),
            &options.policy,
            options.persistence,
            &options.journals,
        )?;
        let replayed = recovered.replayed();
        if !options.read_only {
            start::begin_life(&*medium, &mut source, &mut recovered)?;
        }
        let recovery = RecoveryStats::of(began, replayed, source.read_blocks());
        let superblock = recovered.superblock().clone();
        if options.read_only {
            recovered.read_alone();
        }
        let buffers = Buffers {
            first: frames.first_extra(),
            count: options.collector_frames,
        };
        let how = start::core_options(&*medium, options);
        let journals = journals::all(&options.journals, superblock.logical_blocks())?;
        let core = Core::new(recovered, buffers, how, options.persistence, crc32c);
        let shared = Arc::new(SharedVolume {
            medium,
            inner: Mutex::new(Inner::new(
                core,
                Arc::clone(&frames),
                superblock.sum(crc32c),
                options.read_only,
            )),
            events: Events::new(options.on_event.clone()),
            frames,
            handed_over: Condvar::new(),
            unheard: Arc::new(Unheard),
            turns: Turns::default(),
            digester: Digester::new(&superblock),
            choices: Choices::new(options.policy(), journals),
            scout: Scout::default(),
            sweeper: Sweeper::default(),
            scrubber: Scrubber::default(),
            waits: Waits::default(),
            keeper: Keeper::of(&superblock),
            blocks: superblock.logical_blocks(),
            origin: Instant::now(),
            ended: Mutex::new(false),
            on_end: Condvar::new(),
        });
        let mut volume = Self {
            threads: Mutex::default(),
            read_only: options.read_only,
            copying: options.copying,
            shared,
            superblock,
            recovery,
            damage,
        };
        volume.start()?;
        volume.begin_history(options)?;
        Ok(volume)
    }

    fn start(&mut self) -> Result<(), OpenError> {
        self.spawn("vellum-reaper", reap)?;
        // Takes what the core requested when it was made.
        let found = self.shared.with_core(|_, inner, batch| {
            inner.drain(batch);
            inner.core.stats()
        });
        if let Some(damage) = found.as_ref().and_then(layouts::damage) {
            self.shared.events.add("tables", damage);
        }
        if self.recovery.from_copies > 0 {
            let blocks = self.recovery.from_copies;
            self.shared.events.add("damage", restored(blocks));
        }
        if let Some(damage) = &self.damage {
            self.shared.events.add("damage", damage.describe());
        }
        let (superblock, read_only) = (self.superblock.clone(), self.read_only);
        self.spawn("vellum-scrub", move |shared| {
            scrub::run(shared, &superblock, read_only)
        })?;
        if !self.read_only {
            self.shared.scout.begin_first();
            orders::begin(&self.shared)?;
            self.spawn("vellum-scout", scout::thread::run)?;
            self.spawn("vellum-freed", freed::thread::run)?;
            let superblock = self.superblock.clone();
            self.spawn("vellum-sweeper", move |shared| {
                sweep::run(shared, &superblock)
            })?;
        }
        Ok(())
    }

    /// Stops cleanly: takes no more requests, makes everything durable, checkpoints the map, and waits for everything in flight.
    /// A second call does nothing.
    ///
    /// # Errors
    /// When the volume could not be left clean; the next opening recovers it.
    pub fn stop(&self) -> Result<(), StopError> {
        self.stop_telling(|| {})
    }

    /// Like [`stop`](Self::stop), but waits while the medium has no room for the last writes, and calls `no_room` then, and again
    /// every [`STOP_TELLS`].
    ///
    /// # Errors
    /// As for [`stop`](Self::stop).
    pub fn stop_telling(&self, no_room: impl FnMut()) -> Result<(), StopError> {
        self.end_history();
        self.shared.inner.lock().gate.early.close();
        drop(self.shared.knowing_all());
        let asked = self.shared.with_core(|now, inner, batch| {
            if inner.phase != Phase::Running {
                return;
            }
            if self.read_only {
                inner.phase = Phase::Abandoned;
            } else {
                self.shared.passage(now, inner, batch).hand_on(None);
                inner.phase = Phase::Stopping;
                inner.feed(now, Input::Shutdown, batch);
            }
        });
        self.join(no_room);
        let inner = self.shared.inner.lock();
        if asked.is_none() || inner.has_broken_down() {
            return Err(StopError::Internal);
        }
        let damaged = inner.core.damaged_table();
        match inner.core.stats().poisoned {
            0 => Ok(()),
            _ => Err(damaged.map_or(StopError::Poisoned, StopError::MapDamaged)),
        }
    }

    /// True if the medium had no room for the last write: a stop would wait for some.
    #[must_use]
    pub fn lacks_room(&self) -> bool {
        self.shared.inner.lock().full
    }

    fn join(&self, mut no_room: impl FnMut()) {
        self.shared.medium.wake();
        let mut tell_at = Instant::now();
        let mut ended = self.shared.ended.lock();
        while !*ended {
            let looks = self.shared.on_end.wait_for(&mut ended, STOP_LOOKS);
            if looks.timed_out() && Instant::now() >= tell_at {
                MutexGuard::unlocked(&mut ended, || {
                    if self.shared.inner.lock().full {
                        no_room();
                        tell_at = Instant::now() + STOP_TELLS;
                    }
                });
            }
        }
        drop(ended);
        self.shared.scout.stop();
        self.shared.scout.freed.stop();
        self.shared.sweeper.stop();
        self.shared.scrubber.stop();
        self.end_history();
        for thread in self.threads.lock().drain(..) {
            // A panic of the reaper breaks the volume down; one of the scout leaves journals unknown.
            let _ = thread.join();
        }
    }

    /// What went wrong lately, each kind of trouble once.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.shared.events.list()
    }

    /// What is missing, if it was opened in spite of damage.
    #[must_use]
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Hands requests to the core.
    fn pass_on(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        let shared = &*self.shared;
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let watching = shared.scout.watching();
        self.judge(requests, &watching, &mut scratch.verdicts);
        let _guard = BreaksOnPanic::new(shared);
        let turn = shared.answer_first(requests, replies, &mut scratch);
        digest_all(shared, &watching.1, requests, &mut scratch);
        self.hand_over(requests, replies, &watching.1, &turn, &mut scratch);
        self.finish(replies, &mut scratch.batch);
        SCRATCH.set(Some(scratch));
    }

    /// What the volume is.
    #[must_use]
    pub fn info(&self) -> VolumeInfo {
        VolumeInfo::new(self.shared.medium.name(), &self.superblock, self.read_only)
    }

    /// Does what is left of a batch, on the submitter's thread.
    fn finish(&self, replies: &Arc<dyn Replies>, batch: &mut Batch) {
        match replies.lends_thread() {
            true => finish_here(&self.shared, batch),
            false => self.shared.finish(batch),
        }
    }

    /// Decides for each request of a batch whether it is refused, and checks it against the scout's findings.
    fn judge(
        &self,
        requests: &[Request],
        watching: &(u64, Arc<Watching>),
        verdicts: &mut Vec<Verdict>,
    ) {
        let scout = &self.shared.scout;
        for request in requests {
            let refusal = self.verdict(request);
            let mut watched = Watched::default();
            if refusal.is_none() {
                if let Some(change) = change_of(request) {
                    watched = scout.hold(watching, &change);
                }
                watched.seen = scout.freed.see(request);
                watched.marks = !self.copying && gate::has_marks(request);
            }
            verdicts.push((refusal, watched));
        }
    }

    /// Hands a batch to the core when it is the batch's turn.
    fn hand_over(
        &self,
        requests: &mut Vec<Request>,
        replies: &Arc<dyn Replies>,
        watching: &Arc<Watching>,
        turn: &Turn,
        scratch: &mut Scratch,
    ) {
        let awaited = match Entered::new(self.shared.in_turn(turn)) {
            Ok(mut inner) => {
                let Scratch {
                    payloads, pairs, ..
                } = scratch;
                if payloads.len() > 1 {
                    let sums = payloads.iter().map(|payload| payload.digest.sum);
                    inner.core.look_ahead_contents(sums);
                }
                if !pairs.is_empty() {
                    let hint = Input::Hint(Hint::Journaled { pairs });
                    inner.feed(self.shared.now(), hint, &mut scratch.batch);
                }
                let refusal = (inner.phase != Phase::Running).then_some(BlockError::Stopping);
                self.pass_all(&mut inner, requests, replies, watching, (scratch, refusal));
                let awaited = inner.gate.early.handed_over(turn);
                self.shared.leave(inner, &mut scratch.batch);
                awaited
            }
            Err(mut inner) => {
                let refusal = Some(internal_error());
                self.pass_all(&mut inner, requests, replies, watching, (scratch, refusal));
                inner.gate.early.handed_over(turn)
            }
        };
        if awaited {
            self.shared.handed_over.notify_all();
        }
    }

    /// Passes each request of a batch to the gate, with its share of what was computed before.
    fn pass_all(
        &self,
        inner: &mut Inner,
        requests: &mut Vec<Request>,
        replies: &Arc<dyn Replies>,
        watching: &Arc<Watching>,
        (scratch, refusal): (&mut Scratch, Option<BlockError>),
    ) {
        let mut rest = scratch.payloads.as_mut_slice();
        let mut rest_found = scratch.found.as_slice();
        let now = self.shared.now();
        let mut passage = self.shared.passage(now, inner, &mut scratch.batch);
        let mut entries = scratch.entries.drain(..).peekable();
        for (number, (request, (verdict, watched))) in requests
            .drain(..)
            .zip(scratch.verdicts.drain(..))
            .enumerate()
        {
            let digested = if verdict.is_none() && matches!(request.op, Op::Write { .. }) {
                request.frames.len()
            } else {
                0
            };
            let (blocks, others) = rest.split_at_mut(digested);
            rest = others;
            let (found, others) = rest_found.split_at(digested.min(rest_found.len()));
            rest_found = others;
            let sink = if watched.answered == Answered::First {
                &self.shared.unheard
            } else {
                replies
            };
            let pending = Pending::new(request, sink, watched);
            let own = iter::from_fn(|| entries.next_if(|entry| entry.request == number));
            let mut own: Vec<JournalEntry> = own.collect();
            let write = gate::Write {
                pending,
                blocks,
                found,
                entries: &mut own,
                watching,
            };
            match verdict.or_else(|| refusal.clone()) {
                Some(error) => passage.refuse(write.pending, error),
                None => passage.pass(write),
            }
        }
        drop(entries);
        scratch.payloads.clear();
        scratch.found.clear();
        scratch.pairs.clear();
    }

    /// Why a request is refused before the core sees it.
    fn verdict(&self, request: &Request) -> Option<BlockError> {
        let writes = !matches!(request.op, Op::Read | Op::Flush);
        if writes && self.read_only {
            return Some(BlockError::ReadOnly);
        }
        if request.op == Op::Flush {
            return None;
        }
        let (lba, blocks, size) = (request.lba.0, request.blocks, self.blocks());
        if lba.checked_add(blocks).is_none_or(|end| end > size) {
            return Some(BlockError::OutOfRange { lba, blocks, size });
        }
        let frames = request.frames.len() as u64;
        if matches!(request.op, Op::Read | Op::Write { .. }) && frames != blocks {
            return Some(BlockError::Io(format!(
                "a request of {blocks} blocks came with {frames} frames"
            )));
        }
        let damage = self.damage.as_ref()?;
        let lost = damage.first_lost(request.lba, blocks)?;
        Some(BlockError::Io(format!(
            "LBA {lost} is lost: its metadata is damaged; `vellum rescue` recovers what can be found"
        )))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        {
            let mut inner = self.shared.inner.lock();
            if inner.phase != Phase::Stopped {
                inner.phase = Phase::Abandoned;
            }
        }
        if !self.threads.get_mut().is_empty() {
            self.join(|| {});
        }
    }
}

impl BlockDevice for Volume {
    fn blocks(&self) -> u64 {
        self.superblock.logical_blocks()
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn frames(&self) -> &Arc<FramePool> {
        &self.shared.frames
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        let Some(keeper) = self.shared.keeper.as_ref().filter(|_| !self.read_only) else {
            return self.pass_on(requests, replies);
        };
        let _is_open = keeper.enter();
        keep_for(&self.shared, keeper, requests, replies);
        self.pass_on(requests, replies);
    }

    fn refused(&self, lba: Lba, blocks: u64, why: &BlockError) {
        if lba.0.saturating_add(blocks) <= self.blocks() {
            let write = Request::new(Op::Write { fua: false }, lba, blocks, Frames::default());
            self.shared
                .with_core(|now, inner, _| inner.gate.refused(now, &write, why));
        }
    }

    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        let turn = self
            .shared
            .inner
            .lock()
            .gate
            .early
            .turn_of_read(lba.0, blocks);
        let inner = self.shared.in_turn(&turn);
        if inner.has_broken_down() || inner.gate.holds_answered() {
            // Broken down, or a write is answered that the core does not know of: report nothing as zeros.
            return vec![Extent {
                blocks,
                mapped: true,
            }];
        }
        let mut blocks = blocks;
        // Lost blocks are not reported as zeros.
        if let Some(damage) = &self.damage
            && let Some(lost) = damage.first_lost(lba, blocks)
        {
            if lost == lba {
                return vec![Extent {
                    blocks: damage.lost_from(lba, blocks),
                    mapped: true,
                }];
            }
            blocks = lost.0 - lba.0;
        }
        let extents = inner.core.extents(lba, blocks, max.max(1));
        extents
            .into_iter()
            .map(|(blocks, mapped)| Extent { blocks, mapped })
            .collect()
    }
}
