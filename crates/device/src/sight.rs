//! What each write is looked at for: does it change where journals are, and what does it say if it is one
//! of a journal. Nearly all are passed with two comparisons.

use crate::block::{Op, Request};
use crate::classes::{Classes, JBD2_MAGIC};
use crate::journals::Plan;
use crate::limits::{COMMITTED_PAIRS, PAIRS};
use parking_lot::Mutex;
use std::sync::Arc;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::seam::Payload;
use vellum_ext4::journal::{Followed, Follower, Head, JournalBlock, Reader, Transactions};
use vellum_ext4::{Scan, Span};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The kind that a commit block has.
const COMMIT: [u8; 4] = [0, 0, 0, 2];

/// A journal whose transactions are followed.
#[derive(Clone, Debug)]
struct Log {
    reader: Arc<Reader>,
    /// Changed under the core's lock alone.
    transactions: Arc<Mutex<Transactions>>,
}

/// One block of a journal, read before the core's lock is taken.
#[derive(Debug)]
pub(crate) struct Step {
    /// The request of the batch that writes it.
    pub request: usize,
    log: usize,
    at: JournalBlock,
    head: Option<Head>,
}

/// A snapshot of what the scout knows; replaced as a whole.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    pub scan: Arc<Scan>,
    pub plan: Plan,
    pub classes: Arc<Classes>,
    /// Those of the plan, which change as they read.
    followers: Mutex<Vec<(Follower, u32)>>,
    follows: bool,
    logs: Vec<Log>,
    /// Whether whatever is stored may be compared with what is written.
    dedup: bool,
}

impl Sight {
    /// What follows a journal goes on with it, if that is where it was in the sight `before`.
    pub fn new(
        scan: Arc<Scan>,
        mut plan: Plan,
        classes: Arc<Classes>,
        dedup: bool,
        before: &Self,
    ) -> Self {
        let followers = std::mem::take(&mut plan.followers);
        let readers = std::mem::take(&mut plan.readers);
        let logs = readers.into_iter().map(|reader| before.log_of(reader));
        Self {
            scan,
            plan,
            classes,
            follows: !followers.is_empty(),
            logs: logs.collect(),
            dedup,
            followers: Mutex::new(followers),
        }
    }

    /// Whether a request changes what the scan saw. Cheap: most writes are far from everything watched.
    pub fn is_touched(&self, request: &Request) -> bool {
        if !self.scan.overlaps(span_of(request)) {
            return false;
        }
        match request.op {
            Op::Read | Op::Flush => false,
            Op::Discard { .. } | Op::WriteZeroes { .. } => true,
            Op::Write { .. } => (0..request.frames.len()).any(|index| {
                let at = (request.lba.0 + index as u64) * BLOCK;
                self.scan.touched(at, request.frames.block(index))
            }),
        }
    }

    /// Looks at a write into a journal: the commits in it; home addresses, if they are asked for, go to
    /// `pairs` with their places in the journal.
    pub fn read_along(
        &self,
        request: &Request,
        payloads: &[Payload],
        pairs: &mut Vec<(Lba, Lba)>,
    ) -> u64 {
        let first = request.lba.0;
        if !self.touches_journal(first, payloads.len() as u64) {
            return 0;
        }
        let mut commits = 0;
        for (index, payload) in payloads.iter().enumerate() {
            if payload.digest.first != JBD2_MAGIC || !self.in_journal(first + index as u64) {
                continue;
            }
            commits += u64::from(request.frames.block(index)[4..8] == COMMIT);
            if self.follows {
                self.follow(request, index, pairs);
            }
        }
        commits
    }

    /// Tells what each block of a write is.
    pub fn classify(&self, first: u64, payloads: &mut [Payload]) {
        let journal = self.touches_journal(first, payloads.len() as u64);
        for (block, payload) in (first..).zip(payloads) {
            let in_journal = journal && self.in_journal(block);
            payload.digest.class = self.classes.of(block, &payload.digest, in_journal);
        }
    }

    /// Whether the content of a block is worth an entry of the index.
    pub fn is_data(&self, block: u64) -> bool {
        !self.in_journal(block) && !self.classes.is_metadata(block)
    }

