//! Traces: what a host once asked of a disk, read from the formats in which people have them.
//!
//! A reader takes lines and gives [`Record`]s. Everything in a trace is hostile: a line that cannot be right
//! is an error that names its number, a line or a request that is too long is one too, and nothing that a
//! trace says is used as a size of anything before it has been bounded.

mod blkparse;
mod csv;
mod detect;
mod disksim;
mod fields;
mod fiu;

pub use detect::detect;

use crate::content::Content;
use std::io::BufRead;
use vellum_core::addr::{BLOCK_BYTES, Nanos};

/// A line may have so many bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// A request may cover so many bytes.
pub const REQUEST_BYTES_MAX: u64 = 256 << 20;
/// A discard may cover so many.
pub const DISCARD_BYTES_MAX: u64 = 1 << 40;
/// A disk may have so many bytes.
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
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Blkparse,
        Self::Fiu,
        Self::Msr,
        Self::CloudPhysics,
        Self::Alibaba,
        Self::Tencent,
        Self::DiskSim,
        Self::Mqsim,
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
    /// What each 4 KiB holds, where the trace says so: as many as the request has blocks, or none.
    pub contents: Vec<Content>,
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

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Fewer columns than the format has, or more.
    #[error("{found} columns where {format} has {need}")]
    Columns {
        /// The format.
        format: &'static str,
        /// Found.
        found: usize,
        /// Needed.
        need: &'static str,
    },
    /// A column that is not what it should be.
    #[error("{field} is {text:?}: {need}")]
    Field {
        /// Which.
        field: &'static str,
        /// What is there, cut short.
        text: String,
        /// What should be.
        need: &'static str,
    },
    /// A request too long to be one.
    #[error("a request of {bytes} bytes: at most {most} are taken for one")]
    TooLong {
        /// Its bytes.
        bytes: u64,
        /// Allowed.
        most: u64,
    },
    /// A request of nothing.
    #[error("a request of 0 bytes")]
    Nothing,
    /// Past the end of any disk.
    #[error("a request at byte {offset}: no disk has so many ({DISK_BYTES_MAX})")]
    TooFar {
        /// Where.
        offset: u64,
    },
    /// A line that is not text.
    #[error("not text: is this file compressed, or a binary trace? Unpack it first")]
    NotText,
    /// A line without an end.
    #[error("a line of more than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// Hashes that do not fit the request.
    #[error(
        "a request of {bytes} bytes with {digits} digits of MD5: one of 32 digits for each 512 or 4096 bytes is needed"
    )]
    Hashes {
        /// Bytes of the request.
        bytes: u64,
        /// Digits found.
        digits: usize,
    },
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line that cannot be right.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        problem: Problem,
    },
    /// No format has lines like these.
    #[error(
        "no format that is known has lines like the first of this file ({first:?}): known are blkparse, fiu, msr, \
         cloudphysics, alibaba, tencent, disksim and mqsim; name one with --format to see what it says"
    )]
    Unknown {
        /// The first line, cut short.
        first: String,
    },
    /// Nothing in it.
    #[error("no request in {lines} lines: the trace is empty, or of another format")]
    Empty {
        /// How many lines there were.
        lines: u64,
    },
    /// It cannot be read.
    #[error("line {line}: the file cannot be read")]
    Io {
        /// How far it went.
        line: u64,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// What there is to say of a trace that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Lines.
    pub lines: u64,
    /// Requests.
    pub records: u64,
    /// Lines that the format has and that are no request (headers, other actions, comments).
    pub passed_over: u64,
    /// Requests whose time was before that of the one before; they are taken to come with it.
    pub backwards: u64,
}

/// Reads a trace, request by request.
pub struct Reader<R> {
    from: R,
    format: Format,
    line: Vec<u8>,
    newest: Nanos,
    seen: Seen,
    blkparse: blkparse::State,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// A reader of that format.
    pub fn new(from: R, format: Format) -> Self {
        Self {
            from,
            format,
            line: Vec::new(),
            newest: Nanos(0),
            seen: Seen::default(),
            blkparse: blkparse::State::default(),
            ended: false,
        }
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    fn next_line(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        let line = self.seen.lines + 1;
        let mut limited = std::io::Read::take(&mut self.from, LINE_BYTES_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut self.line);
        let got = read.map_err(|source| TraceError::Io { line, source })?;
        if got == 0 {
            return Ok(false);
        }
        self.seen.lines = line;
        if got > LINE_BYTES_MAX {
            let problem = Problem::LineTooLong;
            return Err(TraceError::Line { line, problem });
        }
        Ok(true)
    }

    fn parse(&mut self) -> Result<Option<Record>, Problem> {
        let text = std::str::from_utf8(&self.line).map_err(|_| Problem::NotText)?;
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let record = match self.format {
            Format::Blkparse => self.blkparse.parse(text)?,
            Format::Fiu => Some(fiu::parse(text)?),
            Format::Msr => Some(csv::msr(text)?),
            Format::CloudPhysics => csv::cloud_physics(text, self.seen.lines)?,
            Format::Alibaba => csv::alibaba(text, self.seen.lines)?,
            Format::Tencent => csv::tencent(text, self.seen.lines)?,
            Format::DiskSim => Some(disksim::parse(text)?),
            Format::Mqsim => Some(disksim::parse_mqsim(text)?),
        };
        let Some(record) = record else {
            return Ok(None);
        };
        if record.op != Op::Flush && record.bytes == 0 {
            return Err(Problem::Nothing);
        }
        let bytes = record.bytes;
        let most = match record.op {
            Op::Discard => DISCARD_BYTES_MAX,
            _ => REQUEST_BYTES_MAX,
        };
        if bytes > most {
            return Err(Problem::TooLong { bytes, most });
        }
        let end = record.offset.checked_add(record.bytes);
        if end.is_none_or(|end| end > DISK_BYTES_MAX) {
            let offset = record.offset;
            return Err(Problem::TooFar { offset });
        }
        Ok(Some(record))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.next_line() {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    let lines = self.seen.lines;
                    return (self.seen.records == 0).then_some(Err(TraceError::Empty { lines }));
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
            match self.parse() {
                Ok(Some(mut record)) => {
                    self.seen.records += 1;
                    if record.at < self.newest {
                        self.seen.backwards += 1;
                        record.at = self.newest;
                    }
                    self.newest = record.at;
                    return Some(Ok(record));
                }
                Ok(None) => self.seen.passed_over += 1,
                Err(problem) => {
                    self.ended = true;
                    let line = self.seen.lines;
                    return Some(Err(TraceError::Line { line, problem }));
                }
            }
        }
        None
    }
}
