//! Reads a trace of any format request by request, and checks each request.

use super::columns::Columns;
use super::error::{Problem, TraceError};
use super::format::Format;
use super::limits::{DISK_BYTES_MAX, LINE_BYTES_MAX, REQUEST_BYTES_MAX};
use super::own::{Known, Own};
use super::traced::{Op, Traced};
use super::{blkparse, blktrace, csv, disksim, fio, fiu};
use std::io::BufRead;
use vellum_core::addr::Nanos;
use vellum_trace::Journal;

/// What a reader has counted in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Lines, or events.
    pub lines: u64,
    /// Requests.
    pub requests: u64,
    /// Lines of the format that are not requests (headers, other actions, comments).
    pub passed_over: u64,
    /// Requests whose time was before that of the previous one; they get the time of the previous one.
    pub backwards: u64,
    /// Requests that are missing, according to the trace.
    pub lost: u64,
    /// True if it broke off: the recording did not end in order.
    pub cut: bool,
}

enum Source<R> {
    Lines {
        from: R,
        line: Vec<u8>,
        lines: Lines,
    },
    Events(blktrace::Events<R>),
    Own(Own<R>),
}

/// A format of lines, and its state.
enum Lines {
    Plain(Format),
    Blkparse(blkparse::State),
    Fio(fio::State),
    Columns(Columns),
}

/// Reads a trace request by request.
pub struct Reader<R> {
    source: Source<R>,
    newest: Nanos,
    seen: Seen,
    ended: bool,
}

impl<R: BufRead> Reader<R> {
    /// A reader for this format; for CSV, with the default columns.
    pub fn new(from: R, format: Format) -> Self {
        let lines = |from, lines| Source::Lines {
            from,
            line: Vec::new(),
            lines,
        };
        Self::of(match format {
            Format::Vellum => Source::Own(Own::new(from)),
            Format::Blktrace => Source::Events(blktrace::Events::new(vec![from])),
            Format::Blkparse => lines(from, Lines::Blkparse(blkparse::State::default())),
            Format::Fio => lines(from, Lines::Fio(fio::State::default())),
            Format::Csv => lines(from, Lines::Columns(Columns::default())),
            format => lines(from, Lines::Plain(format)),
        })
    }

    /// A reader for CSV with these columns.
    pub fn with_columns(from: R, columns: Columns) -> Self {
        Self::of(Source::Lines {
            from,
            line: Vec::new(),
            lines: Lines::Columns(columns),
        })
    }

    /// A reader for blktrace's files, one per processor, merged by time.
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

    /// The counts so far.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// What is known of the blocks written so far, if the trace has that.
    pub fn known(&self) -> Option<&Known> {
        match &self.source {
            Source::Own(own) => Some(&own.known),
            _ => None,
        }
    }

    /// The journals that the trace has named last.
    pub fn journals(&self) -> &[Journal] {
        match &self.source {
            Source::Own(own) => &own.journals,
            _ => &[],
        }
    }

    /// Blocks of the disk, if the trace has them; known after the first request is read.
    pub fn disk_blocks(&self) -> Option<u64> {
        match &self.source {
            Source::Own(own) => own.disk_blocks(),
            _ => None,
        }
    }

    /// An error with the position of the reader.
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

    /// Reads the next line or event; none at the end. The inner option is the request, if it is one.
    fn step(&mut self) -> Result<Option<Option<Traced>>, TraceError> {
        let number = self.seen.lines + 1;
        let traced = match &mut self.source {
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
                    Ok(Some(traced)) => {
                        self.seen.lines = number;
                        traced
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
                let Some(traced) = entry else {
                    self.seen.cut = own.is_cut();
                    return Ok(None);
                };
                self.seen.lines = number;
                traced
            }
        };
        if let Some(traced) = &traced {
            check(traced).map_err(|problem| self.wrong(problem))?;
        }
        Ok(Some(traced))
    }
}

/// Reads a line; false at the end.
fn next_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    // A longer line shows by its length.
    let mut limited = std::io::Read::take(from, LINE_BYTES_MAX as u64 + 1);
    Ok(limited.read_until(b'\n', line)? > 0)
}

fn parse(line: &[u8], lines: &mut Lines, number: u64) -> Result<Option<Traced>, Problem> {
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

/// Checks that a request can be one of a disk.
fn check(traced: &Traced) -> Result<(), Problem> {
    if traced.op != Op::Flush && traced.bytes == 0 {
        return Err(Problem::Nothing);
    }
    let bytes = traced.bytes;
    if !matches!(traced.op, Op::Discard { .. }) && bytes > REQUEST_BYTES_MAX {
        return Err(Problem::TooLong { bytes });
    }
    let end = traced.offset.checked_add(traced.bytes);
    if end.is_none_or(|end| end > DISK_BYTES_MAX) {
        let offset = traced.offset;
        return Err(Problem::TooFar { offset });
    }
    Ok(())
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Traced, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.step() {
                Ok(Some(Some(mut traced))) => {
                    self.seen.requests += 1;
                    if traced.at < self.newest {
                        self.seen.backwards += 1;
                        traced.at = self.newest;
                    }
                    self.newest = traced.at;
                    return Some(Ok(traced));
                }
                Ok(Some(None)) => self.seen.passed_over += 1,
                Ok(None) => {
                    self.ended = true;
                    let lines = self.seen.lines;
                    return (self.seen.requests == 0).then_some(Err(TraceError::Empty { lines }));
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
