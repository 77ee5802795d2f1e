//! A trace file as requests to a drive of another size.
//!
//! The disk that a trace was taken from is larger than the simulated drive, and mostly untouched. So its addresses are
//! packed: each touched extent of 1 MiB gets the next place, in the order of first touch. Addresses within an extent
//! stay together. The file is read twice: once to find its extents (and its errors, before anything runs), and once
//! for each run.

mod error;
mod extents;
mod files;

pub(crate) use error::EXTENTS_MAX;
pub use error::ReplayError;
pub use files::of_all_processors;

use crate::content::{Content, Contents};
use crate::progress::Watch;
use crate::shares::Shares;
use crate::trace::{Bytes, Columns, Format, Known, Op, Reader, Seen, Traced, detect};
use crate::workload::{NOBODY, Request};
use extents::{EXTENT_BLOCKS, blocks_of, extents_of, in_place, journal_extents, make_room};
use files::Stamp;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use vellum_core::addr::{BLOCK_BYTES, Lba};

/// A second in nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// How much of a file is read to find its format.
const HEAD_BYTES: u64 = 256 << 10;

/// How to read a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Its format; none: detect it.
    pub format: Option<Format>,
    /// The columns of a CSV; if given, the trace is a CSV.
    pub columns: Option<Columns>,
    /// Addresses stay the same, on a volume as large as the trace's disk.
    pub in_place: bool,
    /// Where a file system's journal is on the trace's (first) disk: its first byte and its length.
    pub journal: Option<(u64, u64)>,
}

/// What the first reading found in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The reader's counts.
    pub seen: Seen,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Discards.
    pub discards: u64,
    /// Flushes.
    pub flushes: u64,
    /// Blocks written.
    pub blocks_written: u64,
    /// Of these, the blocks whose content the trace has.
    pub blocks_told: u64,
    /// Requests that did not begin and end at a block boundary; they are extended to one.
    pub unaligned: u64,
    /// When the first request arrived, in nanoseconds.
    pub first_at: u64,
    /// When the last request arrived.
    pub last_at: u64,
    /// How long after the first request the second one arrived.
    pub first_gap: u64,
    /// Later requests that did not arrive as long after the one before them.
    pub other_gaps: u64,
    /// Requests that did not arrive at a whole second.
    pub off_seconds: u64,
    /// Journals that the trace names. The first one is used, unless the caller names another.
    pub journals: u64,
    /// What the trace knows of the blocks written.
    pub known: Option<Known>,
}

/// A trace file that was read once.
pub struct TraceFile {
    path: PathBuf,
    format: Format,
    columns: Option<Columns>,
    /// The stamp of its files when they were read. What is known of the trace holds while the stamp does.
    stamp: Stamp,
    /// The place of each extent of a disk that is read or written. Sorted, so that a discard as long as a disk visits
    /// only the touched extents.
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

