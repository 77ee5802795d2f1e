//! Writes a trace.

use crate::entry::{Context, Entry};
use crate::error::TraceError;
use crate::frame::{FRAME_BYTES, Frame, Kind};
use crate::header::{HEADER_BYTES, Header};
use crate::index::{Growing, Place, trailer};
use crate::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_WANTED};
use std::io::Write;

/// Puts entries into frames and frames into a file. Each frame is one write.
///
/// After an error, what was written before is a readable trace; nothing more can be added to it.
pub struct Writer<W> {
    to: W,
    seed: u32,
    /// Room for the header, then the payload.
    frame: Vec<u8>,
    context: Context,
    began: Context,
    count: u32,
    entries: u64,
    offset: u64,
    index: Growing,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(mut to: W, header: &Header) -> Result<Self, TraceError> {
        to.write_all(&header.encode())
            .map_err(|source| TraceError::Io { offset: 0, source })?;
        Ok(Self {
            to,
            seed: header.seed(),
            frame: vec![0; FRAME_BYTES],
            context: Context::default(),
            began: Context::default(),
            count: 0,
            entries: 0,
            offset: HEADER_BYTES as u64,
            index: Growing::default(),
        })
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.entries + u64::from(self.count)
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Adds an entry. It is written when its frame is full, or with [`Writer::flush`].
    ///
    /// # Errors
    /// When a frame cannot be written.
    pub fn push(&mut self, entry: &Entry) -> Result<(), TraceError> {
        let before = (self.frame.len(), self.context);
        self.context.encode(entry, &mut self.frame);
        if self.frame.len() - FRAME_BYTES > PAYLOAD_BYTES_MAX {
            // It no longer fits: it begins the next frame.
            self.frame.truncate(before.0);
            self.context = before.1;
            self.flush()?;
            self.context.encode(entry, &mut self.frame);
        }
        self.count += 1;
        match self.frame.len() - FRAME_BYTES >= PAYLOAD_BYTES_WANTED {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes the entries added so far.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        if self.count == 0 {
            return Ok(());
        }
        self.index.add(Place {
            offset: self.offset,
            first: self.entries,
            at: self.began.at,
        });
        self.write(Kind::Entries, self.count, self.entries, self.began.at)?;
        self.entries += u64::from(self.count);
        self.count = 0;
        // The next frame keeps the time, but no address.
        self.context.after = 0;
        self.began = self.context;
        Ok(())
    }

    /// Ends the trace with its index.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<W, TraceError> {
        self.flush()?;
        let end = self.offset;
        let places = self.index.encode();
        self.frame.extend(places);
        let count = self.index.places.len() as u32;
        self.write(Kind::End, count, self.entries, self.context.at)?;
        let offset = self.offset;
        self.to
            .write_all(&trailer(end))
            .and_then(|()| self.to.flush())
            .map_err(|source| TraceError::Io { offset, source })?;
        Ok(self.to)
    }

    fn write(&mut self, kind: Kind, count: u32, first: u64, at: u64) -> Result<(), TraceError> {
        let (head, payload) = self.frame.split_at_mut(FRAME_BYTES);
        let frame = Frame {
            kind,
            bytes: payload.len() as u32,
            count,
            first,
            at,
            sum: crc32c::crc32c_append(self.seed, payload),
        };
        head.copy_from_slice(&frame.encode(self.seed));
        let offset = self.offset;
        self.to
            .write_all(&self.frame)
            .and_then(|()| self.to.flush())
            .map_err(|source| TraceError::Io { offset, source })?;
        self.offset += self.frame.len() as u64;
        self.frame.truncate(FRAME_BYTES);
        Ok(())
    }
}