    fn log_of(&self, reader: Arc<Reader>) -> Log {
        let same = self.logs.iter().find(|log| log.reader == reader);
        same.cloned().unwrap_or_else(|| Log {
            transactions: Arc::new(Mutex::new(Transactions::new(Arc::clone(&reader)))),
            reader,
        })
    }

    /// Reads what request `number` writes into a journal whose transactions are followed.
    pub fn read_log(
        &self,
        number: usize,
        request: &Request,
        payloads: &[Payload],
        steps: &mut Vec<Step>,
    ) {
        let first = request.lba.0;
        if self.logs.is_empty() || !self.touches_journal(first, payloads.len() as u64) {
            return;
        }
        for (index, payload) in payloads.iter().enumerate() {
            let offset = (first + index as u64) * BLOCK;
            let found = self.logs.iter().enumerate().find_map(|(log, this)| {
                let at = this.reader.block_at(offset)?;
                Some((log, &this.reader, at))
            });
            let Some((log, reader, at)) = found else {
                continue;
            };
            let is_its_own = payload.digest.first == JBD2_MAGIC;
            let bytes = request.frames.block(index);
            let head = is_its_own.then(|| reader.read(at, bytes)).flatten();
            steps.push(Step {
                request: number,
                log,
                at,
                head,
            });
        }
    }

    /// Where journals are is changing: what follows them begins anew.
    pub fn forget_logs(&self) {
        for log in &self.logs {
            log.transactions.lock().forget();
        }
    }

    /// Takes a step, in the core's order; the home blocks of the transaction that is complete with it, and their
    /// copies, if that is a small one.
    pub fn step(&self, step: Step, pairs: &mut Vec<(Lba, Lba)>) {
        let mut transactions = self.logs[step.log].transactions.lock();
        let complete = transactions.written(step.at, step.head);
        if complete.len() <= COMMITTED_PAIRS {
            let pair = |(home, place)| (Lba(home / BLOCK), Lba(place / BLOCK));
            pairs.extend(complete.into_iter().map(pair));
        }
    }

    /// Whether what a request writes may soon be written again, to be compared with this.
    pub fn is_twin_to_be(&self, request: &Request) -> bool {
        let once = !self.plan.regions.is_empty();
        matches!(request.op, Op::Write { .. })
            && (self.dedup || (once && self.touches_journal(request.lba.0, request.blocks)))
    }

    fn in_journal(&self, block: u64) -> bool {
        self.touches_journal(block, 1)
    }

    fn touches_journal(&self, first: u64, blocks: u64) -> bool {
        let journals = &self.plan.journals;
        let near = journals.partition_point(|(_, after)| *after <= first);
        journals
            .get(near)
            .is_some_and(|(start, _)| *start < first + blocks)
    }

    /// Lets the journal's follower read its block that begins at a frame of the request.
    fn follow(&self, request: &Request, index: usize, pairs: &mut Vec<(Lba, Lba)>) {
        let offset = (request.lba.0 + index as u64) * BLOCK;
        let mut followers = self.followers.lock();
        let Some((follower, block_bytes)) = followers
            .iter_mut()
            .find(|(follower, _)| follower.layout().block_at(offset).is_some())
        else {
            return;
        };
        let blocks = *block_bytes as usize / BLOCK_BYTES;
        let mut tell = |followed| {
            if let Followed::Copy { home, place } = followed
                && pairs.len() < PAIRS
            {
                let pair = |n| (Lba(home / BLOCK + n), Lba(place / BLOCK + n));
                pairs.extend((0..blocks as u64).map(pair));
            }
        };
        if blocks == 1 {
            return follower.written(offset, request.frames.block(index), &mut tell);
        }
        if index + blocks <= request.frames.len() {
            let frames = index..index + blocks;
            let bytes: Vec<&[u8]> = frames.map(|at| request.frames.block(at)).collect();
            follower.written(offset, &bytes.concat(), &mut tell);
        }
    }
}

/// The bytes that a request is about.
pub(crate) fn span_of(request: &Request) -> Span {
    Span::new(
        request.lba.0.saturating_mul(BLOCK),
        request.blocks.saturating_mul(BLOCK),
    )
}
