//! Streams: which of the open blocks of a die a page goes to, if there are several.
//!
//! Either the map itself keeps hot data apart from cold data ([`super::heat`]), or the host names a placement handle with each
//! write. In the first case each stream has its own spare space, and so its own victims. In the second the drive knows nothing
//! of what the host has in mind: it collects the best block of all.

use super::heat::Heat;
use crate::flash::HANDLES_MAX;

/// The most streams of a die: one for each handle, and one for what is moved.
pub(super) const STREAMS_ROOM: usize = HANDLES_MAX as usize + 1;

/// What decides on streams.
pub(super) enum Apart {
    /// The map: hot or cold.
    Heat(Heat),
    /// The host.
    Handles(Handles),
}

/// The handles of a drive.
pub(super) struct Handles {
    pub count: usize,
    /// The handle of the write under way.
    pub now: usize,
    /// The stream of what is moved, if it is not that of its handle.
    pub moved: Option<usize>,
}

impl Apart {
    /// Counts the write of a page. Returns the stream it belongs to.
    pub fn written(&mut self, lba: u32) -> usize {
        match self {
            Self::Heat(heat) => heat.written(lba),
            Self::Handles(handles) => handles.now,
        }
    }

    /// Returns the stream that a page of stream `from` goes to when it is moved.
    pub fn moved(&mut self, lba: u32, from: usize) -> usize {
        match self {
            Self::Heat(heat) => heat.moved(lba, from),
            Self::Handles(handles) => handles.moved.unwrap_or(from),
        }
    }

    /// Counts a page of a stream that died.
    pub fn died(&mut self, stream: usize) {
        if let Self::Heat(heat) = self {
            heat.died(stream);
        }
    }

    /// Returns the stream that has the victims of a stream.
    pub fn pool(&self, stream: usize) -> usize {
        match self {
            Self::Heat(_) => stream,
            Self::Handles(_) => 0,
        }
    }

    /// Sets the number of pages, including those of a map on flash.
    pub fn cover(&mut self, pages: u64) {
        if let Self::Heat(heat) = self {
            heat.cover(pages);
        }
    }
}
