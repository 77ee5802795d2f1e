//! The thread that hands freed blocks to the core.

use crate::block::{Op, Replies, Request};
use crate::drive::{Batch, Inner, Phase};
use crate::frames::Frames;
use crate::limits::FREED_RUNS;
use crate::requests::{Pending, Unheard};
use crate::shared::SharedVolume;
use crate::snapshots::keeper::Keeper;
use crate::watched::Watched;
use std::sync::Arc;
use vellum_core::addr::{Lba, Nanos};

/// The thread's main loop.
pub(crate) fn run(shared: &Arc<SharedVolume>) {
    // A discard that is refused leaves its blocks where they are.
    let replies: Arc<dyn Replies> = Arc::new(Unheard);
    while shared.scout.freed.wait() {
        loop {
            // No snapshot is taken meanwhile.
            let _inside = shared.keeper.as_ref().map(Keeper::enter);
            let drops = |now, inner: &mut Inner, batch: &mut Batch| {
                drop_some(shared, &replies, now, inner, batch)
            };
            match shared.with_core(drops) {
                Some(true) => {}
                Some(false) => break,
                // Broken down: what is due stays due for ever.
                None => return,
            }
        }
    }
}

/// A discard that the volume itself issues.
fn discard(lba: Lba, blocks: u64, replies: &Arc<dyn Replies>) -> Pending {
    Pending {
        request: Request::new(Op::Discard { fua: false }, lba, blocks, Frames::default()),
        sink: Arc::clone(replies),
        watched: Watched::default(),
        own: true,
        is_rest: false,
        since: None,
    }
}

/// Drops some runs, and returns true if there are more. Called under the volume's lock.
fn drop_some(
    shared: &SharedVolume,
    replies: &Arc<dyn Replies>,
    now: Nanos,
    inner: &mut Inner,
    batch: &mut Batch,
) -> bool {
    let mut state = shared.scout.freed.state.lock();
    let state = &mut *state;
    if inner.phase != Phase::Running {
        state.space.end();
        return false;
    }
    for _ in 0..FREED_RUNS {
        let Some((first, after)) = state.space.take() else {
            return false;
        };
        // Blocks that a snapshot reads stay. A client's `fstrim` may drop them, because they are then kept for the snapshot first.
        let may_change = |at: u64| {
            let keeper = shared.keeper.as_ref();
            (at, keeper.is_none_or(|keeper| keeper.may_change(Lba(at))))
        };
        let all: Vec<(u64, bool)> = (first..after).map(may_change).collect();
        for run in all.chunk_by(|one, next| one.1 == next.1) {
            let (first, may_change) = run[0];
            if !may_change {
                continue;
            }
            let (lba, blocks) = (Lba(first), run.len() as u64);
            let extents = inner.core.extents(lba, blocks, run.len());
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
