//! Traces: what a host once asked of a disk, read from the formats in which people have them.
//!
//! A reader takes lines (or events) and gives [`Record`]s. Everything in a trace is hostile: a line that cannot be right
//! is an error that names its number, a line or a request that is too long is one too, and nothing that a
//! trace says is used as a size of anything before it has been bounded.

mod blkparse;
mod blktrace;
mod columns;
mod csv;
mod detect;
mod disksim;
mod error;
mod fields;
mod fio;
mod fiu;
mod open;
mod own;

pub use columns::{COLUMNS, Columns, ColumnsError};
pub use detect::detect;
pub use error::{Problem, TraceError};
pub use open::{Bytes, open, unpacked};
pub use own::Known;
pub use vellum_trace::limits::COMMITTED_MAX;
pub use vellum_trace::{Class, Committed, Journal, Sizes};

use crate::content::Content;
use crate::sizes::Tells;
use std::io::BufRead;
use vellum_core::addr::{BLOCK_BYTES, Nanos};

/// A line may have so many bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// A read or a write may cover so many bytes.
pub const REQUEST_BYTES_MAX: u64 = 256 << 20;
/// A disk may have so many bytes, and a discard may cover all of it.
pub const DISK_BYTES_MAX: u64 = 1 << 56;
/// What a sector is, where a format counts in them.
pub const SECTOR_BYTES: u64 = 512;

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// What `blkparse` prints.
    Blkparse,
    /// FIU's traces (and their kin of Light-Dedup): nine columns, MD5 a 512 B or a 4 KiB.
    Fiu,
    /// MSR Cambridge: seven columns of CSV, time in 100 ns since 1601.
    Msr,
    /// `CloudPhysics` as libCacheSim has it: CSV with a header line, SCSI opcodes.
    CloudPhysics,
    /// Alibaba's block storage: CSV, R or W, bytes and microseconds.
    Alibaba,
    /// Tencent's block storage: CSV of numbers, sectors and seconds.
    Tencent,
    /// `DiskSim`'s ASCII: five columns, time in milliseconds.
    DiskSim,
    /// MQSim's: the same five columns, time in nanoseconds, and 0 means a write.
    Mqsim,
    /// fio's iologs, versions 2 and 3.
    Fio,
    /// blktrace's binary events.
    Blktrace,
    /// What `vellum serve --record` and `vellum record` write.
    Vellum,
    /// CSV, whose columns a map names; never found by looking.
    Csv,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Vellum,
        Self::Blktrace,
        Self::Fio,
        Self::Blkparse,
        Self::Fiu,
        Self::Msr,
        Self::CloudPhysics,
        Self::Alibaba,
        Self::Tencent,
        Self::DiskSim,
        Self::Mqsim,
        Self::Csv,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Blkparse => "blkparse",
            Self::Fiu => "fiu",
            Self::Msr => "msr",
            Self::CloudPhysics => "cloudphysics",
            Self::Alibaba => "alibaba",
            Self::Tencent => "tencent",
            Self::DiskSim => "disksim",
            Self::Mqsim => "mqsim",
            Self::Fio => "fio",
            Self::Blktrace => "blktrace",
            Self::Vellum => "vellum",
            Self::Csv => "csv",
        }
    }
}

/// What is asked of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read blocks.
    Read,
    /// Write blocks.
    Write {
        /// On stable storage before it is answered.
        fua: bool,
    },
    /// Give blocks up.
    Discard,
    /// Make all that was written durable.
    Flush,
}

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, since an origin of the trace's own.
    pub at: Nanos,
    /// Which of the trace's disks.
    pub disk: u32,
    /// What.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// How many; 0 for a flush alone.
    pub bytes: u64,
    /// What each block holds, where the trace says so: as many as the request has blocks, or none.
    pub contents: Vec<Content>,
    /// In how many bytes each of them can be stored, where the trace says so: as many as it has blocks.
    pub sizes: Tells,
    /// What a journal's transaction puts home that is complete with this write, where the trace says so.
    pub committed: Vec<Committed>,
}

impl Record {
    /// The first block that it touches.
    #[must_use]
    pub fn first_block(&self) -> u64 {
        self.offset / BLOCK_BYTES as u64
    }

    /// How many blocks it touches. A request of parts of blocks becomes one of whole blocks, as it does in
    /// the device.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        (self.offset + self.bytes).div_ceil(BLOCK_BYTES as u64) - self.first_block()
    }
}

/// What there is to say of a trace that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Lines, or events.
    pub lines: u64,
    /// Requests.
    pub records: u64,
    /// Lines that the format has and that are no request (headers, other actions, comments).
    pub passed_over: u64,
    /// Requests whose time was before that of the one before; they are taken to come with it.
    pub backwards: u64,
    /// Requests that the trace says are missing in it.
    pub lost: u64,
    /// It broke off: the recording did not end in order.
    pub cut: bool,
}

enum Source<R> {
    Lines {
        from: R,
        line: Vec<u8>,
        lines: Lines,
    },
    Events(blktrace::Events<R>),
    Own(own::Own<R>),
}

/// A format of lines, and what earlier ones decided.
enum Lines {
    Plain(Format),
    Blkparse(blkparse::State),
    Fio(fio::State),
    Columns(Columns),
}

/// Reads a trace, request by request.
pub struct Reader<R> {
    source: Source<R>,
    newest: Nanos,
    seen: Seen,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// A reader of that format; of CSV, with the usual columns.
    pub fn new(from: R, format: Format) -> Self {
        let lines = |from, lines| Source::Lines {
            from,
            line: Vec::new(),
            lines,
        };
        Self::of(match format {
            Format::Vellum => Source::Own(own::Own::new(from)),
            Format::Blktrace => Source::Events(blktrace::Events::new(vec![from])),
            Format::Blkparse => lines(from, Lines::Blkparse(blkparse::State::default())),
            Format::Fio => lines(from, Lines::Fio(fio::State::default())),
            Format::Csv => lines(from, Lines::Columns(Columns::default())),
            format => lines(from, Lines::Plain(format)),
        })
    }

