//! What each write is looked at for: does it change where journals are, and what does it say if it is one
//! of a journal. Nearly all are passed with two comparisons.

use crate::block::{Op, Request};
use crate::classes::{Classes, JBD2_MAGIC};
use crate::copies::Copies;
use crate::critical::Critical;
use crate::journals::{FileSystemStats, Plan};
use crate::limits::{COMMITTED_PAIRS, PAIRS};
use crate::policy::Policy;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_core::seam::Payload;
use vellum_ext4::journal::{
    Content, Followed, Follower, Head, JournalBlock, Reader, Told, Transactions,
};
use vellum_ext4::{Scan, Span};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// The kind that a commit block has.
const COMMIT: [u8; 4] = [0, 0, 0, 2];

/// A journal whose transactions are followed.
#[derive(Clone, Debug)]
struct Log {
    /// As the scan found it; what its superblock says of its format since then, the transactions know.
    reader: Arc<Reader>,
    /// Changed under the core's lock alone.
    transactions: Arc<Mutex<Transactions>>,
    copies: Arc<Mutex<Copies>>,
}

/// One block of a journal, read before the core's lock is taken.
#[derive(Debug)]
pub(crate) struct Step {
    /// The request of the batch that writes it.
    pub request: usize,
    /// And the block of that.
    pub index: usize,
    log: usize,
    at: JournalBlock,
    content: Content,
    /// What has read it.
    reader: Arc<Reader>,
}

/// How many writes have changed what a scan depended on: admitted to the core, and answered.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    admitted: AtomicU64,
    answered: AtomicU64,
}

/// Never so many.
const DOUBTED: u64 = u64::MAX;

impl Changes {
    /// One is about to be admitted, under the core's lock.
    pub fn admit(&self) {
        self.admitted.fetch_add(1, Ordering::AcqRel);
    }

    /// One has been answered.
    pub fn answer(&self) {
        self.answered.fetch_add(1, Ordering::AcqRel);
    }

    /// How many a scan will have seen that begins now; a number that there never is if one of them is in flight.
    pub fn seen(&self) -> u64 {
        let admitted = self.admitted.load(Ordering::Acquire);
        match self.answered.load(Ordering::Acquire) == admitted {
            true => admitted,
            false => DOUBTED,
        }
    }
}

/// A snapshot of what the scout knows; replaced as a whole.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    pub scan: Arc<Scan>,
    pub plan: Plan,
    pub classes: Arc<Classes>,
    pub critical: Arc<Critical>,
    /// Those of the plan, which change as they read.
    followers: Mutex<Vec<(Follower, u32)>>,
    follows: bool,
    logs: Vec<Log>,
    /// Whether whatever is stored may be compared with what is written.
    dedup: bool,
    /// Whether the volume puts home itself what journals have committed.
    replays: bool,
    /// Whether it is asked what a block of a journal is a copy of.
    copies: bool,
    /// How many changes the scan had seen. One more, and what it says is not to be trusted any more.
    changes: AtomicU64,
}

/// What may soon be compared with a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Expected {
    #[default]
    Nothing,
    /// The same block, written home: it is in a journal.
    HomeWrite,
    /// A copy of it, if contents come again at all.
    Duplicate,
}

/// Where an earlier version of a block may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlierPlaces {
    /// In the journal: the copy before it.
    copy: Option<Lba>,
    /// Where it belongs.
    pub home: Lba,
}

impl EarlierPlaces {
    /// All of them, the likeliest first.
    pub fn all(self) -> impl Iterator<Item = Lba> {
        self.copy.into_iter().chain([self.home])
    }
}

