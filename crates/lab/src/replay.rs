//! A trace file as requests to a drive of another size.
//!
//! The disk that a trace was taken from is larger than the drive that is simulated, and mostly not touched. So its
//! addresses are moved together: each extent of 1 MiB that is touched gets the next place, in the order of first touch.
//! What lies together within an extent stays together. The file is read twice: once to learn its extents (and to find
//! what is wrong with it before anything is run), and once for each run.

use crate::content::{Content, Contents};
use crate::progress::Watch;
use crate::shares::Shares;
use crate::trace::{Bytes, Columns, Format, Known, Op, Reader, Record, Seen, TraceError, detect};
use crate::workload::Request;
use std::collections::BTreeMap;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use vellum_core::addr::{BLOCK_BYTES, Lba};

/// Blocks of an extent.
const EXTENT_BLOCKS: u64 = 256;
/// Extents that a trace may touch: 1 TiB.
const EXTENTS_MAX: usize = 1 << 20;
/// How much of a file is looked at for its format.
const HEAD_BYTES: u64 = 256 << 10;
/// Processors whose files are looked for beside one of them.
const PROCESSORS_MAX: u32 = 1023;

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
    /// Its journal is too large.
    #[error("{path}: a journal of {} GiB, where all that a trace touches may be {} GiB", extents >> 10, EXTENTS_MAX >> 10)]
    Journal {
        /// Which.
        path: String,
        /// Extents that it lies in.
        extents: u64,
    },
    /// Addresses cannot stay what they are.
    #[error("{path}: the trace is of several disks: their addresses cannot all stay as they are")]
    Disks {
        /// Which.
        path: String,
    },
    /// The disk whose addresses were to stay is too large.
    #[error("{path}: a disk of {} GiB: addresses can stay what they are up to {} GiB", extents >> 10, EXTENTS_MAX >> 10)]
    Large {
        /// Which.
        path: String,
        /// Extents up to the last that is known of.
        extents: u64,
    },
    /// It was ended.
    #[error("{path}: interrupted while it was read")]
    Interrupted {
        /// Which.
        path: String,
    },
}

/// How a trace is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Its format; none: it is found by looking.
    pub format: Option<Format>,
    /// What the columns of a CSV are: then it is one.
    pub columns: Option<Columns>,
    /// Addresses stay what they are, on a volume as large as the trace's disk.
    pub in_place: bool,
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
    /// Journals that the trace tells of. The first one is taken, unless another was named.
    pub journals: u64,
    /// What the trace knows of the blocks written.
    pub known: Option<Known>,
}

/// A trace file that was read once.
pub struct TraceFile {
    path: PathBuf,
    format: Format,
    columns: Option<Columns>,
    /// Where each extent of a disk went that is read or written. In order: of a discard as long as a disk only what was touched is
    /// looked at.
    extents: BTreeMap<(u32, u64), u64>,
    journal: Option<(u64, u64)>,
    summary: Summary,
}

impl TraceFile {
    /// Reads a trace through.
    ///
    /// # Errors
    /// When it cannot be read to its end.
    pub fn read(path: &Path, reading: &Reading) -> Result<Self, ReplayError> {
        Self::read_watched(path, reading, &Watch::default())
    }

