//! A trace file as requests to a drive of another size.
//!
//! The disk that a trace was taken from is larger than the drive that is simulated, and mostly not touched. So its
//! addresses are moved together: each extent of 1 MiB that is touched gets the next place, in the order of first touch.
//! What lies together within an extent stays together. The file is read twice: once to learn its extents (and to find
//! what is wrong with it before anything is run), and once for each run.

use crate::content::Content;
use crate::trace::{Format, Op, Reader, Record, Seen, TraceError, detect};
use crate::workload::Request;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use vellum_core::addr::BLOCK_BYTES;

/// Blocks of an extent.
const EXTENT_BLOCKS: u64 = 256;
/// Extents that a trace may touch: 1 TiB.
const EXTENTS_MAX: usize = 1 << 20;
/// How much of a file is looked at for its format.
const HEAD_BYTES: u64 = 256 << 10;

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be opened.
    #[error("{path}")]
    Open {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It cannot be read as a trace.
    #[error("{path}")]
    Trace {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: TraceError,
    },
    /// It touches too much.
    #[error("{path}: line {line}: the trace touches more than {} GiB: too much to simulate", EXTENTS_MAX >> 10)]
    Wide {
        /// Which.
        path: String,
        /// Where.
        line: u64,
    },
}

/// How a trace is to be read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Its format; none: it is found by looking.
    pub format: Option<Format>,
    /// Where a file system's journal is on the trace's (first) disk: its first byte and its length.
    pub journal: Option<(u64, u64)>,
}

/// What a trace is, found in the first reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// What the reader saw.
    pub seen: Seen,
    /// Requests by kind.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Discards.
    pub discards: u64,
    /// Flushes.
    pub flushes: u64,
    /// Blocks written.
    pub blocks_written: u64,
    /// Of these, those whose content the trace tells.
    pub blocks_told: u64,
    /// Requests that did not begin and end with a block; they are made to.
    pub unaligned: u64,
    /// When the first request came and when the last, in nanoseconds.
    pub first_at: u64,
    /// The last.
    pub last_at: u64,
}

/// A trace file that was read once.
pub struct TraceFile {
    path: PathBuf,
    format: Format,
    /// Looked up only: its order is chance.
    extents: HashMap<(u32, u64), u64>,
    journal: Option<(u64, u64)>,
    summary: Summary,
}

impl TraceFile {
    /// Reads a trace through.
    ///
    /// # Errors
    /// When it cannot be read to its end.
    pub fn read(path: &Path, reading: Reading) -> Result<Self, ReplayError> {
        let name = || path.display().to_string();
        let of_trace = |source| ReplayError::Trace {
            path: name(),
            source,
        };
        let format = match reading.format {
            Some(format) => format,
            None => {
                let mut head = Vec::new();
                let read = open(path)?.take(HEAD_BYTES).read_to_end(&mut head);
                read.map_err(|source| ReplayError::Open {
                    path: name(),
                    source,
                })?;
                detect(&head).map_err(of_trace)?
            }
        };
        let mut reader = Reader::new(BufReader::new(open(path)?), format);
        let mut extents = HashMap::new();
        let mut summary = Summary::default();
        while let Some(record) = reader.next() {
            let record = record.map_err(of_trace)?;
            if summary == Summary::default() {
                // The journal's extents come first, so that it stays in one piece.
                for extent in journal_extents(reading.journal) {
                    extents.insert((record.disk, extent), extents.len() as u64);
                }
            }
            count(&mut summary, &record);
            if record.op == Op::Flush {
                continue;
            }
            let first = record.first_block() / EXTENT_BLOCKS;
            let last = (record.first_block() + record.blocks() - 1) / EXTENT_BLOCKS;
            // Only what is read or written makes room: a discard may be as long as a disk.
            if record.op != Op::Discard {
                for extent in first..=last {
                    let next = extents.len() as u64;
                    extents.entry((record.disk, extent)).or_insert(next);
                }
            }
            if extents.len() > EXTENTS_MAX {
                return Err(ReplayError::Wide {
                    path: name(),
                    line: reader.seen().lines,
                });
            }
        }
        summary.seen = reader.seen();
        let journal = reading.journal.map(|(offset, bytes)| {
            let start = offset / BLOCK_BYTES as u64;
            (
                start % EXTENT_BLOCKS,
                offset.saturating_add(bytes) / BLOCK_BYTES as u64 - start,
            )
        });
        Ok(Self {
            path: path.into(),
            format,
            extents,
            journal,
            summary,
        })
    }

    /// Its format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// What it is.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Where the journal is after all addresses have been moved together, if it was told: its first block, and how
    /// many.
    #[must_use]
    pub fn journal(&self) -> Option<(u64, u64)> {
        self.journal
    }