impl Sight {
    /// What follows a journal goes on with it, if that is where it was in the sight `before`.
    pub fn new(
        scan: Arc<Scan>,
        mut plan: Plan,
        classes: Arc<Classes>,
        critical: Arc<Critical>,
        policy: &Policy,
        before: &Self,
    ) -> Self {
        let followers = std::mem::take(&mut plan.followers);
        let readers = std::mem::take(&mut plan.readers);
        let logs = readers
            .into_iter()
            .map(|reader| before.log_of(reader, policy.replays()));
        Self {
            scan,
            plan,
            classes,
            critical,
            follows: !followers.is_empty(),
            logs: logs.collect(),
            dedup: policy.dedup,
            replays: policy.replays(),
            copies: policy.deltas.are_made(),
            changes: AtomicU64::new(DOUBTED),
            followers: Mutex::new(followers),
        }
    }

    /// What there is to tell a user of the file systems.
    pub fn file_systems(&self) -> Vec<FileSystemStats> {
        let mut told = self.plan.found.clone();
        for (found, aside) in told.iter_mut().zip(&self.classes.asides) {
            found.metadata_in_part.clone_from(aside);
        }
        for (found, aside) in told.iter_mut().zip(&self.critical.asides) {
            found.not_shared.clone_from(aside);
        }
        for log in self.logs.iter().filter(|_| self.replays) {
            let why = not_replayed(&log.transactions.lock());
            let of = |found: &&mut FileSystemStats| found.start == log.reader.home();
            if let (Some(why), Some(found)) = (why, told.iter_mut().find(of)) {
                found.not_replayed = Some(why.to_owned());
            }
        }
        told
    }

