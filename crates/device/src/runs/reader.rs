//! Decodes runs of blocks from bytes that may be anything.

use std::io::{self, Read};
use vellum_core::addr::BLOCK_BYTES;
use vellum_core::format::FormatError;
use vellum_core::format::frames::{FRAME_BYTES, Frame, FrameKind, RUN_BLOCKS};
use zstd_safe::DCtx;

/// What is wrong with a file or a stream, and where.
#[derive(Debug, thiserror::Error)]
#[error("the {what} is of no use from its byte {at} on: {problem}")]
pub struct Damaged {
    /// What was being read.
    pub what: &'static str,
    /// The byte at which the problem begins.
    pub at: u64,
    /// The problem.
    pub problem: Problem,
}

/// What can be wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It does not have the right format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// It has no end frame.
    #[error("it ends there: it was cut short")]
    CutShort,
    /// More follows after its end.
    #[error("it has ended, and more follows")]
    More,
    /// A run of blocks that cannot be at this place.
    #[error(
        "blocks {at}+{blocks} are not behind block {after}, or not among the {all} that it has"
    )]
    Order {
        /// The first.
        at: u64,
        /// How many.
        blocks: u64,
        /// The first block that may follow.
        after: u64,
        /// Blocks in all.
        all: u64,
    },
    /// A frame that belongs to another kind of file.
    #[error("a frame of another kind of file: {0:?}")]
    Kind(FrameKind),
    /// The encoded bytes cannot be decoded to what they should be.
    #[error("what it holds cannot be decoded")]
    Encoded,
    /// The end does not count as many blocks as were found.
    #[error("it counts {said} blocks where {found} were")]
    Count {
        /// What the end says.
        said: u64,
        /// What there was.
        found: u64,
    },
    /// No memory.
    #[error("there is no memory to decode it")]
    NoMemory,
}

/// The kind of file: its name, and which frames it may have besides blocks and the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nature {
    pub what: &'static str,
    pub others: &'static [FrameKind],
}

impl Nature {
    fn wrong(self, at: u64, problem: Problem) -> Damaged {
        let what = self.what;
        Damaged { what, at, problem }
    }

    /// Reads a head, and decodes it with `decode`.
    pub fn head<const N: usize, T>(
        self,
        source: &mut impl Read,
        decode: fn(&[u8; N]) -> Result<T, FormatError>,
    ) -> Result<T, Damaged> {
        let mut bytes = [0; N];
        let head = fill(source, &mut bytes).and_then(|()| Ok(decode(&bytes)?));
        head.map_err(|problem| self.wrong(0, problem))
    }
}

/// Reads what follows a head.
pub(crate) struct FrameReader<R> {
    source: R,
    nature: Nature,
    /// Where the next frame begins.
    at: u64,
    sum: u64,
    /// The first block that may follow.
    next: u64,
    /// How many blocks there can be.
    all: u64,
    blocks: u64,
    others: u64,
    has_ended: bool,
    context: DCtx<'static>,
    held: Vec<u8>,
    decoded: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// Reads on after a head of so many bytes with this sum; `all` is the number of blocks.
    pub fn new(
        source: R,
        nature: Nature,
        head: usize,
        sum: u64,
        all: u64,
    ) -> Result<Self, Damaged> {
        let context = DCtx::try_create().ok_or_else(|| nature.wrong(0, Problem::NoMemory))?;
        let run = || vec![0; RUN_BLOCKS as usize * BLOCK_BYTES];
        Ok(Self {
            source,
            nature,
            at: head as u64,
            sum,
            next: 0,
            all,
            blocks: 0,
            others: 0,
            has_ended: false,
            context,
            held: run(),
            decoded: run(),
        })
    }

    /// How many blocks there were, how many of other kinds, and the sum of everything, once it has ended.
    pub fn totals(&self) -> Option<(u64, u64, u64)> {
        let totals = (self.blocks, self.others, self.sum);
        self.has_ended.then_some(totals)
    }

    /// Bytes that were read and found to be right.
    pub fn read_bytes(&self) -> u64 {
        self.at
    }

    /// Returns the next frame and its blocks; `None` when it has ended, and is whole. Nothing can be read after an error.
    pub fn next_frame(&mut self) -> Result<Option<(Frame, &[u8])>, Damaged> {
        if self.has_ended {
            return Ok(None);
        }
        let (at, nature) = (self.at, self.nature);
        let frame = self.frame().map_err(|problem| nature.wrong(at, problem))?;
        let all = frame.blocks as usize * BLOCK_BYTES;
        Ok(match (frame.kind, frame.is_encoded) {
            (FrameKind::End, _) => None,
            (FrameKind::Blocks, true) => Some((frame, &self.decoded[..all])),
            (FrameKind::Blocks, false) => Some((frame, &self.held[..all])),
            _ => Some((frame, &[])),
        })
    }

    /// Reads a frame and its contents, and checks that it may be there.
    fn frame(&mut self) -> Result<Frame, Problem> {
        let mut bytes = [0; FRAME_BYTES];
        fill(&mut self.source, &mut bytes)?;
        let frame = Frame::decode(&bytes)?;
        let held = &mut self.held[..frame.bytes as usize];
        fill(&mut self.source, held)?;
        self.sum = Frame::check(&bytes, self.sum, held)?;
        self.at += (FRAME_BYTES + held.len()) as u64;
        match frame.kind {
            FrameKind::End => {
                self.end(&frame)?;
                return Ok(frame);
            }
            FrameKind::Blocks => self.blocks += frame.blocks,
            kind if self.nature.others.contains(&kind) => {
                self.others = self.others.saturating_add(frame.blocks);
            }
            kind => return Err(Problem::Kind(kind)),
        }
        let end = frame.at.checked_add(frame.blocks);
        let fits = end.filter(|end| *end <= self.all && frame.at >= self.next);
        self.next = fits.ok_or(Problem::Order {
            at: frame.at,
            blocks: frame.blocks,
            after: self.next,
            all: self.all,
        })?;
        if frame.is_encoded {
            let all = frame.blocks as usize * BLOCK_BYTES;
            let length = self.context.decompress(&mut self.decoded[..all], &*held);
            if length != Ok(all) {
                return Err(Problem::Encoded);
            }
        }
        Ok(frame)
    }

    fn end(&mut self, frame: &Frame) -> Result<(), Problem> {
        let counts = [(frame.at, self.blocks), (frame.blocks, self.others)];
        if let Some((said, found)) = counts.into_iter().find(|(said, found)| said != found) {
            return Err(Problem::Count { said, found });
        }
        match fill(&mut self.source, &mut [0]) {
            Err(Problem::CutShort) => {}
            Err(other) => return Err(other),
            Ok(()) => return Err(Problem::More),
        }
        self.has_ended = true;
        Ok(())
    }
}

fn fill(source: &mut impl Read, bytes: &mut [u8]) -> Result<(), Problem> {
    source
        .read_exact(bytes)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Problem::CutShort,
            _ => Problem::Read(error),
        })
}