    /// The same, seen from another thread: in bytes of the file.
    ///
    /// # Errors
    /// When it cannot be read to its end, or the watch ended it.
    pub fn read_watched(
        path: &Path,
        reading: &Reading,
        watch: &Watch,
    ) -> Result<Self, ReplayError> {
        let name = || path.display().to_string();
        let of_trace = |source| ReplayError::Trace {
            path: name(),
            source,
        };
        let columns = reading.columns.clone();
        let format = match (&columns, reading.format) {
            (Some(_), _) => Format::Csv,
            (None, Some(format)) => format,
            (None, None) => {
                let mut head = Vec::new();
                let read = open(path, &Watch::default())?
                    .take(HEAD_BYTES)
                    .read_to_end(&mut head);
                read.map_err(|source| ReplayError::Open {
                    path: name(),
                    source,
                })?;
                detect(&head).map_err(of_trace)?
            }
        };
        let mut journal = reading.journal;
        let mut journals = 0;
        let looks_first = format == Format::Vellum && journal.is_none();
        watch.begin(bytes(path, format) << u32::from(looks_first));
        if looks_first {
            // Where it is may be told late: it is looked for first.
            let mut reader = reader(path, format, None, watch)?;
            for record in reader.by_ref() {
                record.map_err(of_trace)?;
            }
            journals = reader.journals().len() as u64;
            let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
            let first = reader.journals().first();
            journal = first.map(|journal| (bytes(journal.lba), bytes(journal.blocks)));
        }
        let journal_extents = journal_extents(journal);
        let extents_of_journal = journal_extents.end - journal_extents.start;
        if extents_of_journal > EXTENTS_MAX as u64 {
            return Err(ReplayError::Journal {
                path: name(),
                extents: extents_of_journal,
            });
        }
        let mut reader = reader(path, format, columns.as_ref(), watch)?;
        let mut extents = BTreeMap::new();
        let mut summary = Summary::default();
        while let Some(record) = reader.next() {
            let record = record.map_err(of_trace)?;
            if watch.stopped() {
                return Err(ReplayError::Interrupted { path: name() });
            }
            if summary == Summary::default() {
                // The journal's extents come first, so that it stays in one piece.
                for extent in journal_extents.clone() {
                    extents.insert((record.disk, extent), extents.len() as u64);
                }
            }
            count(&mut summary, &record);
            if record.op == Op::Flush {
                continue;
            }
            // Only what is read or written makes room: a discard may be as long as a disk.
            if record.op != Op::Discard {
                for extent in extents_of(&record) {
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
        summary.known = reader.known().copied();
        summary.journals = journals;
        if reading.in_place {
            extents = in_place(&extents, reader.disk_blocks(), name)?;
        }
        let journal = journal.map(|(offset, bytes)| {
            let start = offset / BLOCK_BYTES as u64;
            (
                match reading.in_place {
                    true => start,
                    false => start % EXTENT_BLOCKS,
                },
                offset.saturating_add(bytes) / BLOCK_BYTES as u64 - start,
            )
        });
        Ok(Self {
            path: path.into(),
            format,
            columns,
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

    /// Its requests, `times` over, one replay after the other, each with contents of its own.
    ///
    /// # Errors
    /// When the file cannot be opened any more.
    pub fn replay(&self, seed: u64, times: u32) -> Result<Replay<'_>, ReplayError> {
        Ok(Replay {
            repeated: RepeatedContents::default(),
            repetition: 0,
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

    /// Its requests as the file has them: addresses of its disks, parts of blocks.
    ///
    /// # Errors
    /// When the file cannot be opened any more.
    pub fn records(
        &self,
    ) -> Result<impl Iterator<Item = Result<Record, ReplayError>> + use<'_>, ReplayError> {
        let of_trace = |source| ReplayError::Trace {
            path: self.path.display().to_string(),
            source,
        };
        Ok(self.reader()?.map(move |record| record.map_err(of_trace)))
    }

    /// What storing each content once would leave of it: the file is read once more, and every content kept meanwhile.
    ///
    /// # Errors
    /// When it cannot be read any more.
    pub fn shares(&self, seed: u64) -> Result<Shares, ReplayError> {
        let mut replay = self.replay(seed, 1)?;
        let shares = Shares::of(&mut replay);
        replay.error().map_or(Ok(shares), Err)
    }

    /// Where a block of a disk went.
    fn place_of(&self, disk: u32, block: u64) -> Option<Lba> {
        let place = self.extents.get(&(disk, block / EXTENT_BLOCKS))?;
        Some(Lba(place * EXTENT_BLOCKS + block % EXTENT_BLOCKS))
    }

    /// What a request finds of the extents that it lies in, and where they went.
    fn touched(&self, record: &Record) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let (first, last) = extents_of(record).into_inner();
        let found = self
            .extents
            .range((record.disk, first)..=(record.disk, last));
        found.map(|(&(_, extent), &place)| (extent, place))
    }

    fn reader(&self) -> Result<Reader<Bytes>, ReplayError> {
        let columns = self.columns.as_ref();
        reader(&self.path, self.format, columns, &Watch::default())
    }
}

/// Every extent of a disk at its own place.
fn in_place(
    touched: &BTreeMap<(u32, u64), u64>,
    disk_blocks: Option<u64>,
    path: impl Fn() -> String,
) -> Result<BTreeMap<(u32, u64), u64>, ReplayError> {
    let mut disks = touched.keys().map(|&(disk, _)| disk);
    let disk = disks.next().unwrap_or_default();
    if disks.any(|other| other != disk) {
        return Err(ReplayError::Disks { path: path() });
    }
    let told = disk_blocks.map(|blocks| blocks.div_ceil(EXTENT_BLOCKS));
    let touched = touched.keys().map(|&(_, extent)| extent.saturating_add(1));
    let extents = touched.chain(told).max().unwrap_or(0);
    match extents <= EXTENTS_MAX as u64 {
        true => Ok((0..extents).map(|n| ((disk, n), n)).collect()),
        false => Err(ReplayError::Large {
            path: path(),
            extents,
        }),
    }
}

fn extents_of(record: &Record) -> RangeInclusive<u64> {
    let last = record.first_block() + record.blocks() - 1;
    record.first_block() / EXTENT_BLOCKS..=last / EXTENT_BLOCKS
}

fn journal_extents(journal: Option<(u64, u64)>) -> std::ops::Range<u64> {
    let extent = EXTENT_BLOCKS * BLOCK_BYTES as u64;
    let (offset, bytes) = journal.unwrap_or((0, 0));
    offset / extent..offset.saturating_add(bytes).div_ceil(extent)
}

fn open(path: &Path, watch: &Watch) -> Result<Bytes, ReplayError> {
    watch.open(path).map_err(|source| ReplayError::Open {
        path: path.display().to_string(),
        source,
    })
}

/// Bytes that are read, as the files have them.
fn bytes(path: &Path, format: Format) -> u64 {
    let files = match format {
        Format::Blktrace => of_all_processors(path),
        _ => vec![path.into()],
    };
    let length = |file: &PathBuf| std::fs::metadata(file).map_or(0, |file| file.len());
    files.iter().map(length).sum()
}

fn reader(
    path: &Path,
    format: Format,
    columns: Option<&Columns>,
    watch: &Watch,
) -> Result<Reader<Bytes>, ReplayError> {
    if let Some(columns) = columns {
        return Ok(Reader::with_columns(open(path, watch)?, columns.clone()));
    }
    if format == Format::Blktrace {
        let files = of_all_processors(path);
        let files: Result<_, _> = files.iter().map(|path| open(path, watch)).collect();
        return Ok(Reader::merged(files?));
    }
    Ok(Reader::new(open(path, watch)?, format))
}

/// blktrace writes a file for each processor: `NAME.blktrace.0` and so on. They are one trace.
fn of_all_processors(path: &Path) -> Vec<PathBuf> {
    let name = path.to_string_lossy();
    let of_one = name
        .rsplit_once('.')
        .filter(|(before, number)| before.ends_with(".blktrace") && number.parse::<u16>().is_ok());
    let Some((before, _)) = of_one else {
        return vec![path.into()];
    };
    let each = (0..=PROCESSORS_MAX).map(|number| PathBuf::from(format!("{before}.{number}")));
    let there: Vec<PathBuf> = each.filter(|path| path.is_file()).collect();
    match there.iter().any(|other| other.as_path() == path) {
        true => there,
        false => vec![path.into()],
    }
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
            summary.blocks_told += record.contents.len() as u64;
        }
        Op::Discard => summary.discards += 1,
        Op::Flush => summary.flushes += 1,
    }
}

/// What a trace that is replayed again writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepeatedContents {
    /// New contents: a user who does the same work again tomorrow writes other bytes.
    #[default]
    New,
    /// The same bytes, so that all of it is a duplicate.
    Same,
}

/// See [`TraceFile::replay`].
pub struct Replay<'a> {
    repeated: RepeatedContents,
    /// Which replay this is, from 0.
    repetition: u32,
    trace: &'a TraceFile,
    reader: Reader<Bytes>,
    seed: u64,
    left: u32,
    shift: u64,
    writes: u64,
    /// Parts of a request that lies in extents that are apart, last first.
    ready: Vec<Request>,
    error: Option<ReplayError>,
}

impl Replay<'_> {
    /// The same, with what each replay after the first one writes.
    #[must_use]
    pub fn writing(mut self, repeated: RepeatedContents) -> Self {
        self.repeated = repeated;
        self
    }

    /// The same, as the repetition of that number.
    #[must_use]
    pub fn numbered(mut self, repetition: u32) -> Self {
        self.repetition = repetition;
        self
    }

    /// Why it ended early, if it did.
    pub fn error(&mut self) -> Option<ReplayError> {
        self.error.take()
    }

    fn cut(&mut self, record: &Record) {
        let at = record.at.0 - self.trace.summary.first_at;
        let at = at.saturating_add(self.shift);
        if record.op == Op::Flush {
            return self.ready.push(Request::flush(at));
        }
        let writes = matches!(record.op, Op::Write { .. });
        self.writes += u64::from(writes);
        let (start, end) = (record.first_block(), record.first_block() + record.blocks());
        let trace = self.trace;
        for (extent, place) in trace.touched(record) {
            let from = start.max(extent * EXTENT_BLOCKS);
            let to = end.min((extent + 1) * EXTENT_BLOCKS);
            let lba = place * EXTENT_BLOCKS + from % EXTENT_BLOCKS;
            let content = |block: u64| match record.contents.get((block - start) as usize) {
                Some(&told) => match self.repeated {
                    RepeatedContents::New => told.repeated(self.repetition),
                    RepeatedContents::Same => told,
                },
                None => Content::synthetic(self.seed, lba + block - from, self.writes),
            };
            let contents: Contents = match writes {
                true => (from..to).map(content).collect(),
                false => Contents::new(),
            };
            let sizes = record.sizes.as_ref();
            let sizes = sizes.map(|all| &all[(from - start) as usize..(to - start) as usize]);
            match self.ready.last_mut() {
                // Neighbours stay one request.
                Some(last) if last.lba + u64::from(last.blocks) == lba => {
                    last.blocks += (to - from) as u32;
                    last.contents.extend(contents);
                    last.sizes = match (last.sizes.take(), sizes) {
                        (Some(before), Some(more)) => Some([&before[..], more].concat().into()),
                        _ => None,
                    };
                }
                _ => self.ready.push(Request {
                    at,
                    op: record.op,
                    lba,
                    blocks: (to - from) as u32,
                    contents,
                    homes: None,
                    committed: None,
                    sizes: sizes.map(Box::from),
                }),
            }
        }
        // What is never read nor written has no place, and nothing is ever put there.
        let moved = record.committed.iter().filter_map(|block| {
            let place = |at| trace.place_of(record.disk, at);
            Some((place(block.home)?, place(block.copy)?))
        });
        if let Some(last) = self.ready.last_mut()
            && !record.committed.is_empty()
        {
            last.committed = Some(moved.collect());
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
                    self.repetition += 1;
                    let summary = &self.trace.summary;
                    let span = summary.last_at - summary.first_at;
                    // One mean gap between the last request and the first again.
                    let gap = span / summary.seen.records.max(1);
                    self.shift = self.shift.saturating_add(span).saturating_add(gap);
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
