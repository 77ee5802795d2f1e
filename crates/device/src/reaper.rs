//! The one thread of a volume: takes the operations that the medium has finished, and looks at the clock when the core wants to.
//! Otherwise it sleeps in [`Medium::wait`](vellum_medium::Medium::wait): an idle volume takes no CPU.
//!
//! # Lent threads
//!
//! A thread that lends itself ([`Replies::lends_thread`](crate::block::Replies::lends_thread)) would sleep until the answer. A
//! durable write that goes through the reaper wakes a worker of the kernel, then the kernel's completion, then the reaper, and last the
//! client. These wake-ups together take as long as a quick drive does. If the lent thread does the write, no other thread wakes.
//!
//! What must hold:
//! 1. At most one lent thread of a volume reads at a time, and at most one makes writes durable: the others stay free for what
//!    arrives meanwhile.
//! 2. A lent thread takes a single operation: the medium does several at once better than one after the other. And only one that a
//!    client waits for: no write-back of the buffer, no discard.
//! 3. The batch's other answers and frames are dealt with first.

use crate::drive::{Batch, Cause, Ended, Inner, Phase};
use crate::shared::{BreaksOnPanic, SharedVolume};
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Nanos};
use vellum_core::format::BlockSum;
use vellum_core::seam::Input;
use vellum_medium::{Done, Io};

/// How soon to look again when the core wants the clock and cannot go on with it yet.
const PATIENCE: Nanos = Nanos(100_000_000);

/// Runs until the volume has stopped and the medium has given everything back.
pub(crate) fn reap(shared: &Arc<SharedVolume>) {
    let _guard = Guard(shared);
    let mut batch = Batch::default();
    let mut done: Vec<Done> = Vec::new();
    let mut sums: Vec<u32> = Vec::new();
    let sum = shared.digester.sum();
    let mut deadline = shared.inner.lock().deadline;
    loop {
        let timeout = deadline.map(|at| Duration::from_nanos(at.0.saturating_sub(shared.now().0)));
        shared.medium.wait(&mut done, timeout);
        sums.clear();
        for Done { io, result } in &done {
            match result {
                Ok(()) if Cause::of(io.token).0.wants_sums() => checksum(io, sum, &mut sums),
                Ok(()) => {}
                Err(error) => shared.events.medium(error),
            }
        }
        let Some(mut inner) = shared.enter() else {
            return;
        };
        inner.counters.wakeups += 1;
        if inner.phase == Phase::Abandoned {
            for Done { io, .. } in done.drain(..) {
                inner.operations.end(io);
            }
            // Nothing looks at the clock any more: a time that has passed would keep this thread from sleeping.
            inner.deadline = None;
        } else {
            taken_back(shared.now(), &mut inner, &mut done, &sums, &mut batch);
            shared
                .passage(shared.now(), &mut inner, &mut batch)
                .let_go();
            look_at_the_clock(shared.now(), &mut inner);
        }
        deadline = inner.deadline;
        let ended = matches!(inner.phase, Phase::Stopped | Phase::Abandoned)
            && inner.operations.in_flight() == 0;
        inner.exit();
        shared.finish(&mut batch);
        if ended {
            return;
        }
    }
}

/// Tells the core what the medium has given back; `sums` are those of the blocks that were read.
fn taken_back(
    now: Nanos,
    inner: &mut Inner,
    done: &mut Vec<Done>,
    sums: &[u32],
    batch: &mut Batch,
) {
    let mut rest = sums;
    for Done { io, result } in done.drain(..) {
        let ended = match result {
            Err(error) => {
                inner.counters.errors += 1;
                if error.is_full() {
                    inner.full = true;
                    Ended::Full
                } else {
                    Ended::Failed
                }
            }
            Ok(()) => match Cause::of(io.token).0 {
                cause if cause.wants_sums() => {
                    let (mine, others) = rest.split_at(io.len() / BLOCK_BYTES);
                    rest = others;
                    Ended::Data(mine)
                }
                Cause::ReadMeta | Cause::Compare | Cause::Parts | Cause::Base => Ended::Metadata,
                _ => {
                    inner.full = false;
                    Ended::Written
                }
            },
        };
        inner.completed(now, io, ended, batch);
    }
    if inner.core.poll_timeout().is_some_and(|at| at <= now) {
        inner.feed(now, Input::Tick, batch);
    }
}

