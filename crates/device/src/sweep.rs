//! Deduplication out of line: looks for blocks that are stored twice, when nobody else needs the medium
//! (CAFTL §3.5).
//!
//! What it goes by are the segments' summaries: owner and CRC32C of each block, 12 bytes in place of 4096.
//! Blocks of one checksum are told to the core in pairs, which reads, compares and shares them, or finds that
//! they have changed. Memory is bounded: a volume with more blocks than fit is gone through several times,
//! each time for a part of the checksums; nothing is written down, so nothing has to be resumed: what is
//! shared already is passed over. The same summaries fill the index of contents after a restart.

use crate::block::{Op, Replies, Request};
use crate::frames::Frames;
use crate::limits::{
    SWEEP_BATCH, SWEEP_CHECK, SWEEP_ENTRIES, SWEEP_PAUSE, SWEEP_QUIET, SWEEP_WRITES,
};
use crate::requests::OneAnswer;
use crate::shared::Shared;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_core::addr::{BLOCK_BYTES, Lba, Segment};
use vellum_core::format::summary::{self, Owner, Tag};
use vellum_core::format::superblock::Superblock;
use vellum_core::seam::Input;

/// What the thread is told, and tells.
#[derive(Default)]
pub(crate) struct Sweeper {
    orders: Mutex<Orders>,
    given: Condvar,
    /// Of a sweep under way, in thousandths; `IDLE` when there is none.
    progress: AtomicU64,
    sweeps: AtomicU64,
}

#[derive(Default)]
struct Orders {
    stopping: bool,
    /// Sweep now, whoever else is there.
    now: bool,
    /// Fill the index.
    learn: bool,
    /// Sweep when it is quiet.
    idle: bool,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Stop,
    Learn,
    Sweep { now: bool },
}

/// How far deduplication out of line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepProgress {
    /// Sweeps that have ended since the volume was opened.
    pub ended: u64,
    /// How much of the present one is done, in thousandths; none is under way without.
    pub permille: Option<u64>,
}

impl Sweeper {
    /// How far it is.
    pub fn progress(&self) -> SweepProgress {
        let permille = self.progress.load(Ordering::Relaxed);
        SweepProgress {
            ended: self.sweeps.load(Ordering::Relaxed),
            permille: permille.checked_sub(1),
        }
    }

    /// Sweeps now.
    pub fn now(&self) {
        self.orders.lock().now = true;
        self.given.notify_one();
    }

    /// The index is on or off, and may be a new one.
    pub fn index(&self, on: bool, anew: bool) {
        let mut orders = self.orders.lock();
        orders.idle = on;
        orders.learn = on && (anew || orders.learn);
        self.given.notify_one();
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.orders.lock().stopping = true;
        self.given.notify_one();
    }

    fn is_stopping(&self) -> bool {
        self.orders.lock().stopping
    }

    /// Waits for something to do. `written`: blocks that clients have written so far; a sweep of its own
    /// accord needs news since the last one, and then quiet.
    fn next(&self, swept: u64, written: &dyn Fn() -> u64) -> Order {
        let mut orders = self.orders.lock();
        loop {
            if orders.stopping {
                return Order::Stop;
            }
            if std::mem::take(&mut orders.learn) {
                return Order::Learn;
            }
            if std::mem::take(&mut orders.now) {
                return Order::Sweep { now: true };
            }
            if !orders.idle {
                self.given.wait(&mut orders);
                continue;
            }
            let before = written();
            let news = before - swept >= SWEEP_WRITES;
            let wait = if news { SWEEP_QUIET } else { SWEEP_CHECK };
            let told = !self.given.wait_for(&mut orders, wait).timed_out();
            if news && !told && written() == before {
                return Order::Sweep { now: false };
            }
        }
    }
}

