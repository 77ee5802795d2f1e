//! Drops what mounted file systems have given up, without their saying so (CSA-FS §3): the rule is `vellum_ext4::freed`'s.
//!
//! The order that it asks for:
//! 1. Every request is seen by [`Reclaim::see`] before it is handed to the core, and again when it is answered.
//! 2. A run is taken and handed to the core, as a discard of our own, under the lock of the volume. So a write of one of
//!    its blocks was either seen before, and the block is not in the run, or it reaches the core later, and wins.
//! 3. Whenever the scout has to look again, nothing is followed until it has looked: what was known may be about a
//!    file system that is no longer there.
//!
//! Locks: the volume's before ours; ours alone where a request is seen.

use crate::block::{Op, Replies, Request};
use crate::drive::{Batch, Inner, Life};
use crate::frames::Frames;
use crate::limits::{FREED_RUN_BLOCKS, FREED_RUNS};
use crate::requests::{Pending, Unheard};
use crate::scout::Watched;
use crate::shared::Shared;
use crate::sight::span_of;
use crate::snapshots::keeper::Keeper;
use crate::stats::{FreedFileSystem, FreedStats};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vellum_core::addr::{BLOCK_BYTES, Lba, Nanos};
use vellum_ext4::freed::{Freed, FreedCounts};
use vellum_ext4::{Allowance, Scan, Source, Span};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// See the module.
#[derive(Default)]
pub(crate) struct Reclaim {
    /// Whether requests are to be seen at all.
    sees: AtomicBool,
    state: Mutex<State>,
    roused: Condvar,
}

#[derive(Default)]
struct State {
    /// By policy.
    wanted: bool,
    /// How often what is followed was given up.
    given_up: u64,
    followed: Vec<Freed>,
    /// Flushes sent so far.
    flushes: u64,
    is_due: bool,
    stopping: bool,
    /// Of what is no longer followed.
    past: FreedCounts,
    dropped_blocks: u64,
    discards: u64,
    file_systems: Vec<FreedFileSystem>,
}

/// What was seen in a request, for its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// It writes a bitmap whose answer counts.
    bitmap: bool,
    /// A flush's number; 0 of others.
    flush: u64,
}

impl Seen {
    /// Whether it writes a bitmap whose answer counts.
    pub fn is_bitmap(self) -> bool {
        self.bitmap
    }
}

impl Reclaim {
    /// Looks at a request that is about to be handed to the core.
    pub fn see(&self, request: &Request) -> Seen {
        let mut seen = Seen::default();
        if !self.sees.load(Ordering::Acquire) || request.op == Op::Read {
            return seen;
        }
        let mut state = self.state.lock();
        if request.op == Op::Flush {
            state.flushes += 1;
            seen.flush = state.flushes;
        }
        let span = span_of(request);
        for freed in &mut state.followed {
            match request.op {
                Op::Flush => freed.flush(seen.flush),
                _ if !freed.home().overlaps(span) => {}
                Op::Write { .. } => {
                    for index in 0..request.frames.len() {
                        let at = (request.lba.0 + index as u64) * BLOCK;
                        seen.bitmap |= freed.written(at, request.frames.block(index));
                    }
                }
                Op::Read | Op::Discard { .. } | Op::WriteZeroes { .. } => freed.blanked(span),
            }
        }
        seen
    }

