//! blktrace's binary events: 48 bytes each, followed by a payload, in the byte order of the machine that recorded
//! them. One file per processor, to be merged by time, or one file made by `blkparse -d`.
//!
//! As in `blkparse`'s text, only one action of a request is read: the first in the trace that is queued, issued or
//! completed.

use super::error::Problem;
use super::fields::SECTOR_BYTES;
use super::traced::{Op, Traced};
use std::io::{BufRead, Read};
use vellum_core::addr::Nanos;
use vellum_trace::fill;

const EVENT_BYTES: usize = 48;
const MAGIC: u32 = 0x6561_7400;
const VERSION: u8 = 7;

const CATEGORY_READ: u32 = 1 << 16;
const CATEGORY_WRITE: u32 = 1 << 17;
const CATEGORY_FLUSH: u32 = 1 << 18;
const CATEGORY_PASSTHROUGH: u32 = 1 << 25;
const CATEGORY_NOTICE: u32 = 1 << 26;
const CATEGORY_DISCARD: u32 = 1 << 29;
const CATEGORY_FUA: u32 = 1 << 31;
/// Set if an event carries its control group.
const WITH_GROUP: u16 = 1 << 8;
const QUEUED: u16 = 1;
const ISSUED: u16 = 7;
const COMPLETED: u16 = 8;

/// True if a file that begins so is one of blktrace's.
pub fn is_one(head: &[u8]) -> bool {
    let magic = head.first_chunk::<4>().copied().unwrap_or_default();
    [u32::from_le_bytes(magic), u32::from_be_bytes(magic)]
        .iter()
        .any(|magic| magic & !0xff == MAGIC)
}

/// Why an event cannot be read.
pub enum Failure {
    /// It is not valid.
    Problem(Problem),
    /// The file cannot be read.
    Io(std::io::Error),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

#[derive(Clone, Copy)]
struct Event {
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
}

struct Stream<R> {
    from: R,
    next: Option<Event>,
    ended: bool,
}

/// The events of several files, merged.
pub struct Events<R> {
    streams: Vec<Stream<R>>,
    action: Option<u16>,
    /// Bytes read of all files.
    pub offset: u64,
}

impl<R: BufRead> Events<R> {
    pub fn new(files: Vec<R>) -> Self {
        let stream = |from| Stream {
            from,
            next: None,
            ended: false,
        };
        Self {
            streams: files.into_iter().map(stream).collect(),
            action: None,
            offset: 0,
        }
    }

    /// Reads the next event; none at the end. The inner option is the request, if the event is one to read.
    pub fn next(&mut self) -> Result<Option<Option<Traced>>, Failure> {
        for stream in &mut self.streams {
            if stream.next.is_none() && !stream.ended {
                stream.next = event(&mut stream.from, &mut self.offset)?;
                stream.ended = stream.next.is_none();
            }
        }
        let coming = self.streams.iter_mut().filter(|s| s.next.is_some());
        let first = coming.min_by_key(|stream| stream.next.map(|event| event.time));
        let Some(event) = first.and_then(|stream| stream.next.take()) else {
            return Ok(None);
        };
        Ok(Some(self.request(event)))
    }

    fn request(&mut self, event: Event) -> Option<Traced> {
        let is = |category| event.action & category != 0;
        let action = event.action as u16 & !WITH_GROUP;
        if is(CATEGORY_NOTICE) || is(CATEGORY_PASSTHROUGH) {
            return None;
        }
        if !matches!(action, QUEUED | ISSUED | COMPLETED)
            || *self.action.get_or_insert(action) != action
        {
            return None;
        }
        let op = match event.bytes {
            0 if is(CATEGORY_FLUSH) => Op::Flush,
            0 => return None,
            _ if is(CATEGORY_DISCARD) => Op::DISCARD,
            // A write with a flush first: see `blkparse`.
            _ if is(CATEGORY_WRITE) => Op::Write {
                fua: is(CATEGORY_FUA) || is(CATEGORY_FLUSH),
            },
            _ if is(CATEGORY_READ) => Op::Read,
            _ => return None,
        };
        let flush = op == Op::Flush;
        Some(Traced {
            at: Nanos(event.time),
            disk: event.device,
            // A sector past the end of any disk is refused by the reader.
            offset: match flush {
                true => 0,
                false => event.sector.saturating_mul(SECTOR_BYTES),
            },
            bytes: u64::from(event.bytes),
            ..Traced::of(op)
        })
    }
}

fn event<R: Read>(from: &mut R, offset: &mut u64) -> Result<Option<Event>, Failure> {
    let mut bytes = [0; EVENT_BYTES];
    let got = fill(from, &mut bytes).map_err(Failure::Io)?;
    if got == 0 {
        return Ok(None);
    }
    if got < EVENT_BYTES {
        return Err(Problem::EventCut.into());
    }
    let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    let little = u32::from_le_bytes(word(0)) & !0xff == MAGIC;
    let number = |at| match little {
        true => u32::from_le_bytes(word(at)),
        false => u32::from_be_bytes(word(at)),
    };
    let long = |at| {
        let (first, second) = (u64::from(number(at)), u64::from(number(at + 4)));
        match little {
            true => second << 32 | first,
            false => first << 32 | second,
        }
    };
    let magic = number(0);
    if magic & !0xff != MAGIC {
        return Err(Problem::NoEvent.into());
    }
    if magic as u8 != VERSION {
        let version = magic as u8;
        return Err(Problem::EventVersion { version }.into());
    }
    // The error number and the length of the payload share a word.
    let carried = match little {
        true => u16::from_le_bytes([bytes[46], bytes[47]]),
        false => u16::from_be_bytes([bytes[46], bytes[47]]),
    };
    let skipped =
        std::io::copy(&mut from.take(carried.into()), &mut std::io::sink()).map_err(Failure::Io)?;
    if skipped < u64::from(carried) {
        return Err(Problem::EventCut.into());
    }
    *offset += EVENT_BYTES as u64 + skipped;
    Ok(Some(Event {
        time: long(8),
        sector: long(16),
        bytes: number(24),
        action: number(28),
        device: number(36),
    }))
}
