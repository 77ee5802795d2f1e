//! Placement handles: a map that gives each handle blocks of its own.

use super::pagemap::{FlashOp, PageMap, TooSmall};
use super::streams::{Apart, Handles};
use super::victims::Victim;
use crate::flash::{Die, HANDLES_MAX, Placement, Stream};

/// Blocks of each die that stay free for the collector: the moved pages may need a new one.
const RESERVE: u32 = 2;

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
