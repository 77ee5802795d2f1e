//! Deduplication out of line: looks for blocks that are stored twice, when nobody else needs the medium
//! (CAFTL §3.5).
//!
//! What it goes by are the segments' summaries: owner and CRC32C of each block, 12 bytes in place of 4096. The core
//! says which of them are alive. A page of parts is read for its directory, which has the same of each part. Blocks of one checksum are told to it in pairs, which it reads, compares and shares, or
//! finds that they have changed; where both have several owners, the map is searched for those of the one. Memory
//! is bounded: a volume with more blocks than fit is gone through several times, each time for a part of the checksums;
//! nothing is written down, so nothing has to be resumed: what is shared already is passed over. The same summaries fill
//! the index of contents after a restart.

use crate::block::{Op, Replies, Request};
use crate::frames::Frames;
use crate::limits::{
    SWEEP_CHECK, SWEEP_COLLIDING, SWEEP_ENTRIES, SWEEP_OWNERS, SWEEP_PAGES, SWEEP_PATIENCE,
    SWEEP_PAUSE, SWEEP_QUIET, SWEEP_TAGS, SWEEP_TRIES, SWEEP_WRITES,
};
use crate::requests::OneAnswer;
use crate::shared::Shared;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vellum_core::addr::{BLOCK_BYTES, Lba, Pba, Segment, Vba};
use vellum_core::format::pack::{self, PartTag};
use vellum_core::format::summary::{self, Tag};
use vellum_core::format::superblock::Superblock;
use vellum_core::index::Holder;
use vellum_core::seam::Input;