    /// How many changes the scan had seen.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub fn set_changes(&self, seen: u64) {
        self.changes.store(seen, Ordering::Release);
    }

    /// Whether it has seen all of them.
    pub fn is_current(&self, changes: &Changes) -> bool {
        self.changes() == changes.admitted.load(Ordering::Acquire)
    }

    /// Something was written while the scan ran that it may have missed.
    pub fn doubt(&self) {
        self.set_changes(DOUBTED);
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

    /// Whether a request that [touches](Self::is_touched) the scan may have moved a journal.
    pub fn is_moved(&self, request: &Request) -> bool {
        let moved = |index| {
            let at = (request.lba.0 + index as u64) * BLOCK;
            self.scan.moved(at, request.frames.block(index))
        };
        !matches!(request.op, Op::Write { .. }) || (0..request.frames.len()).any(moved)
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

    /// `replays`: its transactions are followed from now on.
    fn log_of(&self, reader: Arc<Reader>, replays: bool) -> Log {
        // Its superblock may have said already what the scan has found now.
        let is_same = |log: &&Log| **log.transactions.lock().reader() == *reader;
        let same = self.logs.iter().find(is_same);
        // What was not followed meanwhile has to be followed anew.
        let same = same.filter(|_| self.replays || !replays);
        let followed = same.map(|log| (Arc::clone(&log.transactions), Arc::clone(&log.copies)));
        let (transactions, copies) = followed.unwrap_or_else(|| {
            let transactions = Transactions::new(Arc::clone(&reader));
            (Arc::new(Mutex::new(transactions)), Arc::default())
        });
        Log {
            reader,
            transactions,
            copies,
        }
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
                Some((log, this, at))
            });
            let Some((log, this, at)) = found else {
                continue;
            };
            // Copies are read only for their sums.
            if payload.digest.first != JBD2_MAGIC && !self.replays {
                continue;
            }
            let reader = Arc::clone(this.transactions.lock().reader());
            let content = reader.read(at, request.frames.block(index));
            if let Content::Own(Head::Descriptor(_, copies)) = &content
                && self.copies
            {
                this.copies.lock().describe(reader.places(at, copies));
            }
            steps.push(Step {
                request: number,
                index,
                log,
                at,
                content,
                reader,
            });
        }
    }

    /// Where to look for an earlier version of a block that is about to be written, the likeliest place first: of a copy in a
    /// journal where the copy before it is, then at home; of all else where it is written. From now on this is the newest copy.
    pub fn earlier_places(&self, block: Lba) -> EarlierPlaces {
        let copied = || {
            self.logs.iter().find_map(|log| {
                let at = log.reader.block_at(block.0 * BLOCK)?;
                log.copies.lock().write(at, block)
            })
        };
        let in_journal = !self.logs.is_empty() && self.in_journal(block.0);
        match in_journal.then(copied).flatten() {
            Some(copied) => EarlierPlaces {
                copy: copied.before,
                home: Lba(copied.home / BLOCK),
            },
            None => EarlierPlaces {
                copy: None,
                home: block,
            },
        }
    }

    /// Whether a request takes blocks out of a journal. No file system does it with those of a log that it needs.
    pub fn empties_journal(&self, request: &Request) -> bool {
        matches!(request.op, Op::Discard { .. } | Op::WriteZeroes { .. })
            && self.touches_journal(request.lba.0, request.blocks)
    }

    /// Where journals are is changing: what follows them begins anew.
    pub fn forget_logs(&self) {
        for log in &self.logs {
            log.transactions.lock().forget();
            log.copies.lock().clear();
        }
    }

    /// Takes a step, in the core's order; the home blocks of the transaction that is complete with it, and their
    /// copies, if that is a small one. Nothing is told of a journal that may have moved since the scan: what is
    /// pledged is not compared with anything. False: the journal's blocks do not come as its file system sends them.
    pub fn step(&self, step: Step, changes: &Changes, pairs: &mut Vec<(Lba, Lba)>) -> bool {
        if !self.replays {
            return true;
        }
        let mut transactions = self.logs[step.log].transactions.lock();
        match transactions.written(step.at, step.content, &step.reader) {
            Told::Foreign(_) => return false,
            Told::Complete(complete)
                if self.is_current(changes) && complete.len() <= COMMITTED_PAIRS =>
            {
                let pair = |(home, place)| (Lba(home / BLOCK), Lba(place / BLOCK));
                pairs.extend(complete.into_iter().map(pair));
            }
            Told::Complete(_) | Told::Nothing => {}
        }
        true
    }

    /// Whether what a request writes may soon be written again, to be compared with this.
    pub fn expects(&self, request: &Request) -> Expected {
        let once = !self.plan.regions.is_empty();
        if !matches!(request.op, Op::Write { .. }) {
            Expected::Nothing
        } else if once && self.touches_journal(request.lba.0, request.blocks) {
            Expected::HomeWrite
        } else if self.dedup {
            Expected::Duplicate
        } else {
            Expected::Nothing
        }
    }

    pub fn in_journal(&self, block: u64) -> bool {
        self.touches_journal(block, 1)
    }

    /// Whether one of these blocks is in a journal that is known.
    pub fn touches_journal(&self, first: u64, blocks: u64) -> bool {
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

/// Why a journal's transactions are not told; none if they are.
fn not_replayed(transactions: &Transactions) -> Option<&'static str> {
    if !transactions.reader().has_sums() {
        let why = "what lies in its journal cannot be held against sums (the feature checksum_v3, \
            which the kernel sets where the file system has metadata_csum)";
        return Some(why);
    }
    let why = "blocks of its journal do not come as a file system sends them: \
        a cache between it and the volume writes back in an order of its own";
    transactions.has_given_up().then_some(why)
}

/// The bytes that a request is about.
pub(crate) fn span_of(request: &Request) -> Span {
    Span::new(
        request.lba.0.saturating_mul(BLOCK),
        request.blocks.saturating_mul(BLOCK),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_flight_is_one_that_no_scan_has_seen() {
        let changes = Changes::default();
        assert_eq!(changes.seen(), 0);
        changes.admit();
        assert_eq!(changes.seen(), DOUBTED);
        changes.answer();
        assert_eq!(changes.seen(), 1);
        // A sight that has seen it, until there is one more, or a doubt.
        let sight = Sight::default();
        sight.set_changes(changes.seen());
        assert!(sight.is_current(&changes));
        changes.admit();
        assert!(!sight.is_current(&changes));
        sight.set_changes(changes.seen());
        changes.answer();
        assert!(!sight.is_current(&changes), "it was in flight");
        sight.set_changes(changes.seen());
        assert!(sight.is_current(&changes));
        sight.doubt();
        assert!(!sight.is_current(&changes));
    }
}
