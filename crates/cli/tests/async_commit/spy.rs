//! Stands between front end and volume. It knows what of a journal was sent, completed and flushed, and cuts the power at the
//! worst moment for the kind of cut that a life has. In every other life it passes on parts of transactions late, like a slow
//! thread.
//!
//! What a flush covers must be there after the life: each journal block that was completed before the flush arrived, once the
//! flush is completed. This holds for a commit block only if its whole transaction was completed too: before that jbd2 does not
//! flush for it, and the volume may hold it back (docs/decisions/0017-commits-wait.md).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::Volume;
use vellum_device::block::{BlockDevice, BlockError, Extent, Op, Replies, Request};
use vellum_device::frames::FramePool;
use vellum_medium::FaultMedium;
use vellum_medium::fault::Rng;

/// The first bytes of a commit block; its sequence number follows.
const COMMIT: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];

/// Longer than a commit block waits before it is completed, in milliseconds.
const LATE: u64 = 8;

/// When the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cut {
    /// A part of a transaction arrives after its commit block, and a chunk was sealed between the two.
    Late,
    /// At the flush for a transaction that is completed, before the volume sees the flush.
    BeforeFlush,
    /// When the volume has accepted that flush; it may be completed by then.
    WithFlush,
    /// When the volume has completed it, before the completion is passed on.
    AfterFlush,
    /// With the first request of the next transaction.
    NextTransaction,
    Anywhere,
}

pub const CUTS: [Cut; 6] = [
    Cut::Late,
    Cut::BeforeFlush,
    Cut::WithFlush,
    Cut::AfterFlush,
    Cut::NextTransaction,
    Cut::Anywhere,
];

impl Cut {
    /// Draws the kind of a life. Losses were found with late requests and after the flush, so those are two of three.
    pub fn drawn(life: u64) -> Self {
        use Cut::{AfterFlush, Late};
        let mut random = Rng::new(life);
        match random.below(3) {
            0 => Late,
            1 => AfterFlush,
            _ => CUTS[random.below(CUTS.len() as u64) as usize],
        }
    }

    fn is_at_a_flush(self) -> bool {
        matches!(self, Self::BeforeFlush | Self::WithFlush | Self::AfterFlush)
    }
}

/// Blocks of the journal, each with the call that sent it.
type Sent = Vec<(u64, u64)>;

/// What was seen in a life.
#[derive(Clone, Copy, Default)]
pub struct Seen {
    pub commits: u64,
    /// Journal requests that arrived after the commit block of their transaction.
    pub late: u64,
    /// Commit blocks that a flush covered together with their transaction.
    pub covered: u64,
    /// True if the spy has cut the power.
    pub has_cut: bool,
}

/// A journal block, as it was last sent.
struct Block {
    sum: u32,
    /// The call that sent it.
    call: u64,
    state: State,
    /// The transaction, if it is a commit block.
    commit: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Sent,
    Answered,
    Covered,
}

/// A commit block that was sent, with no flush since.
struct Commit {
    /// Chunks that were sealed at that time.
    sealed: u64,
    /// Requests that arrived after it.
    late: u64,
}

#[derive(Default)]
struct Known {
    /// The log: its extents without the superblock, in the log's order.
    log: Vec<(u64, u64)>,
    blocks: BTreeMap<u64, Block>,
    /// Completed blocks without a later flush.
    answered: Sent,
    calls: u64,
    commit: Option<Commit>,
    /// A transaction has been flushed, and nothing of the next has arrived.
    is_between: bool,
    /// Flushes for whole transactions since the spy was armed.
    flushes: u64,
    cut: Option<Cut>,
    seen: Seen,
}

impl Known {
    fn is_log(&self, lba: u64) -> bool {
        self.log.iter().any(|(at, end)| (*at..*end).contains(&lba))
    }

    /// Returns the block of the log before this one.
    fn before(&self, lba: u64) -> Option<u64> {
        let piece = self
            .log
            .iter()
            .position(|(at, end)| (*at..*end).contains(&lba))?;
        match lba > self.log[piece].0 {
            true => Some(lba - 1),
            false => Some(self.log[(piece + self.log.len() - 1) % self.log.len()].1 - 1),
        }
    }