    /// A reader of CSV with these columns.
    pub fn with_columns(from: R, columns: Columns) -> Self {
        Self::of(Source::Lines {
            from,
            line: Vec::new(),
            lines: Lines::Columns(columns),
        })
    }

    /// A reader of blktrace's files, one a processor, merged by time.
    pub fn merged(files: Vec<R>) -> Self {
        Self::of(Source::Events(blktrace::Events::new(files)))
    }

    fn of(source: Source<R>) -> Self {
        Self {
            source,
            newest: Nanos(0),
            seen: Seen::default(),
            ended: false,
        }
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// What is known of the blocks written so far, where the trace tells it.
    pub fn known(&self) -> Option<&Known> {
        match &self.source {
            Source::Own(own) => Some(&own.known),
            _ => None,
        }
    }

    /// Journals that the trace has told of so far, the last ones.
    pub fn journals(&self) -> &[Journal] {
        match &self.source {
            Source::Own(own) => &own.journals,
            _ => &[],
        }
    }

    /// Blocks of the disk, where the trace tells it; known when a request was read.
    pub fn disk_blocks(&self) -> Option<u64> {
        match &self.source {
            Source::Own(own) => own.disk_blocks(),
            _ => None,
        }
    }

    /// Where reading is, to be told in an error.
    fn wrong(&self, problem: Problem) -> TraceError {
        match &self.source {
            Source::Events(events) => TraceError::Event {
                offset: events.offset,
                problem,
            },
            _ => TraceError::Line {
                line: self.seen.lines,
                problem,
            },
        }
    }

    /// The next line or event; none at the end. Inside: the request, if it is one.
    fn step(&mut self) -> Result<Option<Option<Record>>, TraceError> {
        let number = self.seen.lines + 1;
        let record = match &mut self.source {
            Source::Lines { from, line, lines } => {
                let got = next_line(from, line).map_err(|source| TraceError::Io {
                    line: number,
                    source,
                })?;
                if !got {
                    return Ok(None);
                }
                self.seen.lines = number;
                parse(line, lines, number).map_err(|problem| TraceError::Line {
                    line: number,
                    problem,
                })?
            }
            Source::Events(events) => {
                let offset = events.offset;
                match events.next() {
                    Ok(None) => return Ok(None),
                    Ok(Some(record)) => {
                        self.seen.lines = number;
                        record
                    }
                    Err(blktrace::Failure::Io(source)) => {
                        return Err(TraceError::EventIo { offset, source });
                    }
                    Err(blktrace::Failure::Problem(problem)) => {
                        return Err(TraceError::Event { offset, problem });
                    }
                }
            }
            Source::Own(own) => {
                let entry = own.next()?;
                self.seen.lost = own.lost;
                let Some(record) = entry else {
                    self.seen.cut = own.is_cut();
                    return Ok(None);
                };
                self.seen.lines = number;
                record
            }
        };
        if let Some(record) = &record {
            check(record).map_err(|problem| self.wrong(problem))?;
        }
        Ok(Some(record))
    }
}

/// Takes a line; false at the end.
fn next_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    // One that is longer shows by its length.
    let mut limited = std::io::Read::take(from, LINE_BYTES_MAX as u64 + 1);
    Ok(limited.read_until(b'\n', line)? > 0)
}

fn parse(line: &[u8], lines: &mut Lines, number: u64) -> Result<Option<Record>, Problem> {
    if line.len() > LINE_BYTES_MAX {
        return Err(Problem::LineTooLong);
    }
    let text = std::str::from_utf8(line).map_err(|_| Problem::NotText)?;
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    match lines {
        Lines::Blkparse(state) => state.parse(text),
        Lines::Fio(state) => state.parse(text),
        Lines::Columns(columns) => columns.parse(text, number),
        Lines::Plain(format) => match format {
            Format::Fiu => fiu::parse(text).map(Some),
            Format::Msr => csv::msr(text).map(Some),
            Format::CloudPhysics => csv::cloud_physics(text, number),
            Format::Alibaba => csv::alibaba(text, number),
            Format::Tencent => csv::tencent(text, number),
            Format::Mqsim => disksim::parse_mqsim(text).map(Some),
            _ => disksim::parse(text).map(Some),
        },
    }
}

/// Whether a request can be one of a disk.
fn check(record: &Record) -> Result<(), Problem> {
    if record.op != Op::Flush && record.bytes == 0 {
        return Err(Problem::Nothing);
    }
    let bytes = record.bytes;
    if record.op != Op::Discard && bytes > REQUEST_BYTES_MAX {
        return Err(Problem::TooLong { bytes });
    }
    let end = record.offset.checked_add(record.bytes);
    if end.is_none_or(|end| end > DISK_BYTES_MAX) {
        let offset = record.offset;
        return Err(Problem::TooFar { offset });
    }
    Ok(())
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.step() {
                Ok(Some(Some(mut record))) => {
                    self.seen.records += 1;
                    if record.at < self.newest {
                        self.seen.backwards += 1;
                        record.at = self.newest;
                    }
                    self.newest = record.at;
                    return Some(Ok(record));
                }
                Ok(Some(None)) => self.seen.passed_over += 1,
                Ok(None) => {
                    self.ended = true;
                    let lines = self.seen.lines;
                    return (self.seen.records == 0).then_some(Err(TraceError::Empty { lines }));
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