    /// Blocks that a drive needs for it.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.extents.len() as u64 * EXTENT_BLOCKS
    }

    /// Its requests, `times` over, one replay after the other.
    ///
    /// # Errors
    /// When the file cannot be opened any more.
    pub fn replay(&self, seed: u64, times: u32) -> Result<Replay<'_>, ReplayError> {
        Ok(Replay {
            trace: self,
            reader: self.reader()?,
            seed,
            left: times.saturating_sub(1),
            shift: 0,
            writes: 0,
            ready: Vec::new(),
            error: None,
        })
    }

    fn reader(&self) -> Result<Reader<BufReader<File>>, ReplayError> {
        Ok(Reader::new(BufReader::new(open(&self.path)?), self.format))
    }
}

fn journal_extents(journal: Option<(u64, u64)>) -> std::ops::Range<u64> {
    let extent = EXTENT_BLOCKS * BLOCK_BYTES as u64;
    let (offset, bytes) = journal.unwrap_or((0, 0));
    offset / extent..offset.saturating_add(bytes).div_ceil(extent)
}

fn open(path: &Path) -> Result<File, ReplayError> {
    File::open(path).map_err(|source| ReplayError::Open {
        path: path.display().to_string(),
        source,
    })
}

fn count(summary: &mut Summary, record: &Record) {
    let block = BLOCK_BYTES as u64;
    if summary.reads + summary.writes + summary.discards + summary.flushes == 0 {
        summary.first_at = record.at.0;
    }
    summary.last_at = record.at.0;
    let whole = record.offset.is_multiple_of(block) && record.bytes.is_multiple_of(block);
    summary.unaligned += u64::from(!whole);
    match record.op {
        Op::Read => summary.reads += 1,
        Op::Write { .. } => {
            summary.writes += 1;
            summary.blocks_written += record.blocks();
            if told(record) {
                summary.blocks_told += record.blocks();
            }
        }
        Op::Discard => summary.discards += 1,
        Op::Flush => summary.flushes += 1,
    }
}

/// Whether the trace says what each block of the request holds.
fn told(record: &Record) -> bool {
    !record.contents.is_empty() && record.contents.len() as u64 == record.blocks()
}

/// See [`TraceFile::replay`].
pub struct Replay<'a> {
    trace: &'a TraceFile,
    reader: Reader<BufReader<File>>,
    seed: u64,
    left: u32,
    shift: u64,
    writes: u64,
    /// Parts of a request that lies in extents that are apart, last first.
    ready: Vec<Request>,
    error: Option<ReplayError>,
}

impl Replay<'_> {
    /// Why it ended early, if it did.
    pub fn error(&mut self) -> Option<ReplayError> {
        self.error.take()
    }

    fn cut(&mut self, record: &Record) {
        let at = record.at.0 - self.trace.summary.first_at + self.shift;
        if record.op == Op::Flush {
            return self.ready.push(Request {
                at,
                op: Op::Flush,
                lba: 0,
                blocks: 0,
                contents: Vec::new(),
            });
        }
        let writes = matches!(record.op, Op::Write { .. });
        self.writes += u64::from(writes);
        let (start, end) = (record.first_block(), record.first_block() + record.blocks());
        let mut from = start;
        while from < end {
            let extent = from / EXTENT_BLOCKS;
            let to = end.min((extent + 1) * EXTENT_BLOCKS);
            if let Some(place) = self.trace.extents.get(&(record.disk, extent)) {
                let lba = place * EXTENT_BLOCKS + from % EXTENT_BLOCKS;
                let content = |block: u64| match told(record) {
                    true => record.contents[(block - start) as usize],
                    false => Content::synthetic(self.seed, lba + block - from, self.writes),
                };
                let contents = match writes {
                    true => (from..to).map(content).collect(),
                    false => Vec::new(),
                };
                match self.ready.last_mut() {
                    // Neighbours stay one request.
                    Some(last) if last.lba + u64::from(last.blocks) == lba => {
                        last.blocks += (to - from) as u32;
                        last.contents.extend(contents);
                    }
                    _ => self.ready.push(Request {
                        at,
                        op: record.op,
                        lba,
                        blocks: (to - from) as u32,
                        contents,
                    }),
                }
            }
            from = to;
        }
        self.ready.reverse();
    }
}

impl Iterator for Replay<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        loop {
            if let Some(request) = self.ready.pop() {
                return Some(request);
            }
            match self.reader.next() {
                Some(Ok(record)) => self.cut(&record),
                Some(Err(source)) => {
                    let path = self.trace.path.display().to_string();
                    self.error = Some(ReplayError::Trace { path, source });
                    return None;
                }
                None if self.left == 0 => return None,
                None => {
                    self.left -= 1;
                    let summary = &self.trace.summary;
                    let span = summary.last_at - summary.first_at;
                    // One mean gap between the last request and the first again.
                    self.shift += span + span / summary.seen.records.max(1);
                    match self.trace.reader() {
                        Ok(reader) => self.reader = reader,
                        Err(error) => {
                            self.error = Some(error);
                            return None;
                        }
                    }
                }
            }
        }
    }
}