    /// True if everything that a commit block commits is completed.
    fn is_whole(&self, commit: u64) -> bool {
        let sequence = self.blocks.get(&commit).and_then(|block| block.commit);
        let Some(sequence) = sequence else {
            return false;
        };
        let (mut at, mut first_call) = (commit, u64::MAX);
        loop {
            let before = self.before(at).map(|at| (at, self.blocks.get(&at)));
            let Some((lba, Some(block))) = before else {
                return false;
            };
            match block.commit {
                Some(of) => return of == sequence.wrapping_sub(1) && first_call > block.call,
                None if block.state == State::Sent => return false,
                None => (at, first_call) = (lba, first_call.min(block.call)),
            }
        }
    }

    /// Records a write. Returns whether it contains a commit block, if it contains anything of the log.
    fn sent(&mut self, request: &Request) -> Option<bool> {
        let mut has_commit = None;
        for index in 0..request.frames.len() {
            let lba = request.lba.0 + index as u64;
            if !self.is_log(lba) {
                continue;
            }
            let bytes = request.frames.block(index);
            let sequence = bytes[8..].first_chunk().copied().map(u32::from_be_bytes);
            let commit = sequence.filter(|_| bytes.starts_with(&COMMIT));
            has_commit = Some(has_commit == Some(true) || commit.is_some());
            let block = Block {
                sum: crc32c::crc32c(bytes),
                call: self.calls,
                state: State::Sent,
                commit,
            };
            self.blocks.insert(lba, block);
        }
        has_commit
    }

    fn answered(&mut self, first: u64, blocks: u64, call: u64) {
        for (lba, block) in self.blocks.range_mut(first..first + blocks) {
            if block.call == call && block.state == State::Sent {
                block.state = State::Answered;
                self.answered.push((*lba, call));
            }
        }
    }

    /// Returns what a flush that arrives now covers, and how many commit blocks are in that.
    fn asked_for(&mut self) -> (Sent, usize) {
        let answered = std::mem::take(&mut self.answered);
        let is_as_it_was =
            |(lba, call): &(u64, u64)| self.blocks.get(lba).is_some_and(|b| b.call == *call);
        let is_commit = |lba: u64| self.blocks.get(&lba).is_some_and(|b| b.commit.is_some());
        let answered = answered.into_iter().filter(is_as_it_was);
        let (early, asked): (Sent, Sent) =
            answered.partition(|(lba, _)| is_commit(*lba) && !self.is_whole(*lba));
        let commits = asked.iter().filter(|(lba, _)| is_commit(*lba)).count();
        self.answered = early;
        (asked, commits)
    }

    fn flushed(&mut self, asked: &[(u64, u64)]) {
        for (lba, call) in asked {
            let block = self.blocks.get_mut(lba);
            if let Some(block) = block.filter(|block| block.call == *call) {
                block.state = State::Covered;
                self.seen.covered += u64::from(block.commit.is_some());
            }
        }
    }
}

/// The switch. Its user holds the lock on what is known, so that nothing completed without power counts.
#[derive(Clone)]
struct Power {
    medium: Arc<FaultMedium>,
    seed: u64,
}

impl Power {
    fn cut(&self, known: &mut Known) {
        let kind = known
            .cut
            .filter(|_| !known.seen.has_cut && !self.medium.is_off());
        let Some(kind) = kind else {
            return;
        };
        known.seen.has_cut = true;
        // A commit block without its transaction survives if only what the volume had not written is lost. What a flush has not
        // covered is gone if everything is lost that can be.
        let keeps_all = match kind {
            Cut::Late => !self.seed.is_multiple_of(4),
            _ => self.seed.is_multiple_of(4),
        };
        match keeps_all {
            true => self.medium.power_off(),
            false => drop(self.medium.power_cut(self.seed)),
        }
    }
}

/// Watches the requests. It may delay them, and may cut the power, and changes nothing else.
pub struct Spy {
    volume: Arc<Volume>,
    power: Power,
    known: Arc<Mutex<Known>>,
}