    /// Reads a trace while another thread watches the progress, in bytes of the file.
    ///
    /// # Errors
    /// When it cannot be read to its end, or the watch stopped it.
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
            (None, told) => told.map_or_else(|| format_of(path), Ok)?,
        };
        let (mut journal, mut journals) = (reading.journal, 0);
        let looks_first = format == Format::Vellum && journal.is_none();
        // Taken before they are read, so that a write meanwhile counts as a change.
        let stamp = Stamp::of(&files::of_format(path, format));
        watch.begin(stamp.bytes() << u32::from(looks_first));
        if looks_first {
            // The trace may name the journal late, so it is looked for first.
            let told = journals_of(path, watch)?;
            journals = told.len() as u64;
            journal = told.first().copied();
        }
        let journal_extents = journal_extents(journal);
        let extents = journal_extents.end - journal_extents.start;
        if extents > EXTENTS_MAX as u64 {
            let path = name();
            return Err(ReplayError::Journal { path, extents });
        }
        let mut reader = reader(path, format, columns.as_ref(), watch)?;
        let (mut extents, mut summary) = (BTreeMap::new(), Summary::default());
        while let Some(traced) = reader.next() {
            let traced = traced.map_err(of_trace)?;
            if watch.stopped() {
                return Err(ReplayError::Interrupted { path: name() });
            }
            if summary == Summary::default() {
                // The journal's extents are placed first, so that it stays in one piece.
                for extent in journal_extents.clone() {
                    extents.insert((traced.disk, extent), extents.len() as u64);
                }
            }
            count(&mut summary, &traced);
            if traced.op != Op::Flush {
                make_room(&mut extents, &traced);
            }
            if extents.len() > EXTENTS_MAX {
                let (path, line) = (name(), reader.seen().lines);
                return Err(ReplayError::Wide { path, line });
            }
        }
        summary.seen = reader.seen();
        summary.known = reader.known().copied();
        summary.journals = journals;
        if reading.in_place {
            extents = in_place(&extents, reader.disk_blocks(), name)?;
        }
        Ok(Self {
            path: path.into(),
            format,
            columns,
            stamp,
            extents,
            journal: journal.map(|journal| blocks_of(journal, reading.in_place)),
            summary,
        })
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// What the first reading found.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The journal's first block and length at its packed address, if the journal is known.
    #[must_use]
    pub fn journal(&self) -> Option<(u64, u64)> {
        self.journal
    }

    /// Blocks that a drive needs for it.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.extents.len() as u64 * EXTENT_BLOCKS
    }

    /// Its requests, replayed `times` times in sequence, each time with new contents.
    ///
    /// # Errors
    /// When the file can no longer be opened.
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

    /// Its requests as the file has them: with its disks' addresses, and parts of blocks.
    ///
    /// # Errors
    /// When the file can no longer be opened.
    pub fn requests(
        &self,
    ) -> Result<impl Iterator<Item = Result<Traced, ReplayError>> + use<'_>, ReplayError> {
        let of_trace = |source| ReplayError::Trace {
            path: self.path.display().to_string(),
            source,
        };
        Ok(self.reader()?.map(move |traced| traced.map_err(of_trace)))
    }

    /// What would remain if each content were stored once. Reads the file once more, and keeps every content
    /// meanwhile.
    ///
    /// # Errors
    /// When it can no longer be read.
    pub fn shares(&self, seed: u64) -> Result<Shares, ReplayError> {
        let mut replay = self.replay(seed, 1)?;
        let shares = Shares::of(&mut replay);
        replay.error().map_or(Ok(shares), Err)
    }

    /// The place of a disk's block.
    fn place_of(&self, disk: u32, block: u64) -> Option<Lba> {
        let place = self.extents.get(&(disk, block / EXTENT_BLOCKS))?;
        Some(Lba(place * EXTENT_BLOCKS + block % EXTENT_BLOCKS))
    }

    /// The extents of a request that have a place, with their places.
    fn touched(&self, traced: &Traced) -> impl Iterator<Item = (u64, u64)> + use<'_> {
        let (first, last) = extents_of(traced).into_inner();
        let found = self
            .extents
            .range((traced.disk, first)..=(traced.disk, last));
        found.map(|(&(_, extent), &place)| (extent, place))
    }

    /// Checks that its files are those that were read.
    ///
    /// # Errors
    /// When they have changed since.
    pub fn unchanged(&self) -> Result<(), ReplayError> {
        let now = Stamp::of(&files::of_format(&self.path, self.format));
        match now == self.stamp {
            true => Ok(()),
            false => Err(ReplayError::Changed {
                path: self.path.display().to_string(),
            }),
        }
    }

    fn reader(&self) -> Result<Reader<Bytes>, ReplayError> {
        self.unchanged()?;
        let columns = self.columns.as_ref();
        reader(&self.path, self.format, columns, &Watch::default())
    }
}

/// Detects a file's format from its beginning.
fn format_of(path: &Path) -> Result<Format, ReplayError> {
    let name = || path.display().to_string();
    let mut head = Vec::new();
    let read = open(path, &Watch::default())?
        .take(HEAD_BYTES)
        .read_to_end(&mut head);
    read.map_err(|source| ReplayError::Open {
        path: name(),
        source,
    })?;
    detect(&head).map_err(|source| ReplayError::Trace {
        path: name(),
        source,
    })
}

/// The journals that a trace in Vellum's format names, in bytes: the beginning and the length of each.
fn journals_of(path: &Path, watch: &Watch) -> Result<Vec<(u64, u64)>, ReplayError> {
    let mut reader = reader(path, Format::Vellum, None, watch)?;
    for traced in reader.by_ref() {
        traced.map_err(|source| ReplayError::Trace {
            path: path.display().to_string(),
            source,
        })?;
    }
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    let journals = reader.journals().iter();
    Ok(journals
        .map(|journal| (bytes(journal.lba), bytes(journal.blocks)))
        .collect())
}

fn open(path: &Path, watch: &Watch) -> Result<Bytes, ReplayError> {
    watch.open(path).map_err(|source| ReplayError::Open {
        path: path.display().to_string(),
        source,
    })
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
        let files = files::of_format(path, format);
        let files: Result<_, _> = files.iter().map(|path| open(path, watch)).collect();
        return Ok(Reader::merged(files?));
    }
    Ok(Reader::new(open(path, watch)?, format))
}

