//! What the scout knows, as all threads use it: its findings, and, behind locks, the followers that learn while journals are
//! written.

use crate::block::{Op, Request};
use crate::frames::Frames;
use parking_lot::Mutex;
use std::ops::Deref;
use std::sync::Arc;
use vellum_core::addr::Lba;
use vellum_core::seam::Payload;
use vellum_watch::{
    Blocks, Change, EarlierPlaces, Entry, FileSystemStats, Findings, Followers, Log,
};

/// One block of a journal, read before the core's lock is taken.
#[derive(Debug)]
pub(crate) struct JournalEntry {
    /// The request of the batch that writes it.
    pub request: usize,
    /// The block of that request.
    pub index: usize,
    log: usize,
    entry: Entry,
}

/// A snapshot of what the scout knows; replaced as a whole.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    found: Findings,
    followers: Mutex<Followers>,
    /// One for each log that was found. Its entries take effect only under the core's lock, and in the core's order.
    logs: Vec<Arc<Mutex<Log>>>,
    /// The scan that it comes from.
    scan: u64,
}

/// The findings never change, so they need no lock.
impl Deref for Watching {
    type Target = Findings;

    fn deref(&self) -> &Findings {
        &self.found
    }
}

impl Watching {
    /// Makes what is known from a scan. A log that is where it was `before` keeps its state.
    pub fn new(scan: u64, found: Findings, before: &Self) -> Self {
        let logs = found.logs().iter();
        // A log that was not followed in between has to be followed from its start.
        let goes_on = before.found.wants().replay || !found.wants().replay;
        let logs: Vec<_> = logs
            .map(|reader| {
                // The log's superblock may have said already what the scan has found now.
                let is_same = |log: &&Arc<Mutex<Log>>| **log.lock().reader() == **reader;
                let same = before.logs.iter().find(is_same).filter(|_| goes_on);
                same.map_or_else(|| Arc::new(Mutex::new(Log::new(reader))), Arc::clone)
            })
            .collect();
        logs.iter().for_each(|log| log.lock().share(logs.len()));
        Self {
            followers: Mutex::new(Followers::new(found.followers())),
            logs,
            scan,
            found,
        }
    }

    /// Describes the file systems, for users.
    pub fn file_systems(&self) -> Vec<FileSystemStats> {
        self.found
            .file_systems(|log| self.logs[log].lock().not_replayed())
    }

    /// What is wrong with partition tables, for users.
    pub fn table_faults(&self) -> Vec<String> {
        let faults = &self.scan().table_faults;
        faults.iter().map(ToString::to_string).collect()
    }

    /// The scan that it comes from.
    pub fn scan_number(&self) -> u64 {
        self.scan
    }

    /// Looks at a write into a journal. Returns the number of commits in it, and appends home addresses, if they are wanted, to
    /// `pairs` with their places in the journal.
    pub fn read_along(
        &self,
        request: &Request,
        payloads: &[Payload],
        pairs: &mut Vec<(Lba, Lba)>,
    ) -> u64 {
        let Some(change) = change_of(request) else {
            return 0;
        };
        let follows = !self.found.followers().is_empty();
        self.found.count_commits(&change, payloads, |index| {
            if follows {
                self.followers.lock().read(&change, index, pairs);
            }
        })
    }

    /// Reads what request `number` writes into a journal whose transactions are followed.
    pub fn read_log(
        &self,
        number: usize,
        request: &Request,
        payloads: &[Payload],
        entries: &mut Vec<JournalEntry>,
    ) {
        let describes = self.found.wants().deltas;
        let read = |index, log: usize, at| {
            // Not locked while the block is read.
            let reader = Arc::clone(self.logs[log].lock().reader());
            let entry = Entry::read(reader, at, request.frames.block(index));
            if describes && entry.is_own() {
                self.logs[log].lock().describe(&entry);
            }
            entries.push(JournalEntry {
                request: number,
                index,
                log,
                entry,
            });
        };
        self.found.in_logs(request.lba.0, payloads, read);
    }

    /// Where to look for an earlier version of a block that is about to be written, the likeliest place first. For a copy in a
    /// journal: where the copy before it is, then its home. For other blocks: their own address. From now on this is the newest
    /// copy.
    pub fn earlier_places(&self, block: Lba) -> EarlierPlaces {
        match self.found.log_at(block) {
            Some((log, at)) => self.logs[log].lock().write(at, block),
            None => EarlierPlaces::of(block),
        }
    }

    /// Makes the followers of journals begin anew, because the journals move.
    pub fn forget_logs(&self) {
        for log in &self.logs {
            log.lock().forget();
        }
    }

    /// Notes that a block of a journal is about to take effect, in the core's order: see [`Log::written`].
    pub fn entry(
        &self,
        entry: JournalEntry,
        is_current: impl FnOnce(u64) -> bool,
        pairs: &mut Vec<(Lba, Lba)>,
    ) -> bool {
        if !self.found.wants().replay {
            return true;
        }
        let mut log = self.logs[entry.log].lock();
        log.written(entry.entry, || is_current(self.scan), pairs)
    }
}

impl Blocks for Frames {
    fn count(&self) -> usize {
        self.len()
    }

    fn block(&self, index: usize) -> &[u8] {
        Self::block(self, index)
    }
}

/// What a request changes; `None` if it only reads or flushes.
pub(crate) fn change_of(request: &Request) -> Option<Change<'_>> {
    let written: Option<&dyn Blocks> = match request.op {
        Op::Read | Op::Flush => return None,
        Op::Discard { .. } | Op::WriteZeroes { .. } => None,
        Op::Write { .. } => Some(&request.frames),
    };
    Some(Change {
        first: request.lba.0,
        blocks: request.blocks,
        written,
    })
}