impl Spy {
    pub fn new(volume: &Arc<Volume>, medium: &Arc<FaultMedium>, seed: u64) -> Self {
        Self {
            volume: Arc::clone(volume),
            power: Power {
                medium: Arc::clone(medium),
                seed,
            },
            known: Arc::default(),
        }
    }

    /// Returns a handle to read the spy's results later.
    pub fn eye(&self) -> Eye {
        Eye(Arc::clone(&self.known))
    }

    /// Returns the chunks of the log, or commits of tables.
    fn sealed(&self) -> u64 {
        let core = self.volume.stats().core;
        core["host_chunks"] + core["commits"]
    }

    /// Handles a flush for a whole transaction: returns whether to cut the power at it. A flush is worse than others if parts
    /// of the transaction arrived late, or a commit block waits; the seed skips the first few of those.
    fn is_worst(&self, known: &mut Known, late: u64) -> bool {
        known.flushes += 1;
        let is_risky = late > 0 || self.volume.stats().commits.waiting > 0;
        let wanted = 1 + self.power.seed % 4;
        known.flushes >= if is_risky { wanted } else { 3 * wanted }
    }

    /// In every other life some parts of transactions are delayed until their commit block has been completed. The rest of such
    /// a transaction is completed while the volume still encodes it, and its flush arrives at once.
    fn dawdle(&self, requests: &[Request]) {
        let seed = self.power.seed;
        if !seed.is_multiple_of(2) {
            return;
        }
        let late = {
            let known = self.known.lock();
            let is_part = |request: &Request| {
                let is_write = matches!(request.op, Op::Write { .. });
                is_write && known.is_log(request.lba.0) && known.cut.is_some()
            };
            let has_commit = |request: &Request| {
                (0..request.frames.len()).any(|at| request.frames.block(at).starts_with(&COMMIT))
            };
            let mut random = Rng::new(seed.rotate_left(32) ^ known.calls);
            let is_late = requests.iter().any(is_part) && !requests.iter().any(has_commit);
            (is_late && random.chance(1, 6)).then(|| LATE + random.below(LATE))
        };
        if let Some(millis) = late {
            std::thread::sleep(Duration::from_millis(millis));
        }
    }

    /// Records the batch. Returns the kind of cut if the power is to be cut now.
    fn look(&self, requests: &[Request], watch: &mut Watch) -> Option<Cut> {
        let mut known = self.known.lock();
        known.calls += 1;
        watch.call = known.calls;
        let (mut commits, mut others) = (0, 0);
        for request in requests {
            if matches!(request.op, Op::Write { .. }) {
                match known.sent(request) {
                    Some(true) => commits += 1,
                    Some(false) => others += 1,
                    None => {}
                }
            }
        }
        let kind = known.cut.filter(|_| !known.seen.has_cut);
        let mut cut = None;
        for request in requests.iter().filter(|request| request.op == Op::Flush) {
            let (asked, whole) = known.asked_for();
            let late = known.commit.take().map_or(0, |commit| commit.late);
            if whole > 0 {
                known.is_between = true;
                let at_flush = kind.filter(|kind| kind.is_at_a_flush());
                cut = at_flush.filter(|_| self.is_worst(&mut known, late));
            }
            watch.flushes.lock().push((request.tag, asked));
        }
        if commits + others > 0 {
            let is_next =
                std::mem::take(&mut known.is_between) && kind == Some(Cut::NextTransaction);
            if is_next && known.flushes >= self.power.seed % 4 {
                cut = kind;
            }
            known.flushes += u64::from(is_next);
        }
        (watch.commits, watch.others) = (commits, others);
        cut
    }

    /// Handles a batch that the volume has accepted.
    fn taken(&self, watch: &Watch) {
        if watch.commits + watch.others == 0 {
            return;
        }
        let sealed = self.sealed();
        let mut known = self.known.lock();
        let kind = known.cut;
        let mut is_late = false;
        if let Some(commit) = known.commit.as_mut().filter(|_| watch.commits == 0) {
            commit.late += watch.others;
            is_late = kind == Some(Cut::Late) && sealed > commit.sealed;
            known.seen.late += watch.others;
        }
        known.seen.commits += watch.commits;
        if watch.commits > 0 {
            known.commit = Some(Commit { sealed, late: 0 });
        }
        if is_late {
            self.power.cut(&mut known);
        }
    }
}