/// Sets when this thread looks at the clock again, if nothing arrives before.
fn look_at_the_clock(now: Nanos, inner: &mut Inner) {
    // An earlier deadline that is not needed any more is kept: that costs one needless wake-up, instead of one for each write
    // after a flush.
    let pending = inner.deadline.filter(|&at| at > now);
    let wanted = inner.poll_timeout().map(|at| {
        if at <= now {
            Nanos(now.0 + PATIENCE.0)
        } else {
            at
        }
    });
    inner.deadline = match (pending, wanted) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
}

/// Like [`SharedVolume::finish`], on a thread that lends itself.
pub(crate) fn finish_here(shared: &SharedVolume, batch: &mut Batch) {
    while let Some(_turn) = shared.turns.take(&batch.ios) {
        let Some(io) = batch.ios.pop() else { break };
        shared.finish(batch);
        match shared.medium.do_now(io) {
            Ok(done) => tell(shared, done, batch),
            Err(io) => {
                batch.ios.push(io);
                break;
            }
        }
    }
    shared.finish(batch);
}

/// Tells the core how an operation ended, as the reaper does.
fn tell(shared: &SharedVolume, done: Done, batch: &mut Batch) {
    let _guard = BreaksOnPanic::new(shared);
    let mut sums = Vec::new();
    match &done.result {
        Ok(()) if Cause::of(done.io.token).0.wants_sums() => {
            checksum(&done.io, shared.digester.sum(), &mut sums);
        }
        Ok(()) => {}
        Err(error) => shared.events.medium(error),
    }
    // Broken down: the reaper answers the waiting requests, and keeps the memory.
    let Some(mut inner) = shared.enter() else {
        return;
    };
    if inner.phase == Phase::Abandoned {
        inner.operations.end(done.io);
    } else {
        taken_back(shared.now(), &mut inner, &mut vec![done], &sums, batch);
    }
    shared.leave(inner, batch);
}

/// Appends the sum of each block that was read.
fn checksum(io: &Io, sum: BlockSum, sums: &mut Vec<u32>) {
    let pieces = io.pieces();
    // SAFETY: pieces are laid out as `iovec`, as their type promises.
    let vectors =
        unsafe { std::slice::from_raw_parts(pieces.as_ptr().cast::<libc::iovec>(), pieces.len()) };
    for vector in vectors {
        // SAFETY: the operation is back, so its memory is ours again: frames of a request, or the collector's.
        let bytes =
            unsafe { std::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len) };
        sums.extend(bytes.chunks_exact(BLOCK_BYTES).map(|block| sum.of(block)));
    }
}

/// Acts when the reaper ends, even by a panic: no request is left waiting.
struct Guard<'a>(&'a Arc<SharedVolume>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.reaper_ended();
        if self.0.inner.lock().operations.in_flight() > 0 {
            // The medium may still write into our memory: it must never be freed.
            std::mem::forget(Arc::clone(self.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::drive::Phase;
    use crate::{CreateOptions, OpenOptions, Volume};
    use std::sync::Arc;
    use std::time::Duration;
    use vellum_core::addr::RequestId;
    use vellum_core::seam::{Input, PropertiesChange};
    use vellum_medium::{Medium, MemoryMedium};

    /// The scout's thread ends after the reaper, and may report something until then.
    #[test]
    fn nothing_goes_to_the_medium_when_nobody_takes_it_back() {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new(8192));
        Volume::create(&*medium, &CreateOptions::default()).unwrap();
        let volume = Volume::open(Arc::clone(&medium), &OpenOptions::default()).unwrap();
        let shared = &volume.shared;
        shared.inner.lock().phase = Phase::Abandoned;
        medium.wake();
        while !*shared.ended.lock() {
            std::thread::yield_now();
        }
        shared.with_core(|now, inner, batch| {
            let (id, properties) = (RequestId(0), volume.superblock.properties());
            let change = PropertiesChange::All(properties);
            inner.feed(now, Input::Properties { id, change }, batch);
        });
        assert_eq!(shared.inner.lock().operations.in_flight(), 0);
        let mut done = Vec::new();
        medium.wait(&mut done, Some(Duration::from_millis(10)));
        assert!(
            done.is_empty(),
            "{} are there for whoever opens it next",
            done.len()
        );
    }
}