fn count(summary: &mut Summary, traced: &Traced) {
    let block = BLOCK_BYTES as u64;
    let gap = traced.at.0.saturating_sub(summary.last_at);
    match summary.requests() {
        0 => summary.first_at = traced.at.0,
        1 => summary.first_gap = gap,
        _ => summary.other_gaps += u64::from(gap != summary.first_gap),
    }
    summary.last_at = traced.at.0;
    summary.off_seconds += u64::from(!traced.at.0.is_multiple_of(SECOND));
    let whole = traced.offset.is_multiple_of(block) && traced.bytes.is_multiple_of(block);
    summary.unaligned += u64::from(!whole);
    match traced.op {
        Op::Read => summary.reads += 1,
        Op::Write { .. } => {
            summary.writes += 1;
            summary.blocks_written += traced.blocks();
            summary.blocks_told += traced.contents.len() as u64;
        }
        Op::Discard { .. } => summary.discards += 1,
        Op::Flush => summary.flushes += 1,
    }
}

/// What the repetitions of a trace write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepeatedContents {
    /// New contents: a user who repeats the same work tomorrow writes other bytes.
    #[default]
    New,
    /// The same bytes, so that all of it is a duplicate.
    Same,
}

/// See [`TraceFile::replay`].
pub struct Replay<'a> {
    repeated: RepeatedContents,
    /// The number of this repetition, from 0.
    repetition: u32,
    trace: &'a TraceFile,
    reader: Reader<Bytes>,
    seed: u64,
    left: u32,
    shift: u64,
    writes: u64,
    /// Parts of a request whose extents are not adjacent, last first.
    ready: Vec<Request>,
    error: Option<ReplayError>,
}

impl Replay<'_> {
    /// Sets what the repetitions write.
    #[must_use]
    pub fn writing(mut self, repeated: RepeatedContents) -> Self {
        self.repeated = repeated;
        self
    }

    /// Sets the number of this repetition.
    #[must_use]
    pub fn numbered(mut self, repetition: u32) -> Self {
        self.repetition = repetition;
        self
    }

    /// Why it ended early, if it did.
    pub fn error(&mut self) -> Option<ReplayError> {
        self.error.take()
    }

    fn cut(&mut self, traced: &Traced) {
        // A file that changes during the replay may begin earlier now; the change is noticed at its end.
        let at = traced.at.0.saturating_sub(self.trace.summary.first_at);
        let at = at.saturating_add(self.shift);
        if traced.op == Op::Flush {
            return self.ready.push(Request::flush(at));
        }
        let writes = matches!(traced.op, Op::Write { .. });
        self.writes += u64::from(writes);
        let (start, end) = (traced.first_block(), traced.first_block() + traced.blocks());
        let trace = self.trace;
        for (extent, place) in trace.touched(traced) {
            let from = start.max(extent * EXTENT_BLOCKS);
            let to = end.min((extent + 1) * EXTENT_BLOCKS);
            let lba = place * EXTENT_BLOCKS + from % EXTENT_BLOCKS;
            let content = |block: u64| match traced.contents.get((block - start) as usize) {
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
            let sizes = traced.sizes.as_ref();
            let sizes = sizes.map(|all| &all[(from - start) as usize..(to - start) as usize]);
            match self.ready.last_mut() {
                // Adjacent parts stay one request.
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
                    op: traced.op,
                    lba,
                    blocks: (to - from) as u32,
                    contents,
                    bytes: None,
                    committed: None,
                    sizes: sizes.map(Box::from),
                    tenant: NOBODY,
                }),
            }
        }
        // A block that is never read or written has no place, and nothing is ever put there.
        let moved = traced.committed.iter().filter_map(|block| {
            let place = |at| trace.place_of(traced.disk, at);
            Some((place(block.home)?, place(block.copy)?))
        });
        if let Some(last) = self.ready.last_mut()
            && !traced.committed.is_empty()
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
                Some(Ok(traced)) => self.cut(&traced),
                Some(Err(source)) => {
                    let path = self.trace.path.display().to_string();
                    let wrong = ReplayError::Trace { path, source };
                    // It could be read before. If it has changed, that says more than the present error.
                    self.error = Some(self.trace.unchanged().err().unwrap_or(wrong));
                    return None;
                }
                None if self.left == 0 => {
                    self.error = self.trace.unchanged().err();
                    return None;
                }
                None => {
                    self.left -= 1;
                    self.repetition += 1;
                    if self.repeated == RepeatedContents::Same {
                        // Made-up contents depend on the number of the write.
                        self.writes = 0;
                    }
                    let summary = &self.trace.summary;
                    let span = summary.last_at - summary.first_at;
                    // One mean gap between the last request and the first one of the next repetition.
                    let gap = span / summary.seen.requests.max(1);
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
