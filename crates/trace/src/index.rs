//! The index at the end: where reading can begin, by entry and by time. It names every frame, or every second, fourth
//! and so on, so its size is bounded. A frame that it does not name is found from the one before.

use crate::error::{Problem, TraceError};
use crate::frame::{FRAME_BYTES, Frame, Kind};
use crate::header::{HEADER_BYTES, Header, number};
use crate::limits::{PLACE_BYTES, PLACES_MAX};
use std::io::{Read, Seek, SeekFrom};

/// The file's last bytes: this, and where the end frame begins.
const TRAILER_MAGIC: [u8; 8] = *b"VELINDEX";
pub(crate) const TRAILER_BYTES: usize = 16;

/// Where a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its first byte in the file.
    pub offset: u64,
    /// The number of its first entry.
    pub first: u64,
    /// No request in it is before this, in nanoseconds since the trace began.
    pub at: u64,
}

/// The index; see the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    places: Vec<Place>,
    /// Entries in all.
    pub entries: u64,
}

/// An index under construction.
pub(crate) struct Growing {
    pub places: Vec<Place>,
    stride: u64,
    frames: u64,
}

impl Default for Growing {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            stride: 1,
            frames: 0,
        }
    }
}

impl Growing {
    pub fn add(&mut self, place: Place) {
        if self.frames.is_multiple_of(self.stride) {
            if self.places.len() == PLACES_MAX {
                let mut keep = false;
                self.places.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
            self.places.push(place);
        }
        self.frames += 1;
    }

    pub fn encode(&self) -> Vec<u8> {
        let each = |place: &Place| {
            [place.offset, place.first, place.at]
                .map(u64::to_le_bytes)
                .concat()
        };
        self.places.iter().flat_map(each).collect()
    }
}

pub(crate) fn trailer(end: u64) -> [u8; TRAILER_BYTES] {
    let mut out = [0; TRAILER_BYTES];
    out[..8].copy_from_slice(&TRAILER_MAGIC);
    out[8..].copy_from_slice(&end.to_le_bytes());
    out
}

pub(crate) fn is_trailer(bytes: &[u8], end: u64) -> bool {
    bytes == trailer(end)
}

impl Index {
    /// Reads the index from the end of the file.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn read(from: &mut (impl Read + Seek)) -> Result<Self, TraceError> {
        let io = |offset| move |source| TraceError::Io { offset, source };
        let length = from.seek(SeekFrom::End(0)).map_err(io(0))?;
        let least = (HEADER_BYTES + FRAME_BYTES + TRAILER_BYTES) as u64;
        let none = |offset| TraceError::At {
            offset,
            problem: Problem::NoIndex,
        };
        if length < least {
            return Err(none(length));
        }
        let mut read = |at: u64, out: &mut [u8]| {
            from.seek(SeekFrom::Start(at))
                .and_then(|_| from.read_exact(out))
                .map_err(io(at))
        };
        let mut header = [0; HEADER_BYTES];
        read(0, &mut header)?;
        let wrong = |offset| move |problem| TraceError::At { offset, problem };
        let header = Header::decode(&header).map_err(wrong(0))?;
        let last = length - TRAILER_BYTES as u64;
        let mut end = [0; TRAILER_BYTES];
        read(last, &mut end)?;
        let offset = number::<8>(&end, 8);
        if end[..8] != TRAILER_MAGIC || offset.saturating_add(FRAME_BYTES as u64) > last {
            return Err(none(last));
        }
        let mut bytes = [0; FRAME_BYTES];
        read(offset, &mut bytes)?;
        let seed = header.seed();
        let frame = Frame::decode(&bytes, seed).map_err(wrong(offset))?;
        let fits = u64::from(frame.bytes) == last - offset - FRAME_BYTES as u64;
        if frame.kind != Kind::End || !fits {
            return Err(none(offset));
        }
        let mut payload = vec![0; frame.bytes as usize];
        read(offset + FRAME_BYTES as u64, &mut payload)?;
        if crc32c::crc32c_append(seed, &payload) != frame.sum {
            return Err(wrong(offset)(Problem::PayloadChecksum));
        }
        let places = payload.chunks_exact(PLACE_BYTES).map(|bytes| Place {
            offset: number::<8>(bytes, 0),
            first: number::<8>(bytes, 8),
            at: number::<8>(bytes, 16),
        });
        Ok(Self {
            places: places.collect(),
            entries: frame.first,
        })
    }

    /// The places it names, in order.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Returns where to begin reading for requests at `at` or later; none: at the beginning.
    #[must_use]
    pub fn before(&self, at: u64) -> Option<Place> {
        let after = self.places.partition_point(|place| place.at < at);
        after.checked_sub(1).map(|before| self.places[before])
    }
}