/// The thread's whole life.
pub(crate) fn run(shared: &Arc<Shared>, superblock: &Superblock) {
    let sweeper = &shared.sweeper;
    let written = || shared.inner.lock().engine.stats().host_blocks_written;
    let mut swept = 0;
    loop {
        match sweeper.next(swept, &written) {
            Order::Stop => return,
            Order::Learn => learn(shared, superblock),
            Order::Sweep { now } => {
                swept = written();
                sweep(shared, superblock, now);
                sweeper.progress.store(0, Ordering::Relaxed);
                sweeper.sweeps.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Reads the summaries one after the other; `false` when the volume is stopping. What cannot be read, or is of
/// a segment without one, says nothing.
fn summaries(
    shared: &Shared,
    superblock: &Superblock,
    mut of: impl FnMut(Segment, &[Tag]) -> bool,
) -> bool {
    let usable = superblock.usable_blocks();
    let blocks = superblock.segment_blocks() - usable;
    let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
    let mut tags = Vec::new();
    for segment in (0..superblock.segment_count()).map(Segment) {
        if shared.sweeper.is_stopping() {
            return false;
        }
        let at = superblock.segment_start(segment).plus(usable.into());
        let signature = superblock.signature();
        let read = shared.medium.read(at, &mut bytes).is_ok()
            && summary::decode_into(
                &signature,
                segment,
                usable as usize,
                &bytes,
                crate::digest::crc32c,
                &mut tags,
            )
            .is_ok();
        if read && !of(segment, &tags) {
            return false;
        }
    }
    true
}

fn owned(tags: &[Tag]) -> impl Iterator<Item = (Lba, u32)> + '_ {
    tags.iter().filter_map(|tag| match tag.owner {
        Owner::Lba(lba) => Some((lba, tag.crc)),
        Owner::Vba(_) | Owner::None => None,
    })
}

/// Fills the index of contents.
fn learn(shared: &Shared, superblock: &Superblock) {
    let mut contents = Vec::new();
    summaries(shared, superblock, |_, tags| {
        contents.clear();
        contents.extend(owned(tags));
        let contents = &contents;
        let fed = shared.with_core(|now, inner, batch| {
            inner.feed(now, Input::Contents { contents }, batch);
        });
        fed.is_some()
    });
}

/// One look at all that is stored.
fn sweep(shared: &Shared, superblock: &Superblock, now: bool) {
    let live = shared.inner.lock().engine.stats().live_blocks;
    let parts = live.div_ceil(SWEEP_ENTRIES as u64).max(1);
    let mut found: Vec<(u32, u32)> = Vec::new();
    let mut others = Others::new(shared, now);
    for part in 0..parts {
        let done = |inside: u64| {
            let permille = (part * 1000 + inside) / parts;
            shared
                .sweeper
                .progress
                .store(1 + permille, Ordering::Relaxed);
        };
        done(0);
        found.clear();
        let whole = summaries(shared, superblock, |segment, tags| {
            let ours = |crc: u32| (u64::from(crc) * parts) >> 32 == part;
            // An LBA has 32 bits in the map. What is dead is told as well, and what does not fit is passed over:
            // it costs savings, and nothing else.
            let ours = owned(tags).filter(|(_, crc)| ours(*crc));
            found.extend(ours.map(|(lba, crc)| (crc, lba.0 as u32)));
            found.truncate(SWEEP_ENTRIES * 2);
            done(u64::from(segment.0) * 500 / u64::from(superblock.segment_count()));
            true
        });
        found.sort_unstable();
        found.dedup();
        let mut pairs: Vec<(Lba, Lba)> = Vec::with_capacity(SWEEP_BATCH);
        let mut first = 0;
        for at in 1..found.len() {
            if found[at].0 != found[first].0 {
                first = at;
                continue;
            }
            let [lba, of] = [at, first].map(|index| Lba(found[index].1.into()));
            pairs.push((lba, of));
            if pairs.len() == SWEEP_BATCH {
                done(500 + at as u64 * 500 / found.len() as u64);
                if !merge(shared, &mut pairs, &mut others) {
                    return;
                }
            }
        }
        if !whole || !merge(shared, &mut pairs, &mut others) {
            return;
        }
    }
}

/// Tells the core of pairs, one after the other: a client's request never waits behind more than one. `false`
/// when the volume is stopping.
fn merge(shared: &Shared, pairs: &mut Vec<(Lba, Lba)>, others: &mut Others) -> bool {
    others.give_way(shared);
    let answer = Arc::new(OneAnswer::default());
    let replies: Arc<dyn Replies> = answer.clone();
    // Twice: the first time what the pages should hold may still have to be read.
    for &(lba, of) in pairs.iter().chain(pairs.iter()) {
        let request = Request {
            tag: 0,
            op: Op::Flush,
            lba,
            blocks: 0,
            frames: Frames::default(),
        };
        shared.ask(request, &replies, |now, inner, pending, batch| {
            let id = inner.requests.insert(pending);
            inner.feed(now, Input::Merge { id, lba, of }, batch);
        });
        if answer.wait().1.is_err() {
            return false;
        }
    }
    pairs.clear();
    !shared.sweeper.is_stopping()
}

/// The clients, who come first.
struct Others {
    /// Whether a sweep goes on beside them, as its user told it to: then it waits only while they are served.
    now: bool,
    /// How many requests of theirs had come when they were looked at last.
    came: u64,
}

impl Others {
    fn new(shared: &Shared, now: bool) -> Self {
        let mut others = Self { now, came: 0 };
        others.are_quiet(shared);
        others
    }

    fn are_quiet(&mut self, shared: &Shared) -> bool {
        let (in_flight, clients) = {
            let inner = shared.inner.lock();
            (inner.requests.len(), inner.counters.clients)
        };
        let came = clients.read.requests + clients.write.requests + clients.flush.requests;
        let before = std::mem::replace(&mut self.came, came);
        in_flight == 0 && (self.now || came == before)
    }

    fn give_way(&mut self, shared: &Shared) {
        while !self.are_quiet(shared) && !shared.sweeper.is_stopping() {
            std::thread::sleep(if self.now { SWEEP_PAUSE } else { SWEEP_QUIET });
        }
    }
}
