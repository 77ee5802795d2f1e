//! The blocks that a simulated file system has freed, found by the same code as on the device ([`FreeSpace`]).

use super::{Watching, Written};
use crate::journal::Disk;
use vellum_ext4::freed::FreedCounts;
use vellum_watch::{Change, FreeSpace, Known, RequestSeen};

impl Watching {
    /// Begins to follow freed blocks.
    pub fn follow_freed(&mut self, disk: &Disk) {
        let mut space = FreeSpace::default();
        space.want(true);
        let known = Known::read(self.findings.scan(), &mut &*disk, disk.blocks);
        space.follow(known, space.given_up());
        self.space = Some(space);
    }

    /// Looks at a write that is about to be handed over. Pass the result to [`answered`](Self::answered).
    pub fn see_write(&mut self, written: &Written<'_>) -> RequestSeen {
        let space = self.space.as_mut();
        space.map_or_else(RequestSeen::default, |space| {
            written.read(|_, change| space.see(change))
        })
    }

    /// Looks at a discard.
    pub fn see_discard(&mut self, first: u64, blocks: u64) -> RequestSeen {
        let change = Change {
            first,
            blocks,
            written: None,
        };
        let space = self.space.as_mut();
        space.map_or_else(RequestSeen::default, |space| space.see(&change))
    }

    /// Looks at a flush.
    pub fn see_flush(&mut self) -> RequestSeen {
        let space = self.space.as_mut();
        space.map_or_else(RequestSeen::default, FreeSpace::flush)
    }

    /// Notes that a request for these blocks is about to be answered.
    pub fn answered(&mut self, seen: RequestSeen, blocks: (u64, u64), is_done: bool) {
        if let Some(space) = &mut self.space {
            space.answer(seen, blocks, is_done);
        }
    }

    /// Blocks to drop now: the first, and the one after the last.
    pub fn take_freed(&mut self) -> Option<(u64, u64)> {
        let space = self.space.as_mut()?;
        // What the scan saw has changed, so free space can no longer be followed.
        if !self.is_current && space.is_followed() {
            space.give_up();
        }
        space.is_due().then(|| space.take()).flatten()
    }

    /// The counters, if freed blocks are followed.
    #[must_use]
    pub fn freed(&self) -> Option<FreedCounts> {
        self.space.as_ref().map(FreeSpace::counts)
    }
}

#[cfg(test)]
mod tests;