    /// A request is about to be answered.
    pub fn answered(&self, pending: &Pending, is_done: bool) {
        let Seen { bitmap, flush } = pending.watched.seen;
        if !bitmap && flush == 0 {
            return;
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        if bitmap {
            let lbas = pending.request.lba.0..pending.request.lba.0 + pending.request.blocks;
            for freed in &mut state.followed {
                for lba in lbas.clone() {
                    freed.answered(lba * BLOCK, is_done);
                }
            }
        }
        if flush != 0 && is_done {
            for freed in &mut state.followed {
                state.is_due |= freed.flushed(flush);
            }
            if state.is_due {
                self.roused.notify_one();
            }
        }
    }

    /// What is followed is not to be believed any more.
    pub fn give_up(&self) {
        let mut state = self.state.lock();
        state.given_up += 1;
        self.let_go(&mut state);
    }

    fn let_go(&self, state: &mut State) {
        self.sees.store(false, Ordering::Release);
        for freed in state.followed.drain(..) {
            add(&mut state.past, freed.counts());
        }
        state.file_systems.clear();
    }

    /// A number that tells whether something was given up since.
    pub fn number(&self) -> u64 {
        self.state.lock().given_up
    }

    /// Whether freed blocks are to be dropped, from now on. Whether that is new, and calls for a scan.
    pub fn want(&self, wanted: bool) -> bool {
        let mut state = self.state.lock();
        let is_new = wanted && !state.wanted;
        state.wanted = wanted;
        if !wanted {
            self.let_go(&mut state);
        }
        is_new
    }

    /// Follows what a scan has found, if nothing has changed since its `number`.
    pub fn follow(&self, scan: &Scan, source: &mut dyn Source, blocks: u64, number: u64) {
        if !self.state.lock().wanted {
            return;
        }
        let mut followed = Vec::new();
        let mut file_systems = Vec::new();
        let mut allowance = Allowance::to_follow();
        for found in &scan.file_systems {
            let freed = Freed::new(found, source, blocks, &mut allowance);
            file_systems.push(FreedFileSystem {
                start: found.partition.start,
                not_followed: freed.as_ref().err().map(ToString::to_string),
            });
            followed.extend(freed);
        }
        let mut state = self.state.lock();
        if !state.wanted || state.given_up != number {
            return;
        }
        self.let_go(&mut state);
        // Two that overlap, of which one is a leftover: neither is believed.
        let homes: Vec<Span> = followed.iter().map(Freed::home).collect();
        let is_alone = |own: &Span| homes.iter().filter(|home| home.overlaps(*own)).count() == 1;
        followed.retain(|freed| is_alone(&freed.home()));
        for freed in &mut followed {
            freed.flush(state.flushes);
        }
        self.sees.store(!followed.is_empty(), Ordering::Release);
        state.followed = followed;
        state.file_systems = file_systems;
    }

    pub fn stats(&self) -> FreedStats {
        let state = self.state.lock();
        let mut counts = state.past;
        for freed in &state.followed {
            add(&mut counts, freed.counts());
        }
        FreedStats {
            on: state.wanted,
            file_systems: state.file_systems.clone(),
            commits: counts.commits,
            bitmap_copies: counts.copies,
            bitmaps_home: counts.homes,
            bitmaps_foreign: counts.foreign,
            bitmaps_refused: counts.refused,
            groups_left_out: counts.left_out,
            cancelled_blocks: counts.cancelled,
            waiting_blocks: state.followed.iter().map(Freed::waiting).sum(),
            discards: state.discards,
            dropped_blocks: state.dropped_blocks,
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        self.roused.notify_one();
    }

    /// Waits until there is something to drop; false when there will be nothing any more.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_due && !state.stopping {
            self.roused.wait(&mut state);
        }
        !state.stopping
    }
}

fn add(sum: &mut FreedCounts, more: FreedCounts) {
    sum.commits += more.commits;
    sum.copies += more.copies;
    sum.homes += more.homes;
    sum.foreign += more.foreign;
    sum.refused += more.refused;
    sum.cancelled += more.cancelled;
    sum.left_out += more.left_out;
}

/// The thread's whole life.
pub(crate) fn run(shared: &Arc<Shared>) {
    // A discard that is refused leaves its blocks where they are.
    let replies: Arc<dyn Replies> = Arc::new(Unheard);
    while shared.scout.freed.wait() {
        loop {
            // No snapshot is taken meanwhile.
            let _inside = shared.keeper.as_ref().map(Keeper::enter);
            let drops = |now, inner: &mut Inner, batch: &mut Batch| {
                drop_some(shared, &replies, now, inner, batch)
            };
            if shared.with_core(drops) != Some(true) {
                break;
            }
        }
    }
}

/// A discard of the volume's own.
fn discard(lba: Lba, blocks: u64, replies: &Arc<dyn Replies>) -> Pending {
    Pending {
        request: Request {
            tag: 0,
            op: Op::Discard { fua: false },
            lba,
            blocks,
            frames: Frames::default(),
        },
        sink: Arc::clone(replies),
        watched: Watched::default(),
        own: true,
        is_rest: false,
        since: None,
    }
}

/// Drops some runs; whether there are more. Under the volume's lock.
fn drop_some(
    shared: &Shared,
    replies: &Arc<dyn Replies>,
    now: Nanos,
    inner: &mut Inner,
    batch: &mut Batch,
) -> bool {
    let mut state = shared.scout.freed.state.lock();
    let state = &mut *state;
    if inner.life != Life::Running {
        state.is_due = false;
        return false;
    }
    for _ in 0..FREED_RUNS {
        let next = state
            .followed
            .iter_mut()
            .find_map(|freed| freed.take(FREED_RUN_BLOCKS));
        let Some(span) = next else {
            state.is_due = false;
            return false;
        };
        // What a snapshot reads there stays: `fstrim` drops it, which has it kept before.
        let may_change = |at: u64| {
            let keeper = shared.keeper.as_ref();
            (at, keeper.is_none_or(|keeper| keeper.may_change(Lba(at))))
        };
        let all = (span.start / BLOCK..span.end() / BLOCK).map(may_change);
        let all: Vec<(u64, bool)> = all.collect();
        for run in all.chunk_by(|one, next| one.1 == next.1) {
            let (first, may_change) = run[0];
            if !may_change {
                continue;
            }
            let (lba, blocks) = (Lba(first), run.len() as u64);
            let extents = inner.engine.extents(lba, blocks, run.len());
            let mapped = extents.iter().filter(|(_, mapped)| *mapped);
            let mapped: u64 = mapped.map(|(blocks, _)| blocks).sum();
            if mapped > 0 {
                state.dropped_blocks += mapped;
                state.discards += 1;
                inner.admit(now, discard(lba, blocks, replies), &[], batch);
            }
        }
    }
    true
}
