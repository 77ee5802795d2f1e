//! Reads a trace entry by entry. It holds one frame at a time.

use crate::entry::{Context, Entry};
use crate::error::{Problem, TraceError};
use crate::frame::{FRAME_BYTES, Frame, Kind};
use crate::header::{HEADER_BYTES, Header};
use crate::index::{Place, TRAILER_BYTES, is_trailer};
use crate::limits::PLACE_BYTES;
use std::io::{ErrorKind, Read, Seek, SeekFrom};

/// Iterates over the entries. After an error or the end it yields nothing more.
pub struct Reader<R> {
    from: R,
    header: Header,
    seed: u32,
    /// Where the next frame begins.
    offset: u64,
    /// Where this frame begins.
    frame_at: u64,
    payload: Vec<u8>,
    at: usize,
    left: u32,
    said: u32,
    context: Context,
    entries: u64,
    ended: bool,
    whole: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// When it cannot be read, or is not the header of a trace.
    pub fn new(mut from: R) -> Result<Self, TraceError> {
        let wrong = |problem| TraceError::At { offset: 0, problem };
        let mut bytes = [0; HEADER_BYTES];
        let got =
            fill(&mut from, &mut bytes).map_err(|source| TraceError::Io { offset: 0, source })?;
        let magic = got.min(crate::header::MAGIC.len());
        if bytes[..magic] != crate::header::MAGIC[..magic] || got == 0 {
            return Err(wrong(Problem::Magic));
        }
        if got < HEADER_BYTES {
            return Err(wrong(Problem::HeaderCut));
        }
        let header = Header::decode(&bytes).map_err(wrong)?;
        Ok(Self {
            from,
            header,
            seed: header.seed(),
            offset: HEADER_BYTES as u64,
            frame_at: 0,
            payload: Vec::new(),
            at: 0,
            left: 0,
            said: 0,
            context: Context::default(),
            entries: 0,
            ended: false,
            whole: false,
        })
    }

    /// What holds for the whole trace.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Entries yielded so far.
    pub fn entries(&self) -> u64 {
        self.entries - u64::from(self.left)
    }

    /// Bytes of the file read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// True once the end is reached, if the recording ended in order.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    fn wrong(&self, problem: Problem) -> TraceError {
        TraceError::At {
            offset: self.frame_at,
            problem,
        }
    }

    /// Reads the next frame of entries; returns false at the end.
    fn frame(&mut self) -> Result<bool, TraceError> {
        if self.at < self.payload.len() {
            return Err(self.wrong(Problem::FrameCount { said: self.said }));
        }
        self.frame_at = self.offset;
        let offset = self.offset;
        let io = |source| TraceError::Io { offset, source };
        let mut bytes = [0; FRAME_BYTES];
        // An incomplete frame is where the recording was cut off.
        if fill(&mut self.from, &mut bytes).map_err(io)? < FRAME_BYTES {
            return Ok(false);
        }
        let frame = Frame::decode(&bytes, self.seed).map_err(|problem| self.wrong(problem))?;
        self.payload.resize(frame.bytes as usize, 0);
        if fill(&mut self.from, &mut self.payload).map_err(io)? < self.payload.len() {
            self.payload.clear();
            self.at = 0;
            return Ok(false);
        }
        if crc32c::crc32c_append(self.seed, &self.payload) != frame.sum {
            return Err(self.wrong(Problem::PayloadChecksum));
        }
        self.offset += (FRAME_BYTES + self.payload.len()) as u64;
        if frame.kind == Kind::End {
            return self.end(&frame).map(|()| false);
        }
        if frame.first != self.entries {
            let (found, need) = (frame.first, self.entries);
            return Err(self.wrong(Problem::FrameOrder { found, need }));
        }
        self.entries = self.entries.saturating_add(frame.count.into());
        (self.left, self.said, self.at) = (frame.count, frame.count, 0);
        self.context = Context {
            at: frame.at.max(self.context.at),
            after: 0,
        };
        Ok(true)
    }

    fn end(&mut self, frame: &Frame) -> Result<(), TraceError> {
        self.at = self.payload.len();
        let (said, found) = (frame.first, self.entries);
        if said != found {
            return Err(self.wrong(Problem::End { said, found }));
        }
        if self.payload.len() != frame.count as usize * PLACE_BYTES {
            return Err(self.wrong(Problem::FrameCount { said: frame.count }));
        }
        let offset = self.offset;
        let mut rest = [0; TRAILER_BYTES + 1];
        let got =
            fill(&mut self.from, &mut rest).map_err(|source| TraceError::Io { offset, source })?;
        self.whole = is_trailer(&rest[..got], self.frame_at);
        match got <= TRAILER_BYTES {
            true => Ok(()),
            false => Err(self.wrong(Problem::Behind)),
        }
    }

    fn entry(&mut self) -> Result<Option<Entry>, TraceError> {
        while self.left == 0 {
            if !self.frame()? {
                return Ok(None);
            }
        }
        let mut rest = &self.payload[self.at..];
        let decoded = self.context.decode(&mut rest, self.header.blocks);
        self.at = self.payload.len() - rest.len();
        self.left -= 1;
        decoded.map(Some).map_err(|problem| self.wrong(problem))
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Continues from a place of the index.
    ///
    /// # Errors
    /// When the file cannot be read there.
    pub fn seek(&mut self, to: Place) -> Result<(), TraceError> {
        let offset = to.offset;
        self.from
            .seek(SeekFrom::Start(offset))
            .map_err(|source| TraceError::Io { offset, source })?;
        self.payload.clear();
        (self.at, self.left, self.ended, self.whole) = (0, 0, false, false);
        (self.offset, self.entries) = (offset, to.first);
        self.context = Context::default();
        Ok(())
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Entry, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let entry = self.entry().transpose();
        self.ended = !matches!(entry, Some(Ok(_)));
        entry
    }
}

/// Reads until `out` is full or the input ends; returns how much it read.
///
/// # Errors
/// When reading fails.
pub fn fill(from: &mut impl Read, out: &mut [u8]) -> std::io::Result<usize> {
    let mut got = 0;
    while got < out.len() {
        match from.read(&mut out[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