/// What the thread is told, and tells.
#[derive(Default)]
pub(crate) struct Sweeper {
    orders: Mutex<Orders>,
    given: Condvar,
    /// Of a sweep under way, in thousandths and one more; 0 when there is none.
    progress: AtomicU64,
    /// Blocks a second that it may read; 0: as many as it can.
    rate: AtomicU32,
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

/// Why a volume is never looked through for duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// It is not written to.
    #[error("the volume is served read-only: nothing is moved on it")]
    ReadOnly,
    /// There are no summaries to go by.
    #[error(
        "the layout {0} has no sweep for duplicates: what is written with dedup=on is compared as it comes, and nothing tells \
         what was stored before; `vellum migrate --policy dedup=on` copies all, compared"
    )]
    Layout(&'static str),
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

    /// Blocks a second that it may read, from now on; 0: as many as it can.
    pub fn set_rate(&self, blocks: u32) {
        self.rate.store(blocks, Ordering::Relaxed);
    }

    /// Waits, but not for the volume to stop.
    fn pause(&self, time: Duration) {
        let mut orders = self.orders.lock();
        if !orders.stopping {
            self.given.wait_for(&mut orders, time);
        }
    }

    /// Ends the thread.
    pub fn stop(&self) {
        self.orders.lock().stopping = true;
        self.given.notify_one();
    }

    fn is_stopping(&self) -> bool {
        self.orders.lock().stopping
    }

    /// Whether somebody waits for a sweep that begins when this one has ended.
    fn is_wanted(&self) -> bool {
        self.orders.lock().now
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
                crate::scout::guard(shared);
                sweep(shared, superblock, now);
                sweeper.progress.store(0, Ordering::Relaxed);
                sweeper.sweeps.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Whose what is stored may be, and its checksums.
enum Found<'a> {
    /// By the summary of a segment: of so many of its blocks, in order.
    Blocks(&'a [Tag]),
    /// By the directory of a page: of its parts.
    Parts(&'a [PartTag]),
}

/// Goes through what is stored, a segment's tags after the other's; `false` when the volume is stopping. What
/// cannot be read says nothing.
fn stored(
    shared: &Shared,
    superblock: &Superblock,
    turn: &mut Turn,
    mut of: impl FnMut(Pba, Found<'_>) -> bool,
) -> bool {
    let usable = superblock.usable_blocks();
    let blocks = superblock.segment_blocks() - usable;
    let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
    let mut tags = Vec::new();
    for segment in (0..superblock.segment_count()).map(Segment) {
        if !turn.wait(shared) {
            return false;
        }
        let start = superblock.segment_start(segment);
        // What was written last has no summary yet, and is known to the core.
        let known = shared.with_core(|_, inner, _| {
            let known = inner.engine.unsummarised(segment);
            known.is_some_and(|known| {
                tags.clear();
                tags.extend_from_slice(known);
                true
            })
        });
        let is_known = match known {
            None => return false,
            Some(true) => true,
            Some(false) => {
                turn.spend(u64::from(blocks));
                let at = start.plus(usable.into());
                let signature = superblock.signature();
                shared.medium.read(at, &mut bytes).is_ok()
                    && summary::decode_into(
                        &signature,
                        segment,
                        usable as usize,
                        &bytes,
                        crate::digest::crc32c,
                        &mut tags,
                    )
                    .is_ok()
            }
        };
        if !is_known {
            continue;
        }
        let pieces = (start.0..).step_by(SWEEP_TAGS).map(Pba);
        let is_through = pieces
            .zip(tags.chunks(SWEEP_TAGS))
            .all(|(at, tags)| of(at, Found::Blocks(tags)));
        if !(is_through && parts(shared, start, &tags, turn, &mut of)) {
            return false;
        }
    }
    true
}

/// The same of the pages of parts of one segment. A page that was moved, or is not written yet, fails its checksum.
fn parts(
    shared: &Shared,
    start: Pba,
    tags: &[Tag],
    turn: &mut Turn,
    mut of: impl FnMut(Pba, Found<'_>) -> bool,
) -> bool {
    let mut pages = Vec::new();
    let asked = shared.with_core(|_, inner, _| {
        inner.engine.pages_of_parts(start, tags, &mut pages);
    });
    if asked.is_none() {
        return false;
    }
    let mut bytes = [0; SWEEP_PAGES * BLOCK_BYTES];
    let mut found = Vec::new();
    let side_by_side = pages.chunk_by(|(one, _), (next, _)| one.plus(1) == *next);
    for run in side_by_side.flat_map(|run| run.chunks(SWEEP_PAGES)) {
        if !turn.wait(shared) {
            return false;
        }
        turn.spend(run.len() as u64);
        let bytes = &mut bytes[..run.len() * BLOCK_BYTES];
        if shared.medium.read(run[0].0, bytes).is_err() {
            continue;
        }
        for (page, &(at, crc)) in bytes.chunks_exact(BLOCK_BYTES).zip(run) {
            let is_whole = crate::digest::crc32c(page) == crc
                && pack::directory(page, crate::digest::crc32c, &mut found).is_ok();
            if is_whole && !of(at, Found::Parts(&found)) {
                return false;
            }
        }
    }
    true
}

/// Fills the index of contents.
fn learn(shared: &Shared, superblock: &Superblock) {
    let mut turn = Turn::new(shared, true);
    stored(shared, superblock, &mut turn, |at, found| {
        let fed = match found {
            Found::Blocks(tags) => {
                let tags = crate::scout::worth_learning(shared, tags);
                shared.with_core(|now, inner, batch| {
                    inner.feed(now, Input::Contents { at, tags: &tags }, batch);
                })
            }
            Found::Parts(parts) => {
                let parts = crate::scout::parts_worth_learning(shared, parts);
                shared.with_core(|now, inner, batch| {
                    inner.feed(now, Input::Parts { at, parts: &parts }, batch);
                })
            }
        };
        fed.is_some()
    });
}

/// A block that is stored: its checksum but for one bit, whether an LBA of its own has it and not a shared page,
/// and that one's number. In order, the shared page of a content comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stored(u64);

const OF_LBA: u64 = 1 << 32;

impl Stored {
    fn new(holder: Holder, crc: u32) -> Self {
        let number = match holder {
            Holder::Lba(lba) => OF_LBA | (lba.0 & u64::from(u32::MAX)),
            Holder::Page(vba) => u64::from(vba.0),
        };
        Self(u64::from(crc >> 1) << 33 | number)
    }

    fn crc(self) -> u64 {
        self.0 >> 33
    }

    fn holder(self) -> Holder {
        match self.0 & OF_LBA {
            0 => Holder::Page(Vba(self.0 as u32)),
            _ => Holder::Lba(Lba(self.0 & (OF_LBA - 1))),
        }
    }
}

/// One look at all that is stored.
fn sweep(shared: &Shared, superblock: &Superblock, now: bool) {
    let live = {
        let stats = shared.inner.lock().engine.stats();
        stats.live_blocks - stats.packed_pages + stats.packed_owners
    };
    let rounds = live.div_ceil(SWEEP_ENTRIES as u64).max(1);
    // Rounds are not quite of one size, and clients go on writing.
    let most = SWEEP_ENTRIES + SWEEP_ENTRIES / 8;
    let mut all: Vec<Stored> = Vec::with_capacity(most.min(live as usize + 1024));
    let mut turn = Turn::new(shared, now);
    for round in 0..rounds {
        let done = |inside: u64| {
            let permille = (round * 1000 + inside) / rounds;
            shared
                .sweeper
                .progress
                .store(1 + permille, Ordering::Relaxed);
        };
        done(0);
        all.clear();
        let mut live = Vec::new();
        let blocks = u64::from(superblock.segment_count()) * u64::from(superblock.usable_blocks());
        let mut seen = 0;
        let whole = stored(shared, superblock, &mut turn, |at, found| {
            live.clear();
            // Only what is alive: a dead block that came first would speak for all of its content.
            let asked = shared.with_core(|_, inner, _| match found {
                Found::Blocks(tags) => inner.engine.contents(at, tags, &mut live),
                Found::Parts(parts) => inner.engine.parts(at, parts, &mut live),
            });
            let ours = live
                .iter()
                .filter(|(_, crc)| (u64::from(*crc) * rounds) >> 32 == round)
                .map(|&(holder, crc)| Stored::new(holder, crc));
            // What does not fit is passed over: it costs savings, and nothing else.
            all.extend(ours.take(most - all.len()));
            if let Found::Blocks(tags) = found {
                seen += tags.len() as u64;
            }
            done(seen * 500 / blocks);
            asked.is_some()
        });
        all.sort_unstable();
        if !whole || !merge_all(shared, &all, &mut turn, |inside| done(500 + inside / 2)) {
            return;
        }
    }
}

/// Merges whatever has one checksum; `false` when the volume is stopping.
fn merge_all(shared: &Shared, stored: &[Stored], turn: &mut Turn, done: impl Fn(u64)) -> bool {
    let mut pages: Vec<(Vba, Vba)> = Vec::new();
    let mut passed = 0;
    // Contents of one checksum that are not equal: a collision must not speak for all that is like one of them.
    let mut contents: Vec<Holder> = Vec::with_capacity(SWEEP_COLLIDING);
    for same in stored.chunk_by(|one, next| one.crc() == next.crc()) {
        let first = same[0].holder();
        contents.clear();
        contents.push(first);
        for one in &same[1..] {
            let mut is_new = true;
            if let Holder::Lba(lba) = one.holder() {
                for &of in &contents {
                    let Some(met) = merge(shared, lba, of, turn) else {
                        return false;
                    };
                    is_new = met == Met::Unequal;
                    if !is_new {
                        break;
                    }
                }
            } else if let (Holder::Page(vba), Holder::Page(of)) = (one.holder(), first) {
                pages.push((vba, of));
            }
            if is_new && contents.len() < SWEEP_COLLIDING {
                contents.push(one.holder());
            }
        }
        passed += same.len() as u64;
        if same.len() > 1 {
            done(passed * 1000 / stored.len() as u64);
        }
    }
    merge_pages(shared, &mut pages, turn)
}

/// Pages that have several owners each: all of the one's are to become the other's, and only the map knows who
/// they are.
fn merge_pages(shared: &Shared, pages: &mut [(Vba, Vba)], turn: &mut Turn) -> bool {
    if pages.is_empty() {
        return true;
    }
    pages.sort_unstable();
    let of = |vba: Vba| {
        let at = pages.binary_search_by_key(&vba, |(page, _)| *page).ok()?;
        Some(pages[at].1)
    };
    let mut owners = Vec::new();
    for from in (0..shared.blocks).step_by(SWEEP_OWNERS) {
        if !turn.wait(shared) {
            return false;
        }
        owners.clear();
        let range = from..from + SWEEP_OWNERS as u64;
        let asked = shared.with_core(|_, inner, _| {
            let wanted = |vba| of(vba).is_some();
            inner.engine.owners_in(range, wanted, &mut owners);
        });
        if asked.is_none() {
            return false;
        }
        for &(lba, vba) in &owners {
            if let Some(page) = of(vba)
                && merge(shared, lba, Holder::Page(page), turn).is_none()
            {
                return false;
            }
        }
    }
    true
}

/// What became of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Merged,
    /// Both were read, and are not one content.
    Unequal,
    /// They are no pair any more, or could not be read.
    Gone,
}

/// Tells the core of a pair and waits until it has seen to it; none when the volume is stopping.
fn merge(shared: &Shared, lba: Lba, of: Holder, turn: &mut Turn) -> Option<Met> {
    let counted = || {
        let stats = shared.inner.lock().engine.stats();
        (stats.merge_reads, stats.merged_blocks, stats.merges_put_off)
    };
    if !turn.wait(shared) {
        return None;
    }
    for _ in 0..SWEEP_TRIES {
        // Nobody else tells of pairs.
        let before = counted();
        let answer = Arc::new(OneAnswer::default());
        let replies: Arc<dyn Replies> = answer.clone();
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
            return None;
        }
        let (reads, merged, put_off) = counted();
        turn.spend(2 * (reads - before.0));
        if put_off == before.2 {
            return Some(match (reads > before.0, merged > before.1) {
                (_, true) => Met::Merged,
                (true, false) => Met::Unequal,
                (false, false) => Met::Gone,
            });
        }
        // The collector is at work, and has all buffers.
        shared.sweeper.pause(SWEEP_PAUSE);
    }
    Some(Met::Gone)
}

/// When the sweep may go on: clients come first, and it takes no more of the medium than it is allowed. It asks
/// before every pair, so that a client's request finds the reads of one under way at most.
struct Turn {
    /// Whether it goes on beside its clients, as its user told it to, or waits to: then it waits only while they are served, and
    /// not for ever.
    now: bool,
    /// How many requests of theirs had come when they were looked at last.
    came: u64,
    /// What was read since when.
    spent: u64,
    since: Instant,
}

impl Turn {
    fn new(shared: &Shared, now: bool) -> Self {
        let mut turn = Self {
            now,
            came: 0,
            spent: 0,
            since: Instant::now(),
        };
        turn.are_quiet(shared);
        turn
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

    /// So many blocks were read.
    fn spend(&mut self, blocks: u64) {
        self.spent += blocks;
    }

    /// Waits for its turn; `false` when the volume is stopping.
    fn wait(&mut self, shared: &Shared) -> bool {
        let began = Instant::now();
        while !shared.sweeper.is_stopping() {
            self.now |= shared.sweeper.is_wanted();
            let late = self.now && began.elapsed() >= SWEEP_PATIENCE;
            if !self.is_within_rate(shared) {
                std::thread::sleep(SWEEP_PAUSE);
            } else if late || self.are_quiet(shared) {
                return true;
            } else if self.now {
                std::thread::sleep(SWEEP_PAUSE);
            } else {
                shared.sweeper.pause(SWEEP_QUIET);
            }
        }
        false
    }

    fn is_within_rate(&mut self, shared: &Shared) -> bool {
        let rate = shared.sweeper.rate.load(Ordering::Relaxed);
        let Some(nanos) = (u128::from(self.spent) * 1_000_000_000).checked_div(rate.into()) else {
            return true;
        };
        let elapsed = self.since.elapsed();
        if elapsed.as_nanos() < nanos {
            return false;
        }
        // What was not used is not saved up.
        if elapsed.as_nanos() - nanos > SWEEP_PATIENCE.as_nanos() {
            (self.spent, self.since) = (0, Instant::now());
        }
        true
    }
}
