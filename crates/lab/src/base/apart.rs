//! Streams: which of the open blocks of a die a page goes to, if there are several.
//!
//! Either the map itself keeps hot data apart from cold data ([`super::heat`]), or the host names a placement handle with each
//! write. In the first case each stream has its own spare space, and so its own victims. In the second the drive knows nothing
//! of what the host has in mind: it collects the best block of all.

use super::heat::Heat;
use super::pagemap::{FlashOp, PageMap, TooSmall};
use super::victims::Victim;
use crate::flash::{Die, HANDLES_MAX, Placement, Stream};

/// The most streams of a die: one for each handle, and one for what is moved.
pub(super) const STREAMS_ROOM: usize = HANDLES_MAX as usize + 1;
/// Blocks of each die that stay free for the collector: the moved pages may need a new one.
const RESERVE: u32 = 2;

/// What decides on streams.
pub(super) enum Apart {
    /// The map: hot or cold.
    Heat(Heat),
    /// The host.
    Handles(Handles),
}

/// The handles of a drive.
pub(super) struct Handles {
    count: usize,
    /// The handle of the write under way.
    now: usize,
    /// The stream of what is moved, if it is not that of its handle.
    moved: Option<usize>,
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

impl PageMap {
    /// Gives each of the drive's handles blocks of its own. It must be called before anything else is done to the map. With one
    /// handle there is nothing to keep apart: the map stays as it is.
    ///
    /// # Errors
    /// If the blocks do not fit in addition to those that the handles fill.
    pub fn placed(mut self, victim: Victim, placement: Placement) -> Result<Self, TooSmall> {
        let count = placement.handles.clamp(1, HANDLES_MAX) as usize;
        if count == 1 {
            return Ok(self);
        }
        self.streams = count + usize::from(placement.initially);
        self.reserve = RESERVE;
        self.separation = Some(Box::new(Apart::Handles(Handles {
            count,
            now: 0,
            moved: placement.initially.then_some(count),
        })));
        let (logical, most) = (self.logical(), self.most());
        if logical > most {
            return Err(TooSmall { logical, most });
        }
        self.begin(victim);
        Ok(self)
    }

    /// Says where the writes that follow belong. Without handles it has no effect; a handle that the drive does not have is the
    /// first one.
    pub fn place(&mut self, stream: Stream) {
        let Some(Apart::Handles(handles)) = self.separation.as_deref_mut() else {
            return;
        };
        let handle = usize::from(stream.handle);
        handles.now = if handle < handles.count { handle } else { 0 };
        if stream.anew {
            let now = handles.now;
            (0..self.dies()).for_each(|die| self.end_unit(die, now));
        }
    }

    /// Ends the block that a die's stream fills, if at least half of it is written. The rest of its pages stay empty.
    fn end_unit(&mut self, die: usize, stream: usize) {
        let (pages, unit_blocks) = (self.pages, self.unit_blocks);
        let frontier = self.frontier(die, stream);
        let offset = std::mem::replace(&mut frontier.offset, pages);
        if offset == pages {
            return;
        }
        if 2 * offset < pages {
            frontier.offset = offset;
            return;
        }
        // The unit that is not full is programmed as it is.
        if std::mem::replace(&mut frontier.left, unit_blocks) < unit_blocks {
            let cell = self.cell(offset);
            self.ops.push(FlashOp::Program(Die(die as u32), cell));
        }
    }
}

#[cfg(test)]
mod tests;