impl BlockDevice for Spy {
    fn blocks(&self) -> u64 {
        self.volume.blocks()
    }

    fn read_only(&self) -> bool {
        self.volume.read_only()
    }

    fn frames(&self) -> &Arc<FramePool> {
        self.volume.frames()
    }

    fn extents(&self, lba: Lba, blocks: u64, max: usize) -> Vec<Extent> {
        self.volume.extents(lba, blocks, max)
    }

    fn submit(&self, requests: &mut Vec<Request>, replies: &Arc<dyn Replies>) {
        self.dawdle(requests);
        let mut watch = Watch {
            to: Arc::clone(replies),
            known: Arc::clone(&self.known),
            power: self.power.clone(),
            call: 0,
            flushes: Mutex::default(),
            cuts: false,
            commits: 0,
            others: 0,
        };
        let cut = self.look(requests, &mut watch);
        watch.cuts = cut == Some(Cut::AfterFlush);
        if matches!(cut, Some(Cut::BeforeFlush | Cut::NextTransaction)) {
            self.power.cut(&mut self.known.lock());
        }
        let watch = Arc::new(watch);
        let replies: Arc<dyn Replies> = watch.clone();
        self.volume.submit(requests, &replies);
        if cut == Some(Cut::WithFlush) {
            self.power.cut(&mut self.known.lock());
        }
        self.taken(&watch);
    }
}

/// Receives the completions of one call.
struct Watch {
    to: Arc<dyn Replies>,
    known: Arc<Mutex<Known>>,
    power: Power,
    call: u64,
    /// The flushes, by tag, and what they cover.
    flushes: Mutex<Vec<(u64, Sent)>>,
    /// True if the power is cut when one of these flushes completes.
    cuts: bool,
    commits: u64,
    others: u64,
}

impl Watch {
    fn flushed(&self, tag: u64) {
        let mut flushes = self.flushes.lock();
        let found = flushes.iter().position(|(of, _)| *of == tag);
        let Some((_, asked)) = found.map(|at| flushes.swap_remove(at)) else {
            return;
        };
        let mut known = self.known.lock();
        // Without power nothing counts.
        if self.power.medium.is_off() {
            return;
        }
        known.flushed(&asked);
        if self.cuts {
            self.power.cut(&mut known);
        }
    }
}

impl Replies for Watch {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        match request.op {
            Op::Flush if result.is_ok() => self.flushed(request.tag),
            Op::Write { .. } if result.is_ok() => {
                let (first, blocks) = (request.lba.0, request.blocks);
                self.known.lock().answered(first, blocks, self.call);
            }
            _ => {}
        }
        self.to.complete(request, result);
    }

    fn flush(&self) {
        self.to.flush();
    }

    fn lends_thread(&self) -> bool {
        self.to.lends_thread()
    }
}

/// The spy's results.
pub struct Eye(Arc<Mutex<Known>>);

impl Eye {
    /// Sets where the log is: from the block after its superblock on.
    pub fn follow(&self, log: Vec<(u64, u64)>) {
        self.0.lock().log = log;
    }

    /// Allows the cut from now on.
    pub fn arm(&self, cut: Cut) {
        let mut known = self.0.lock();
        known.flushes = 0;
        known.cut = Some(cut);
    }

    pub fn seen(&self) -> Seen {
        self.0.lock().seen
    }

    /// Returns what a flush covered and is missing: the block, and the transaction if it was a commit block.
    pub fn lost(&self, mut read: impl FnMut(u64, &mut [u8])) -> Vec<(u64, Option<u32>)> {
        let known = self.0.lock();
        let covered = known.blocks.iter();
        let covered = covered.filter(|(_, block)| block.state == State::Covered);
        let mut bytes = [0; BLOCK_BYTES];
        let mut lost = Vec::new();
        for (lba, block) in covered {
            read(lba * BLOCK_BYTES as u64, &mut bytes);
            if crc32c::crc32c(&bytes) != block.sum {
                lost.push((*lba, block.commit));
            }
        }
        lost
    }
}
